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
from minutebook.record.message import Message, call_arguments, call_ids, call_names, is_result, text_of
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


def visible(message: Message) -> dict[str, Any]:
    """What a reader of the message sees, however its format spells it."""
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    names_and_arguments = zip(call_names(message), map(argument_object, call_arguments(message)), strict=True)
    return {
        **{key: value for key, value in message.items() if key not in FORMAT_KEYS and value},
        "content": [text_of(message), [part for part in parts if part["type"] != "text"]],
        "tool_calls": [list(names_and_arguments), call_ids(message)],
    }


def require_losses_are_listed(conversation: SourceConversation, target: str) -> None:
    converted = convert(conversation, target)
    text = json.dumps([converted.value] if isinstance(converted.value, list) else converted.value)
    again = [message for other in read(text.encode(), target) for message in other.messages]

    lost_keys = {(found[1], found[2]) for lost in converted.lost if (found := re.match(r"message (\d+): (\w+)", lost))}
    text = json.dumps(converted.value)
    for key, field in conversation.data.items():
        if isinstance(field, (list, dict)) and key not in {"system", "systemInstruction", "body", "params"}:
            assert json.dumps(field) in text or any(key in lost for lost in converted.lost), key
    if len(again) != len(conversation.messages):
        kept = {(message["role"], text_of(message)) for message in again}
        for index, message in enumerate(conversation.messages):
            is_kept = any(role == message["role"] and text_of(message) in text for role, text in kept)
            assert is_kept or any(number == str(index) for number, _ in lost_keys), index
        return
    for index, (before, after) in enumerate(zip(conversation.messages, again, strict=True)):
        kept_values = visible(after)
        for key, value in visible(before).items():
            is_name_of_tool = key == "name" and is_result(before)  # its call has it
            assert is_name_of_tool or kept_values.get(key) == value or (str(index), key) in lost_keys, (index, key)


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
