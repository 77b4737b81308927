"""The inspector in a real browser. Everything that is written to the console fails a test (see conftest.py)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import MemoryStore
from minutebook.service.access.api_keys import ApiKeys
from tests.service.inspector.parts import inspecting, session, write_sessions
from tests.service.serving import served

pytestmark = pytest.mark.browser


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


@pytest.mark.parametrize("width", [1600, 400])
def test_a_move_to_a_cut_shows_the_line_where_the_cache_breaks(conversation, width):
    opened = conversation(width=width)
    page = opened.page
    if width == 400:
        page.click("[data-lane=sent]")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_selector("#m1000", state="attached")
    opened.press("[")
    page.wait_for_function(
        "() => { const box = document.querySelector('.break')?.getBoundingClientRect();"
        " return box && box.top > document.getElementById('deck').getBoundingClientRect().bottom && box.bottom < innerHeight; }"
    )


def test_the_other_pages_open_at_the_request_that_is_shown(conversation):
    opened = conversation()
    opened.press("Home")
    opened.wait_for_request(1)
    opened.press("ArrowRight")
    opened.wait_for_request(2)

    for key, text in (("m", "in request 2 of 500"), ("d", "Request 1 sends"), ("h", ""), ("m", "in request 2 of 500")):
        opened.press("g", key)
        opened.page.wait_for_selector(f"nav.tabs [aria-current][data-key={key}]")
        assert text in opened.page.inner_text("main")
    opened.press("g", "c")
    opened.page.wait_for_selector("#figures[data-r='2']")


def test_a_button_keeps_the_focus_when_it_was_used(conversation):
    opened = conversation()
    opened.page.focus("#go-previous")
    for number in (499, 498):
        opened.press("Enter")
        opened.wait_for_request(number)
        assert opened.page.evaluate("document.activeElement.id") == "go-previous"


def test_only_changes_and_one_fate_can_be_shown(conversation):
    opened = conversation()
    page = opened.page
    opened.press("[")
    page.wait_for_selector(".break")
    opened.press("f")
    page.wait_for_selector("#lanes[data-only=changed]")
    assert page.locator(".row.s-kept:visible").count() == 0
    opened.press("f")
    page.wait_for_selector("#lanes:not([data-only])")
    page.click("button.chip[data-fate=dropped]")
    page.wait_for_selector("#lanes[data-only=dropped]")
    assert page.locator(".row:visible").count() == page.locator(".row.s-dropped:visible").count() > 0
    opened.press("Escape")
    page.wait_for_selector("#lanes:not([data-only])")
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


def test_a_filter_loads_only_the_rows_that_it_shows(conversation):
    opened = conversation()
    page = opened.page
    loaded = []
    page.on("request", lambda request: loaded.append(request.url) if "/rows?" in request.url else None)
    page.click("button.chip[data-fate=new]")
    page.wait_for_selector(".row.s-new:visible")
    assert page.locator(".row:visible").count() == page.locator(".row.s-new:visible").count() > 0
    assert len(loaded) == 1
    opened.press("Escape")
    page.wait_for_selector("#m0:visible")
    assert page.evaluate("document.documentElement.scrollHeight") > 20_000


def test_a_move_that_fails_keeps_the_request_that_is_shown_and_says_why(conversation):
    opened = conversation()
    page = opened.page
    row = page.inner_text("#m0")
    page.route("**/request?*", lambda route: route.abort())
    page.route("**/rows?*", lambda route: route.abort())
    opened.press("ArrowLeft")
    page.wait_for_selector("#failure button")
    assert "does not answer" in page.inner_text("#failure")
    assert page.inner_text("#number") == "500"
    assert page.inner_text("#m0") == row
    assert opened.accessibility_problems() == []
    page.unroute("**/request?*")
    page.unroute("**/rows?*")
    page.click("#failure button")
    opened.wait_for_request(499)
    assert page.locator("#failure").count() == 0
    assert {problem.partition(" net::")[0] for problem in opened.problems} == {"error: Failed to load resource:"}
    opened.problems.clear()


def test_arrow_keys_scroll_a_long_line_that_has_the_focus(conversation):
    opened = conversation()
    page = opened.page
    page.click("#m3 .no")
    page.wait_for_selector("#m3 .facts")
    page.evaluate("const box = document.querySelector('#m3 .code'); box.style.width = '60px'; box.focus()")
    opened.press("ArrowRight", "ArrowLeft", "Home")
    page.evaluate("document.activeElement.blur()")
    opened.press("ArrowLeft")
    opened.wait_for_request(499)
