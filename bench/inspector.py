"""The inspector in a real browser: first paint, moves between requests, and memory, in a conversation of 100,000 messages."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from bench.report import Part, Table, Target, progress, time_of
from minutebook.testing import coding_session

MESSAGES = 100_000
BUDGET = 100_000
MOVES = 20
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def measure(*, quick: bool) -> Part:
    """The part of the benchmark. With `quick`, a conversation of 10,000 messages."""
    chromium, part = shutil.which("chromium"), Part()
    count = MESSAGES // 10 if quick else MESSAGES
    table = Table(f"Inspector: a conversation of {count:,} messages, in Chromium", ["", "figure"])
    part.tables.append(table)
    if chromium is None or find_spec("playwright") is None:
        table.notes.append("Not measured: Chromium and Playwright are not installed.")
        return part
    progress(f"inspector: writing {count:,} messages")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "session.jsonl"
        session = {"id": "session", "model": "gpt-4o", "messages": _messages(count)}
        file.write_text(json.dumps(session), encoding="utf-8")
        with _server(file) as (address, server), _browser(chromium) as browser:
            figures = _measure_pages(browser, address, server.pid)
    part.figures = figures
    table.rows += [
        ["first paint of the list, while the file is read", time_of(figures["list_seconds"])],
        ["first paint of the conversation, while it is replayed", time_of(figures["replaying_seconds"])],
        ["until all requests are replayed", time_of(figures["replay_seconds"])],
        ["first paint afterwards", time_of(figures["paint_seconds"])],
        [f"a move to one of {MOVES} random requests, median", time_of(median(figures["move_seconds"]))],
        [f"a move to one of {MOVES} random requests, longest", time_of(max(figures["move_seconds"]))],
        ["memory of the page: script, of which in use", f"{figures['heap_megabytes']:.0f} MB"],
        ["memory of the server: resident, highest", f"{figures['server_megabytes']:.0f} MB"],
    ]
    slowest = max(figures["replaying_seconds"], figures["paint_seconds"])
    part.targets += [
        Target("the first paint takes less than 1 s", time_of(slowest), slowest < 1),
        Target("a move takes less than 200 ms", time_of(max(figures["move_seconds"])), max(figures["move_seconds"]) < 0.2),
    ]  # fmt: skip
    return part


def _messages(count: int) -> list[Any]:
    """One conversation of that length, of several sessions."""
    messages, seed = list(coding_session(seed=0)), 1
    while len(messages) < count:
        messages += coding_session(seed=seed)[1:]
        seed += 1
    return messages[:count]


@contextmanager
def _server(file: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`minutebook inspect`: the address that is opened first, and the process."""
    command = [sys.executable, "-m", "minutebook", "inspect", str(file), "--max-tokens", str(BUDGET), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["url"], process
        finally:
            process.terminate()


@contextmanager
def _browser(chromium: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


def _measure_pages(browser: Any, address: str, server: int) -> dict[str, Any]:
    page = browser.new_page(viewport={"width": 1600, "height": 1000})
    figures: dict[str, Any] = {}
    progress("inspector: list")
    page.goto(address)
    figures["list_seconds"] = page.evaluate(PAINTED) / 1000
    page.wait_for_selector("table.list a", timeout=600_000)
    link = page.eval_on_selector("table.list a", "link => link.href")
    progress("inspector: replay")
    started = perf_counter()
    page.goto(link)
    figures["replaying_seconds"] = page.evaluate(PAINTED) / 1000
    page.wait_for_selector("#conversation[data-complete=yes]", timeout=600_000)
    figures["replay_seconds"] = perf_counter() - started
    page.goto(link)
    page.wait_for_selector("#conversation[data-ready]")
    figures["paint_seconds"] = page.evaluate(PAINTED) / 1000
    progress("inspector: moves")
    figures["move_seconds"] = list(_moves(page))
    client = page.context.new_cdp_session(page)
    client.send("Performance.enable")
    metrics = {item["name"]: item["value"] for item in client.send("Performance.getMetrics")["metrics"]}
    figures["heap_megabytes"] = metrics["JSHeapUsedSize"] / 1e6
    status = Path(f"/proc/{server}/status").read_text(encoding="ascii")
    figures["server_megabytes"] = int(status.partition("VmHWM:")[2].split()[0]) / 1000
    return figures


def _moves(page: Any) -> Iterator[float]:
    """The seconds of moves to random requests, from the input of the slider until the rows are shown."""
    random, total = Random(0), int(page.get_attribute("#conversation", "data-total"))
    for number in random.sample(range(1, total), MOVES):
        page.evaluate(
            "r => { const slider = document.getElementById('slider'); slider.value = r;"
            " slider.dispatchEvent(new Event('input', { bubbles: true })); }",
            number,
        )
        page.wait_for_selector(f"#conversation[data-shown='{number}']")
        yield int(page.get_attribute("#conversation", "data-milliseconds")) / 1000
