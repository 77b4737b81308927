"""Gemini's API: requests, lists of contents, responses."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    holds_messages,
    items_of,
    list_places,
    read_each,
)
from minutebook.formats.requests.chat import (
    fact_fields,
    facts_of,
    read_message_stream,
    with_text_results,
    without_messages,
)
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import leading_system_count, text_of
from minutebook.wire.gemini import contents_to_messages, gemini_arguments, messages_to_contents, system_message

_PART_KEYS: Final = frozenset(
    {"text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "toolCall"}
    | {"function_call", "function_response", "inline_data", "file_data", "codeExecutionResult", "toolResponse"}
)
"""Keys of the parts that are known."""


@shape_test
def is_content(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("role", "user") in {"user", "model", "function"}
        and isinstance(value.get("parts"), list)
        and all(isinstance(part, Mapping) and "type" not in part for part in value["parts"])
        and ("role" in value or _has_known_part(value))
    )


def _has_known_part(content: Mapping[str, Any]) -> bool:
    return any(part.keys() & _PART_KEYS for part in content["parts"])


@shape_test
def matches(value: Any) -> bool:
    contents = value.get("contents") if isinstance(value, Mapping) else value
    if isinstance(contents, list):
        # Contents may have parts that this version does not know.
        return all(map(is_content, contents)) and any(map(_has_known_part, contents))
    return (is_content(value) and _has_known_part(value)) or has_keys(value, "candidates")


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_content, matches):
        yield read_message_stream(source, is_content)
    else:
        # In a file of requests, a single content belongs to none of them.
        yield from read_each(
            source, lambda value: matches(value) and not is_content(value), partial(_conversation, source)
        )


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    if has_keys(value, "candidates"):
        answers = [candidate.get("content") for candidate in value["candidates"][:1]]
        contents = [content for content in answers if has_keys(content, "parts")]  # an answer may be empty
        for index in range(1, len(value["candidates"])):
            source.skip(f"{place}, candidates[{index}]", "is another answer to the same request")
        messages = contents_to_messages(contents)
        usage, model = value.get("usageMetadata"), value.get("modelVersion")
        items = [SourceMessage(message, place, None, model, usage) for message in messages]
        return SourceConversation(items=items, id=value.get("responseId"), model=model)
    contents = value["contents"] if isinstance(value, Mapping) else value
    items = items_of(contents, list_places(place, "contents"))
    if not isinstance(value, Mapping):
        return SourceConversation(items=items)
    instructions = value.get("systemInstruction", value.get("system_instruction"))
    instruction = system_message(instructions)
    for index, part in enumerate(instructions.get("parts") or () if isinstance(instructions, Mapping) else ()):
        if not has_keys(part, "text"):
            source.skip(f"{place}, systemInstruction, part {index}", "has no text")
    if instruction is not None:
        items.insert(0, SourceMessage(instruction, f"{place}, systemInstruction"))
    is_continuation = bool(value.get("cachedContent", value.get("cached_content")))
    return SourceConversation(
        items=items, **facts_of(value), is_continuation=is_continuation, data=without_messages(value, "contents")
    )


def write(conversation: SourceConversation) -> Any:
    data, is_gemini = dict(conversation.data), conversation.format == FORMAT.name
    messages = conversation.messages if is_gemini else list(with_text_results(conversation.messages))
    original = system_message(data.get("systemInstruction", data.get("system_instruction")))
    prompt = "\n\n".join(map(text_of, messages[: leading_system_count(messages)]))
    if data and (original["content"] if original else "") == prompt:
        return {**data, "contents": messages_to_contents(messages)}
    return {**(data or fact_fields(conversation)), **gemini_arguments(messages)}


FORMAT: Final = Format(
    name="gemini",
    title="Gemini: requests, lists of contents, responses (JSON or JSONL)",
    has_api_messages=True,
    matches=matches,
    read=read,
    provider="gemini",
    write=write,
    list_name="contents",
)
