// What every page has: the theme, the keys that open pages, and the list of keys.
"use strict";
const KEYS = [
  ["← →", "request"], ["Shift ← →", "ten requests"], ["Home End", "first, last request"], ["[ ]", "cache break before, after"],
  ["{ }", "fold before, after"], ["j k", "message"], ["J K", "turn"], ["Enter", "open or close a message"], ["o", "open all alike"],
  ["f", "only what changed"], ["1 2 3", "lane"], ["u", "next use of the message"], ["p", "its call or result"], ["d", "difference to the request before"], ["c", "copy link"],
  ["/", "search"], ["t", "light or dark"], ["Esc", "back"], ["?", "this list"],
];

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("minutebook-theme", root.dataset.theme);
}

function showKeys() {
  const dialog = document.getElementById("keys-help");
  if (!dialog.childElementCount) {
    const title = document.createElement("h2");
    title.id = "keys-title";
    title.textContent = "Keys";
    const list = document.createElement("dl");
    const pages = [...document.querySelectorAll("nav.tabs a[data-key]")].map((link) => [`g ${link.dataset.key}`, `page: ${link.firstChild.textContent.trim()}`]);
    for (const [key, what] of [...KEYS, ...pages]) {
      const term = document.createElement("dt");
      const code = document.createElement("kbd");
      code.textContent = key;
      term.append(code);
      const text = document.createElement("dd");
      text.textContent = what;
      list.append(term, text);
    }
    const off = document.createElement("p");
    const button = document.createElement("button");
    button.className = "btn";
    button.type = "button";
    const label = () => { button.textContent = keysOff() ? "Turn keys on" : "Turn keys off"; };
    button.addEventListener("click", () => { localStorage.setItem("minutebook-keys", keysOff() ? "on" : "off"); label(); });
    label();
    const close = document.createElement("button");
    close.className = "btn";
    close.type = "button";
    close.textContent = "Close";
    close.addEventListener("click", () => dialog.close());
    off.append(button, " ", close);
    dialog.append(title, list, off);
  }
  dialog.showModal();
}

function keysOff() { return localStorage.getItem("minutebook-keys") === "off"; }

// A bar with what went wrong, until the user or the page retries.
function showProblem(text, retry) {
  hideProblem();
  const bar = document.createElement("div");
  bar.id = "failure";
  bar.className = "failure";
  bar.setAttribute("role", "alert");
  bar.append(text);
  if (retry) {
    const button = document.createElement("button");
    button.className = "btn";
    button.type = "button";
    button.textContent = "Try again";
    button.addEventListener("click", () => { hideProblem(); retry(); });
    bar.append(button);
  }
  document.getElementById("main").append(bar);
}

function hideProblem() { document.getElementById("failure")?.remove(); }

// The sentence of an error that the server sent as a fragment.
function sentence(html) {
  const box = document.createElement("template");
  box.innerHTML = html;
  return box.content.textContent.trim();
}

const NO_ANSWER = "The server does not answer. Is it still running?";

// A part of a page. An error has the reason as its message.
async function loadPart(address, options = {}) {
  let response;
  try {
    response = await fetch(address, { headers: { "HX-Request": "true" }, ...options });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(NO_ANSWER);
  }
  const text = await response.text();
  if (!response.ok) throw new Error(sentence(text));
  return text;
}

addEventListener("htmx:responseError", (event) => showProblem(sentence(event.detail.xhr.responseText)));
addEventListener("htmx:sendError", () => showProblem(NO_ANSWER));
addEventListener("htmx:afterOnLoad", (event) => { if (event.detail.successful) hideProblem(); });

// Handlers of pages: a function that gets the key and returns true if it used it.
const keyHandlers = [];
let goes = false;

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
  const field = event.target.closest?.("input:not([type=range]), textarea, select, [contenteditable], dialog");
  if (field) return;
  if (event.key === "?") { event.preventDefault(); showKeys(); return; }
  if (keysOff()) return;
  if (goes) {
    goes = false;
    const link = document.querySelector(`nav.tabs a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); link.click(); return; }
  }
  if (event.key === "g") { goes = true; return; }
  if (event.key === "t") { toggleTheme(); return; }
  if (event.key === "/") {
    event.preventDefault();
    const search = document.getElementById("q");
    if (search) search.focus(); else location.href = `${document.body.dataset.root}/`;
    return;
  }
  if (keyHandlers.some((handle) => handle(event))) event.preventDefault();
});

document.getElementById("theme").addEventListener("click", toggleTheme);
if (location.hash === "" && new URLSearchParams(location.search).has("q")) document.getElementById("q")?.focus();
document.querySelector("nav.tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
