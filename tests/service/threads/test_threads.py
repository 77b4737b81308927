"""Threads over HTTP: a real server, a real client, and a provider that is as strict as the real ones."""

import asyncio
import json
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minutebook import check
from minutebook.record.finding import errors
from minutebook.testing import ScriptedModel, call, cut, fail, refuse, say, slow
from tests.service.talking import TOOLS, WHOLE, Gate, adding, db, talking, text_in  # noqa: F401 - db is a fixture


def recorded(here, thread):
    async def load():
        return await here.service.store.load(thread.id)

    return asyncio.run(load()).messages


def documents(here, thread, kind):
    async def load():
        return (await here.service.store.documents(thread.id, kind, limit=100)).items

    return [each.body for each in asyncio.run(load())]


def test_an_answer_is_streamed_and_ends_with_the_complete_text(tmp_path):
    model = ScriptedModel(say("Let me see. ") + call("add", a=1, b=2), "It is 3.")
    with talking(model, config=TOOLS, folder=tmp_path) as here:
        events = here.thread().hear("What is 1 and 2?")

    kinds = [each.event for each in events]
    done = events[-1].data
    assert kinds[0] == "notice"
    assert [each.data["status"] for each in events if each.event == "tool"] == ["running", "ok"]
    assert kinds[-1] == "done"
    assert done["text"] == text_in(events) == "Let me see. \n\nIt is 3."
    assert done["tools"] == [{"name": "add", "status": "ok"}]
    assert done["usage"]["total_tokens"] > 0
    assert (done["version"], done["history"]) == (4, "recorded")
    assert not here.provider.problems


def test_an_answer_is_available_as_json(tmp_path):
    with talking(adding(1), config=TOOLS, folder=tmp_path) as here:
        thread = here.thread()
        answer = thread.ask("Add.")

    assert answer.status_code == 200
    assert answer.json()["text"].startswith("Sum 0: ")
    assert answer.headers["etag"] == '"4"'
    assert answer.headers["x-history"] == "recorded"


def test_the_users_message_is_stored_before_the_model_is_called(tmp_path):
    gate = Gate()
    with talking(ScriptedModel(slow(1) + say("Late.")), wait=gate.wait, db=f"sqlite:///{tmp_path}/c.db") as here:
        thread = here.thread()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(thread.ask, "Are you there?")
            assert gate.reached.wait(20)
            during = recorded(here, thread)
            gate.open()
            assert answer.result().json()["text"] == "Late."
        after = recorded(here, thread)

    assert [message["content"] for message in during] == ["Are you there?"]
    assert [message["content"] for message in after] == ["Are you there?", "Late."]


def test_twenty_turns_with_tools_are_stored_completely(db, tmp_path):  # noqa: F811 - the fixture
    small = TOOLS + "conversation: {policy: small}\npolicies: {small: {manager: token_budget, max_tokens: 700}}\n"
    with talking(adding(20), db=db, config=small, folder=tmp_path) as here:
        thread = here.thread()
        for turn in range(20):
            answer = thread.ask(f"Question {turn}: " + "word " * 20)
            assert answer.json()["tools"] == [{"name": "add", "status": "ok"}], answer.text
        rows = thread.messages(limit=100)
        messages = recorded(here, thread)
        requests = documents(here, thread, "request")

    assert not here.provider.problems
    assert not errors(check(list(messages)))
    assert len(messages) == 80
    assert [row["role"] for row in rows] == ["user", "assistant"] * 20
    assert len(requests) == len(here.provider.requests) == 40
    assert sum(bool(each["left_out"]) for each in requests) > 10
    assert max(each["tokens_after"] for each in requests) <= 700


def test_every_model_call_can_be_rebuilt_from_its_minutes(tmp_path):
    from minutebook.conversation.minutes import messages_digest, sent_messages

    prompt = "system_prompt: You add.\nconversation: {retention: {max_loaded_messages: 6}}\n"
    with talking(adding(6), config=TOOLS + prompt, folder=tmp_path) as here:
        thread = here.thread()
        for turn in range(6):
            thread.ask(f"Question {turn}")
        record = dict(enumerate(recorded(here, thread)))
        minutes = documents(here, thread, "request")

    for one, sent in zip(minutes, here.sent(), strict=True):
        rebuilt = sent_messages([part if isinstance(part, dict) else list(part) for part in one["parts"]], record)
        assert messages_digest(rebuilt) == one["sha256"]
        assert [message.get("content") for message in rebuilt] == [message.get("content") for message in sent]


def test_pages_of_messages_are_oldest_first_with_complete_answers(tmp_path):
    with talking(adding(5), config=TOOLS + "system_prompt: You add.\n", folder=tmp_path) as here:
        thread = here.thread()
        for turn in range(5):
            thread.ask(f"Question {turn}")
        paged, cursor = [], None
        while True:
            params = {"limit": 3} | ({"cursor": cursor} if cursor else {})
            page = thread.http.get(f"{thread.path}/messages", params=params).json()
            paged.append(page["data"])
            cursor = page["next_cursor"]
            if not page["has_more"]:
                break

    rows = [row for page in paged for row in page]
    assert [len(page) for page in paged] == [3, 3, 3, 1]
    assert [row["text"] for row in rows if row["role"] == "user"] == [f"Question {turn}" for turn in range(5)]
    assert all(row["tools_used"] == [{"name": "add", "status": "ok"}] for row in rows if row["role"] == "assistant")


def test_threads_are_listed_newest_first():
    with talking() as here:
        first = here.thread(recipient="ann", metadata={"topic": "tea"})
        second = here.thread()
        first.ask("Hello")
        listed = first.http.get("/threads", params={"limit": 1}).json()
        rest = first.http.get("/threads", params={"cursor": listed["next_cursor"]}).json()
        one = first.http.get(first.path)

    assert [each["id"] for each in listed["data"] + rest["data"]] == [second.id, first.id]
    assert one.json()["metadata"] == {"topic": "tea"}
    assert (one.json()["recipient"], one.json()["turns"], one.json()["version"]) == ("ann", 1, 3)
    assert one.headers["etag"] == '"3"'


def test_parts_of_content_reach_the_model_with_and_without_a_system_prompt(tmp_path):
    content = [{"type": "text", "text": "Look"}, {"type": "text", "text": "here"}]
    for config in ("", "system_prompt: You look.\n"):
        with talking(config=config, folder=tmp_path) as here:
            thread = here.thread()
            answer = thread.http.post(f"{thread.path}/messages", json={"content": content}, headers=WHOLE)
            row = thread.messages()[0]

        assert answer.status_code == 200
        assert here.sent()[0][-1]["content"] == content
        assert (row["text"], row["content"]) == ("Look\nhere", content)
        assert len(here.sent()[0]) == (2 if config else 1)


def test_options_reach_the_provider_and_cannot_replace_the_messages():
    with talking() as here:
        thread = here.thread()
        thread.ask("Hello", options={"temperature": 0.25})
        refused = thread.ask("Hello", options={"messages": []})

    assert here.provider.requests[0].body["temperature"] == 0.25
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "options.messages")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": ""},
        {"text": "a", "content": "b"},
        {"content": []},
        {"content": [1]},
        {"content": [{}]},
        {"content": [{"type": "text"}]},
        {"content": [{"type": "text", "text": ""}]},
        {"content": [{"type": ["text"], "text": "a"}]},
        {"text": "a", "more": 1},
        {"text": "a", "policy": "none_such"},
    ],
    ids=str,
)
def test_an_invalid_message_is_rejected_and_not_stored(body):
    with talking() as here:
        thread = here.thread()
        answer = thread.http.post(f"{thread.path}/messages", json=body, headers=WHOLE)
        left = thread.messages()

    assert answer.status_code == 400
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert left == []


@pytest.mark.parametrize(
    ("field", "name"), [("recipent", "recipent"), ("sk-proj-" + "a1" * 12, "…")], ids=["typo", "secret"]
)
def test_an_unknown_field_is_named(field, name):
    with talking() as here:
        thread = here.thread()
        created = thread.http.post("/threads", json={field: "alice"})
        asked = thread.http.post(f"{thread.path}/messages", json={"text": "Hello", field: "alice"})

    for answer in (created, asked):
        assert answer.status_code == 400
        assert answer.json()["error"]["message"] == f"{name} is an unknown field."
        assert answer.json()["error"]["param"] == name


@pytest.mark.parametrize("text", [" ", "a\0b", "\ud800", "🙂" * 1_000], ids=["blank", "nul", "surrogate", "wide"])
def test_any_text_is_stored_and_the_thread_continues(text):
    body = json.dumps({"content": text})
    with talking() as here:
        thread = here.thread()
        headers = {**WHOLE, "content-type": "application/json"}
        answers = [thread.http.post(f"{thread.path}/messages", content=body, headers=headers) for _ in range(2)]
        rows = thread.messages()

    assert [answer.status_code for answer in answers] == [200, 200]
    assert [row["text"] for row in rows] == [text, "Yes."] * 2


def test_a_thread_has_one_answer_in_progress():
    gate = Gate()
    model = ScriptedModel(slow(1) + say("First."), "Second.")
    with talking(model, wait=gate.wait, environment={"MINUTEBOOK_SERVER_WAIT_SECONDS": "0.1"}) as here:
        thread = here.thread()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(thread.ask, "One")
            assert gate.reached.wait(20)
            busy = thread.ask("Two")
            gate.open()
            assert first.result().json()["text"] == "First."
        second = thread.ask("Two")

    assert (busy.status_code, busy.json()["error"]["code"]) == (409, "conversation_locked")
    assert int(busy.headers["retry-after-ms"]) > 0
    assert second.json()["text"] == "Second."


def test_an_outdated_version_is_a_conflict():
    with talking() as here:
        thread = here.thread()
        thread.ask("Hello", headers={"if-match": '"1"'})
        stale = thread.ask("Hello again", headers={"if-match": '"1"'})
        fresh = thread.ask("Hello again", headers={"if-match": '"3"'})
        wrong = thread.ask("Hello again", headers={"if-match": "new"})

    assert (stale.status_code, stale.json()["error"]["code"]) == (412, "version_conflict")
    assert fresh.status_code == 200
    assert wrong.status_code == 400
    assert len(here.provider.requests) == 2


def test_the_same_key_gets_the_same_answer_and_stores_the_message_once(db):  # noqa: F811 - the fixture
    key = {"idempotency-key": "k1"}
    with talking(ScriptedModel("Once."), db=db) as here:
        thread = here.thread()
        first = thread.ask("Hello", headers=key)
        again = thread.ask("Hello", headers=key)
        events = thread.hear("Hello", headers=key)
        other = thread.ask("Something else", headers=key)
        rows = thread.messages()

    assert again.json() == first.json() == events[-1].data
    assert again.headers["idempotent-replayed"] == "true"
    assert text_in(events) == "Once."
    assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_conflict")
    assert len(rows) == 2


def test_the_same_key_creates_one_thread():
    with talking() as here, here.http() as http:
        made = [http.post("/threads", json={}, headers={"idempotency-key": "t1"}) for _ in range(2)]
        other = http.post("/threads", json={"recipient": "ann"}, headers={"idempotency-key": "t1"})
        listed = http.get("/threads").json()["data"]

    assert made[0].json()["id"] == made[1].json()["id"] == listed[0]["id"]
    assert len(listed) == 1
    assert other.status_code == 422


def test_a_provider_failure_is_an_error_event_and_a_retry_reuses_the_stored_message():
    key = {"idempotency-key": "k1"}
    with talking(ScriptedModel(fail(400, "no"), fail(400, "no"), "Now."), db="memory:") as here:
        thread = here.thread()
        whole = thread.ask("Hello", headers=key)
        events = thread.hear("Hello", headers=key)
        runs = [(each["status"], each.get("failed")) for each in documents(here, thread, "run")]
        requests = documents(here, thread, "request")
        third = thread.ask("Hello", headers=key)
        rows = thread.messages()

    assert (whole.status_code, whole.json()["error"]["code"]) == (400, "upstream_refused")
    assert events[-1].event == "error"
    assert events[-1].data["error"]["code"] == "upstream_refused"
    assert runs == [("failed", "upstream_refused")] * 2
    assert [each["failed"] for each in requests] == ["upstream_refused"] * 2
    assert third.json()["text"] == "Now."
    assert [row["text"] for row in rows] == ["Hello", "Now."]


def test_an_interrupted_answer_is_restarted_with_a_notice():
    with talking(ScriptedModel(say("It is a long story.") + cut(after_chunks=4), "It is short.")) as here:
        thread = here.thread()
        events = thread.hear("Tell me")

    notices = [each.data["notice"] for each in events if each.event == "notice"]
    assert notices == ["recorded", "restarted"]
    assert text_in(events) == events[-1].data["text"] == "It is short."


def test_a_refusal_is_an_answer():
    with talking(ScriptedModel(refuse("I would rather not."))) as here:
        thread = here.thread()
        events = thread.hear("Do it")
        rows = thread.messages()

    assert text_in(events) == events[-1].data["text"] == rows[1]["text"] == "I would rather not."


def test_a_failed_tool_has_the_status_error(tmp_path):
    config = "tools: [{python: 'tests.service.talking_tools:explode'}]\n"
    with talking(ScriptedModel(call("explode", path="a"), "It failed."), config=config, folder=tmp_path) as here:
        thread = here.thread()
        events = thread.hear("Try")

    assert [each.data["status"] for each in events if each.event == "tool"] == ["running", "error"]
    assert events[-1].data["tools"] == [{"name": "explode", "status": "error"}]


def test_a_missing_object_is_a_404():
    with talking() as here, here.http() as http:
        thread = here.thread()
        answers = [
            http.get("/threads/thread_none"),
            http.get("/threads/thread_none/messages"),
            http.post("/threads/thread_none/messages", json={"text": "Hello"}),
            http.post("/threads/draft_none/messages", json={"text": "Hello"}),
            http.get("/threads/thread_none/runs/run_none/events"),
            http.get(f"{thread.path}/runs/run_none/events"),
            http.get(f"{thread.path}/runs/run_none/events", headers={"last-event-id": "run_none:1:0"}),
        ]

    assert [answer.status_code for answer in answers] == [404] * len(answers)
    assert not here.provider.requests


def test_a_compaction_is_sent_as_a_notice(db, tmp_path):  # noqa: F811 - the fixture
    folding = TOOLS + (
        "conversation: {policy: folding}\npolicies: {folding: {strategy: turns, keep_turns: 2, trigger: 0.02}}\n"
    )
    with talking(adding(8), db=db, config=folding, folder=tmp_path) as here:
        thread = here.thread()
        events = [each for turn in range(8) for each in thread.hear(f"Question {turn}: " + "word " * 90, model="gpt-4")]

        async def folds():
            return await here.service.store.folds(thread.id)

        kept = asyncio.run(folds())
        rows = thread.messages(limit=100)

    assert not here.provider.problems
    assert kept
    assert "compacted" in {each.data["notice"] for each in events if each.event == "notice"}
    assert len(here.sent()[-1]) < 20
    assert len(rows) == 16


def test_a_tool_server_that_ends_is_started_again(tmp_path):
    command = shlex.join([sys.executable, str(Path(__file__).parents[2] / "dsl" / "toolserver.py"), "mortal"])
    config = f"tools: [{{mcp: {json.dumps(command)}, name: tickets}}]\n"
    model = ScriptedModel(call("die"), call("search", query="tea"), "Found.", "Hello again.")
    with talking(model, config=config, folder=tmp_path) as here, here.http() as http:
        before = http.get("/readyz").json()
        events = here.thread().hear("Look.")
        ready = http.get("/readyz").json()
        metrics = http.get("/metrics").text
        results = [message["content"] for message in here.provider.requests[-1].messages if message["role"] == "tool"]

    assert "tool_servers" not in before
    assert [each.data["status"] for each in events if each.event == "tool"] == ["running", "error", "running", "ok"]
    assert events[-1].data["text"] == "Found."
    assert "it ended during the call" in results[0]
    assert results[1] == "3 tickets about tea"
    assert ready["tool_servers"] == {"tickets": {"state": "running", "restarts": 1}}
    assert 'minutebook_tool_server_restarts_total{server="tickets"} 1.0' in metrics
