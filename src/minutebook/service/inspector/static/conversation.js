// The conversation page: moves between requests, opens messages, keys.
"use strict";
(() => {
  const page = document.getElementById("conversation");
  const url = page.dataset.url;
  const state = { r: Number(page.dataset.r) || 0, total: Number(page.dataset.total), follow: page.dataset.follow === "yes", series: null };
  const rows = new Rows(document.getElementById("rows"), url, state.r);
  const lanes = document.getElementById("lanes");
  const opened = new Set(JSON.parse(sessionStorage.getItem(`open:${url}`) || "[]"));
  const format = new Intl.NumberFormat("en-US");

  new ResizeObserver(() => {
    const deck = document.getElementById("deck");
    if (getComputedStyle(deck).position === "sticky") document.documentElement.style.setProperty("--deck", `${deck.offsetHeight}px`);
    else document.documentElement.style.removeProperty("--deck");
  }).observe(document.getElementById("deck"));

  // The figures of all requests. The server is asked only for those that are not here yet, one time after the other.
  let reading = Promise.resolve();
  function readSeries() {
    const read = async () => {
      const { sent, marks } = state.series ?? { sent: [], marks: {} };
      const added = JSON.parse(await loadPart(`${url}/series.json?after=${sent.length}`));
      state.series = { ...added, sent: sent.concat(added.sent), marks: { ...marks, ...added.marks } };
      return state.series;
    };
    return reading = reading.then(read, read);
  }
  async function series() { return state.series ?? readSeries(); }

  // While dragging, only the marker and the figures move.
  function preview(r) {
    const step = Number(document.getElementById("strip").dataset.step);
    document.getElementById("marker").setAttribute("x", (r - 1) * step);
    for (const id of ["slider", "thumb"]) document.getElementById(id).value = r;
    document.getElementById("thumb-text").textContent = `${r} / ${state.total}`;
    const number = document.getElementById("number");
    if (number) number.textContent = format.format(r);
    const sent = state.series?.sent[r - 1];
    if (sent !== undefined) document.getElementById("slider").setAttribute("aria-valuetext", `Request ${r} of ${state.total}, ${format.format(sent)} tokens sent`);
  }

  // Parts of the page, each in place of the one with its id.
  function replaceParts(html) {
    const box = document.createElement("template");
    box.innerHTML = html;
    const focused = document.activeElement?.id;
    for (const part of [...box.content.children]) document.getElementById(part.id).replaceWith(part);
    if (focused && document.activeElement.id !== focused) document.getElementById(focused)?.focus({ preventScroll: true });
    markChips();
  }

  async function move(r, { push = true } = {}) {
    r = Math.min(Math.max(r, 1), state.total);
    if (!state.total || r === state.r) return;
    hideProblem();
    const before = Number(document.getElementById("figures").dataset.r);
    state.r = r;
    page.dataset.named = "";
    state.follow = r === state.total;
    preview(r);
    const address = new URL(location.href);
    address.searchParams.set("r", r);
    history[push ? "pushState" : "replaceState"](null, "", address);
    for (const link of document.querySelectorAll("nav.tabs a")) link.search = `?r=${r}`;
    const started = performance.now();
    try {
      const figures = loadPart(`${url}/request?r=${r}`).then((part) => { if (state.r === r) replaceParts(part); });
      await Promise.all([figures, rows.show(r)]);
    } catch (error) {
      if (state.r !== r) return;
      state.r = before;
      preview(before);
      address.searchParams.set("r", before);
      history.replaceState(null, "", address);
      await rows.show(before).catch(() => {});
      showProblem(error.message, () => move(r));
      return;
    }
    page.dataset.shown = r;
    page.dataset.milliseconds = Math.round(performance.now() - started);
    const shown = document.getElementById("figures");
    if (shown?.dataset.r) document.getElementById("said").textContent = `Request ${r} of ${state.total}, ${format.format(Number(shown.dataset.sent))} tokens sent`;
  }

  async function moveToMark(mark, direction) {
    const { marks } = await series();
    const numbers = Object.keys(marks).map(Number).filter((number) => marks[number].includes(mark)).sort((a, b) => a - b);
    const found = direction < 0 ? numbers.filter((number) => number < state.r).pop() : numbers.find((number) => number > state.r);
    if (!found) return;
    await move(found);
    const position = document.getElementById("figures").dataset[mark];
    if (position && state.r === found) rows.jump(Number(position));
  }

  page.addEventListener("click", (event) => {
    const go = event.target.closest("[data-go]")?.dataset.go;
    if (go) { if (go === "break") moveToMark("break", -1); else move(state.r + Number(go)); return; }
    const lane = event.target.closest("[data-lane]:is(button)");
    if (lane) { chooseLane(lane.dataset.lane); return; }
    const chip = event.target.closest("button.chip");
    if (chip) { filter(chip.getAttribute("aria-pressed") === "true" ? "" : chip.dataset.fate); return; }
    const row = event.target.closest(".msg");
    if (row && !event.target.closest("a, button, .opened") && !String(getSelection())) { focusRow(row); toggle(row); }
  });
  document.querySelector(".bot").addEventListener("click", (event) => {
    const go = event.target.closest("[data-go]")?.dataset.go;
    if (go) move(state.r + Number(go));
  });

  let timer = 0;
  addEventListener("input", (event) => {
    if (event.target.id !== "slider" && event.target.id !== "thumb") return;
    const r = Number(event.target.value);
    series();
    preview(r);
    clearTimeout(timer);
    timer = setTimeout(() => move(r, { push: false }), 80);
  });
  addEventListener("popstate", () => {
    const r = Number(new URLSearchParams(location.search).get("r")) || state.total;
    move(r, { push: false });
  });

  // Shows only rows with a fate, or with "changed" only what changed.
  async function filter(only) {
    try { await rows.filter(only); } catch (error) { showProblem(error.message, () => filter(only)); return; }
    if (only) lanes.dataset.only = only; else delete lanes.dataset.only;
    markChips();
  }
  function markChips() {
    for (const chip of document.querySelectorAll("button.chip")) chip.setAttribute("aria-pressed", String(chip.dataset.fate === lanes.dataset.only));
  }

  function chooseLane(name) {
    lanes.dataset.lane = name;
    for (const button of document.querySelectorAll(".seg button")) button.setAttribute("aria-pressed", String(button.dataset.lane === name));
  }

  // Messages: one of them is in the tab order.
  let current = null;
  function focusRow(row) {
    if (!row) return;
    current?.setAttribute("tabindex", "-1");
    row.setAttribute("tabindex", "0");
    row.focus({ preventScroll: true });
    current = row;
  }

  async function step(direction, isTurn) {
    const at = current?.isConnected ? Number(current.dataset.m) : Number(rows.anchor()?.dataset.m ?? 0) - (direction > 0 ? 1 : 0);
    let position = at + direction;
    if (isTurn) {
      const turns = [...document.querySelectorAll(".msg.user")].map((row) => Number(row.dataset.m));
      position = (direction > 0 ? turns.find((turn) => turn > at) : turns.filter((turn) => turn < at).pop()) ?? position;
    }
    if (position < 0 || position >= rows.length) return;
    let row = document.getElementById(`m${position}`) ?? await rows.jump(position);
    if (row && !row.offsetParent) {  // hidden by a filter
      const visible = [...document.querySelectorAll(".msg")].filter((other) => other.offsetParent);
      row = direction > 0 ? visible.find((other) => Number(other.dataset.m) > at) : visible.filter((other) => Number(other.dataset.m) < at).pop();
    }
    if (!row) return;
    focusRow(row);
    const box = row.getBoundingClientRect();
    const deck = Math.max(0, document.getElementById("deck").getBoundingClientRect().bottom);
    if (box.top < deck + 8 || box.bottom > innerHeight - 60) row.scrollIntoView({ block: "nearest" });
  }

  function remember() { sessionStorage.setItem(`open:${url}`, JSON.stringify([...opened].slice(-200))); }

  async function toggle(row, force) {
    const position = Number(row.dataset.m);
    const open = force ?? !row.classList.contains("open");
    row.classList.toggle("open", open);
    row.querySelector(".opened")?.remove();
    if (!open) { opened.delete(position); remember(); return; }
    opened.add(position);
    remember();
    const box = document.createElement("div");
    box.className = "opened";
    row.append(box);
    try {
      box.innerHTML = await loadPart(`${url}/m/${position}?r=${state.r}`);
    } catch (error) {
      toggle(row, false);
      showProblem(error.message, () => toggle(row, true));
    }
  }

  rows.onload = (chunk) => {
    for (const row of chunk.querySelectorAll(".msg")) if (opened.has(Number(row.dataset.m))) toggle(row, true);
    if (current && !current.isConnected) {
      const again = document.getElementById(current.id);
      if (again) { current = again; again.setAttribute("tabindex", "0"); if (document.activeElement === document.body) again.focus({ preventScroll: true }); }
    }
    if (!current) { const first = chunk.querySelector(".msg"); first?.setAttribute("tabindex", "0"); }
  };

  // A card with what a message cost, after a short time over it.
  const card = document.getElementById("card");
  let cardTimer = 0;
  const hideCard = () => { clearTimeout(cardTimer); card.hidden = true; };
  page.addEventListener("mouseover", (event) => {
    const number = event.target.closest(".no, .tk, .why");
    clearTimeout(cardTimer);
    if (!number) { hideCard(); return; }
    const row = number.closest(".msg") ?? (number.closest(".row:not(.run)")?.querySelector(".msg"));
    if (!row) { hideCard(); return; }
    cardTimer = setTimeout(async () => {
      try { card.innerHTML = await loadPart(`${url}/m/${row.dataset.m}/card?r=${state.r}`); } catch { return; }
      const box = number.getBoundingClientRect();
      card.hidden = false;
      card.style.left = `${Math.min(box.left, innerWidth - 340) + scrollX}px`;
      card.style.top = `${(box.bottom + card.offsetHeight > innerHeight - 50 ? box.top - card.offsetHeight - 4 : box.bottom + 4) + scrollY}px`;
    }, 150);
  });
  addEventListener("scroll", hideCard, { passive: true });

  async function jump(position) {
    const row = await rows.jump(position);
    if (!row) return;
    page.dataset.m = "";
    focusRow(row);
    row.classList.add("flash");
    row.addEventListener("animationend", () => row.classList.remove("flash"), { once: true });
  }
  page.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-message]");
    if (link) { event.preventDefault(); jump(Number(link.dataset.message)); }
  });

  keyHandlers.push((event) => {
    const slides = event.target.matches?.("input[type=range]");
    const { key, shiftKey } = event;
    const box = event.target.closest?.(".code");
    if (box && box.scrollWidth > box.clientWidth && /^(Arrow|Home|End)/.test(key)) return false;  // they scroll the box
    const moves = { ArrowLeft: shiftKey ? -10 : -1, ArrowRight: shiftKey ? 10 : 1 };
    if (key in moves) { move(state.r + moves[key]); return true; }
    if (slides) return false;
    if (key === "Home") { move(1); return true; }
    if (key === "End") { move(state.total); return true; }
    if (key === "[" || key === "]") { moveToMark("break", key === "[" ? -1 : 1); return true; }
    if (key === "{" || key === "}") { moveToMark("fold", key === "{" ? -1 : 1); return true; }
    if ("jkJK".includes(key)) { step(key.toLowerCase() === "j" ? 1 : -1, shiftKey); return true; }
    if (key === "Enter" && current && document.activeElement === current) { toggle(current); return true; }
    if (key === "o") {
      const open = current ? !current.classList.contains("open") : true;
      const kind = current ? [...current.classList].find((name) => ["user", "assistant", "tool", "system"].includes(name)) : "user";
      for (const row of document.querySelectorAll(`.msg.${kind}`)) if (row.getBoundingClientRect().top < innerHeight * 2 && row.getBoundingClientRect().bottom > -innerHeight) toggle(row, open);
      return true;
    }
    if (key === "f") { filter(lanes.dataset.only === "changed" ? "" : "changed"); return true; }
    if ("123".includes(key)) { chooseLane(["record", "sent", "why"][key - 1]); return true; }
    if (key === "u" || key === "p") {
      const link = current?.querySelector(key === "u" ? "a[data-use]" : "a[data-pair]");
      if (link) jump(Number(link.dataset.message)); else if (current) toggle(current, true);
      return true;
    }
    if (key === "d" && document.querySelector('nav.tabs a[data-key="d"]')) { location.href = `${url}/diff?a=${Math.max(1, state.r - 1)}&b=${state.r}`; return true; }
    if (key === "c") {
      const address = new URL(location.href);
      address.searchParams.set("r", state.r);
      if (current) address.searchParams.set("m", current.dataset.m);
      navigator.clipboard?.writeText(String(address));
      document.getElementById("said").textContent = "Link copied";
      return true;
    }
    if (key === "Escape") {
      if (current?.classList.contains("open")) toggle(current, false); else if (lanes.dataset.only) filter(""); else history.back();
      return true;
    }
    return false;
  });

  // The conversation grows: by its replay, or because it is live.
  async function grow() {
    const data = await readSeries();
    const added = data.sent.length - state.total;
    const isFollowing = state.follow || !state.r;
    state.total = data.sent.length;
    if (data.messages > rows.length) rows.extend(data.messages);
    if (added) {
      if (isFollowing) state.r = state.total; else if (page.dataset.live) offerNewest(added);
      replaceParts(await loadPart(`${url}/strip?r=${state.r}`));
      document.getElementById("thumb").max = state.total;
      replaceParts(await loadPart(`${url}/request?r=${state.r}`));
      preview(state.r);
      if (rows.request !== state.r) await rows.show(state.r);
      document.getElementById("said").textContent = `Request ${state.total} was sent`;
      page.dataset.shown = state.r;
    }
    if (data.complete && page.dataset.complete !== "yes") {
      page.dataset.complete = "yes";
      await showNamed();
    }
    return data.complete;
  }

  async function tryToGrow() {
    try {
      const isComplete = await grow();
      hideProblem();
      return isComplete;
    } catch (error) { showProblem(error.message, tryToGrow); return false; }
  }

  // The request and the message that the address names may not have been there when the page was loaded.
  async function showNamed() {
    const { named } = page.dataset;
    if (named) await move(Number(named), { push: false });
    if (page.dataset.m) await jump(Number(page.dataset.m));
  }

  let waiting = 0;
  function offerNewest(count) {
    waiting += count;
    let button = document.getElementById("newer");
    if (!button) {
      button = document.createElement("button");
      button.id = "newer";
      button.className = "btn newer";
      button.type = "button";
      button.addEventListener("click", () => { waiting = 0; button.remove(); move(state.total); });
      page.append(button);
    }
    button.textContent = `${waiting} new request${waiting === 1 ? "" : "s"} ↓`;
  }

  if (page.dataset.complete !== "yes") {
    const again = async () => {
      const started = performance.now();
      if (!await tryToGrow()) setTimeout(again, Math.max(700, 5 * (performance.now() - started)));
    };
    again();
  }
  if (page.dataset.live) {
    let known = null;
    const events = new EventSource(page.dataset.live);
    events.addEventListener("state", (event) => {
      page.dataset.connected = "yes";
      if (known !== null && known !== event.data) tryToGrow();
      known = event.data;
    });
    events.addEventListener("error", () => { page.dataset.connected = ""; });
    addEventListener("pagehide", () => events.close());
  }

  for (const chunk of document.querySelectorAll(".chunk[data-loaded]")) rows.onload(chunk);
  if (page.dataset.m) jump(Number(page.dataset.m));
  setTimeout(series, 400);
  page.dataset.ready = "yes";
})();
