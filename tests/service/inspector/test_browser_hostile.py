"""Hostile transcripts in a real browser: nothing of them runs, on the pages and in the exported file."""

import base64
import json

import pytest

from tests.service.inspector.parts import inspecting, write_sessions

pytestmark = pytest.mark.browser

RAN = "window.ran=1"
SVG = base64.b64encode(f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RAN}'/>".encode()).decode()
PAYLOADS = [
    f"<script>{RAN}</script>",
    f"</script><script>{RAN}</script>",
    f"</style></title></textarea></noscript><script>{RAN}</script>",
    f"<img src=x onerror={RAN}>",
    f"<svg onload={RAN}>",
    f"<svg><animate onbegin={RAN} attributeName=x dur=1s>",
    f"<math><mtext></mtext><mglyph><style><img src=x onerror={RAN}></style></mglyph></math>",
    f"<details open ontoggle={RAN}>",
    f"<video><source onerror={RAN}></video>",
    f'"><b onmouseover={RAN}>',
    f"' autofocus onfocus={RAN} x='",
    f"javascript:{RAN}",
    f"data:text/html,<script>{RAN}</script>",
    f"[link](javascript:{RAN})",
    f'![picture](x" onerror="{RAN})',
    f'<a href="javascript:{RAN}">x</a>',
    f'<iframe srcdoc="<script>parent.{RAN}</script>">',
    f"<object data=javascript:{RAN}>",
    f"<body onload={RAN}>",
    "<style>*{display:none!important}</style>",
    "</div></section></main><table><td>",
    "<base href=//evil.example>",
    "<link rel=stylesheet href=//evil.example/a.css>",
    f'<meta http-equiv=refresh content="0;url=javascript:{RAN}">',
    f"<div hx-get=/ hx-trigger=load hx-on::load={RAN}>",
    f"<form action=javascript:{RAN}><button id=x>",
    "<input id=q name=q><img name=body><a id=conversation data-ready>",
    "{{ 7*7 }}{% raw %}${7*7}#{7*7}<%= 7*7 %>",
    f"<!--><script>{RAN}</script>-->",
    f"]]><script>{RAN}</script>",
    f"&lt;script&gt;{RAN}&lt;/script&gt; &#60;img src=x onerror={RAN}&#62;",
    f"\u2028\u2029<script>{RAN}</script>",
    "\x1b[31mred\x1b]8;;javascript:window.ran=1\x07link\x1b[2J\x1b[H",
    "\u202e\u2066\u2067 right to left \u200f",
    "\ud800\udfff lone",
    "\x00\x01\x08\x7f\x9b31m",
    "wide " * 4 + "x" * 20_000,
    "Z̷̢̛͓" * 400,
    "\n" * 3_000,
    "\u200b" * 2_000,
    "\ufdfd" * 200 + "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 100,
    "../../../../etc/passwd%00?r=1#m9",
    f"```html\n<script>{RAN}</script>\n``` `<img src=x onerror={RAN}>` # <b>\n| <td onclick={RAN}> |",
    f"diff --git a/<img src=x onerror={RAN}> b/x\n@@ -1 +1 @@\n-<script>{RAN}</script>\n+<script>{RAN}</script>",
]


def payload_pair(number):
    """Two payloads; within 500 numbers every pair occurs once at most."""
    count = len(PAYLOADS)
    return PAYLOADS[number % count], PAYLOADS[(number + 3 + number // count * 5) % count]


def chat_session(number):
    payload, other = payload_pair(number)
    call = {
        "id": "call",
        "type": "function",
        "function": {"name": payload[:60] or "x", "arguments": json.dumps({"path": other, payload[:40]: [payload]})},
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


def claude_code_lines(number):
    """The same as a session of Claude Code, which has other blocks: thinking, tool use and pictures in results."""
    payload, other = payload_pair(number)
    source = {"type": "base64", "media_type": "image/svg+xml", "data": SVG}
    call = {"type": "tool_use", "id": "toolu_1", "name": other[:50] or "x", "input": {"file_path": payload, "new_string": other, "old_string": payload}}  # fmt: skip
    result = [{"type": "text", "text": other}, {"type": "image", "source": source}]
    contents = [
        ("user", payload),
        ("assistant", [{"type": "thinking", "thinking": other, "signature": "s"}, {"type": "text", "text": payload}]),
        ("user", [{"type": "text", "text": other}]),
        ("assistant", [call]),
        ("user", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result, "is_error": True}]),
    ]
    yield {"type": "summary", "summary": payload, "leafUuid": "u4"}
    for index, (role, content) in enumerate(contents):
        yield {
            "type": role,
            "uuid": f"u{index}",
            "parentUuid": f"u{index - 1}" if index else None,
            "sessionId": f"s{number}",
            "timestamp": f"2026-01-01T00:00:0{index}Z",
            "cwd": other[:50],
            "message": {"role": role, "content": content, "model": payload[:40] or "m", "id": f"m{index}"},
        }


def write_hostile_files(folder, numbers):
    """One conversation per number, in a file with a hostile name; every fourth is a session of Claude Code."""
    for number in numbers:
        name = f"{number} <img src=x onerror=window.ran=1>\u202e&quot;.jsonl"
        lines = claude_code_lines(number) if number % 4 == 3 else [chat_session(number)]
        write_sessions(folder / name, *lines)


def require_harmless(page, address):
    assert page.evaluate("window.ran") is None, address
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0, address
    foreign = "main :is(script, iframe, style, form:not([action]), base, object, video, math, link, meta)"
    assert page.locator(foreign).count() == 0, address
    assert page.locator("main :is([onerror], [onload], [onclick], [onfocus], [ontoggle], #rows [hx-get])").count() == 0
    assert page.evaluate("getComputedStyle(document.querySelector('main')).display") == "block", address


def visit_hostile(visit, folder, count):
    """Open every conversation, all of its messages and its exported file; return how many there were."""
    pages = ("timeline", "treemap?by=tool", "treemap?by=file", "heaviest", "diff")
    with inspecting(*sorted(folder.iterdir()), max_tokens=3_000) as (url, first_path):
        opened, exported = visit(url), visit("file://")
        page = opened.open(f"{url}{first_path}")
        addresses = set()
        for after in range(0, count, 50):
            page.goto(f"{url}/?after={after}")
            page.wait_for_selector("#list:not([hx-trigger])")
            addresses.update(page.eval_on_selector_all("table.list a", "links => links.map((link) => link.href)"))
            require_harmless(page, "the list")
        for index, address in enumerate(sorted(addresses)):
            opened.open_conversation(address)
            page.evaluate("for (const row of document.querySelectorAll('.msg .no')) row.click()")
            page.wait_for_function("() => document.querySelectorAll('.msg.open .facts').length === 5")
            require_harmless(page, address)
            page.goto(f"{address}/{pages[index % len(pages)]}")
            require_harmless(page, page.url)
            page.goto(f"{address}/share")
            with page.expect_download() as download:
                page.click("form[action$=export] button")
            file = folder.parent / "exported.html"
            download.value.save_as(file)
            exported.page.goto(file.as_uri())
            exported.page.evaluate("for (const item of document.querySelectorAll('details')) item.open = true")
            require_harmless(exported.page, address)
        return len(addresses)


def test_hostile_texts_do_not_run_and_do_not_break_the_layout(visit, tmp_path):
    folder = tmp_path / "sessions"
    folder.mkdir()
    numbers = [*range(0, len(PAYLOADS), 2), 3, 7, 11, 15, 19, 23]
    write_hostile_files(folder, dict.fromkeys(numbers))

    assert visit_hostile(visit, folder, len(set(numbers))) == len(set(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 500, 50))
def test_500_hostile_transcripts(visit, tmp_path, start):
    folder = tmp_path / "sessions"
    folder.mkdir()
    write_hostile_files(folder, range(start, start + 50))

    assert visit_hostile(visit, folder, 50) == 50


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
