// Rows in chunks: only those near the screen are in the page, the others are empty boxes of the measured or mean height.
"use strict";
class Rows {
  constructor(root, url, request) {
    this.root = root;
    this.url = url;
    this.request = request;
    this.size = Number(root.dataset.size);
    this.mean = 60 * this.size;
    this.chunks = [];
    this.waiting = new Map();
    this.only = "";
    this.onload = () => {};
    this.near = new IntersectionObserver((entries) => entries.forEach((entry) => this.see(entry.target, entry.isIntersecting)), { rootMargin: "1500px 0px" });
    this.far = new IntersectionObserver((entries) => entries.forEach((entry) => { if (!entry.isIntersecting) this.evict(entry.target); }), { rootMargin: "600% 0px" });
    this.grow(Number(root.dataset.length));
  }

  grow(length) {
    this.length = length;
    const given = new Map([...this.root.children].map((chunk) => [Number(chunk.dataset.from), chunk]));
    let before = null;
    for (let from = 0; from < length; from += this.size) {
      let chunk = given.get(from);
      if (!chunk) {
        chunk = document.createElement("div");
        chunk.className = "chunk empty-chunk";
        chunk.dataset.from = from;
        this.estimate(chunk);
        if (before) before.after(chunk); else this.root.prepend(chunk);
      }
      if (!this.chunks.includes(chunk)) { this.chunks.push(chunk); this.near.observe(chunk); this.far.observe(chunk); }
      before = chunk;
    }
    this.chunks.sort((a, b) => a.dataset.from - b.dataset.from);
  }

  estimate(chunk) { chunk.style.height = `${Math.min(this.size, this.length - chunk.dataset.from) * this.mean / this.size}px`; }

  // More messages: new chunks, and the last one again.
  extend(length) {
    const last = this.chunks[this.chunks.length - 1];
    this.grow(length);
    if (last?.isNear) this.load(last, true); else if (last) this.evict(last);
  }

  chunkOf(position) { return this.chunks[Math.floor(position / this.size)]; }

  see(chunk, isNear) {
    chunk.isNear = isNear;
    if (isNear && chunk.dataset.loaded !== String(this.request)) this.load(chunk);
  }

  evict(chunk) {
    if (!chunk.childElementCount || chunk.querySelector(".open, :focus")) return;
    const height = chunk.offsetHeight;
    if (!this.only) this.mean = (this.mean + height) / 2;
    if (chunk.hidden) this.estimate(chunk); else chunk.style.height = `${height}px`;
    chunk.replaceChildren();
    chunk.classList.add("empty-chunk");
    delete chunk.dataset.loaded;
  }

  // A caller that asks for rows that are being loaded waits for them. `isOutdated`: the record has grown since.
  load(chunk, isOutdated = false) {
    const before = this.waiting.get(chunk);
    if (before?.request === this.request && !isOutdated) return before.loaded;
    before?.control.abort();
    const control = new AbortController();
    const entry = { control, request: this.request };
    this.waiting.set(chunk, entry);
    return entry.loaded = this.fill(chunk, this.request, control.signal).finally(() => {
      if (this.waiting.get(chunk) === entry) this.waiting.delete(chunk);
    });
  }

  async fill(chunk, request, signal) {
    const dim = setTimeout(() => chunk.classList.add("waiting"), 120);
    try {
      const html = await loadPart(`${this.url}/rows?from=${chunk.dataset.from}${request ? `&r=${request}` : ""}`, { signal });
      chunk.innerHTML = html;  // the server escapes every text; the policy of the page forbids inline scripts
      chunk.style.height = "";
      chunk.classList.remove("empty-chunk");
      chunk.dataset.loaded = String(request);
      this.onload(chunk);
    } catch (error) {
      if (error.name !== "AbortError") { delete chunk.dataset.loaded; showProblem(error.message, () => this.load(chunk)); }
    } finally {
      clearTimeout(dim);
      chunk.classList.remove("waiting");
    }
  }

  // Hides the chunks in which a filter shows no row: without a height, they would all count as near and be loaded.
  async filter(only) {
    this.only = only;
    const { request } = this;
    const shown = only && request ? new Set(JSON.parse(await loadPart(`${this.url}/chunks.json?r=${request}&only=${only}`))) : null;
    if (this.only !== only || this.request !== request) return;
    for (const chunk of this.chunks) {
      chunk.hidden = shown !== null && !shown.has(Number(chunk.dataset.from));
      if (!chunk.childElementCount) this.estimate(chunk);
    }
  }

  // Shows another request, and keeps the message that is read where it is.
  async show(request) {
    this.request = request;
    if (this.only) await this.filter(this.only);
    const anchor = this.anchor();
    const top = anchor?.getBoundingClientRect().top;
    const near = this.chunks.filter((chunk) => chunk.isNear);
    for (const chunk of this.chunks) if (!chunk.isNear) this.evict(chunk);
    await Promise.all(near.map((chunk) => this.load(chunk)));
    const now = anchor && document.getElementById(anchor.id);
    if (now && this.request === request) scrollBy(0, now.getBoundingClientRect().top - top);
  }

  anchor() {
    const focused = document.activeElement?.closest?.(".msg");
    if (focused) return focused;
    const deck = document.getElementById("deck").getBoundingClientRect().bottom;
    const edge = Math.max(deck, 0);
    return [...this.root.querySelectorAll(".msg")].find((row) => row.getBoundingClientRect().bottom > edge + 4);
  }

  async jump(position) {
    const chunk = this.chunkOf(position);
    if (!chunk) return null;
    if (!chunk.childElementCount) { chunk.scrollIntoView({ block: "start" }); await this.load(chunk); }
    const row = document.getElementById(`m${position}`);
    (row?.offsetParent ? row : row?.closest(".row"))?.scrollIntoView({ block: "center" });  // a lane can be hidden
    return row;
  }
}
