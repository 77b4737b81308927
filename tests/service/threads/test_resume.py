"""Coming back to an answer: from every event on, after the client or the server was gone."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import httpx2

from minutebook import open_store
from minutebook.store import NewDocument
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say, slow
from tests.service.talking import TOOLS, WHOLE, Apart, Gate, Thread, db, heard, talking, text_in  # noqa: F401 - db is a fixture


def story():
    return ScriptedModel(say("First I look. ") + call("add", a=1, b=2), "Then I tell: it is three. 🙂 Ünd so on.")


def test_a_stream_can_be_resumed_after_any_event(tmp_path):
    with talking(story(), config=TOOLS, folder=tmp_path) as here:
        thread = here.thread()
        events = thread.hear("What is 1 and 2?")
        run = events[0].data["run"]
        resumed = [thread.come_back(run, None if not at else events[at - 1].id) for at in range(len(events) + 1)]

    whole = [each.raw for each in events]
    for at, rest in enumerate(resumed):
        assert whole[:at] + [each.raw for each in rest] == whole


def test_a_stream_in_progress_can_be_resumed(tmp_path):
    gate = Gate()
    model = ScriptedModel(say("First I look. ") + call("add", a=1, b=2), slow(1) + say("It is three."))
    with talking(model, config=TOOLS, folder=tmp_path, wait=gate.wait) as here:
        thread = here.thread()
        cut = thread.hear("What is 1 and 2?", upto=3)
        run = cut[0].data["run"]
        with ThreadPoolExecutor(3) as pool:
            listeners = [pool.submit(thread.come_back, run, each.id) for each in cut]
            assert gate.reached.wait(20)
            gate.open()
            resumed = [listener.result() for listener in listeners]
        whole = thread.come_back(run)

    for at, rest in enumerate(resumed, 1):
        assert [each.raw for each in cut[:at] + rest] == [each.raw for each in whole]
    assert text_in(whole) == whole[-1].data["text"] == "First I look. \n\nIt is three."


def test_a_post_with_last_event_id_resumes_and_stores_nothing(tmp_path):
    with talking(story(), config=TOOLS, folder=tmp_path) as here:
        thread = here.thread()
        events = thread.hear("What is 1 and 2?")
        rest = thread.hear("What is 1 and 2?", headers={"last-event-id": events[2].id})
        rows = thread.messages()

    assert [each.raw for each in events[:3] + rest] == [each.raw for each in events]
    assert len(rows) == 2


def test_an_answer_is_replayed_from_the_record_after_a_restart(db, tmp_path):  # noqa: F811 - the fixture
    with LoopbackProvider(story()) as provider:
        with talking(provider=provider, db=db, config=TOOLS, folder=tmp_path) as here:
            thread = here.thread()
            events = thread.hear("What is 1 and 2?")
        run = events[0].data["run"]
        with talking(provider=provider, db=db, config=TOOLS, folder=tmp_path) as here, here.http() as http:
            again = Thread(http, {"id": thread.id})
            resumed = [again.come_back(run, None if not at else events[at - 1].id) for at in range(len(events))]
            whole = http.get(f"{again.path}/runs/{run}/events", headers=WHOLE)

    for at, rest in enumerate(resumed):
        assert text_in(events[:at] + rest) == events[-1].data["text"]
        assert rest[-1].data == events[-1].data
    assert whole.json() == events[-1].data
    assert len(provider.requests) == 2


def test_an_answer_continues_after_a_disconnect(db, tmp_path):  # noqa: F811 - the fixture
    gate = Gate()
    model = ScriptedModel(say("I look. ") + call("add", a=1, b=2), slow(1) + say("It is three."), "Yes.")
    with talking(
        model,
        db=db,
        config=TOOLS,
        folder=tmp_path,
        wait=gate.wait,
        environment={"MINUTEBOOK_SERVER_WAIT_SECONDS": "0.1"},
    ) as here:
        thread = here.thread()
        cut = thread.hear("What is 1 and 2?", upto=2)
        assert gate.reached.wait(20)
        busy = thread.ask("Are you there?")
        gate.open()
        rest = thread.come_back(cut[0].data["run"], cut[-1].id)
        rows = thread.messages()

    assert busy.status_code == 409
    assert rest[-1].event == "done"
    assert rows[1]["text"] == text_in(cut + rest) == "I look. \n\nIt is three."


def test_a_disconnect_cancels_the_answer_on_request(tmp_path):
    gate = Gate()
    model = ScriptedModel(say("I look. ") + call("add", a=1, b=2), slow(1) + say("Too late."), "Yes.")
    with talking(model, config=TOOLS, folder=tmp_path, wait=gate.wait) as here:
        thread = here.thread()
        body = {"text": "What is 1 and 2?"}
        with thread.http.stream("POST", f"{thread.path}/messages?on_disconnect=cancel", json=body) as answer:
            run = answer.headers["x-run-id"]
            assert gate.reached.wait(20)
        events = thread.come_back(run)
        gate.open()
        rows = thread.messages()

    assert events[-1].event == "error"
    assert events[-1].data["error"]["code"] == "run_cancelled"
    assert [row["text"] for row in rows] == ["What is 1 and 2?", "I look. "]


def test_a_retry_after_a_crash_calls_the_model_again_and_stores_the_message_once(db):  # noqa: F811 - the fixture
    headers, gate = {"idempotency-key": "k1", "if-match": '"1"'}, Gate()
    model = ScriptedModel("All is loaded.", slow(1) + say("Never stored."), "Stored.")
    with LoopbackProvider(model, wait=gate.wait) as provider:
        killed = Apart(db, provider.base_url)
        try:
            with httpx2.Client(base_url=killed.url, trust_env=False, timeout=30) as http:
                other, thread = (Thread(http, http.post("/threads").json()) for _ in range(2))
                other.ask("Are you there?")
                run = thread.hear("Hello", headers=headers, upto=1)[0].data["run"]
                assert gate.reached.wait(20)
        finally:
            killed.kill()
        gate.open()
        with talking(provider=provider, db=db) as here, here.http() as http:
            again = Thread(http, {"id": thread.id})
            before = again.messages()
            lost = again.come_back(run)
            answer = again.ask("Hello", headers=headers)
            replayed = again.ask("Hello", headers=headers)
            rows = again.messages()

    assert [row["text"] for row in before] == ["Hello"]
    assert lost[-1].data["error"]["code"] == "run_lost"
    assert answer.json()["text"] == "Stored.", answer.text
    assert replayed.json() == answer.json()
    assert [row["text"] for row in rows] == ["Hello", "Stored."]
    assert [message["content"] for message in provider.requests[2].messages] == ["Hello"]


def test_a_retry_after_a_crash_continues_after_the_last_stored_tool_result(db, tmp_path):  # noqa: F811 - the fixture
    headers, gate, config = {"idempotency-key": "k1"}, Gate(), tmp_path / "tools.yaml"
    config.write_text(TOOLS)
    model = ScriptedModel(
        "All is loaded.",
        say("First I look. ") + call("add", a=1, b=2),
        slow(1) + say("Never stored."),
        "It is three.",
    )
    with LoopbackProvider(model, wait=gate.wait) as provider:
        killed = Apart(db, provider.base_url, config=config)
        try:
            with httpx2.Client(base_url=killed.url, trust_env=False, timeout=30) as http:
                other, thread = (Thread(http, http.post("/threads").json()) for _ in range(2))
                other.ask("Are you there?")
                thread.hear("What is 1 and 2?", headers=headers, upto=4)
                assert gate.reached.wait(20)
        finally:
            killed.kill()
        gate.open()
        with talking(provider=provider, db=db, config=TOOLS, folder=tmp_path) as here, here.http() as http:
            again = Thread(http, {"id": thread.id})
            before = again.messages()
            events = again.hear("What is 1 and 2?", headers=headers)
            replayed = again.ask("What is 1 and 2?", headers=headers).json()
            rows = again.messages()

    assert [row["text"] for row in before] == ["What is 1 and 2?", "First I look. "]
    assert before[1]["tools_used"] == [{"name": "add", "status": "ok"}]
    assert text_in(events) == events[-1].data["text"] == "First I look. \n\nIt is three."
    assert replayed == events[-1].data
    assert [row["text"] for row in rows] == ["What is 1 and 2?", events[-1].data["text"]]
    assert [message["role"] for message in provider.requests[-1].messages] == ["user", "assistant", "tool"]
    assert len(provider.requests) == 4
    assert not provider.problems


def test_a_retry_after_a_crash_gets_the_answer_that_was_stored(db, tmp_path):  # noqa: F811 - the fixture
    async def unfinish_run(thread_id):
        """The server was killed after it had stored the answer, and before it noted the end of the run."""
        async with open_store(db) as store:
            (run,) = (await store.documents(thread_id, "run")).items
            body = {name: value for name, value in run.body.items() if name not in {"answer", "stop", "version"}}
            document = NewDocument("run", run.id, {**body, "status": "in_progress"}, replace=True)
            await store.put_document(thread_id, document)

    headers = {"idempotency-key": "k1"}
    with LoopbackProvider(story()) as provider:
        with talking(provider=provider, db=db, config=TOOLS, folder=tmp_path) as here:
            thread = here.thread()
            first = thread.hear("What is 1 and 2?", headers=headers)[-1].data
        asyncio.run(unfinish_run(thread.id))
        with talking(provider=provider, db=db, config=TOOLS, folder=tmp_path) as here, here.http() as http:
            events = Thread(http, {"id": thread.id}).hear("What is 1 and 2?", headers=headers)

    assert text_in(events) == events[-1].data["text"] == first["text"]
    assert events[-1].data["tools"] == first["tools"]
    assert len(provider.requests) == 2


def test_an_answer_of_another_server_is_awaited(db):  # noqa: F811 - the fixture
    gate = Gate()
    with LoopbackProvider(ScriptedModel(slow(1) + say("Made over there.")), wait=gate.wait) as provider:
        with (
            talking(provider=provider, db=db) as here,
            talking(provider=provider, db=db, environment={"MINUTEBOOK_SERVER_WAIT_SECONDS": "0.1"}) as other,
            other.http() as http,
        ):
            thread = here.thread()
            heard = thread.hear("Hello", upto=1)
            elsewhere = Thread(http, {"id": thread.id})
            busy = elsewhere.ask("Me too")
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(elsewhere.come_back, heard[0].data["run"], heard[0].id)
                gate.open()
                rest = waiting.result()

    assert busy.status_code == 409
    assert text_in(rest) == rest[-1].data["text"] == "Made over there."


def test_an_idle_stream_sends_pings(tmp_path):
    gate = Gate()
    config = "server: {heartbeat_seconds: 0.02}\n"
    with talking(ScriptedModel(slow(1) + say("Late.")), config=config, folder=tmp_path, wait=gate.wait) as here:
        thread = here.thread()
        lines = []
        with thread.http.stream("POST", f"{thread.path}/messages", json={"text": "Hello"}) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                if line == ": ping":
                    gate.open()

    assert ": ping" in lines
    assert text_in(heard(lines)) == "Late."
