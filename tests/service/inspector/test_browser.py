"""The inspector in a real browser. Everything that is written to the console fails a test (see conftest.py)."""

import asyncio
import base64
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minutebook import MemoryStore
from minutebook.service.access.api_keys import ApiKeys
from tests.service.inspector.parts import inspecting, session, write_sessions
from tests.service.serving import served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """The folder of the screenshots: $MINUTEBOOK_PICTURES, if it is set."""
    folder = os.environ.get("MINUTEBOOK_PICTURES")
    path = Path(folder) if folder else tmp_path_factory.mktemp("pictures")
    path.mkdir(exist_ok=True)
    return path


@pytest.fixture(scope="module")
def thousand(tmp_path_factory):
    """The inspector of a session of 1,001 messages."""
    path = write_sessions(tmp_path_factory.mktemp("session") / "long.jsonl", session(250, words=30))
    with inspecting(path, max_tokens=12_000) as addresses:
        yield addresses


class Browsing:
    cookie = None


@pytest.fixture
def conversation(thousand, visit):
    """Open the page of the conversation: `conversation(width=400)`."""
    url, first_path = thousand

    def open_page(**options):
        opened = visit(url, **options)
        if Browsing.cookie is None:
            opened.open(f"{url}{first_path}")
            Browsing.cookie = opened.page.context.cookies()
        else:
            opened.page.context.add_cookies(Browsing.cookie)
            opened.open(f"{url}/")
        opened.open_conversation()
        return opened

    return open_page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 900, 400])
def test_the_page_fits_the_window_and_has_no_accessibility_findings(conversation, pictures, width, scheme):
    opened = conversation(width=width, scheme=scheme)

    assert opened.wide() == 0
    assert opened.accessibility_problems() == []
    opened.picture(pictures, f"conversation-{width}-{scheme}")


def test_keys_move_between_requests_breaks_and_messages(conversation):
    opened = conversation()
    page = opened.page
    total = int(page.get_attribute("#conversation", "data-total"))

    assert total == 500
    opened.press("ArrowLeft")
    opened.wait_for_request(499)
    opened.press("Shift+ArrowLeft")
    opened.wait_for_request(489)
    opened.press("Home")
    opened.wait_for_request(1)
    opened.press("]")
    page.wait_for_selector(".break")
    number = int(page.get_attribute("#figures", "data-r"))
    assert 1 < number < total
    assert f"r={number}" in page.url
    assert "Cache breaks here." in page.inner_text(".break")
    opened.press("j", "j", "j", "Enter")
    page.wait_for_selector(".msg.open .opened .facts")
    assert page.evaluate("document.activeElement.classList.contains('open')")
    opened.press("Escape")
    page.wait_for_selector(".msg.open", state="detached")
    opened.press("End")
    opened.wait_for_request(500)
    page.go_back()
    opened.wait_for_request(number)


def test_only_changes_and_one_fate_can_be_shown(conversation):
    opened = conversation()
    page = opened.page
    opened.press("[")
    page.wait_for_selector(".break")
    opened.press("f")
    assert page.locator(".row.s-kept:visible").count() == 0
    opened.press("f")
    page.click("button.chip[data-fate=dropped]")
    assert page.locator(".row:visible").count() == page.locator(".row.s-dropped:visible").count() > 0
    opened.press("Escape")
    assert page.locator(".row.s-kept:visible").count() > 0


def test_rows_far_away_are_loaded_and_evicted(conversation):
    opened = conversation()
    page = opened.page
    assert page.locator("#m950").count() == 0
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_selector("#m990")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_selector("#m0")
    page.wait_for_selector("#m950", state="detached")
    assert page.locator(".msg").count() < 1001


def test_an_opened_message_stays_open_at_another_request(conversation):
    opened = conversation()
    page = opened.page
    page.click("#m3 .no")
    page.wait_for_selector("#m3.open .facts")
    opened.press("ArrowLeft")
    opened.wait_for_request(499)
    page.wait_for_selector("#m3.open .facts")
    page.click("#m3 a[data-use]")
    page.wait_for_selector("#m4:focus")


def test_the_card_shows_what_a_message_cost(conversation):
    opened = conversation()
    opened.page.hover("#m1 .no")
    opened.page.wait_for_selector("#card:not([hidden])")
    assert "from cache" in opened.page.inner_text("#card")


def test_at_400_pixels_the_lanes_are_chosen_by_buttons(conversation, pictures):
    opened = conversation(width=400, height=860)
    page = opened.page
    page.click(".seg [data-lane=sent]")
    assert page.locator(".row > .msgs:visible").count() == 0
    assert opened.wide() == 0
    opened.picture(pictures, "sent-400")
    page.click(".seg [data-lane=why]")
    assert page.locator(".row > .why:visible").count() > 0
    assert opened.wide() == 0
    opened.picture(pictures, "why-400")
    page.click(".bot [data-go='-1']")
    opened.wait_for_request(499)


def test_the_theme_is_kept_and_the_keys_are_listed(conversation, pictures):
    opened = conversation()
    page = opened.page
    opened.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    opened.press("?")
    page.wait_for_selector("#keys-help[open]")
    assert opened.accessibility_problems() == []
    opened.picture(pictures, "keys")
    opened.press("Escape")
    page.click("text=minutebook")
    page.wait_for_selector("table.list")
    opened.picture(pictures, "list")
    assert opened.accessibility_problems() == []


def test_a_live_conversation_grows_on_the_page(visit, pictures):
    store = MemoryStore()

    async def create_key():
        settings = {"tenant": "default", "scopes": ["admin"], "requests_per_minute": 100_000}
        return (await ApiKeys(store).create("admin", **settings)).token

    with ThreadPoolExecutor() as threads:  # Playwright has a loop in this one
        admin = threads.submit(lambda: asyncio.run(create_key())).result()
    with served(store=store) as here:
        http = here.http(headers={"authorization": f"Bearer {admin}", "x-conversation-id": "order 17"})

        def say(text):
            body = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
            assert http.post("/v1/chat/completions", json=body).status_code == 200

        for number in range(3):
            say(f"question {number}")
        opened = visit(here.url)
        page = opened.open(f"{here.url}/ui/")
        assert opened.accessibility_problems() == []
        opened.picture(pictures, "sign-in")
        page.fill("#key", admin)
        opened.press("Enter")
        opened.open_conversation()
        page.wait_for_selector("#conversation[data-connected=yes]")
        say("question 3")
        page.wait_for_selector("#m6")
        opened.wait_for_request(4)
        opened.press("ArrowLeft")
        opened.wait_for_request(3)
        say("question 4")
        page.click("#newer")
        opened.wait_for_request(5)
        opened.picture(pictures, "live")
        page.click("text=Sign out")
        page.wait_for_selector("#key")


RAN = "window.ran=1"
SVG = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RAN}'/>".encode()).decode()
PAYLOADS = [
    f"<script>{RAN}</script>",
    f"</script><script>{RAN}</script>",
    f"<img src=x onerror={RAN}>",
    f"<svg onload={RAN}>",
    f'"><b onmouseover={RAN}>',
    f"' autofocus onfocus={RAN} x='",
    f"javascript:{RAN}",
    f"[link](javascript:{RAN})",
    f'<a href="javascript:{RAN}">x</a>',
    f'<iframe srcdoc="<script>parent.{RAN}</script>">',
    f"<body onload={RAN}>",
    "<style>*{display:none!important}</style>",
    "<base href=//evil.example>",
    f'<meta http-equiv=refresh content="0;url=javascript:{RAN}">',
    f"<div hx-get=/ hx-trigger=load hx-on::load={RAN}>",
    f"<form action=javascript:{RAN}><button id=x>",
    "{{ 7*7 }}{% raw %}",
    f"<!--><script>{RAN}</script>-->",
    f"\u2028\u2029<script>{RAN}</script>",
    "\x1b[31mred\x1b]8;;javascript:window.ran=1\x07link\x1b[2J\x1b[H",
    "\u202e\u2066\u2067 right to left \u200f",
    "\ud800\udfff lone",
    "\x00\x01\x08\x7f\x9b31m",
    "wide " * 4 + "x" * 20_000,
    "Z̷̢̛͓" * 400,
    "\n" * 3_000,
    "\u200b" * 2_000,
]


def hostile_session(number):
    payload = PAYLOADS[number % len(PAYLOADS)]
    other = PAYLOADS[(number * 7 + 3) % len(PAYLOADS)]
    call = {
        "id": "call",
        "type": "function",
        "function": {"name": payload[:60] or "x", "arguments": json.dumps({"path": other})},
    }
    picture = {"type": "image_url", "image_url": {"url": f"data:image/svg+xml;base64,{SVG}"}}
    return {
        "id": payload[:80],
        "model": payload[:40].replace("\n", "") or "m",
        "messages": [
            {"role": "system", "content": other},
            {"role": "user", "content": [{"type": "text", "text": payload}, picture]},
            {"role": "assistant", "content": payload, "reasoning_content": other, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call", "name": other[:50] or "y", "content": payload + "\n" + other},
            {"role": "assistant", "content": f"```\n{payload}\n```\n**{other}**"},
        ],
    }


def visit_hostile(visit, path, count):
    """Open every conversation of the file and its messages; return how many pages were opened."""
    with inspecting(path, max_tokens=3_000) as (url, first_path):
        opened = visit(url)
        page = opened.open(f"{url}{first_path}")
        page.wait_for_selector("#list:not([hx-trigger])")
        addresses = set()
        after = 0
        while True:
            addresses.update(page.eval_on_selector_all("table.list a", "links => links.map((link) => link.href)"))
            assert page.evaluate("window.ran") is None
            after += 50
            if len(addresses) >= count or after > count:
                break
            page.goto(f"{url}/?after={after}")
        for address in sorted(addresses):
            opened.open_conversation(address)
            opened.press("j", "o")
            page.wait_for_selector(".msg.open .facts")
            page.evaluate("for (const row of document.querySelectorAll('.msg:not(.open) .no')) row.click()")
            page.wait_for_function("() => document.querySelectorAll('.msg.open .facts').length === 5")
            assert page.evaluate("window.ran") is None, address
            assert opened.wide() == 0, address
            assert page.locator("#rows script, #rows iframe, #rows style, #rows form, #rows base").count() == 0
            assert page.locator("#rows [onerror], #rows [onload], #rows [onclick], #rows [hx-get]").count() == 0
            assert page.evaluate("getComputedStyle(document.querySelector('header.top')).display") == "flex"
        return len(addresses)


def test_hostile_texts_do_not_run_and_do_not_break_the_layout(visit, tmp_path):
    count = len(PAYLOADS)
    path = write_sessions(tmp_path / "hostile.jsonl", *map(hostile_session, range(count)))

    assert visit_hostile(visit, path, count) == count


@pytest.mark.slow
def test_500_hostile_transcripts(visit, tmp_path):
    path = write_sessions(tmp_path / "hostile.jsonl", *map(hostile_session, range(500)))

    assert visit_hostile(visit, path, 500) == 500


def test_a_line_of_10_megabytes_and_broken_utf_8_are_shown_in_part(visit, tmp_path):
    long = {"role": "user", "content": "<script>window.ran=1</script>" * 350_000}
    text = json.dumps({"id": "long", "messages": [long, {"role": "assistant", "content": "PLACE"}]})
    (tmp_path / "broken.json").write_bytes(text.encode().replace(b"PLACE", b"caf\xe9 \xff\xfe"))
    with inspecting(tmp_path / "broken.json", max_tokens=100_000_000) as (url, first_path):
        opened = visit(url)
        page = opened.open(f"{url}{first_path}")
        page.wait_for_selector("#list:not([hx-trigger])")
        if page.locator("table.list a").count():
            opened.open_conversation()
            page.click("#m0 .no")
            page.wait_for_selector("#m0.open .facts")
        assert page.evaluate("window.ran") is None
        assert opened.wide() == 0
