"""Views are accepted by the strict provider of each protocol, through the official clients."""

import json

import anthropic
import openai
import pytest

from minutebook.conversation import Conversation
from minutebook.errors import InvalidMessage
from minutebook.testing.provider.server import LoopbackProvider
from minutebook.testing.script import ScriptedModel, call, say, think

RESULT = {"type": "tool_result", "tool_use_id": "call_1", "content": "not found", "is_error": True}


@pytest.fixture
def provider():
    answer = think("Two files.") + say("Looking.") + call("find_order", number=17)
    with LoopbackProvider(ScriptedModel(answer, otherwise="Done.")) as loopback:
        yield loopback


@pytest.fixture
def anthropic_client(provider):
    with anthropic.Anthropic(base_url=provider.anthropic_url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
def openai_client(provider):
    with openai.OpenAI(base_url=provider.base_url, api_key="any", max_retries=0) as client:
        yield client


def test_a_conversation_with_folds_and_blocks_is_accepted_in_every_protocol(provider, anthropic_client, openai_client):
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    for number in range(8):
        chat.append(f"Question {number}: " + "word " * 50)
        chat.append({"role": "assistant", "content": f"Answer {number}. " + "word " * 50})
    chat.append("Find my order.")
    assert chat.compact()
    view = chat.view(provider="anthropic")
    reply = anthropic_client.messages.create(model="m", max_tokens=99, **view.anthropic())
    chat.append(reply, {"role": "user", "content": [RESULT]})

    view = chat.view(provider="anthropic")
    anthropic_client.messages.create(model="m", max_tokens=99, **view.anthropic())
    openai_client.chat.completions.create(model="m", **view.openai())
    openai_client.responses.create(model="m", **view.responses())

    assert provider.problems == []
    assert len(provider.requests) == 4
    sent_back = provider.requests[1].messages[-2:]
    assert [block["type"] for block in sent_back[0]["content"]] == ["thinking", "text", "tool_use"]
    assert sent_back[1]["content"] == [RESULT]
    assert not any('"kind"' in json.dumps(request.body) for request in provider.requests)


def test_each_client_can_hold_a_conversation(provider, anthropic_client, openai_client):
    answers = {
        "chat": lambda view: openai_client.chat.completions.create(model="m", **view.openai()),
        "responses": lambda view: openai_client.responses.create(model="m", **view.responses()),
        "anthropic": lambda view: anthropic_client.messages.create(model="m", max_tokens=99, **view.anthropic()),
    }
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    chat.append("Find my order.")
    chat.append(answers["responses"](chat.view()))
    chat.append({"type": "function_call_output", "call_id": "call_1", "output": "not found"})
    for protocol in ("responses", "chat", "anthropic", "responses", "chat"):
        chat.append(answers[protocol](chat.view(provider="anthropic" if protocol == "anthropic" else "openai")))
        chat.append("And now?")

    assert provider.problems == []
    assert [message["role"] for message in chat][:4] == ["system", "user", "assistant", "tool"]


def final_completion(openai, _, view):
    with openai.chat.completions.stream(model="m", **view.openai()) as stream:
        return stream.get_final_completion()


def final_response(openai, _, view):
    with openai.responses.stream(model="m", **view.responses()) as stream:
        stream.until_done()
        return stream.get_final_response()


def final_message(_, anthropic, view):
    with anthropic.messages.stream(model="m", max_tokens=99, **view.anthropic()) as stream:
        return stream.get_final_message()


@pytest.mark.parametrize("stream_answer", [final_completion, final_response, final_message])
def test_a_streamed_tool_call_can_be_sent_back(stream_answer, provider, openai_client, anthropic_client):
    chat = Conversation(max_tokens=10_000, provider="anthropic" if stream_answer is final_message else "openai")
    chat.append("Find my order.")
    answer = stream_answer(openai_client, anthropic_client, chat.view())
    chat.append(answer, {"role": "tool", "tool_call_id": "call_1", "content": "not found"})
    chat.append(stream_answer(openai_client, anthropic_client, chat.view()))

    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]
    assert provider.problems == []


LONE = "before \ud800 after"
REPLACED = "before \ufffd after"
WITH_SURROGATES = [
    {"role": "user", "content": [{"type": "text", "text": LONE}]},
    {
        "role": "assistant",
        "content": LONE,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "find\udfff", "arguments": json.dumps({LONE: LONE}, ensure_ascii=False)},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "find", "arguments": json.dumps({"escaped": LONE})},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": LONE},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": LONE}]},
    {"role": "user", "content": LONE},
]


@pytest.mark.parametrize("store", ["memory:", "chat.db"])
@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
def test_lone_surrogates_stay_in_the_record_are_sent_as_replacement_characters_and_are_reported(
    store, protocol, tmp_path, provider, anthropic_client, openai_client
):
    store = store if store == "memory:" else tmp_path / store
    provider_name = "anthropic" if protocol == "anthropic" else "openai"
    with Conversation("a", store=store, system=LONE, max_tokens=10_000) as chat:
        chat.append(WITH_SURROGATES)
        view = chat.view(provider=provider_name)
        if protocol == "chat":
            openai_client.chat.completions.create(model="m", **view.openai())
        elif protocol == "responses":
            openai_client.responses.create(model="m", **view.responses())
        else:
            anthropic_client.messages.create(model="m", max_tokens=99, **view.anthropic())

        assert provider.problems == []
        sent = json.dumps(provider.requests[0].body, ensure_ascii=False)
        assert REPLACED in sent
        assert sent.encode()
        assert list(chat)[1:] == WITH_SURROGATES
        reported = [violation for violation in view.violations if "bad text: replaced" in violation.detail]
        assert [violation.in_record for violation in reported] == [True] * 6
        assert "bad text: replaced" in chat.why(3, request=view.number).reason


def test_a_view_of_a_chat_follows_the_rules_of_anthropic_when_it_is_sent_there(provider, anthropic_client):
    chat = Conversation()
    call_of_tool = {"id": "same", "type": "function", "function": {"name": "find_order", "arguments": "[1]"}}
    for number in range(2):  # a used id and arguments that are no object, which only Anthropic rejects
        chat.append(f"Question {number}")
        chat.append(
            {"role": "assistant", "content": None, "tool_calls": [call_of_tool]},
            {"role": "tool", "tool_call_id": "same", "content": "found"},
        )

    anthropic_client.messages.create(model="m", max_tokens=99, **chat.view().anthropic())

    assert provider.problems == []


def test_a_message_of_the_record_has_the_items_it_was_read_from_and_those_of_a_view_have_not():
    chat, copy = Conversation(), Conversation()
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"},
        {"type": "message", "id": "m1", "role": "assistant", "content": [{"type": "output_text", "text": "This."}]},
    ]
    chat.append(*items)
    copy.append(*chat)

    assert copy.view().responses() == chat.view().responses() == {"input": items}
    assert [message.keys() for message in copy.view().messages] == [{"role", "content"}] * len(copy)


REASONING = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "E"}
OUTPUT = [
    REASONING,
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
    },
]


def test_the_items_of_an_output_may_be_separate_arguments():
    with Conversation("one", model="gpt-5") as one, Conversation("two", model="gpt-5") as two:
        one.append("Hi.", OUTPUT, "Next.")
        two.append("Hi.", *OUTPUT, "Next.")

        assert list(one) == list(two)
        assert [message["content"] for message in two] == ["Hi.", "Hello.", "Next."]
        assert two.view().responses()["input"][1:3] == OUTPUT


def test_a_call_and_its_output_may_be_separate_arguments_after_reasoning():
    call = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "books", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "Ulysses"}
    with Conversation("one", model="gpt-5") as chat:
        chat.append("Hi.")
        chat.append(REASONING, call, result)

        assert [message["role"] for message in chat] == ["user", "assistant", "tool"]
        assert chat.view().responses()["input"][1:] == [REASONING, call, result]


@pytest.mark.parametrize("alone", [REASONING, [REASONING]])
def test_a_reasoning_item_alone_is_refused_and_never_becomes_text(alone):
    with Conversation("one", model="gpt-5") as chat:
        chat.append("Hi.")
        with pytest.raises(InvalidMessage, match=r"reasoning item alone; .*append\(\*response\.output\)"):
            chat.append(alone)

        assert len(chat) == 1


def test_an_anthropic_view_with_an_image_in_a_tool_result_is_accepted_by_chat_completions(provider, openai_client):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    chat = Conversation(provider="anthropic")
    chat.append("Find my order.")
    chat.append(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "find_order", "input": {}}]},
        {"role": "user", "content": [{**RESULT, "content": [image, {"type": "text", "text": "a scan"}]}]},
    )
    view = chat.view()
    openai_client.chat.completions.create(model="m", **view.openai())

    assert provider.problems == []
    assert image in view.anthropic()["messages"][-1]["content"][0]["content"]


STREAMS = {
    "chat": lambda openai, _, view: openai.chat.completions.create(model="m", stream=True, **view.openai()),
    "chat events": lambda openai, _, view: openai.chat.completions.stream(model="m", **view.openai()).__enter__(),
    "responses": lambda openai, _, view: openai.responses.create(model="m", stream=True, **view.responses()),
    "responses events": lambda openai, _, view: openai.responses.stream(model="m", **view.responses()).__enter__(),
    "anthropic": lambda _, anthropic, view: anthropic.messages.create(
        model="m", max_tokens=99, stream=True, **view.anthropic()
    ),
    "anthropic events": lambda _, anthropic, view: anthropic.messages.stream(
        model="m", max_tokens=99, **view.anthropic()
    ).__enter__(),
}


@pytest.mark.parametrize("is_whole", [True, False], ids=["stream", "event"])
@pytest.mark.parametrize("open_stream", STREAMS.values(), ids=STREAMS)
def test_a_stream_is_refused_and_the_error_names_the_final_response(
    open_stream, is_whole, openai_client, anthropic_client
):
    chat = Conversation(system="Be brief.", max_tokens=10_000)
    chat.append("Find my order.")
    with open_stream(openai_client, anthropic_client, chat.view()) as stream:
        value = stream if is_whole else next(iter(stream))
        with pytest.raises(InvalidMessage, match=r"stream.*final"):
            chat.append(value)

    assert len(chat) == 2


NOT_READ = {
    "manager": (lambda openai, _, view: openai.chat.completions.stream(model="m", **view.openai()), "final response"),
    "anthropic manager": (
        lambda _, anthropic, view: anthropic.messages.stream(model="m", max_tokens=99, **view.anthropic()),
        "final response",
    ),
    "raw": (lambda openai, _, view: openai.responses.with_raw_response.create(model="m", **view.responses()), "parse"),
    "raw anthropic": (
        lambda _, anthropic, view: anthropic.messages.with_raw_response.create(
            model="m", max_tokens=99, **view.anthropic()
        ),
        "parse",
    ),
}


@pytest.mark.parametrize(("request_for", "fix"), NOT_READ.values(), ids=NOT_READ)
def test_a_response_that_is_not_read_yet_is_refused_with_the_call_that_reads_it(
    request_for, fix, openai_client, anthropic_client
):
    chat = Conversation(max_tokens=10_000)
    chat.append("Find my order.")
    with pytest.raises(InvalidMessage, match=rf"pass the .*{fix}"):
        chat.append(request_for(openai_client, anthropic_client, chat.view()))


@pytest.mark.parametrize("as_arguments", [True, False])
def test_content_blocks_without_a_message_are_refused_and_the_error_says_so(as_arguments, anthropic_client):
    chat = Conversation(provider="anthropic", max_tokens=10_000)
    chat.append("Find my order.")
    reply = anthropic_client.messages.create(model="m", max_tokens=99, **chat.view().anthropic())
    values = [*reply.content, RESULT]
    with pytest.raises(InvalidMessage, match=r"thinking block.*'content'"):
        chat.append(*values) if as_arguments else chat.append([*values, {"role": "user", "content": "Go on."}])

    assert len(chat) == 1
