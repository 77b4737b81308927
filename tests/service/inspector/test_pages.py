"""The pages over HTTP: access, headers, fragments, escapes."""

import base64
import html
import json
import re

import httpx2
import pytest

from minutebook.service.inspector.app import PAGES
from minutebook.service.inspector.content import blocks_of, safe_picture
from minutebook.service.inspector.heads import head_of, visible
from minutebook.service.inspector.web import FOLDER, id_from_path, path_id
from tests.service.inspector.parts import inspecting, session, write_sessions

HOSTILE = (
    "<script>window.ran=1</script><img src=x onerror=window.ran=1>\x1b[31mred\u202eevil\ud800 javascript:window.ran=1"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sessions")
    hostile = session(3, text=HOSTILE)
    hostile["id"] = "hostile"
    path = write_sessions(folder / "sessions.jsonl", session(12), hostile)
    with inspecting(path, max_tokens=2_500) as (url, first_path):
        with httpx2.Client(base_url=url, trust_env=False, timeout=30) as http:
            assert http.get(first_path).status_code == 303
            yield http


def links(pages):
    return re.findall(r'href="(/c/[^"?#]+)', pages.get("/").text)


def conversation_with(pages, title):
    while "still reading" in pages.get("/").text:
        pass
    page = pages.get("/", params={"q": title}).text
    return re.findall(r'href="(/c/[^"?#]+)', page)[0]


def addresses(pages):
    """Every address of the pages, with values that exist."""
    conversation = conversation_with(pages, "order 3")
    found = []
    for page in PAGES:
        for route in page.router.routes:
            path = route.path.replace("{conversation}", conversation.removeprefix("/c/")).replace("{position}", "3")
            query = f"?c={conversation.removeprefix('/c/')}" if path == "/live" else ""
            found += [(method, f"{path}{query}") for method in route.methods - {"HEAD"}]
    return found


def test_every_page_and_fragment_has_a_policy_without_inline_scripts_and_cannot_be_framed(pages):
    checked = 0
    for method, address in addresses(pages):
        if method == "GET" and not address.startswith("/live"):
            response = pages.get(address)
            assert response.status_code == 200, address
            assert "script-src 'self';" in response.headers["content-security-policy"]
            assert "unsafe" not in response.headers["content-security-policy"]
            assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
            checked += 1
    assert checked > 5


def test_without_the_cookie_every_address_is_refused(pages):
    for method, address in addresses(pages):
        response = httpx2.request(method, f"{pages.base_url}".rstrip("/") + address, trust_env=False)
        assert response.status_code == 401, address
        assert "order" not in response.text


def test_the_first_address_works_once(tmp_path):
    path = write_sessions(tmp_path / "a.jsonl", session(1))
    with inspecting(path) as (url, first_path):
        first = httpx2.get(f"{url}{first_path}", trust_env=False)
        assert first.status_code == 303
        assert "HttpOnly" in first.headers["set-cookie"]
        assert "samesite=strict" in first.headers["set-cookie"].lower()
        assert httpx2.get(f"{url}{first_path}", trust_env=False).status_code == 401
        assert httpx2.get(f"{url}/open?token=wrong", trust_env=False).status_code == 401


def test_another_host_name_is_refused(pages):
    assert pages.get("/", headers={"host": "evil.example"}).status_code == 421


def test_no_template_has_inline_scripts_styles_or_addresses_of_other_hosts():
    for path in (FOLDER / "templates").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|https?://", text), path.name


def test_texts_of_a_transcript_are_escaped_everywhere(pages):
    conversation = conversation_with(pages, "window.ran")
    for address in ("", "/rows", "/m/1", "/m/3", "/m/2", "/request", "/m/3/card"):
        text = pages.get(f"{conversation}{address}").text
        assert "<script>window" not in text, address
        assert "<img src=x" not in text, address
        assert "\u202e" not in text, address
        assert "\x1b" not in text, address
    assert "\\u202eevil\\ud800" in pages.get(f"{conversation}/rows").text


def test_rows_come_in_pages_and_a_message_opens_with_its_cost(pages):
    conversation = conversation_with(pages, "order 3")
    rows = pages.get(f"{conversation}/rows", params={"from": 4, "n": 3, "r": 2}).text
    assert re.findall(r'id="m(\d+)"', rows) == ["4", "5", "6"]
    opened = pages.get(f"{conversation}/m/3", params={"r": 24}).text
    assert "the order 0 of the customer was delivered" in opened
    assert 'data-message="4"' in opened
    assert "written" in opened


def test_a_page_without_requests_so_far_can_open_messages(tmp_path):
    path = write_sessions(tmp_path / "a.json", {"messages": [{"role": "system", "content": "Be brief."}]})
    with inspecting(path) as (url, first_path), httpx2.Client(base_url=url, trust_env=False) as http:
        http.get(first_path)
        base = conversation_with(http, "brief")
        statuses = [http.get(f"{base}{path}", params={"r": 0}).status_code for path in ("", "/m/0", "/m/0/card", "/rows", "/strip", "/diff", "/treemap", "/share", "/whatif")]  # fmt: skip

    assert statuses == [200] * 9


def test_the_whole_text_of_a_message_is_a_download(pages):
    response = pages.get(f"{conversation_with(pages, 'order 3')}/m/3/raw")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert response.headers["content-disposition"].startswith("attachment")


def test_a_fragment_is_sent_to_scripts_and_a_page_to_browsers(pages):
    assert "<!doctype html>" in pages.get("/").text
    fragment = pages.get("/", headers={"hx-request": "true"})
    assert "<!doctype html>" not in fragment.text
    assert fragment.headers["vary"] == "HX-Request"


def test_filters_and_search_are_in_the_address(pages):
    assert len(links(pages)) == 2
    assert "No conversation matches" in pages.get("/", params={"q": "nothing like this"}).text
    assert "Highest cost" in pages.get("/", params={"sort": "cost"}).text


def test_the_navigation_keeps_the_request_of_the_address(pages):
    conversation = conversation_with(pages, "order 3")

    assert f'href="{conversation}/share?r=3"' in pages.get(f"{conversation}/heaviest?r=3").text
    assert f'href="{conversation}/share"' in pages.get(f"{conversation}/heaviest?r=3x").text


@pytest.mark.parametrize(
    "address",
    ["/c/unknown", "/c/unknown/rows", "/c/~%21%21", "/nowhere", "/static/x/%2e%2e/web.py"],
)
def test_what_does_not_exist_is_a_page_that_says_so(pages, address):
    response = pages.get(address)
    assert response.status_code == 404
    assert "frame-ancestors" in response.headers["content-security-policy"]


def test_an_invalid_number_in_the_address_is_refused(pages):
    conversation = conversation_with(pages, "order 3")
    assert pages.get(f"{conversation}?r=-1").status_code == 400
    assert pages.get(f"{conversation}/m/99999").status_code == 404


def test_the_series_has_the_figures_of_every_request(pages):
    series = pages.get(f"{conversation_with(pages, 'order 3')}/series.json").json()
    assert len(series["sent"]) == 24
    assert any("break" in marks for marks in series["marks"].values())


def test_static_files_are_cached_forever_and_have_their_licences(pages):
    page = pages.get("/").text
    for address in re.findall(r'(?:src|href)="(/static/[^"]+)', page):
        response = pages.get(address)
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
    names = {path.name for path in (FOLDER / "static" / "vendor").iterdir()}
    assert "htmx-LICENSE.txt" in names


@pytest.mark.parametrize("name", ["plain-1.2", "with/slash", "~tilde", "späß \u202e", ".", "..", "a b"])
def test_any_id_is_one_segment_of_a_path(name):
    segment = path_id(name)
    assert re.fullmatch(r"~?[A-Za-z0-9._-]+", segment)
    assert segment not in {".", ".."}
    assert id_from_path(segment) == name


def test_pictures_are_shown_only_if_their_bytes_are_those_of_a_picture():
    png = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
    assert safe_picture(f"data:image/svg+xml;base64,{base64.b64encode(png).decode()}").startswith("data:image/png;")
    svg = base64.b64encode(b"<svg onload=alert(1)>").decode()
    assert safe_picture(f"data:image/png;base64,{svg}") is None
    assert safe_picture("https://example.com/a.png") is None
    assert safe_picture("javascript:alert(1)") is None


def test_json_differences_code_and_thinking_are_blocks_of_their_own():
    result = {"role": "tool", "tool_call_id": "a", "content": json.dumps({"a": [1]})}
    assert [block.title for block in blocks_of(result)] == ["JSON"]
    edit = {"name": "Edit", "arguments": json.dumps({"file_path": "a.py", "old_string": "x\ny", "new_string": "x\nz"})}
    message = {
        "role": "assistant",
        "content": "Look:\n```py\nprint(1)\n```\ndone",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "a", "type": "function", "function": edit}],
    }
    blocks = list(blocks_of(message))
    assert [block.kind for block in blocks] == ["thought", "prose", "code", "prose", "code"]
    assert [line.classes for line in blocks[-1].lines] == ["", "", "del", "add"]
    assert head_of(message).calls[0].summary == "a.py  \N{MINUS SIGN}2 +2 lines"


@pytest.mark.parametrize(("old", "new"), [("old_string", "new_string"), ("old_str", "new_str"), ("oldText", "newText")])
def test_a_call_that_replaces_a_text_is_shown_as_a_difference(old, new):
    arguments = {"path": "a.py", old: "x\ny", new: "x\nz", "replace_all": True}
    calls = [{"id": "a", "type": "function", "function": {"name": "edit", "arguments": json.dumps(arguments)}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}

    changes, others = blocks_of(message)
    assert changes.title == "edit a.py"
    assert [line.classes for line in changes.lines] == ["", "", "del", "add"]
    assert "replace_all" in others.lines[1].spans[0].text
    assert head_of(message).calls[0].summary == "a.py  \N{MINUS SIGN}2 +2 lines"


def test_a_patch_in_a_call_is_shown_as_a_difference():
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"
    calls = [{"id": "a", "type": "function", "function": {"name": "apply_patch", "arguments": json.dumps({"input": patch})}}]  # fmt: skip
    (block,) = blocks_of({"role": "assistant", "content": None, "tool_calls": calls})

    assert [line.classes for line in block.lines] == ["", "", "", "del", "add", ""]


def test_a_long_path_on_one_line_keeps_its_end():
    path = "/home/someone/work/projects/application/source/packages/server/handlers/orders.py"
    calls = [{"id": "a", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": path})}}]
    message = {"role": "assistant", "content": None, "tool_calls": calls}

    assert head_of(message).calls[0].summary == "…/packages/server/handlers/orders.py"


def test_terminal_colours_are_classes_and_other_sequences_are_removed():
    (block,) = blocks_of(
        {"role": "tool", "tool_call_id": "a", "content": "\x1b[1;31mred\x1b[0m plain\x1b]0;title\x07\x1b[2J"}
    )
    assert [(span.classes, span.text) for span in block.lines[0].spans] == [("a1 a31", "red"), ("", " plain")]


def test_long_lines_and_long_texts_are_cut_with_a_note():
    (block,) = blocks_of({"role": "tool", "tool_call_id": "a", "content": "x" * 5_000 + "\ny" * 1_000})
    assert block.more == 601
    assert sum(len(span.text) for span in block.lines[0].spans) < 2_300


def test_controls_are_visible():
    assert visible("a\x00b\u202ec\ud800\ttab\nline") == "a\\x00b\\u202ec\\ud800\ttab\nline"


def test_the_list_is_loaded_again_until_it_has_all_figures(pages):
    page = pages.get("/").text
    while 'hx-trigger="load' in page:
        page = pages.get("/").text

    assert page.count('data-label="cost"') == 2
    assert re.findall(r'data-label="cost">([$\d.]+)', page) != []
    assert "computing figures" not in page


def test_the_next_page_of_the_list_has_the_same_filters(tmp_path):
    sessions = [session(1) | {"id": str(number)} for number in range(51)]
    path = write_sessions(tmp_path / "sessions.jsonl", *sessions)
    with inspecting(path) as (url, first_path), httpx2.Client(base_url=url, trust_env=False, timeout=30) as http:
        http.get(first_path)
        page = ""
        while "51 conversations" not in page or 'hx-trigger="load' in page:
            page = http.get("/", params={"min_cost": "0", "sort": "turns"}).text
        (following,) = re.findall(r'href="([^"]+)">Next page', page)
        last = http.get(html.unescape(following)).text

    assert "min_cost=0" in following
    assert "sort=turns" in following
    assert last.count('data-label="cost"') == 1


def test_the_series_can_be_read_from_a_request_on(pages):
    address = f"{conversation_with(pages, 'order 3')}/series.json"
    whole, rest = pages.get(address).json(), pages.get(address, params={"after": 20}).json()

    assert rest["sent"] == whole["sent"][20:]
    assert rest["marks"] == {number: marks for number, marks in whole["marks"].items() if int(number) > 20}


def test_two_inspectors_can_be_open_in_one_browser(tmp_path):
    path = write_sessions(tmp_path / "a.jsonl", session(1))
    with inspecting(path) as (first, first_path), inspecting(path) as (second, second_path):
        with httpx2.Client(trust_env=False) as browser:
            for url, opening in ((first, first_path), (second, second_path)):
                assert browser.get(f"{url}{opening}").status_code == 303

            assert [browser.get(f"{url}/").status_code for url in (first, second)] == [200, 200]
