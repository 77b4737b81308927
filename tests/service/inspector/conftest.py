"""A real browser for the pages. Console messages, page errors and requests to other hosts fail the test."""

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import sync_playwright

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def chromium():
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The folder of the screenshots: $MINUTEBOOK_PICTURES, if it is set."""
    folder = os.environ.get("MINUTEBOOK_PICTURES")
    path = Path(folder) if folder else tmp_path_factory.mktemp("pictures")
    path.mkdir(exist_ok=True)
    return path


@dataclass
class Visit:
    """A page of the browser, and what went wrong in it."""

    page: object
    problems: list = field(default_factory=list)

    def open(self, address):
        self.page.goto(address)
        return self.page

    def open_conversation(self, address=None):
        """Follow the first link of the list, or open the address, and wait until its requests are complete."""
        if address is None:
            self.page.wait_for_selector("table.list a")
            self.page.click("table.list a")
        else:
            self.page.goto(address)
        self.page.wait_for_selector("#conversation[data-ready][data-complete=yes]")
        return self.page

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def wait_for_request(self, number):
        self.page.wait_for_selector(f"#conversation[data-shown='{number}'] #figures[data-r='{number}']")

    def wide(self):
        """By how many pixels the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def accessibility_problems(self):
        self.page.evaluate(AXE)
        found = self.page.evaluate("axe.run()")["violations"]
        return [(item["id"], item["impact"], item["nodes"][0]["html"][:200]) for item in found]

    def picture(self, folder, name):
        self.page.screenshot(path=str(folder / f"{name}.png"))


@pytest.fixture
def visit(chromium, request):
    """Open a page of the browser: `visit(url)`. The test fails if something is written to the console."""
    contexts, visits = [], []

    def open_page(url, *, width=1600, height=1000, scheme="light", allows=()):
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
        )
        visit = Visit(context.new_page())
        problems = visit.problems
        visit.page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        visit.page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        visit.page.on(
            "request", lambda sent: None if sent.url.startswith((url, "data:")) else problems.append(sent.url)
        )
        visit.page.on("dialog", lambda dialog: (problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        contexts.append(context)
        visits.append(visit)
        return visit

    yield open_page
    problems = [problem for visit in visits for problem in visit.problems]
    for context in contexts:
        context.close()
    assert problems == []
