"""Timeline, treemap, heaviest, what if, folds, branches, diff and share, over HTTP."""

import asyncio
import base64
import hashlib
import json
import re
import threading
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from xml.etree import ElementTree as ET

import httpx2
import pytest
import yaml

from minutebook import Fold, MemoryStore
from minutebook.errors import RequestRefused
from minutebook.service.config.loader import load_config
from minutebook.service.inspector.charts.svg import nice_ticks
from minutebook.service.inspector.charts.timeline import timeline_svg
from minutebook.service.inspector.charts.treemap import Box, squarify
from minutebook.service.inspector.conversation import InspectedFold
from minutebook.service.inspector.figures.comparison import (
    MAX_WAITING,
    PolicyChoice,
    ReplayQueue,
    current_choice,
    run_policy,
)
from minutebook.service.inspector.figures.heaviest import heaviest
from minutebook.service.inspector.figures.request_diff import Side, request_differences
from minutebook.service.inspector.figures.window_fill import window_fill
from minutebook.service.inspector.policy import ReplayPolicy, new_conversation, replay
from minutebook.service.inspector.share.export import export_html
from minutebook.service.inspector.source import ListFilter
from minutebook.service.inspector.sources import database
from minutebook.service.inspector.sources.database import OpenConversations, StoreSource
from minutebook.service.inspector.sources.files import FileSource
from minutebook.service.inspector.web import path_id
from minutebook.store.loop_thread import run_sync
from minutebook.testing.contract.samples import entries_of
from tests.service.inspector.parts import inspecting, listening_inspector, session, write_sessions
from tests.service.inspector.test_sign_in import say, service_with_keys, signed_in

HOSTILE = "<script>window.ran=1</script>\"'><img src=x onerror=window.ran=1>\u202eevil ${x} {{ 7*7 }}"
PATHS = ("timeline", "timeline.svg", "treemap?by=tool", "treemap?by=file", "heaviest", "whatif", "folds", "branches", "diff", "share")  # fmt: skip


def replayed(turns=12, max_tokens=2_500, **options):
    source = session(turns, **options)
    conversation = new_conversation("a", source["messages"], model="gpt-4o")
    replay(conversation, ReplayPolicy(max_tokens=max_tokens))
    assert conversation.failure is None
    return conversation


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    hostile = session(8, text=HOSTILE)
    hostile["id"] = "hostile"
    for message in hostile["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["name"] = HOSTILE
    path = write_sessions(tmp_path_factory.mktemp("sessions") / "sessions.jsonl", session(12), hostile)
    with inspecting(path, max_tokens=1_500) as (url, first_path):
        with httpx2.Client(base_url=url, trust_env=False, timeout=60) as http:
            assert http.get(first_path).status_code == 303
            yield http


def address_of(pages, words):
    while "still reading" in pages.get("/").text:
        pass
    return re.findall(r'href="(/c/[^"?#]+)', pages.get("/", params={"q": words}).text)[0]


def finished(pages, address):
    """The page, without the part that is still computed."""
    text = pages.get(address).text
    for _ in range(50):
        if "Replaying the session" not in text:
            return text
        text = pages.get(address).text
    raise AssertionError(text)


@pytest.mark.parametrize("path", PATHS)
def test_texts_and_tool_names_are_escaped_on_every_page(pages, path):
    text = finished(pages, f"{address_of(pages, 'window.ran')}/{path}")

    assert "<script>window" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert "49" not in re.findall(r"\$\{x\} (\S+)", text)
    assert " style=" not in text


def test_the_exported_file_has_no_script_and_only_our_style(pages):
    address = address_of(pages, "window.ran")
    token = re.search(r'name="csrf" value="([^"]+)"', pages.get(f"{address}/share").text)[1]
    response = pages.post(
        f"{address}/export", data={"csrf": token}, headers={"origin": str(pages.base_url).rstrip("/")}
    )

    assert response.status_code == 200
    assert response.headers["content-disposition"].startswith("attachment")
    assert "<script" not in response.text
    assert "<img" not in response.text
    style = re.search(r"<style>(.*?)</style>", response.text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', response.text)[1]
    assert f"sha256-{digest}" in policy.replace("&#43;", "+")
    assert "script-src" not in policy


@pytest.mark.parametrize("change", [{"csrf": "wrong"}, {"origin": "https://evil.example"}, {"redact": "everything"}])
def test_an_export_needs_the_form_of_our_own_page(pages, change):
    address = address_of(pages, "order 3")
    token = re.search(r'name="csrf" value="([^"]+)"', pages.get(f"{address}/share").text)[1]
    fields = {"csrf": change.get("csrf", token), "redact": change.get("redact", "texts")}
    origin = change.get("origin", str(pages.base_url).rstrip("/"))
    response = pages.post(f"{address}/export", data=fields, headers={"origin": origin})

    assert response.status_code == (400 if "redact" in change else 403)


def test_redaction_leaves_no_text_and_no_tool_name_but_the_tokens():
    conversation = replayed(text="plumbago")
    whole = export_html(conversation)
    shared = export_html(conversation, redact=["texts", "tools"])
    only_tools = export_html(conversation, redact=["tools"])

    assert "plumbago" in whole
    assert "lookup" in whole
    for word in ("plumbago", "lookup", "delivered", "help with orders"):
        assert word not in shared
    assert "tool 1" in shared
    assert "lookup" not in only_tools
    assert "plumbago" in only_tools
    tokens = [f"{conversation.tokens_of(position):,} tokens" for position in range(len(conversation.messages))]
    assert all(text in shared for text in tokens)
    assert "plumbago" in conversation.messages[1]["content"]


def test_redaction_leaves_nothing_of_unknown_parts_and_of_the_settings_of_managers():
    messages = session(3, text="plumbago")["messages"]
    parts = [{"type": "text", "text": "Hello"}, {"type": "plumbago", "plumbago": "plumbago"}, {"type": "file"}]
    messages[1] = {"role": "user", "name": "plumbago", "content": parts}
    conversation = new_conversation("plumbago", messages, title="plumbago", model="gpt-4o")
    replay(conversation, ReplayPolicy(("active_tools:active=[lookup]", "tool_result_clearer:keep=1")))
    assert conversation.failure is None
    shared = export_html(conversation, redact=["texts", "tools"])

    assert "active_tools:active=[lookup]" in export_html(conversation)
    assert "plumbago" not in shared
    assert "lookup" not in shared
    assert "[part left out]" in shared
    assert "[file left out]" in shared
    assert "Replayed by active_tools + tool_result_clearer," in shared


def test_an_export_of_long_texts_is_cut_and_says_so():
    messages = [{"role": "user", "content": "x" * 9_000_000}, {"role": "assistant", "content": "short answer"}]
    conversation = new_conversation("a", messages)
    replay(conversation, ReplayPolicy(max_tokens=50_000_000))
    html = export_html(conversation)

    assert "Texts are cut at" in html
    assert "short answer" in html
    assert len(html) < 10_000_000


def test_the_timeline_is_a_picture_of_every_cut_and_opens_requests(pages):
    address = address_of(pages, "order 3")
    page = pages.get(f"{address}/timeline").text
    picture = pages.get(f"{address}/timeline.svg")
    series = pages.get(f"{address}/series.json").json()
    root = ET.fromstring(picture.text)
    cuts = [number for number, marks in series["marks"].items() if "break" in marks]

    assert picture.headers["content-type"] == "image/svg+xml"
    assert len(root.findall(".//{*}polyline[@class='tl-break']")) == len(cuts) > 0
    assert not root.findall(".//{*}a")
    assert not root.findall(".//{*}style")
    assert f'href="{address}?r={cuts[0]}"' in page
    marked = pages.get(f"{address}/timeline?only=marked").text
    assert marked.count('<tr><td class="num">') == len(series["marks"])


def test_many_requests_are_drawn_in_groups_and_no_mark_is_lost():
    conversation = replayed(700, words=2, max_tokens=3_000)
    root = ET.fromstring(str(timeline_svg(conversation, width=372)))
    columns = root.findall(".//{*}rect[@class='tl-column']")

    assert len(conversation.requests) == 1_400
    assert len(columns) <= 101
    assert root.findall(".//{*}polyline[@class='tl-break']")


def test_a_refused_request_is_a_mark():
    conversation = replayed(2, max_tokens=20)
    picture = str(timeline_svg(conversation))

    assert any(request.refusal for request in conversation.requests)
    assert 'class="tl-refused"' in picture


@pytest.mark.parametrize("values", [[5, 3, 2, 1, 1], [1], [100, 1, 1, 1], [7] * 30])
def test_areas_of_the_treemap_are_in_proportion_and_inside_the_box(values):
    boxes = squarify(values, Box(0, 0, 600, 400))

    assert sum(box.width * box.height for box in boxes) == pytest.approx(240_000)
    for value, box in zip(values, boxes, strict=True):
        assert box.width * box.height == pytest.approx(240_000 * value / sum(values))
        assert box.x >= -1e-6
        assert box.x + box.width <= 600 + 1e-6
        assert box.y + box.height <= 400 + 1e-6


@pytest.mark.parametrize("way", ["role", "tool", "file"])
def test_what_fills_the_window_adds_up_to_what_was_sent(way):
    conversation = replayed()
    for request in conversation.requests:
        groups = window_fill(conversation, request, way)
        assert sum(group.tokens for group in groups) == request.sent
    assert {group.name for group in window_fill(conversation, request, "tool")} >= {"lookup", "no tool"}


def test_many_files_and_many_messages_are_added_up_in_the_treemap():
    messages = [{"role": "user", "content": "Read everything."}]
    for number in range(300):
        call = {"id": f"c{number}", "type": "function"}
        call["function"] = {"name": "read", "arguments": json.dumps({"file_path": f"src/{number % 40}.py"})}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"line {number} " * (number % 7 + 1)},
        ]
    conversation = new_conversation("a", messages)
    replay(conversation, ReplayPolicy(max_tokens=1_000_000))
    request = conversation.requests[-1]
    files, tools = (window_fill(conversation, request, way) for way in ("file", "tool"))

    assert len(files) == 24
    assert any(group.name == "18 others" for group in files)
    assert sum(group.messages for group in files) == sum(group.messages for group in tools) == len(messages)
    assert sum(group.tokens for group in files) == sum(group.tokens for group in tools) == request.sent
    assert any(item.position is None for item in tools[0].items)


def test_the_heaviest_messages_have_the_cost_of_their_cards_and_what_clearing_saves():
    conversation = replayed(40, max_tokens=100_000)
    rows = heaviest(conversation, 5)

    assert [row.card.cost for row in rows] == sorted((row.card.cost for row in rows), reverse=True)
    result = next(row for row in rows if row.head.kind == "tool")
    assert result.source.name == "lookup"
    assert 0 < result.clearing.saved < result.card.cost
    assert heaviest(conversation, 1_000)[0].clearing.saved == 0.0
    earlier = {row.card.position: row.clearing.saved for row in heaviest(conversation, 1)}
    assert earlier[result.card.position] > result.clearing.saved


def test_what_clearing_saves_is_only_what_the_views_still_sent():
    conversation = replayed(40, max_tokens=4_000)
    rows = heaviest(conversation, 1)

    assert any(row.card.times_changed for row in rows)
    assert any(row.card.times_sent < row.card.life[-1].last - row.card.life[0].first + 1 for row in rows)
    assert [row.card.position for row in rows if row.clearing.saved > row.card.cost] == []


def test_an_answer_loses_nothing_if_its_request_did_not_send_the_message_whole():
    source = session(30)
    line = "the order 0 of the customer was delivered on day 0"
    source["messages"][-1]["content"] = f"As I said:\n{line}"
    lost = {}
    for max_tokens in (2_500, 100_000):
        conversation = new_conversation("a", source["messages"], model="gpt-4o")
        replay(conversation, ReplayPolicy(max_tokens=max_tokens))
        row = next(row for row in heaviest(conversation, 5) if row.card.position == 3)
        assert len(row.card.uses) == 2
        lost[max_tokens] = row.clearing.lost_uses

    assert lost == {2_500: 0, 100_000: 1}


def test_another_budget_is_measured_by_the_lab_and_shown_at_the_same_request(pages):
    conversation = replayed(20, max_tokens=2_000)
    today = run_policy(conversation, current_choice(conversation))
    other = run_policy(conversation, PolicyChoice("token_budget", 6_000))

    assert today.outcome.cuts > other.outcome.cuts
    assert other.outcome.lines_found >= today.outcome.lines_found
    assert other.conversation.requests[-1].sent > conversation.requests[-1].sent
    text = finished(pages, f"{address_of(pages, 'order 3')}/whatif?policy=token_budget&budget=4000&r=9")
    assert "--manager token_budget --max-tokens 4000" in text
    assert "max_tokens: 4000" in text
    assert "The view at request 9" in text
    assert "Refused requests" in text


@pytest.mark.parametrize(
    ("text", "manager"),
    [
        ("quality", "quality"),
        ("sliding_window:20", {"name": "sliding_window", "window_size": 20}),
        ("active_tools:read+grep", {"name": "active_tools", "active": ["read", "grep"]}),
    ],
)
def test_the_policy_to_copy_is_a_valid_configuration_with_all_settings(tmp_path, text, manager):
    file = tmp_path / "llm_config.yaml"
    file.write_text(PolicyChoice(text, 24_000).configuration)

    load_config(str(file))
    assert yaml.safe_load(file.read_text())["policies"]["mine"] == {"manager": [manager], "max_tokens": 24_000}


def test_a_policy_that_does_not_exist_is_named_on_the_page(pages):
    text = pages.get(f"{address_of(pages, 'order 3')}/whatif", params={"policy": "nonsense<b>:1"}).text

    assert 'role="alert"' in text
    assert "nonsense&lt;b&gt;" in text


def test_the_difference_of_two_requests_has_every_message_once():
    conversation = replayed(20, max_tokens=2_500)
    kinds = set()
    for cut in conversation.requests:
        if cut.cache_break:
            before = conversation.requests[cut.number - 2]
            spans = request_differences(Side(conversation, before), Side(conversation, cut))
            assert [at for span in spans for at in range(span.start, span.stop)] == list(range(cut.length))
            sent = sum(span.tokens for span in spans if span.kind in {"equal", "right", "changed"})
            assert sent == cut.sent
            kinds |= {span.kind for span in spans}

    assert kinds == {"equal", "absent", "left", "right", "changed"}
    last = Side(conversation, conversation.requests[-1])
    same = request_differences(last, last)
    assert {span.kind for span in same} <= {"equal", "absent"}


def test_messages_that_two_requests_add_to_the_record_are_part_of_their_difference():
    fold = Fold.over(range(1, 5), reason="test", shown="a summary")
    conversation = new_conversation("a", session()["messages"], model="gpt-4o", folds=[InspectedFold(fold)])
    replay(conversation, ReplayPolicy(max_tokens=100_000))
    last = Side(conversation, conversation.requests[-1])

    equal = [span for span in request_differences(last, last) if span.kind == "equal"]
    assert [span.count for span in equal if span.start == span.stop] == [1]
    assert sum(span.tokens for span in equal) == last.request.sent


@pytest.mark.parametrize("top", [0, 1, 7, 99, 12_345, 10**9])
def test_ticks_are_round_and_within_the_axis(top):
    ticks = nice_ticks(top, 4)

    assert ticks[0] == 0
    assert ticks[-1] <= top
    assert len(ticks) <= 6


def test_the_axes_of_a_session_whose_requests_were_all_refused_have_only_zero():
    conversation = new_conversation("a", session(2)["messages"], model="gpt-4o")
    replay(conversation, ReplayPolicy(max_tokens=5))
    labels = re.findall(r">([$0-9.e-]+)<", timeline_svg(conversation))

    assert all(request.refusal for request in conversation.requests)
    assert "$0" in labels
    assert not [label for label in labels if "e-" in label or "0." in label]


def folded_store():
    """A store with a conversation that has a fold and a branch."""
    store = MemoryStore()
    fold = Fold.over(range(1, 9), reason=f"small talk {HOSTILE}", shown=f"summary of {HOSTILE}")

    async def fill():
        entries = entries_of(session(4)["messages"])
        await store.append("order 17", entries, expected_version=0)
        await store.add_fold("order 17", fold)
        await store.fork("order 17", "order 17 b", at=5)

    asyncio.run(fill())
    return store, fold


def test_the_list_has_the_id_of_a_stored_conversation_and_finds_it():
    store, _ = folded_store()
    source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations())

    async def ids(query):
        return [(item.id, item.source) for item in (await source.list(ListFilter(q=query))).items]

    assert sorted(asyncio.run(ids(""))) == [("order 17", "order 17"), ("order 17 b", "order 17 b")]
    assert asyncio.run(ids(" order 17 b "))[0] == ("order 17 b", "order 17 b")


def test_the_list_has_the_folder_of_a_file_and_finds_it(tmp_path):
    for project in ("shop", "billing"):
        (tmp_path / project).mkdir()
        write_sessions(tmp_path / project / "a.jsonl", session(1))
    source = FileSource(sorted(tmp_path.glob("*/a.jsonl")), ReplayPolicy())
    source.start()

    async def places(query):
        found = await source.list(ListFilter(q=query))
        while found.is_reading:
            found = await source.list(ListFilter(q=query))
        return sorted(item.source for item in found.items)

    assert asyncio.run(places("")) == ["billing/a.jsonl", "shop/a.jsonl"]
    assert asyncio.run(places("shop")) == ["shop/a.jsonl"]


def test_a_fold_is_shown_with_what_it_replaces_and_undone_with_the_token_of_the_page():
    store, fold = folded_store()
    source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations(), undo=store.undo_fold)
    with listening_inspector(source) as (url, first_path), httpx2.Client(base_url=url, trust_env=False) as http:
        http.get(first_path)
        base = f"/c/{path_id('order 17')}"
        page = http.get(f"{base}/folds").text
        token = json.loads(re.search(r"hx-headers='([^']+)'", page)[1])["X-CSRF-Token"]
        undo = f"{base}/folds/{fold.id}/undo"
        refused = [
            http.post(undo, headers={"origin": url}),
            http.post(undo, headers={"origin": "https://evil.example", "x-csrf-token": token}),
            http.post(undo, headers={"x-csrf-token": token}),
        ]
        still = http.get(f"{base}/folds").text
        missing = http.post(f"{base}/folds/nothing/undo", headers={"origin": url, "x-csrf-token": token})
        undone = http.post(undo, headers={"origin": url, "x-csrf-token": token, "hx-request": "true"})
        tree = http.get(f"{base}/branches").text

    assert "Messages 1 to 8" in page
    assert "<script>" not in page
    assert "Undo this fold" in page
    assert [response.status_code for response in refused] == [403, 403, 403]
    assert "Undo this fold" in still
    assert missing.status_code == 404
    assert undone.status_code == 200
    assert "<b>undone" in undone.text
    assert "<html" not in undone.text
    assert "order 17 b" in tree
    assert "5 shared" in tree


def test_stored_conversations_are_filtered_and_sorted_by_their_figures():
    store = MemoryStore()
    for name, turns in (("short", 2), ("folded", 4), ("long", 9)):
        entries = [replace(entry, model=f"model of {name}") for entry in entries_of(session(turns)["messages"])]
        run_sync(store.append(name, entries, expected_version=0))
    run_sync(store.add_fold("folded", Fold.over(range(1, 5), reason="test", shown="a summary")))

    def names(**values):
        source = StoreSource(store, ReplayPolicy(), name="a database", cache=OpenConversations())
        query = ListFilter(**values)
        found = run_sync(source.list(query))
        while not found.is_complete:
            found = run_sync(source.list(query))
        return [item.id for item in found.items]

    assert names(has=frozenset(["fold"])) == ["folded"]
    assert names(model="model of long") == ["long"]
    assert names(sort="turns") == ["long", "folded", "short"]
    assert names(sort="turns", after=2) == ["short"]
    assert names(q="order", has=frozenset(["fold"])) == ["folded"]
    assert names(min_cost=1e9) == []


def test_costs_in_dollars_come_before_costs_in_tokens_and_only_they_have_a_least_cost(tmp_path):
    known, unknown = session(2, text="parcel"), session(6, text="letter", model="no-such-model")
    source = FileSource([write_sessions(tmp_path / "a.jsonl", unknown, known)], ReplayPolicy())
    source.start()

    def titles(**values):
        found = run_sync(source.list(ListFilter(**values)))
        while not found.is_complete:
            found = run_sync(source.list(ListFilter(**values)))
        return [item.title for item in found.items]

    assert titles(sort="cost") == ["Where is parcel 0?", "Where is letter 0?"]
    assert titles(min_cost=0.0001) == ["Where is parcel 0?"]


def test_a_long_search_query_finds_messages_and_is_not_refused_as_an_id():
    store, text = MemoryStore(), "Größenänderung " * 33
    run_sync(store.append("a", entries_of([{"role": "user", "content": text}]), expected_version=0))
    source = StoreSource(store, ReplayPolicy(), name="a", cache=OpenConversations())

    assert [item.id for item in run_sync(source.list(ListFilter(q=text))).items] == ["a"]


def test_a_file_that_cannot_be_read_is_named_in_place_of_the_advice_for_an_empty_list(tmp_path):
    path = tmp_path / "notes.json"
    path.write_text("no transcript")
    with inspecting(path) as (url, first_path), httpx2.Client(base_url=url, trust_env=False, timeout=30) as http:
        http.get(first_path)
        page = http.get("/").text
        while "still reading" in page:
            page = http.get("/").text

    assert "No conversation could be read." in page
    assert "notes.json" in page.partition("Skipped:")[2]
    assert "minutebook import" not in page


def test_a_filter_of_stored_conversations_says_how_many_it_searched(monkeypatch):
    monkeypatch.setattr(database, "MAX_FILTERED", 3)
    store = MemoryStore()
    for number in range(205):
        run_sync(store.append(f"c{number}", entries_of(session(1)["messages"][:2]), expected_version=0))
    source = StoreSource(store, ReplayPolicy(), name="a database", cache=OpenConversations())

    assert run_sync(source.list(ListFilter(sort="cost"))).newest == 200


def test_a_query_that_is_not_finished_is_a_sentence_on_the_page():
    source = StoreSource(MemoryStore(), ReplayPolicy(), name="a database", cache=OpenConversations())
    with listening_inspector(source) as (url, path), httpx2.Client(base_url=url, trust_env=False) as http:
        http.get(path)
        response = http.get("/", params={"q": '"where is'}, headers={"hx-request": "true"})

    assert response.status_code == 200
    assert 'class="problem"' in response.text
    assert "no conversations yet" not in response.text


def test_files_cannot_be_changed(pages):
    address = address_of(pages, "order 3")
    page = pages.get(f"{address}/folds").text
    token = json.loads(re.search(r"hx-headers='([^']+)'", page)[1])["X-CSRF-Token"]
    headers = {"origin": str(pages.base_url).rstrip("/"), "x-csrf-token": token}

    assert pages.post(f"{address}/folds/any/undo", headers=headers).status_code == 403


def test_a_key_that_may_only_read_cannot_undo_and_other_tenants_see_no_page():
    keys = {"admin": {"scopes": ["admin"]}, "reader": {}, "other": {"tenant": "rival", "scopes": ["admin"]}}
    with service_with_keys(**keys) as (here, created):
        for number in range(3):
            say(here, created["admin"].token, f"Where is my plumbago {number}?")
        base = f"/ui/c/{path_id('order/17')}"
        fold = Fold.over(range(2), reason="small talk", shown="a summary")
        asyncio.run(here.service.store.for_tenant("acme").add_fold("order/17", fold))
        statuses = {}
        for name in keys:
            http = signed_in(here, created[name].token)
            page = http.get(f"{base}/folds").text
            found = re.search(r"hx-headers='([^']+)'", http.get("/ui/").text)[1]
            headers = {"origin": here.url, "x-csrf-token": json.loads(found)["X-CSRF-Token"]}
            if name == "other":
                for path in PATHS:
                    response = http.get(f"{base}/{path}")
                    assert response.status_code == 404, path
                    assert "plumbago" not in response.text
                export = http.post(
                    f"{base}/export", data={"csrf": headers["x-csrf-token"]}, headers={"origin": here.url}
                )
                assert export.status_code == 404
            else:
                assert ("Undo this fold" in page) == (name == "admin")
                for path in PATHS:
                    assert http.get(f"{base}/{path}").status_code == 200, path
            if name != "admin":
                statuses[name] = http.post(f"{base}/folds/{fold.id}/undo", headers=headers).status_code
        admin = signed_in(here, created["admin"].token)
        found = re.search(r"hx-headers='([^']+)'", admin.get("/ui/").text)[1]
        headers = {"origin": here.url, "x-csrf-token": json.loads(found)["X-CSRF-Token"]}
        done = admin.post(f"{base}/folds/{fold.id}/undo", headers=headers)

    assert statuses == {"reader": 403, "other": 404}
    assert done.status_code == 200
    assert "<b>undone" in done.text


def test_replays_of_several_tenants_take_turns_and_each_may_have_some_waiting():
    queue, order, is_free = ReplayQueue(), [], threading.Event()
    first = queue.submit("a", is_free.wait)
    while not first.running():
        pass
    jobs = [queue.submit("a", partial(order.append, f"a{number}")) for number in range(MAX_WAITING)]
    jobs += [queue.submit("b", partial(order.append, f"b{number}")) for number in range(2)]
    with pytest.raises(RequestRefused, match="are waiting already"):
        queue.submit("a", order.clear)
    jobs[1].cancel()
    is_free.set()
    wait(jobs)

    assert order == ["a0", "b0", "b1", *(f"a{number}" for number in range(2, MAX_WAITING))]
