"""Round trips: identical within a format; across formats only what `Converted.lost` lists is lost."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import corpus as corpus_files
from minutebook.formats import SourceConversation, SourceMessage, convert, formats, read
from minutebook.formats.registry import with_messages
from minutebook.record.message import Message, call_arguments, call_names, is_result, is_system, text_of
from minutebook.wire.anthropic import argument_object
from minutebook.wire.write import FORMAT_KEYS
from tests.strategies import conversations
from tests.transcripts import needs_corpus

WRITTEN = sorted(name for name, known in formats().items() if known.write is not None)
RAW = ("raw_anthropic", "raw_responses", "raw_gemini", "provider_recordings")


def corpus(name: str) -> Iterator[SourceConversation]:
    folder = corpus_files.folder()
    assert folder is not None
    return read(Path(folder) / f"{name}.jsonl.gz")


def calls(message: Message) -> list[Any]:
    return list(zip(call_names(message), map(argument_object, call_arguments(message)), strict=True))


def parts(message: Message) -> list[Any]:
    content = message.get("content")
    return [part for part in content if part["type"] != "text"] if isinstance(content, list) else []


def fields(message: Message) -> dict[str, Any]:
    """The other fields of a message. The name of a result is that of its call."""
    known = FORMAT_KEYS | {"role", "content", "tool_calls", "tool_call_id", *(["name"] if is_result(message) else [])}
    return {key: value for key, value in message.items() if key not in known and value}


def side(message: Message) -> str:
    return "system" if is_system(message) else "tool" if is_result(message) else message["role"]


def has_tools(tools: Any, text: str) -> bool:
    """Whether a written request has the names, the descriptions and the parameters of the tools of another format."""
    if isinstance(tools, list):
        return all(has_tools(tool, text) for tool in tools)
    tools = tools.get("function", tools.get("functionDeclarations", tools.get("function_declarations", tools)))
    if isinstance(tools, list):
        return has_tools(tools, text)
    values = [tools.get(key) for key in ("name", "description", "parameters", "input_schema", "parametersJsonSchema")]
    return all(json.dumps(value).lower() in text.lower() for value in values if value)  # Gemini has types in capitals


def require_losses_are_listed(conversation: SourceConversation, target: str) -> None:
    converted = convert(conversation, target)
    text = json.dumps([converted.value] if isinstance(converted.value, list) else converted.value)
    again = [message for other in read(text.encode(), target) for message in other.messages]

    lost_indexes = {found[1] for lost in converted.lost if (found := re.match(r"message (\d+): ", lost))}
    text = json.dumps(converted.value)
    for key, field in conversation.data.items():
        if isinstance(field, (list, dict)) and key not in {"system", "systemInstruction", "body", "params"}:
            is_listed = any(key in lost for lost in converted.lost)
            assert is_listed or json.dumps(field) in text or (key == "tools" and has_tools(field, text)), key
    is_aligned = list(map(side, again)) == list(map(side, conversation.messages))
    for index, message in enumerate(conversation.messages):
        written = again[index : index + 1] if is_aligned else again
        is_kept = (
            any(text_of(message) in text_of(other) for other in written)
            and all(any(part in parts(other) for other in written) for part in parts(message))
            and all(any(call in calls(other) for other in written) for call in calls(message))
            and all(
                json.dumps(value) in text or any(other.get(key) == value for other in written)
                for key, value in fields(message).items()
            )
        )
        assert is_kept or str(index) in lost_indexes, index


@needs_corpus
@pytest.mark.parametrize("name", RAW)
def test_the_same_format_is_identical(name: str) -> None:
    for conversation in corpus(name):
        assert convert(conversation, conversation.format).value == conversation.original


@needs_corpus
@pytest.mark.parametrize("name", RAW)
def test_a_value_that_is_built_again_is_identical(name: str) -> None:
    for conversation in corpus(name):
        assert with_messages(conversation, conversation.items) == conversation.original


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("target", WRITTEN)
def test_across_formats_only_what_is_listed_is_lost(name: str, target: str) -> None:
    for conversation in corpus(name):
        require_losses_are_listed(conversation, target)


@pytest.mark.fuzz
@given(messages=conversations(user_first=True), source=st.sampled_from(WRITTEN), target=st.sampled_from(WRITTEN))
def test_generated_conversations_lose_only_what_is_listed(messages: list[Any], source: str, target: str) -> None:
    items = [SourceMessage(message) for message in messages]
    value = convert(SourceConversation(items=items), source).value
    (conversation,) = read(json.dumps(value).encode(), source)

    assert convert(conversation, source).value == value
    require_losses_are_listed(conversation, target)
