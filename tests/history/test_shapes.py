"""Messages with a shape that providers reject are refused, found by `check`, or repaired in every view."""

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import (
    AnthropicAdapter,
    CannotFit,
    Conversation,
    MarkdownSection,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolContext,
    ToolResult,
    Transcript,
    check,
    view_of,
)
from minutebook.errors import InvalidMessage
from minutebook.history import Guarantee, NoteStatus, guard
from minutebook.record import FindingKind, is_valid
from minutebook.record.finding import errors
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from minutebook.testing.provider.anthropic import messages_problem, thinking_signature
from minutebook.testing.provider.openai import chat_problem
from minutebook.testing.provider.responses import responses_problem
from minutebook.wire.chat import new_entries
from minutebook.wire.read import read
from minutebook.wire.write import anthropic_arguments, openai_messages, responses_arguments
from tests.every import MANAGERS
from tests.history.test_every_protocol import with_known_keys
from tests.strategies import conversations

NO_CONTENT = object()
CONTENTS = [
    *(None, NO_CONTENT, [], ["x"], 5, {"type": "text", "text": "x"}, [{"text": "x"}], [5]),
    *([{"type": "image_url"}], [{"type": "image_url", "image_url": {}}], [{"type": "image_url", "image_url": None}]),
    *([{"type": "input_audio", "input_audio": {"format": "wav"}}], [{"type": "file", "file": {"filename": "a.pdf"}}]),
    *([{"type": "text", "text": None}], [{"type": "refusal"}]),
]
"""Content that every provider rejects."""
FOREIGN_PARTS = [
    {"type": "bogus"},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "image_url", "image_url": "https://example.com/a.png"},
    {"type": "image_url", "image_url": {"url": "None"}},
    {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zz4="}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "SUkqAA=="}},
    {"type": "image", "source": {"type": "base64"}},
    {"type": "image", "source": {}},
    {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "SGk="}},
    {"type": "search_result"},
    {"type": "container_upload"},
    {"type": "tool_reference", "tool_name": "read"},
    {"type": "redacted_thinking"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg=="}},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {"type": "file", "file": {"file_url": "https://example.com/a.pdf"}},
    {"type": "file", "file": {"file_id": "file_1"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}},
    {"type": "refusal", "refusal": "No."},
    {"type": "thinking", "thinking": "Hm.", "signature": thinking_signature("Hm.", "prompt")},
    {"type": "input_text", "text": "x"},
    {"type": "text", "text": "x"},
]
"""Parts that a provider rejects in messages of some roles, or of all."""
TOOL_NAMES = ["bad name!", "", "multi_tool_use.parallel", "a" * 65, "a" * 129, "näme"]
AUTHORS = ["", "Ada Lovelace", "<b>", "a" * 65]
SURROGATE = "broken \ud800 text"
USER = {"role": "user", "content": "Go on."}


def with_content(message, content):
    rest = {key: value for key, value in message.items() if key != "content"}
    return rest if content is NO_CONTENT else {**rest, "content": content}


def with_tool_name(message, name):
    calls = [{**call, "function": {**call["function"], "name": name}} for call in message.get("tool_calls") or ()]
    return {**message, "tool_calls": calls} if calls else message


@st.composite
def mutated_conversations(draw):
    """Valid conversations with one to three messages of a shape that some provider rejects."""
    chat = [*map(with_known_keys, draw(conversations(user_first=True))), USER]
    for _ in range(draw(st.integers(1, 3))):
        index = draw(st.integers(0, len(chat) - 1))
        kind = draw(
            st.sampled_from(["content", "parts", "tool name", "author", "surrogate", "calls", "system", "duplicate"])
        )
        message = chat[index]
        if kind == "content":
            chat[index] = with_content(message, draw(st.sampled_from(CONTENTS)))
        elif kind == "parts":
            chat[index] = with_content(message, draw(st.lists(st.sampled_from(FOREIGN_PARTS), min_size=1, max_size=3)))
        elif kind == "tool name":
            chat[index] = with_tool_name(message, draw(st.sampled_from(TOOL_NAMES)))
        elif kind == "author" and message["role"] == "user":
            chat[index] = {**message, "name": draw(st.sampled_from(AUTHORS))}
        elif kind == "surrogate":
            chat[index] = with_content(
                message, draw(st.sampled_from([SURROGATE, [{"type": "text", "text": SURROGATE}]]))
            )
        elif kind == "calls" and message["role"] == "assistant" and not message.get("tool_calls"):
            chat[index] = {**message, "tool_calls": []}
        elif kind == "system" and (systems := [m for m in chat if m["role"] == "system"]):
            chat.remove(systems[0])
            chat.append(systems[0])
        elif kind == "duplicate":
            chat.insert(draw(st.integers(0, len(chat))), message)
    return chat if chat[-1]["role"] != "assistant" else [*chat, USER]


def is_encodable(body):
    try:
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def rejection(protocol, messages):
    """Why the strict provider of the protocol rejects these messages, or None."""
    if protocol == "chat":
        problem = chat_problem({"model": "m", "messages": messages})
        return problem.message if problem else None if is_encodable(messages) else "not UTF-8"
    if protocol == "responses":
        problem = responses_problem({"model": "m", **responses_arguments(messages)})
    else:
        problem = messages_problem({"model": "m", "max_tokens": 9, **anthropic_arguments(messages)})
    return problem.message if problem else None


@pytest.mark.fuzz
@given(mutated_conversations())
def test_a_bad_shape_is_found_by_check_or_accepted_by_the_provider(messages):
    for protocol, provider in (("chat", "openai"), ("anthropic", "anthropic"), ("responses", "openai")):
        if is_valid(messages, provider=provider):
            assert rejection(protocol, messages) is None


@pytest.mark.fuzz
@given(mutated_conversations(), st.sampled_from(["openai", "anthropic"]))
def test_every_view_of_bad_shapes_is_accepted(messages, provider):
    record = Transcript(messages, broken="mark")
    for name, manager in MANAGERS.items():
        try:
            view = view_of(record, manager, provider=provider)
        except CannotFit:
            continue
        protocols = ("chat", "responses") if provider == "openai" else ("anthropic",)
        assert errors(check(view.curated, provider=provider)) == [], name
        assert [rejection(protocol, list(view.curated)) for protocol in protocols] == [None] * len(protocols), name
        assert is_encodable(openai_messages(view.curated))


@pytest.mark.fuzz
@given(mutated_conversations())
def test_a_list_of_bad_shapes_is_refused_or_its_views_are_accepted(messages):
    try:
        view = view_of(messages, 2_000)
    except (InvalidMessage, CannotFit):
        return

    assert rejection("chat", view.messages) is None


def new_entries_of(message):
    return new_entries([message])


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("content", CONTENTS)
def test_content_that_no_provider_accepts_is_refused_before_anything_is_stored(role, content):
    message = with_content({"role": role}, content)

    with Conversation("a", store="memory:") as chat:
        for append in (chat.append, Transcript().append, read, new_entries_of):
            with pytest.raises(InvalidMessage, match="content"):
                append(message)
        assert len(chat) == 0


@pytest.mark.parametrize("content", [None, NO_CONTENT, []])
def test_an_empty_answer_stays_in_the_record_and_is_sent_as_an_empty_text(content):
    answer = with_content({"role": "assistant"}, content)
    record = Transcript([USER, answer, USER])

    view = view_of(record)

    assert view.messages == [USER, {"role": "assistant", "content": ""}, USER]
    assert record[1] == answer
    assert [str(violation) for violation in view.violations] == [
        "valid: message 1: bad content: replaced (in the record)"
    ]
    assert view.why(1).status is NoteStatus.REPAIRED


def test_a_tool_name_that_the_provider_rejects_is_replaced_in_views():
    call = {"id": "c", "type": "function", "function": {"name": "multi_tool_use.parallel", "arguments": "{}"}}
    record = Transcript(
        [
            USER,
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "ok"},
        ]
    )

    view = view_of(record)

    assert view.messages[1]["tool_calls"][0]["function"]["name"] == "multi_tool_use_parallel"
    assert [finding.kind for finding in check(record)] == [FindingKind.BAD_NAME]
    assert view.why(1).reason == "bad name: renamed"
    assert [violation.in_record for violation in view.violations] == [True]


def test_a_long_tool_name_is_replaced_only_for_providers_that_reject_it():
    call = {"id": "c", "type": "function", "function": {"name": "a" * 100, "arguments": "{}"}}
    messages = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ]

    assert is_valid(messages, provider="anthropic")
    assert not is_valid(messages, provider="openai")


def test_the_guard_repairs_and_reports_the_shapes_of_a_managers_messages():
    guarded = guard([USER], [{"role": "system", "content": ["x"]}, USER])

    assert guarded.view[0] == {"role": "system", "content": [{"type": "text", "text": "x"}]}
    assert [violation.guarantee for violation in guarded.violations] == [Guarantee.VALID]
    assert not guarded.violations[0].in_record


def test_strict_views_accept_what_only_the_record_has_wrong():
    view = view_of(Transcript([USER, {"role": "assistant", "content": SURROGATE}, USER]), strict=True)

    assert view.messages[1]["content"] == "broken \ufffd text"
    assert view.violations[0].in_record


@pytest.mark.parametrize("role", ["system", "developer", "assistant", "tool"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
def test_an_image_that_is_not_the_users_is_replaced_where_the_provider_rejects_it(role, provider):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    messages += [{"role": "tool", "tool_call_id": "c", "content": [image] if role == "tool" else "ok"}, USER]
    if role != "tool":
        messages.insert(0 if role != "assistant" else 3, {"role": role, "content": [image]})
    accepts_results = (role, provider) == ("tool", "anthropic")

    view = view_of(Transcript(messages), provider=provider)

    assert is_valid(messages, provider=provider) is accepts_results
    assert [violation.in_record for violation in view.violations] == [True] * (not accepts_results)
    assert ("left out, the model cannot read it" in str(view.curated)) is not accepts_results
    protocol = {"openai": "chat", "anthropic": "anthropic"}[provider]
    assert rejection(protocol, list(view.curated)) is None
    assert list(view_of(Transcript(messages), keep_parts=True).curated) == messages


def test_an_image_in_a_tool_result_of_responses_is_sent_to_responses_and_not_to_chat():
    image = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "auto"}
    items = [
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [image]},
    ]

    view = view_of(items, 2_000)

    assert view.violations == ()
    assert view.responses()["input"] == items
    assert "left out" in view.messages[-1]["content"][0]["text"]
    assert chat_problem({"model": "m", "messages": view.messages}) is None


def test_the_error_for_a_bad_part_names_the_message_and_the_part():
    with pytest.raises(InvalidMessage, match=r"message 1: content\[1\] .* needs a text in image_url.url"):
        read([USER, {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}])


class Unchanged:
    def curate(self, messages, *, session):
        return list(messages)


class Copied:
    def curate(self, messages, *, session):
        return [dict(message) for message in messages]


@pytest.mark.fuzz
@given(mutated_conversations(), st.sampled_from(["openai", "anthropic"]), st.sampled_from([Unchanged(), Copied()]))
def test_a_manager_is_not_blamed_for_bad_shapes_of_the_record(messages, provider, manager):
    view = view_of(Transcript(messages, broken="mark"), manager, provider=provider, strict=True)

    assert all(violation.in_record for violation in view.violations)


@pytest.mark.parametrize("content", [SURROGATE, [{"type": "image_url"}]])
def test_a_manager_is_not_blamed_for_the_content_of_the_newest_request(content):
    record = Transcript([{"role": "system", "content": SURROGATE}, with_content(USER, content)], broken="mark")

    view = view_of(record, Unchanged(), strict=True)

    assert [violation.in_record for violation in view.violations] == [True, True]
    assert len(view.messages) == 2


@dataclass(frozen=True)
class ReadFile:
    path: str


def read_file(params: ReadFile, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(SURROGATE)


@pytest.mark.parametrize("adapter_class", [OpenAIAdapter, AnthropicAdapter])
def test_a_lone_surrogate_in_a_tool_result_fails_neither_this_run_nor_the_next(adapter_class):
    reader = Tool[ReadFile, str](name="read_file", description="Read a file.", handler=read_file)
    sections = [MarkdownSection[None](title="Task", key="task", template="You review code.", tools=[reader])]
    prompt = Prompt(PromptTemplate[str](ns="test", key="review", sections=sections))
    with LoopbackProvider(ScriptedModel(call("read_file", path="a"), say("Done."), otherwise="Again.")) as provider:
        url = provider.base_url if adapter_class is OpenAIAdapter else provider.anthropic_url
        adapter = adapter_class("gpt-4o", base_url=url, api_key="any")
        first = adapter.evaluate_sync(prompt, session=Session(), request="Go.")
        second = adapter.evaluate_sync(prompt, session=Session(), request="Again?", conversation=first.conversation)
        adapter.close()

        assert (first.text, second.text, provider.problems) == ("Done.", "Again.", [])
    assert [message["content"] for message in second.conversation if message["role"] == "tool"] == [SURROGATE]
    assert [violation.detail for violation in second.view.violations] == ["message 3: bad text: replaced"]


def test_an_image_in_a_tool_result_of_a_view_for_anthropic_is_replaced_for_chat():
    image = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    call_block = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    result_block = {"type": "tool_result", "tool_use_id": "t1", "content": [image]}
    messages = [USER, {"role": "assistant", "content": [call_block]}, {"role": "user", "content": [result_block]}]

    view = view_of(messages, provider="anthropic")

    assert view.anthropic()["messages"] == messages
    assert chat_problem({"model": "m", **view.openai()}) is None
