"""Writes the pictures of the inspector in the README and the tutorial: `python docs/inspector_pictures.py`.

It shows a simulated session with `minutebook inspect` in Chromium. Without Chromium or playwright it does nothing.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from minutebook.testing import coding_session

FOLDER = Path(__file__).parent / "assets"
TURNS = 30
BUDGET = 12_000
CUT = 16
"""The first request of the session that is a cut."""
PAGES = {
    "timeline": "/timeline",
    "treemap": "/treemap?by=tool&r=123",
    "heaviest": "/heaviest",
    "what-if": "/whatif?policy=token_budget&budget=24000",
}


def write_pictures(chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "session.jsonl"
        session = {"id": "session", "model": "gpt-4o", "messages": coding_session(seed=0, turns=TURNS)}
        file.write_text(json.dumps(session), encoding="utf-8")
        command = [sys.executable, "-m", "minutebook", "inspect", str(file), "--max-tokens", str(BUDGET), "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:  # noqa: S603
            try:
                assert server.stdout is not None
                address = json.loads(server.stdout.readline())["url"]
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
                page = browser.new_page(viewport={"width": 1280, "height": 890}, reduced_motion="reduce")
                page.goto(address)
                page.click("table.list a")
                page.wait_for_selector("#conversation[data-ready][data-complete=yes]")
                base = page.url.partition("?")[0]
                page.goto(f"{base}?r={CUT}")
                page.wait_for_selector("#conversation[data-ready]")
                page.screenshot(path=FOLDER / "inspector-conversation.png")
                for name, path in PAGES.items():
                    page.goto(base + path)
                    page.wait_for_function("() => !document.querySelector('#results[hx-get]')")
                    page.screenshot(path=FOLDER / f"inspector-{name}.png")
                browser.close()
            finally:
                server.terminate()


if __name__ == "__main__":
    program = shutil.which("chromium")
    if program is not None and find_spec("playwright") is not None:
        write_pictures(program)
