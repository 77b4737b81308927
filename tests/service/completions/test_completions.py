"""OpenAI's own client against the service, in front of a provider that is as strict as the real ones."""

import asyncio
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import openai
import pytest

from minutebook import check, open_store
from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.conversation.policy import Policy
from minutebook.errors import StoreUnavailable
from minutebook.record.finding import errors
from minutebook.testing import ScriptedModel, call, cut, fail, overflow, say, slow
from tests.service.serving import served
from tests.service.talking import Gate

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}]
HERE = {"X-Conversation-Id": "order-17"}
SMALL = """
conversation: {policy: small}
policies:
  small: {manager: token_budget, max_tokens: 900}
"""


def user(text):
    return {"role": "user", "content": text}


def tool_turns(turns):
    """A model that looks something up in every turn, twice at once, and then answers."""
    steps = []
    for turn in range(turns):
        steps += [call("look_up", at=f"{turn}a") + call("look_up", at=f"{turn}b"), f"Answer {turn}."]
    return ScriptedModel(*steps)


def completed(client, history, *, stream=False, headers=HERE, **options):
    """The assistant's next message, as a client would keep it."""
    made = client.chat.completions.create(
        model="gpt-4o", messages=history, stream=stream, extra_headers=headers, **options
    )
    if not stream:
        return made.choices[0].message.model_dump(exclude_none=True)
    text, calls = [], {}
    for chunk in made:
        for choice in chunk.choices:
            text.append(choice.delta.content or "")
            for piece in choice.delta.tool_calls or ():
                known = calls.setdefault(
                    piece.index, {"id": piece.id, "type": "function", "function": {"name": "", "arguments": ""}}
                )
                known["function"]["name"] += piece.function.name or ""
                known["function"]["arguments"] += piece.function.arguments or ""
    message = {"role": "assistant", "content": "".join(text) or None}
    return message if not calls else {**message, "tool_calls": list(calls.values())}


def talk(client, turns, *, stream, headers=HERE):
    """A conversation of so many turns, each with tools; the client resends everything each time."""
    history = [{"role": "system", "content": "You look things up."}]
    for turn in range(turns):
        history.append(user(f"Question {turn}: " + "word " * 20))
        while True:
            said = completed(client, history, stream=stream, headers=headers, tools=TOOLS)
            history.append(said)
            if not said.get("tool_calls"):
                break
            history += [
                {"role": "tool", "tool_call_id": each["id"], "content": f"Found {each['id']}. " + "fact " * 40}
                for each in said["tool_calls"]
            ]
    return history


def recorded(served_, conversation="order-17"):
    async def load():
        return await served_.service.store.load(conversation)

    return asyncio.run(load()).messages


def texts(messages):
    return [(each["role"], each.get("content")) for each in messages]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_twenty_turns_with_tools_fit_a_small_window_and_the_record_is_whole(tmp_path, stream):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    with served(tool_turns(20), db=db, config=SMALL, folder=tmp_path, max_context_tokens=1_200) as here:
        history = talk(here.client(), 20, stream=stream)
        assert here.provider.problems == []
        assert texts(recorded(here)) == texts(history)
        assert not errors(check(recorded(here)))
        sent = [len(request.messages) for request in here.provider.requests]
        assert len(sent) == 40
        assert max(sent) < len(history) / 2


def test_what_was_sent_is_written_down_for_every_request():
    with served(tool_turns(3)) as here:
        talk(here.client(), 3, stream=False)

        async def minutes():
            return (await here.service.store.documents("order-17", "request", limit=100)).items

        documents = asyncio.run(minutes())
        assert len(documents) == len(here.provider.requests) == 6
        assert all(document.body["finish"] and document.body["usage"] for document in documents)
        assert [document.body["reconcile"] for document in documents] == ["appended"] * 6


def test_an_edited_message_goes_on_in_a_branch_and_nothing_is_lost():
    with served(ScriptedModel(otherwise=lambda request: f"To {request.last_text}.")) as here:
        client = here.client()
        first = [user("one")]
        first += [completed(client, first), user("two")]
        first += [completed(client, first)]
        second = [*first[:2], user("TWO")]
        second += [completed(client, second), user("three")]
        second += [completed(client, second)]
        back = [*first, user("four")]
        back += [completed(client, back)]
        assert texts(recorded(here)) == texts(back)
        branch = next(
            document.id for document in asyncio.run(_documents(here, "branch")) if document.body["of"] == "order-17"
        )
        assert texts(recorded(here, branch)) == texts(second)
        assert here.provider.problems == []


async def _documents(here, kind):
    return (await here.service.store.documents("order-17", kind, limit=100)).items


def test_another_answer_to_the_same_words_is_a_branch_too():
    with served(ScriptedModel("First.", "Second.")) as here:
        client = here.client()
        raw = client.chat.completions.with_raw_response
        for wanted, decision in (("First.", "appended"), ("Second.", "forked")):
            made = raw.create(model="gpt-4o", messages=[user("one")], extra_headers=HERE)
            assert made.parse().choices[0].message.content == wanted
            assert made.headers["x-history-reconcile"] == decision


def test_the_last_words_alone_get_their_history():
    with served(ScriptedModel(otherwise=lambda request: f"{len(request.messages)}")) as here:
        client = here.client()
        answers = [completed(client, [user(f"words {turn}")])["content"] for turn in range(3)]
        assert answers == ["1", "3", "5"]
        assert len(recorded(here)) == 6


def test_a_changed_system_message_is_used_and_makes_no_branch():
    with served(ScriptedModel(otherwise="Yes.")) as here:
        client = here.client()
        history = [{"role": "system", "content": "It is Monday."}, user("one")]
        history += [completed(client, history), user("two")]
        history[0] = {"role": "system", "content": "It is Tuesday."}
        history += [completed(client, history)]
        sent = here.provider.requests[-1].messages
        assert sent[0]["content"] == "It is Tuesday."
        assert [each["role"] for each in sent] == ["system", "user", "assistant", "user"]
        assert asyncio.run(_documents(here, "branch")) == ()
        minutes = asyncio.run(_documents(here, "request"))[-1].body
        assert "It is Tuesday." in json.dumps(minutes["parts"], default=list)


def test_a_job_beside_the_conversation_leaves_no_trace():
    with served(ScriptedModel("Yes.", "A title", "Yes again.")) as here:
        client = here.client()
        history = [user("one")]
        history += [completed(client, history)]
        assert completed(client, [user("Find a title.")], headers={**HERE, "X-Task": "title"})["content"] == "A title"
        history += [user("two")]
        history += [completed(client, history)]
        assert texts(recorded(here)) == texts(history)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_retry_gets_the_first_answer_and_nobody_is_asked_again(stream):
    with served(ScriptedModel("First.", "Second.")) as here:
        client = here.client()
        once = completed(client, [user("one")], stream=stream)
        again = completed(client, [user("one")], stream=stream, headers={**HERE, "x-stainless-retry-count": "1"})
        assert once["content"] == again["content"] == "First."
        assert len(here.provider.requests) == 1
        assert len(recorded(here)) == 2


def test_an_idempotency_key_stands_for_one_request():
    with served(ScriptedModel("First.", "Second.")) as here:
        client, key = here.client(), {**HERE, "Idempotency-Key": "k-1"}
        raw = client.chat.completions.with_raw_response
        made = [raw.create(model="gpt-4o", messages=[user("one")], extra_headers=key) for _ in range(2)]
        assert [each.parse().choices[0].message.content for each in made] == ["First.", "First."]
        assert "idempotent-replayed" not in made[0].headers
        assert made[1].headers["idempotent-replayed"] == "true"
        with pytest.raises(openai.UnprocessableEntityError, match="a different request"):
            raw.create(model="gpt-4o", messages=[user("two")], extra_headers=key)
        assert len(recorded(here)) == 2


def test_one_answer_at_a_time_is_made_in_a_conversation_and_clients_win_by_waiting():
    arrived, go_on = threading.Event(), threading.Event()

    def wait(_seconds):
        arrived.set()
        go_on.wait(20)

    model = ScriptedModel(slow(1) + say("First."), otherwise="Later.")
    with (
        served(model, wait=wait, environment={"MINUTEBOOK_SERVER_WAIT_SECONDS": "0.1"}) as here,
        ThreadPoolExecutor() as pool,
    ):
        first = pool.submit(completed, here.client(), [user("one")])
        assert arrived.wait(20)
        with pytest.raises(openai.ConflictError) as refused:
            completed(here.client(), [user("two")])
        assert refused.value.code == "conversation_locked"
        assert int(refused.value.response.headers["retry-after-ms"]) > 0
        patient = pool.submit(completed, here.client(max_retries=50), [user("two")])
        go_on.set()
        assert first.result()["content"] == "First."
        assert patient.result()["content"] == "Later."
        assert len(recorded(here)) == 4


def test_a_client_that_goes_away_loses_no_answer():
    arrived, go_on = threading.Event(), threading.Event()

    def wait(_seconds):
        if arrived.is_set():
            go_on.wait(20)
        arrived.set()

    with served(ScriptedModel(slow(between_seconds=1) + say("one two three four")), wait=wait) as here:
        stream = here.client().chat.completions.create(
            model="gpt-4o", messages=[user("count")], stream=True, extra_headers=HERE
        )
        next(iter(stream))
        stream.close()
        go_on.set()
        until(lambda: here.service.runs.active == 0)
        assert texts(recorded(here)) == [("user", "count"), ("assistant", "one two three four")]


def until(holds):
    for _ in range(2_000):
        if holds():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came true")


def test_a_client_may_ask_that_its_leaving_stops_the_answer():
    arrived, go_on = threading.Event(), threading.Event()

    def wait(_seconds):
        if arrived.is_set():
            go_on.wait(20)
        arrived.set()

    with served(ScriptedModel(slow(between_seconds=1) + say("one two three four")), wait=wait) as here:
        stream = here.client().chat.completions.create(
            model="gpt-4o",
            messages=[user("count")],
            stream=True,
            extra_headers=HERE,
            extra_query={"on_disconnect": "cancel"},
        )
        next(iter(stream))
        stream.close()
        until(lambda: here.service.runs.active == 0)
        go_on.set()
        assert texts(recorded(here)) == [("user", "count")]


def test_a_client_that_waits_for_a_whole_answer_may_leave_too():
    arrived, go_on = threading.Event(), threading.Event()

    def wait(_seconds):
        arrived.set()
        go_on.wait(20)

    with served(ScriptedModel(slow(1) + say("never")), wait=wait) as here:
        body = json.dumps({"model": "gpt-4o", "messages": [user("count")]}).encode()
        where = urlsplit(here.url)
        head = [
            "POST /v1/chat/completions?on_disconnect=cancel HTTP/1.1",
            f"Host: {where.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *(f"{name}: {value}" for name, value in HERE.items()),
        ]
        with socket.create_connection((where.hostname, where.port)) as line:
            line.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            assert arrived.wait(20)
            assert here.service.runs.active == 1
        until(lambda: here.service.runs.active == 0)
        go_on.set()
        assert texts(recorded(here)) == [("user", "count")]


def test_of_several_choices_the_record_goes_on_with_the_first_and_the_minutes_have_all():
    streamed, whole = CompletionAccumulator(), CompletionAccumulator()
    for index, text in ((0, "one"), (1, "uno"), (0, " two"), (1, " dos")):
        assert not streamed.add_chunk({"choices": [{"index": index, "delta": {"content": text}}]})
    assert streamed.add_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    whole.add_completion(
        {"choices": [{"message": {"content": "one two"}, "finish_reason": "stop"}, {"message": {"content": "uno dos"}}]}
    )
    for answer in (streamed, whole):
        assert answer.message == {"role": "assistant", "content": "one two"}
        assert answer.outcome()["other_choices"] == [{"role": "assistant", "content": "uno dos"}]


def test_a_view_that_the_provider_finds_too_long_is_made_shorter():
    history = [user("word " * 50), {"role": "assistant", "content": "Yes."}] * 5
    with served(ScriptedModel("Yes.", overflow(900, 300), otherwise="Done."), folder=None) as here:
        client = here.client()
        completed(client, [user("start")])
        with_small = {**HERE, "X-Conversation-Id": "long"}
        assert completed(client, [*history, user("now?")], headers=with_small)["content"] == "Done."
        assert len(here.provider.requests[-1].messages) < len(here.provider.requests[-2].messages)
        assert len(recorded(here, "long")) == 12


@pytest.mark.parametrize(
    ("steps", "status", "code"),
    [
        ([fail(429, retry_after=1)], 429, "rate_limit_exceeded"),
        ([fail(500)], 502, "upstream_error"),
        ([fail(401)], 502, "upstream_unauthorized"),
        ([fail(400, "sk-proj-secret0123456789abcdefghij is in your prompt")], 400, "upstream_refused"),
        ([cut(after_chunks=0)] * 2, 502, "upstream_error"),
    ],
    ids=["busy", "broken", "key", "refused", "gone"],
)
def test_a_failing_provider_is_reported_without_secrets_and_a_retry_works(steps, status, code):
    with served(ScriptedModel(*steps, otherwise="Yes.")) as here:
        client = here.client()
        with pytest.raises(openai.APIStatusError) as failed:
            completed(client, [user("one")])
        assert (failed.value.status_code, failed.value.code) == (status, code)
        assert "secret" not in failed.value.response.text
        assert completed(client, [user("one")])["content"] == "Yes."
        assert texts(recorded(here)) == [("user", "one"), ("assistant", "Yes.")]


def test_a_stream_that_breaks_off_is_an_error_and_what_came_is_in_the_minutes():
    with served(ScriptedModel(say("one two three four") + cut(after_chunks=3), otherwise="Whole.")) as here:
        client = here.client()
        with pytest.raises(openai.APIError):
            completed(client, [user("count")], stream=True)
        partial = asyncio.run(_documents(here, "request"))[0].body["partial"]
        assert partial
        assert "one two three four".startswith(partial)
        assert completed(client, [user("count")], stream=True)["content"] == "Whole."
        assert texts(recorded(here)) == [("user", "count"), ("assistant", "Whole.")]


def test_a_stream_that_is_not_recorded_and_breaks_off_says_so_too():
    with served(ScriptedModel(say("one two three four") + cut(after_chunks=3))) as here:
        body = {"model": "gpt-4o", "messages": [user("count")], "stream": True}
        told = here.http().post("/v1/chat/completions", json=body, headers={"x-history": "off"}).text

    assert json.loads(told.strip().rpartition("data: ")[2])["error"]["code"] == "upstream_error"


def test_whoever_names_no_conversation_is_answered_and_not_recorded():
    with served(ScriptedModel(otherwise="Yes.")) as here:
        made = here.client().chat.completions.with_raw_response.create(model="gpt-4o", messages=[user("one")])
        assert made.headers["x-history"] == "unrecorded"
        assert asyncio.run(_listed(here)) == ()


async def _listed(here):
    return (await here.service.store.list()).items


def test_a_service_may_insist_on_a_name(tmp_path):
    with served(config="server: {missing_session_id: reject}", folder=tmp_path) as here:
        with pytest.raises(openai.BadRequestError) as refused:
            completed(here.client(), [user("one")], headers={})
        assert refused.value.code == "missing_conversation_id"


def test_a_service_may_find_names_itself(tmp_path):
    with served(config="server: {missing_session_id: generate}", folder=tmp_path) as here:
        made = here.client().chat.completions.with_raw_response.create(model="gpt-4o", messages=[user("one")])
        assert len(recorded(here, made.headers["x-conversation-id"])) == 2


def test_a_retry_without_a_name_is_answered_from_the_conversation_of_the_first_attempt(tmp_path):
    with served(
        ScriptedModel("One.", "Two."), config="server: {missing_session_id: generate}", folder=tmp_path
    ) as here:
        body = {"model": "m", "messages": [user("one")]}
        first, retry, other = (
            here.http().post("/v1/chat/completions", json=body, headers={"idempotency-key": key})
            for key in ("k1", "k1", "k2")
        )

        assert retry.headers["idempotent-replayed"] == "true"
        assert retry.json()["choices"][0]["message"]["content"] == "One."
        assert retry.headers["x-conversation-id"] == first.headers["x-conversation-id"]
        assert other.json()["choices"][0]["message"]["content"] == "Two."
        assert other.headers["x-conversation-id"] != first.headers["x-conversation-id"]


def test_one_request_may_go_without_us():
    with served() as here:
        made = here.client().chat.completions.with_raw_response.create(
            model="gpt-4o", messages=[user("one")], extra_headers={**HERE, "X-History": "off"}
        )
        assert made.headers["x-history"] == "off"
        assert asyncio.run(_listed(here)) == ()


@pytest.mark.parametrize("headers", [{"X-History": "OFF"}, {"X-Task": "title"}])
@pytest.mark.parametrize(
    ("path", "body"), [("chat/completions", {"messages": [user("one")]}), ("responses", {"input": "one"})]
)
def test_a_request_that_is_not_to_be_stored_stays_out_of_its_conversation(path, body, headers):
    with served() as here:
        store = here.service.store
        lease = asyncio.run(store.acquire_lease("order-17", "another", seconds=60))
        answer = here.http().post(f"/v1/{path}", json={"model": "m", **body}, headers={**HERE, **headers})
        asyncio.run(store.release_lease(lease))

        assert (answer.status_code, answer.headers["x-history"]) == (200, "off")
        assert answer.headers["x-history-reconcile"] == ("auxiliary" if "X-Task" in headers else "bypassed")
        assert asyncio.run(_listed(here)) == ()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/chat/completions", {"model": "m", "messages": [user("one")]}),
        ("v1/responses", {"model": "m", "input": "one"}),
        ("threads/c/messages", {"text": "one"}),
    ],
)
def test_an_unknown_value_of_x_history_is_refused(path, body):
    with served() as here:
        answer = here.http().post(f"/{path}", json=body, headers={**HERE, "X-History": "no"})

        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-History")


def test_a_message_to_a_thread_cannot_stay_unstored():
    with served() as here:
        answer = here.http().post("/threads/c/messages", json={"text": "one"}, headers={"X-History": "off"})

        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "X-History")
        assert here.provider.requests == []


def test_a_side_task_does_not_hold_the_lease_of_its_conversation():
    gate = Gate()
    model = ScriptedModel("Yes.", slow(1) + "A title", "Again.")
    with served(model, wait=gate.wait) as here, ThreadPoolExecutor() as pool:
        webui = {"X-OpenWebUI-Chat-Id": "c"}
        answer = completed(here.client(), [user("one")], headers=webui)
        title = pool.submit(completed, here.client(), [user("Find a title.")], headers=webui)
        assert gate.reached.wait(20)
        history = [user("one"), {"role": "assistant", "content": answer["content"]}, user("two")]
        assert completed(here.client(), history, headers=webui)["content"] == "Again."
        gate.open()
        assert title.result()["content"] == "A title"


class Broken:
    def curate(self, messages, *, session):
        raise ZeroDivisionError


def test_a_manager_that_fails_keeps_nobody_from_an_answer():
    with served(ScriptedModel(otherwise="Yes.")) as here:
        here.service.policy("gpt-4o")
        here.service._policies["gpt-4o", "token_budget"] = Policy("broken", Broken())
        made = here.client().chat.completions.with_raw_response.create(
            model="gpt-4o", messages=[user("one")], extra_headers=HERE
        )
        assert made.headers["x-history-bypass"] == "PromptEvaluationError"
        assert len(recorded(here)) == 2


def test_what_cannot_fit_is_refused_before_anything_is_written(tmp_path):
    with served(config=SMALL, folder=tmp_path) as here:
        with pytest.raises(openai.BadRequestError) as refused:
            completed(here.client(), [user("word " * 2_000)])
        assert refused.value.code == "context_length_exceeded"
        assert asyncio.run(_listed(here)) == ()


def test_nothing_comes_back_to_what_was_erased():
    with served() as here:
        completed(here.client(), [user("one")])
        asyncio.run(here.service.store.erase(conversation="order-17"))
        with pytest.raises(openai.NotFoundError):
            completed(here.client(), [user("two")])


def test_usage_is_streamed_only_on_request():
    with served(ScriptedModel(otherwise="Yes.")) as here:
        for asked in (True, False):
            options = {"stream_options": {"include_usage": True}} if asked else {}
            chunks = list(
                here.client().chat.completions.create(
                    model="gpt-4o", messages=[user("one")], stream=True, extra_headers=HERE, **options
                )
            )
            assert any(chunk.usage for chunk in chunks) is asked


class Away:
    """A store whose database can be taken away and brought back."""

    def __init__(self, store):
        self._store, self.away = store, False

    def for_tenant(self, tenant):
        other = Away(self._store.for_tenant(tenant))
        other.__dict__["_parent"] = self
        return other

    def __getattr__(self, name):
        gone = self.__dict__.get("_parent", self).__dict__["away"]
        if gone and name not in {"close", "tenant"}:

            async def refuse(*_args, **_options):
                raise StoreUnavailable("memory:", "is away")

            return refuse
        return getattr(self._store, name)

    async def __aenter__(self):
        return self


def test_with_an_optional_database_the_service_answers_without_it_and_recovers(tmp_path):
    store = Away(open_store("memory:"))
    with served(
        ScriptedModel(otherwise="Yes."), store=store, config="database: {optional: true}", folder=tmp_path
    ) as here:
        raw = here.client().chat.completions.with_raw_response
        said = []
        for away in (False, True, False):
            store.away = away
            made = raw.create(model="gpt-4o", messages=[user("one")], extra_headers=HERE)
            said.append((made.parse().choices[0].message.content, made.headers["x-history"]))
        assert said == [("Yes.", "recorded"), ("Yes.", "unrecorded"), ("Yes.", "recorded")]


def test_without_a_required_database_requests_are_rejected():
    store = Away(open_store("memory:"))
    with served(ScriptedModel(otherwise="Yes."), store=store) as here:
        completed(here.client(), [user("one")])
        store.away = True
        with pytest.raises(openai.InternalServerError) as refused:
            completed(here.client(), [user("two")])
        assert refused.value.code == "store_unavailable"
        assert len(here.provider.requests) == 1


def test_the_models_are_the_providers():
    with served(models=("gpt-4o", "other")) as here:
        assert [model.id for model in here.client().models.list()] == ["gpt-4o", "other"]


@pytest.mark.parametrize(
    "body",
    [
        {"model": "gpt-4o"},
        {"model": "gpt-4o", "messages": []},
        {"model": "gpt-4o", "messages": ["hello"]},
        {"model": "gpt-4o", "messages": [{"role": "wizard", "content": "x"}]},
        {"model": "gpt-4o", "messages": [{"role": "tool", "content": "x", "tool_call_id": "none"}]},
        {"model": "gpt-4o", "messages": [user("one")], "stream": "perhaps"},
        {"model": 7, "messages": [user("one")]},
    ],
    ids=["none", "empty", "text", "role", "orphan", "stream", "model"],
)
def test_an_invalid_request_is_rejected_and_nothing_is_stored(body):
    with served() as here, here.http() as http:
        answer = http.post("/v1/chat/completions", json=body, headers=HERE)
        assert answer.status_code == 400
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert asyncio.run(_listed(here)) == ()
        assert here.provider.requests == []


def test_a_key_for_one_recipient_has_no_access_to_other_conversations():
    with served(ScriptedModel(otherwise="Yes.")) as here:
        completed(here.client(), [user("one")], headers={"X-Conversation-Id": "nobodys"})
        completed(here.client(), [user("one")], headers={"X-Conversation-Id": "anns", "X-Recipient-Id": "ann"})
        made = asyncio.run(here.service.keys.create("bob", tenant="default", scopes=("chat",), recipient="bob"))
        bob = here.client(default_headers={"Authorization": f"Bearer {made.token}"})
        for taken in ("nobodys", "anns"):
            with pytest.raises(openai.NotFoundError):
                completed(bob, [user("two")], headers={"X-Conversation-Id": taken})
        completed(bob, [user("two")], headers={"X-Conversation-Id": "bobs"})
        assert len(recorded(here, "bobs")) == 2
        assert len(recorded(here, "nobodys")) == len(recorded(here, "anns")) == 2


def test_messages_with_anthropic_blocks_are_recorded_and_sent_as_chat_messages():
    call_block = {"type": "tool_use", "id": "t1", "name": "look_up", "input": {"at": "a"}}
    result_block = {"type": "tool_result", "tool_use_id": "t1", "content": "Found."}
    history = [user("one"), {"role": "assistant", "content": [call_block]}, {"role": "user", "content": [result_block]}]
    with served(ScriptedModel(otherwise="Fine.")) as here:
        client = here.client()
        history += [completed(client, history), user("two")]
        completed(client, history)
        assert [message["role"] for message in recorded(here)] == [
            *("user", "assistant", "tool", "assistant", "user", "assistant")
        ]
        assert here.provider.problems == []
