"""The plan page: steps, their messages, and the summaries that are shown instead of them."""

import re

import httpx2
import pytest

from minutebook import AsyncConversation, MemoryStore
from minutebook.planning import PlanningToolsSection, StepHistoryManager, TaskHistorySection
from minutebook.service.inspector.policy import ReplayPolicy
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel
from minutebook.testing.contract.samples import entries_of
from tests.planning.parts import READER, adapter_for, worker
from tests.service.inspector.parts import listening_inspector, session


@pytest.fixture(scope="module")
def store():
    """A store with a conversation whose first step is summarized, and one without a plan."""
    store = MemoryStore()
    steps = [step for step in worker().steps if "expand_step" not in str(step)]
    sections = [PlanningToolsSection(), TaskHistorySection(keep_tokens=0)]
    with LoopbackProvider(ScriptedModel(*steps, "Still here.")) as provider, adapter_for(provider) as adapter:
        for request in ("Please begin.", "And now?"):
            task = AsyncConversation("task", store=store, system="You refactor.", manager=StepHistoryManager())
            run_sync(task.run(adapter, request, tools=(READER,), sections=sections))
    run_sync(store.append("chat", entries_of(session(1)["messages"]), expected_version=0))
    return store


@pytest.fixture(scope="module")
def address(store):
    source = StoreSource(store, ReplayPolicy(), name="a database", cache=OpenConversations())
    with listening_inspector(source) as (url, first_path):
        yield url, first_path


@pytest.fixture(scope="module")
def pages(address):
    with httpx2.Client(base_url=address[0], trust_env=False, timeout=60) as http:
        assert http.get(address[1]).status_code == 303
        yield http


def steps_of(page):
    return {
        re.search(r'mono mute">(\d*)<', item)[1]: item
        for item in re.findall(r'<li class="step-row.*?</li>', page, re.DOTALL)
    }


def test_every_step_has_its_state_its_messages_and_the_summary_that_is_shown_instead(pages, store):
    page = pages.get("/c/task/plan").text
    steps = steps_of(page)
    count = len(run_sync(store.load("task")).messages)
    positions = sorted(
        position
        for start, stop in re.findall(r'\?m=\d+">(\d+)(?:\W(\d+))?<', page)
        for position in range(int(start), int(stop or start) + 1)
    )

    assert "Refactor auth module" in page
    assert "2 of 3 steps done" in page
    assert set(steps) == {"", "1", "2", "3"}
    assert "Read the code" in steps["1"]
    assert ">done<" in steps["1"]
    assert "check_auth is the entry." in steps["1"]
    assert "its summary is shown instead" in steps["1"]
    assert "left out</span>" in steps["1"]
    assert "left out" not in steps["2"]
    assert ">to do<" in steps["3"]
    assert "No messages" in steps["3"]
    assert positions == list(range(1, count))  # all but the system message, each once


def test_only_a_conversation_with_a_plan_has_the_page_in_its_navigation(pages):
    assert 'href="/c/task/plan"' in pages.get("/c/task").text
    assert 'href="/c/chat/plan"' not in pages.get("/c/chat").text
    assert "has no plan" in pages.get("/c/chat/plan").text


@pytest.mark.browser
def test_the_plan_fits_the_window_and_has_no_accessibility_findings(address, pages, visit, pictures):
    url, _ = address
    for width, scheme in ((1600, "light"), (900, "dark"), (400, "light")):
        opened = visit(url, width=width, scheme=scheme)
        opened.page.context.add_cookies([{"name": name, "value": value, "url": url} for name, value in pages.cookies.items()])  # fmt: skip
        page = opened.open(f"{url}/c/task")
        page.wait_for_selector("#conversation[data-ready]")
        opened.press("g", "p")
        page.wait_for_selector(".plan")
        page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
        assert opened.wide() == 0
        assert opened.accessibility_problems() == []
        opened.picture(pictures, f"plan-{width}-{scheme}")
