"""Timeline, treemap, heaviest, what if, folds, branches, diff and share in a real browser."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import MemoryStore
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, replay
from minutebook.service.inspector.share.export import export_html
from minutebook.service.inspector.sources import database
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
from minutebook.service.inspector.web import path_id
from minutebook.testing.contract.samples import entries_of
from tests.service.inspector.parts import inspecting, listening_inspector, session, write_sessions
from tests.service.inspector.test_browser_hostile import PAYLOADS, chat_session
from tests.service.inspector.test_more_pages import folded_store

pytestmark = pytest.mark.browser
NAMES = ("timeline", "treemap", "heaviest", "whatif", "folds", "branches", "diff", "share")


@pytest.fixture
def opened(visit, tmp_path):
    """Open a session of 401 messages: `opened(width=400)` is the visit and the address of the conversation."""
    path = write_sessions(tmp_path / "long.jsonl", session(100, words=30))
    with inspecting(path, max_tokens=6_000) as (url, first_path):

        def open_pages(**options):
            here = visit(url, **options)
            here.open(f"{url}{first_path}")
            here.open_conversation()
            return here, here.page.url.partition("?")[0]

        yield open_pages


def load(here, address):
    here.open(address)
    here.page.wait_for_function("() => !document.querySelector('#results[hx-get]')")


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (1600, "dark"), (400, "light"), (400, "dark")])
def test_every_page_fits_the_window_and_has_no_accessibility_findings(opened, pictures, width, scheme):
    here, base = opened(width=width, scheme=scheme)
    for name in NAMES:
        load(here, f"{base}/{name}")
        assert here.wide() == 0, name
        here.page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
        assert here.wide() == 0, name
        assert here.accessibility_problems() == [], name
        here.picture(pictures, f"{name}-{width}-{scheme}")


def test_keys_open_the_pages_and_a_click_on_the_timeline_opens_the_request(opened):
    here, base = opened()
    for key, name in (("t", "timeline"), ("m", "treemap"), ("h", "heaviest"), ("w", "whatif"), ("d", "diff")):
        here.press("g", key)
        here.page.wait_for_url(f"{base}/{name}")
    here.press("g", "t")
    here.page.wait_for_url(f"{base}/timeline")
    columns = here.page.locator(".wide-only a")
    columns.nth(20).click()
    here.page.wait_for_selector("#conversation[data-ready]")
    assert here.page.url == f"{base}?r=21"


def test_the_timeline_can_be_saved_as_png(opened, tmp_path):
    here, base = opened()
    load(here, f"{base}/timeline")
    with here.page.expect_download() as download:
        here.page.click("text=Download PNG")
    download.value.save_as(tmp_path / "timeline.png")
    picture = (tmp_path / "timeline.png").read_bytes()

    assert download.value.suggested_filename == "timeline.png"
    assert picture.startswith(b"\x89PNG")
    assert int.from_bytes(picture[16:20], "big") == 2_400
    assert len(picture) > 20_000


def test_the_policy_of_what_if_can_be_changed_and_copied(opened):
    here, base = opened()
    load(here, f"{base}/whatif")
    here.page.fill("input[name=policy]", "sliding_window:30")
    here.press("Enter")
    here.page.wait_for_url(f"{base}/whatif?policy=sliding_window*")
    here.page.wait_for_selector(".compare")
    here.page.click("details.use summary")
    assert "--manager sliding_window:30" in here.page.inner_text("details.use")


def test_a_link_to_a_message_of_a_long_conversation_works_while_it_is_loaded(visit, monkeypatch):
    monkeypatch.setattr(database, "MAX_LISTED", 3)
    monkeypatch.setattr(database, "FIRST_MESSAGES", 100)
    monkeypatch.setattr(database, "WAIT_SECONDS", 0)
    store = MemoryStore()
    messages = session(100, words=3)["messages"]
    with ThreadPoolExecutor() as threads:  # Playwright has a loop in this one
        threads.submit(lambda: asyncio.run(store.append("a", entries_of(messages), expected_version=0))).result()
    source = StoreSource(store, ReplayPolicy(max_tokens=3_000), name="a", cache=OpenConversations())
    with listening_inspector(source) as (url, first_path):
        here = visit(url)
        here.open(f"{url}{first_path}")
        here.open_conversation(f"{url}/c/a?r=150&m=290")
        here.wait_for_request(150)
        here.page.wait_for_selector("#m290:focus")
        assert here.page.get_attribute("#conversation", "data-total") == "0"


def test_a_long_path_in_an_opened_call_stays_in_its_lane(visit, tmp_path):
    source = session(2)
    arguments = {"file_path": f"/{'long_folder_' * 12}/file.py", "old_string": "a", "new_string": "b"}
    source["messages"][2]["tool_calls"][0]["function"] = {"name": "Edit", "arguments": json.dumps(arguments)}
    with inspecting(write_sessions(tmp_path / "edit.jsonl", source)) as (url, first_path):
        here = visit(url, width=900)
        here.open(f"{url}{first_path}")
        page = here.open_conversation()
        page.click("#m2 .no")
        page.wait_for_selector("#m2 .facts")
        assert page.evaluate("(h => h.scrollWidth - h.clientWidth)(document.querySelector('#m2 .opened h3'))") == 0
        assert page.is_visible("#money")


def test_a_fold_is_undone_after_a_confirmation(visit, pictures):
    with ThreadPoolExecutor() as threads:  # Playwright has a loop in this one
        store, _ = threads.submit(folded_store).result()
    source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations(), undo=store.undo_fold)
    with listening_inspector(source) as (url, first_path):
        here = visit(url)
        here.open(f"{url}{first_path}")
        here.open(f"{url}/c/{path_id('order 17')}/folds")
        here.picture(pictures, "fold")
        assert here.accessibility_problems() == []
        assert not here.page.is_visible("text=Undo this fold")
        here.page.focus("text=Undo…")
        here.press("Enter", "Tab", "Enter")
        here.page.wait_for_selector(".fold-card.undone:focus")
        assert here.page.evaluate("window.ran") is None
        here.open(f"{url}/c/{path_id('order 17 b')}/branches")
        assert here.accessibility_problems() == []
        here.picture(pictures, "branches")
        with ThreadPoolExecutor() as threads:
            (stored,) = threads.submit(lambda: asyncio.run(store.folds("order 17"))).result()
    assert stored.undone_at is not None


@pytest.mark.parametrize("redact", [("tools",), ("texts", "tools")])
def test_hostile_texts_do_not_run_in_a_redacted_file(visit, tmp_path, pictures, redact):
    for number in range(len(PAYLOADS)):
        source = chat_session(number)
        conversation = new_conversation("a", source["messages"])
        replay(conversation, ReplayPolicy(max_tokens=3_000))
        path = tmp_path / f"{number}.html"
        path.write_bytes(export_html(conversation, redact=redact).encode("utf-8", "backslashreplace"))
    here = visit(tmp_path.as_uri())
    for number in range(len(PAYLOADS)):
        page = here.open(f"{tmp_path.as_uri()}/{number}.html")
        page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
        assert page.evaluate("window.ran") is None, number
        assert here.wide() == 0, number
        assert page.locator("script, iframe, form, base, main style").count() == 0
        assert page.evaluate("getComputedStyle(document.querySelector('header.top')).display") == "flex"
    assert here.accessibility_problems() == []
    here.picture(pictures, f"export-{len(redact)}")
