"""Responses, through OpenAI's own client."""

import asyncio
import json
import threading

import openai
import pytest

from minutebook.store.types import NewDocument
from minutebook.testing import ScriptedModel, call, cut, fail, say, think
from minutebook.testing.script import ends
from tests.service.serving import served

WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}, "strict": False}
MODEL = "scripted"


def weather_model(request):
    """Calls a tool for every question, and answers once it has the result."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return say(f"It is {last['content'][:12]}.")
    return call("weather", city="Bonn") + call("weather", city="Berlin")


def results(response, words="sunny, all day long " * 8):
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": words}
        for item in response.output
        if item.type == "function_call"
    ]


def made(client, *, stream, **asked):
    if not stream:
        return client.responses.create(model=MODEL, **asked)
    with client.responses.stream(model=MODEL, **asked) as events:
        for _ in events:
            pass
        return events.get_final_response()


def talk(client, turns, *, stream, place):
    """A conversation with tools; `place` says how each request goes on from the one before."""
    response = None
    for number in range(turns):
        response = made(client, stream=stream, input=f"Weather, day {number}?", tools=[WEATHER], **place(response))
        response = made(client, stream=stream, input=results(response), tools=[WEATHER], **place(response))
        assert response.output_text == "It is sunny, all d."
    return response


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["conversation", "previous_response_id"])
def test_twenty_turns_with_tools_in_a_small_window(stream, how, tmp_path):
    config = "conversation: {policy: small}\npolicies: {small: {max_tokens: 700}}\n"
    model = ScriptedModel(otherwise=weather_model)
    with served(model, config=config, folder=tmp_path, max_context_tokens=900) as here:
        client = here.client()
        conversation = client.conversations.create() if how == "conversation" else None

        def place(response):
            if conversation is not None:
                return {"conversation": conversation.id}
            return {} if response is None else {"previous_response_id": response.id}

        last = talk(client, 20, stream=stream, place=place)

        assert here.provider.problems == []
        name = client.responses.with_raw_response.retrieve(last.id).headers["x-conversation-id"]
        items = list(client.conversations.items.list(name, order="asc", limit=100))
        kinds = ["message", "function_call", "function_call", "function_call_output", "function_call_output", "message"]
        assert [item.type for item in items] == kinds * 20


def test_the_model_gets_the_earlier_messages():
    with served(ScriptedModel("Hello, Ada.", otherwise="You are Ada.")) as here:
        client = here.client()
        first = client.responses.create(model=MODEL, input="I am Ada.", instructions="Be brief.")

        second = client.responses.create(model=MODEL, input="Who am I?", previous_response_id=first.id)

        assert second.output_text == "You are Ada."
        assert second.previous_response_id == first.id
        assert here.provider.requests[0].messages[0] == {"role": "system", "content": "Be brief."}
        assert here.provider.requests[1].messages == [
            {"role": "user", "content": "I am Ada."},
            {"role": "assistant", "content": "Hello, Ada."},
            {"role": "user", "content": "Who am I?"},
        ]


def test_instructions_come_before_the_system_messages_of_the_record():
    with served() as here:
        client = here.client()
        items = [{"role": "developer", "content": "Answer in verse."}, {"role": "user", "content": "Hi"}]
        first = client.responses.create(model=MODEL, input=items, instructions="Be brief.")
        client.responses.create(model=MODEL, input="More", instructions="Be long.", previous_response_id=first.id)

        assert [message["content"] for message in here.provider.requests[0].messages] == [
            "Be brief.", "Answer in verse.", "Hi"
        ]  # fmt: skip
        assert [message["content"] for message in here.provider.requests[1].messages] == [
            "Be long.", "Answer in verse.", "Hi", "Yes.", "More"
        ]  # fmt: skip


def test_continuing_an_earlier_response_forks_the_conversation():
    with served(ScriptedModel("one", "two", "three", otherwise="four")) as here:
        client = here.client()
        first = client.responses.create(model=MODEL, input="a")
        second = client.responses.create(model=MODEL, input="b", previous_response_id=first.id)

        other = client.responses.with_raw_response.create(model=MODEL, input="c", previous_response_id=first.id)
        again = client.responses.create(model=MODEL, input="d", previous_response_id=second.id)

        sent = [message["content"] for message in here.provider.requests[2].messages]
        assert sent == ["a", "one", "c"]
        assert [message["content"] for message in here.provider.requests[3].messages] == ["a", "one", "b", "two", "d"]
        where = client.responses.with_raw_response.retrieve(again.id).headers["x-conversation-id"]
        assert other.headers["x-conversation-id"] != where
        assert (
            client.get(f"/conversations/{other.headers['x-conversation-id']}", cast_to=object)["forked_from"] == where
        )


def test_a_call_may_be_answered_again_in_a_fork():
    with served(ScriptedModel(call("weather"), otherwise="Fine.")) as here:
        client = here.client()
        asked = client.responses.create(model=MODEL, input="Weather?", tools=[WEATHER])
        client.responses.create(model=MODEL, input=results(asked, "rain"), previous_response_id=asked.id)

        client.responses.create(model=MODEL, input=results(asked, "snow"), previous_response_id=asked.id)

        assert here.provider.problems == []
        assert [message.get("content") for message in here.provider.requests[2].messages] == ["Weather?", None, "snow"]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_and_calls_are_items_and_are_returned_unchanged(stream):
    with served(ScriptedModel(think("Two of them.") + say("Let me see.") + call("weather", city="Bonn"))) as here:
        client = here.client()
        asked = {"model": MODEL, "input": "Weather?", "tools": [WEATHER]}
        response = (
            [*client.responses.create(**asked, stream=True)][-1].response
            if stream
            else client.responses.create(**asked)
        )

        assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
        again = client.responses.retrieve(response.id)
        assert again.to_dict()["output"] == response.to_dict()["output"]


def test_input_items_are_listed():
    with served() as here:
        client = here.client()
        response = client.responses.create(
            model=MODEL,
            input=[
                {"role": "user", "content": "a"},
                {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
            ],
        )
        client.responses.create(model=MODEL, input="c", previous_response_id=response.id)

        items = client.responses.input_items.list(response.id, order="asc").data

        assert [item.content[0].text for item in items] == ["a", "b"]


@pytest.mark.parametrize("is_continued", [False, True])
def test_a_stream_that_is_opened_at_once_names_its_conversation(is_continued, monkeypatch):
    monkeypatch.setattr("minutebook.service.responses.routes.OPEN_SECONDS", 0)
    with served() as here:
        client = here.client()
        previous = client.responses.create(model=MODEL, input="a").id if is_continued else None
        create = client.responses.with_streaming_response.create
        with create(model=MODEL, input="b", previous_response_id=previous, stream=True) as raw:
            conversation = raw.headers["x-conversation-id"]
            *_, last = raw.parse()

        items = client.conversations.items.list(conversation, order="asc")
        assert [item.content[0].text for item in items][-2:] == ["b", last.response.output[0].content[0].text]


def test_store_false_stores_nothing():
    with served(ScriptedModel("one", otherwise="two")) as here:
        client = here.client()
        kept = client.responses.create(model=MODEL, input="a")
        loose = client.responses.create(model=MODEL, input="b", previous_response_id=kept.id, store=False)

        assert loose.output_text == "two"
        assert [message["content"] for message in here.provider.requests[1].messages] == ["a", "one", "b"]
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(loose.id)
        assert len(client.get("/conversations", cast_to=object)["data"]) == 1


def test_deleting_a_response_keeps_its_messages():
    with served() as here:
        client = here.client()
        raw = client.responses.with_raw_response.create(model=MODEL, input="a")
        response, conversation = raw.parse(), raw.headers["x-conversation-id"]

        client.responses.delete(response.id)

        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)
        assert len(list(client.conversations.items.list(conversation))) == 2


def test_an_answer_cut_by_max_tokens_is_incomplete():
    with served(ScriptedModel(say("Once upon") + ends("length"))) as here:
        client = here.client()
        *_, last = client.responses.create(model=MODEL, input="A story?", max_output_tokens=2, stream=True)
        response = last.response

        assert last.type == "response.incomplete"

        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
        assert client.responses.retrieve(response.id).status == "incomplete"
        assert here.provider.requests[0].body["max_completion_tokens"] == 2


REFUSED = [
    ({"conversation": "conv_1", "previous_response_id": "resp_1"}, 400, "mutually_exclusive_parameters"),
    ({"conversation": "conv_1"}, 404, "conversation_not_found"),
    ({"previous_response_id": "resp_1"}, 404, "previous_response_not_found"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, 400, "unsupported_item"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, 400, "broken_conversation"),
    ({"input": [{"role": "critic", "content": "x"}]}, 400, "invalid_message"),
    ({"input": None}, 400, "missing_input"),
    ({"tools": [{"type": "web_search"}]}, 400, "unsupported_tool"),
    ({"tool_choice": "required"}, 400, "missing_tools"),
    ({"text": {"format": {"type": "grammar"}}}, 400, "invalid_format"),
    ({"background": True, "store": False}, 400, "background_needs_store"),
    ({"background": True, "prompt": {"id": "p"}}, 400, "invalid_request"),
    ({"top_logprobs": 3}, 400, "invalid_request"),
    ({"stream_options": {"include_obfuscation": True}}, 400, "invalid_request"),
    ({"temperature": 9}, 400, "invalid_request"),
    ({"metadata": {"k": "v" * 513}}, 400, "invalid_metadata"),
    ({"expected_version": 3}, 400, "missing_conversation_id"),
]


@pytest.mark.parametrize(("more", "status", "code"), REFUSED, ids=[f"{at}-{one[2]}" for at, one in enumerate(REFUSED)])
def test_contradictory_parameters_are_rejected_and_nothing_is_stored(more, status, code):
    with served() as here:
        answer = here.http().post("/v1/responses", json={"model": MODEL, "input": "Hi", **more})

        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert here.provider.requests == []
        assert here.client().get("/conversations", cast_to=object)["data"] == []


def test_parameters_are_translated_for_the_provider():
    with served() as here:
        schema = {"type": "json_schema", "name": "x", "schema": {"type": "object"}, "strict": True}
        response = here.client().responses.create(
            model=MODEL,
            input="Hi",
            temperature=0.5,
            top_p=0.9,
            reasoning={"effort": "low"},
            text={"format": schema, "verbosity": "low"},
            tools=[WEATHER],
            tool_choice={"type": "function", "name": "weather"},
            parallel_tool_calls=False,
            user="u",
            metadata={"k": "v"},
        )

        body = here.provider.requests[0].body
        assert body["reasoning_effort"] == "low"
        assert body["verbosity"] == "low"
        assert body["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": {"type": "object"}, "strict": True},
        }
        assert body["tools"][0]["function"]["name"] == "weather"
        assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
        assert (body["temperature"], body["top_p"], body["parallel_tool_calls"], body["user"]) == (0.5, 0.9, False, "u")
        assert "metadata" not in body
        told = response.to_dict()
        assert told["metadata"] == {"k": "v"}
        assert told["text"]["format"] == schema
        assert told["tools"] == [WEATHER]


def test_a_retry_after_a_provider_failure_stores_the_input_once():
    with served(ScriptedModel(fail(500), otherwise="Yes.")) as here:
        client = here.client(max_retries=2)
        conversation = client.conversations.create()

        response = client.responses.create(model=MODEL, input="Hi", conversation=conversation.id)

        assert response.output_text == "Yes."
        items = list(client.conversations.items.list(conversation.id, order="asc"))
        assert [item.content[0].text for item in items] == ["Hi", "Yes."]
        assert [item.content[0].text for item in client.responses.input_items.list(response.id)] == ["Hi"]


def test_an_interrupted_stream_ends_with_error_and_failed():
    with served(ScriptedModel(say("One two three four five") + cut(after_chunks=3), otherwise="Yes.")) as here:
        client = here.client()
        events = list(client.responses.create(model=MODEL, input="Hi", stream=True))

        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        name = events[-1].response.id
        assert client.responses.retrieve(name).status == "failed"
        again = list(client.responses.retrieve(name, stream=True))
        assert [event.to_dict() for event in again] == [event.to_dict() for event in events]
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model=MODEL, input="On", previous_response_id=name)
        assert caught.value.code == "previous_response_not_completed"


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_key_gets_the_same_answer(stream):
    with served(ScriptedModel("one", "two")) as here:
        client = here.client()
        headers = {"Idempotency-Key": "k1"}
        asked = {"model": MODEL, "input": "Hi", "stream": stream}

        first = client.post("/responses", body=asked, cast_to=str, options={"headers": headers})
        again = client.post("/responses", body=asked, cast_to=str, options={"headers": headers})

        assert first.replace(": ping\n\n", "") == again.replace(": ping\n\n", "")  # a slow machine sends pings
        assert len(here.provider.requests) == 1
        other = here.http().post("/v1/responses", json={**asked, "input": "Ho"}, headers=headers)
        assert (other.status_code, other.json()["error"]["code"]) == (422, "idempotency_conflict")


def test_a_locked_conversation_is_a_409_with_retry_after():
    gate, asked = threading.Event(), threading.Event()

    def slowly(_request):
        asked.set()
        gate.wait(20)
        return say("Done.")

    environment = {"MINUTEBOOK_SERVER_WAIT_SECONDS": "0.1"}
    with served(ScriptedModel(slowly, otherwise="Next."), environment=environment) as here:
        client = here.client()
        conversation = client.conversations.create()
        body = {"model": MODEL, "input": "Hi", "conversation": conversation.id}
        first = threading.Thread(target=lambda: client.responses.create(**body))
        first.start()
        asked.wait(20)
        try:
            answer = here.http().post("/v1/responses", json=body)
            items = here.http().post(
                f"/v1/conversations/{conversation.id}/items", json={"items": [{"role": "user", "content": "x"}]}
            )
        finally:
            gate.set()
            first.join(20)

        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conversation_locked")
        assert int(answer.headers["retry-after-ms"]) > 0
        assert items.status_code == 409
        assert here.client(max_retries=5).responses.create(**body).output_text == "Next."


def test_a_stale_version_is_a_412():
    with served() as here:
        client = here.client()
        conversation = client.conversations.create()
        body = {"model": MODEL, "input": "Hi", "conversation": conversation.id}
        stale = {"If-Match": f'"{conversation.version}"'}

        assert here.http().post("/v1/responses", json=body, headers=stale).status_code == 200
        late = here.http().post("/v1/responses", json=body, headers=stale)
        also = here.http().post("/v1/responses", json={**body, "expected_version": 1})

        assert (late.status_code, late.json()["error"]["code"]) == (412, "version_conflict")
        assert also.status_code == 412


def test_a_background_response_is_fetched_later():
    with served(ScriptedModel("Done.")) as here:
        client = here.client()
        begun = client.responses.create(model=MODEL, input="Hi", background=True)
        assert begun.status in {"queued", "in_progress"}

        *_, last = client.responses.retrieve(begun.id, stream=True)

        assert last.response.output_text == "Done."
        assert client.responses.retrieve(begun.id).status == "completed"


@pytest.mark.parametrize("from_afar", [False, True])
def test_a_background_response_is_cancelled_here_and_from_another_server(from_afar, tmp_path):
    gate, asked = threading.Event(), threading.Event()

    def slowly(_request):
        asked.set()
        gate.wait(20)
        return say("Done.")

    db = f"sqlite:///{tmp_path / 'a.db'}"
    with (
        served(ScriptedModel(slowly, otherwise="Next."), db=db) as here,
        served(db=db, provider=here.provider) as other,
    ):
        begun = here.client().responses.create(model=MODEL, input="Hi", background=True)
        asked.wait(20)
        try:
            ended = (other if from_afar else here).client().responses.cancel(begun.id)
        finally:
            gate.set()

        assert ended.status == "cancelled"
        assert other.client().responses.retrieve(begun.id).status == "cancelled"


def test_only_background_responses_are_cancelled():
    with served() as here:
        response = here.client().responses.create(model=MODEL, input="Hi")

        with pytest.raises(openai.BadRequestError):
            here.client().responses.cancel(response.id)


def test_input_tokens_are_counted():
    with served() as here:
        client = here.client()
        few = client.responses.input_tokens.count(model="gpt-4o", input="Hi")
        more = client.responses.input_tokens.count(
            model="gpt-4o", input="Hi " * 50, instructions="Be brief.", tools=[WEATHER]
        )

        assert 0 < few.input_tokens < more.input_tokens


def test_a_compaction_item_continues_the_conversation():
    with served() as here:
        client = here.client()
        long = [
            {"role": role, "content": f"{role} {number} says that the code is {1000 + number}. " + "Well. " * 40}
            for number in range(12)
            for role in ("user", "assistant")
        ]

        short = client.responses.compact(model=MODEL, input=long)
        client.responses.create(
            model=MODEL, input=[*[item.to_dict() for item in short.output], {"role": "user", "content": "On."}]
        )

        sent = here.provider.requests[0].messages
        assert sent[-1] == {"role": "user", "content": "On."}
        before = client.responses.input_tokens.count(model=MODEL, input=long).input_tokens
        after = client.responses.input_tokens.count(
            model=MODEL, input=[item.to_dict() for item in short.output]
        ).input_tokens
        assert after < before * 0.6
        assert any("user 11 says" in str(message["content"]) for message in sent)


def test_context_management_compacts_above_its_threshold():
    with served(ScriptedModel(otherwise=say("Well. " * 30))) as here:
        client = here.client()
        conversation = client.conversations.create()
        for number in range(12):
            client.responses.create(
                model=MODEL,
                input=f"Question {number}? " + "Indeed. " * 20,
                conversation=conversation.id,
                context_management=[{"type": "compaction", "compact_threshold": 400}],
                extra_headers={"X-History-Policy": "passthrough"},
            )

        compactions = client.get(f"/conversations/{conversation.id}/compactions", cast_to=object)["data"]
        assert compactions
        sent = here.provider.requests[-1].messages
        assert len(sent) < 23
        assert len(list(client.conversations.items.list(conversation.id))) == 24


def test_without_truncation_everything_is_sent_or_it_is_an_error():
    with served(ScriptedModel(otherwise="Yes."), max_context_tokens=120) as here:
        client = here.client()
        conversation = client.conversations.create()
        asked = {"model": MODEL, "input": "Well " * 30, "conversation": conversation.id}
        client.responses.create(**asked)
        client.responses.create(**asked)

        client.responses.create(**asked)

        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(**asked, truncation="disabled")

        assert caught.value.code == "context_length_exceeded"


def test_a_response_of_a_dead_server_has_failed():
    with served() as here:
        client = here.client()
        response = client.responses.create(model=MODEL, input="Hi")

        async def lose():
            store = here.service.store
            known = await store.document("run", response.id)
            body = {**known.body, "status": "in_progress"}
            del body["answer"]
            await store.put_document(known.conversation, NewDocument("run", response.id, body, replace=True))

        asyncio.run(lose())
        here.service.runs._runs.clear()

        again = client.responses.retrieve(response.id)
        assert (again.status, again.error.code) == ("failed", "server_error")
        events = list(client.responses.retrieve(response.id, stream=True, starting_after=40))
        assert [(event.type, event.sequence_number) for event in events] == [("error", 41), ("response.failed", 42)]


def test_another_server_waits_for_the_end_and_sends_all_events(tmp_path):
    gate, asked = threading.Event(), threading.Event()

    def slowly(_request):
        asked.set()
        gate.wait(20)
        return say("One two three.")

    db = f"sqlite:///{tmp_path / 'a.db'}"
    with served(ScriptedModel(slowly), db=db) as here, served(db=db, provider=here.provider) as other:
        begun = here.client().responses.create(model=MODEL, input="Hi", background=True)
        asked.wait(20)
        assert other.client().responses.retrieve(begun.id).status == "in_progress"
        heard = []
        listener = threading.Thread(
            target=lambda: heard.extend(other.client().responses.retrieve(begun.id, stream=True))
        )
        listener.start()
        gate.set()
        listener.join(20)

        own = [event.to_dict() for event in here.client().responses.retrieve(begun.id, stream=True)]
        assert [event.to_dict() for event in heard] == own


def test_an_optional_database_may_be_unavailable(tmp_path):
    config = "database:\n  optional: true\n"
    with served(config=config, folder=tmp_path, db=f"sqlite:///{tmp_path / 'a.db'}") as here:
        known = here.client().responses.create(model=MODEL, input="Hi")
        asyncio.run(here.service.store.close())

        raw = here.client().responses.with_raw_response.create(model=MODEL, input="Hi")

        assert raw.parse().output_text == "Yes."
        assert raw.headers["x-history"] == "unrecorded"
        on = here.http().post("/v1/responses", json={"model": MODEL, "input": "On", "previous_response_id": known.id})
        assert (on.status_code, on.json()["error"]["code"]) == (503, "store_unavailable")


def test_the_official_client_parses_every_event():
    with served(ScriptedModel(think("Hm.") + say("Words.") + call("weather", city="Bonn"))) as here:
        with here.http().stream(
            "POST", "/v1/responses", json={"model": MODEL, "input": "Hi", "stream": True}
        ) as answer:
            text = answer.read().decode()

    blocks = [block.split("\n") for block in text.split("\n\n") if block]
    assert blocks[-1] == ["data: [DONE]"]
    facts = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks[:-1]]
    assert all(name == fact["type"] for name, fact in facts)
    assert [fact["sequence_number"] for _, fact in facts] == list(range(len(facts)))


def test_the_last_event_is_not_sent_if_the_answer_could_not_be_stored():
    gate, asked = threading.Event(), threading.Event()

    def slowly(_request):
        asked.set()
        gate.wait(20)
        return say("A secret.")

    with served(ScriptedModel(slowly, otherwise="Yes.")) as here:
        client, events = here.client(), []
        conversation = client.post("/conversations", body={"recipient": "ada"}, cast_to=object)["id"]

        def listen():
            events.extend(client.responses.create(model=MODEL, input="Hi", conversation=conversation, stream=True))

        listener = threading.Thread(target=listen)
        listener.start()
        asked.wait(20)
        here.http().post("/v1/recipients/ada/erase")
        gate.set()
        listener.join(20)

        assert [event.type for event in events[-2:]] == ["error", "response.failed"]
        assert "response.completed" not in {event.type for event in events}


def test_item_metadata_of_the_record_is_not_sent_to_the_provider():
    with served() as here:
        items = [
            {"role": "user", "content": "Hi", "id": "msg_mine", "späti": 1},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
            {"role": "assistant", "content": "Hello", "phase": "commentary"},
            {"role": "user", "content": "On"},
        ]
        response = here.client().responses.create(model=MODEL, input=items)

        assert here.provider.requests[0].messages == [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "On"},
        ]
        kept = here.http().get(f"/v1/responses/{response.id}/input_items", params={"order": "asc"}).json()["data"]
        assert [item.get("phase") for item in kept] == [None, None, "commentary", None]
        assert kept[1] == {**items[1], "status": "completed"}


def test_chat_and_responses_share_a_conversation():
    with served(ScriptedModel("one", otherwise="two")) as here:
        client = here.client()
        chat = [{"role": "user", "content": "a"}]
        client.chat.completions.create(model=MODEL, messages=chat, extra_headers={"X-Conversation-Id": "shared"})

        response = client.responses.create(model=MODEL, input="b", conversation="shared")

        assert response.output_text == "two"
        assert [message["content"] for message in here.provider.requests[1].messages] == ["a", "one", "b"]
        assert [item.content[0].text for item in client.conversations.items.list("shared", order="asc")] == [
            "a",
            "one",
            "b",
            "two",
        ]
