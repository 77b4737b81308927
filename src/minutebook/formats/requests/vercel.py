"""UI messages of Vercel's AI SDK, with parts (version 5 and later) or tool invocations (version 4)."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    holds_messages,
    list_places,
    read_each,
    read_items,
    time_of,
)
from minutebook.formats.messages import assistant, call, json_text, media, result, system, user
from minutebook.formats.requests.chat import facts_of, messages_of
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import known_parts, shape_test
from minutebook.record.message import Message

_ROLES: Final = frozenset({"user", "assistant", "system"})


@shape_test
def is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.get("role") not in _ROLES:
        return False
    parts = value.get("parts")
    if isinstance(parts, list):
        return all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in parts)
    return "toolInvocations" in value


@shape_test
def matches(value: Any) -> bool:
    messages = messages_of(value)
    return is_message(value) or (any(map(is_message, messages or ())) and all(map(_is_readable, messages or ())))


@shape_test
def _is_readable(value: Any) -> bool:
    """Whether a value is a message, or one of version 4 with only a text."""
    is_text = isinstance(value, Mapping) and value.get("role") in _ROLES and isinstance(value.get("content"), str)
    return is_message(value) or (is_text and "tool_calls" not in value)


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_message, matches):
        yield SourceConversation(items=read_items(source, source.values(), _is_readable, partial(_items, source)))
    else:
        yield from read_each(source, _is_conversation, partial(_conversation, source))


def _is_conversation(value: Any) -> bool:
    return matches(value) and not is_message(value)


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    values = map(Value, messages_of(value) or [], list_places(place))
    items = read_items(source, values, _is_readable, partial(_items, source))
    return SourceConversation(items=items, **(facts_of(value) if isinstance(value, Mapping) else {}))


def _items(source: Source, message: Mapping[str, Any], place: str) -> list[SourceMessage]:
    metadata = message.get("metadata")
    facts = metadata if isinstance(metadata, Mapping) else {}
    at = time_of(message.get("createdAt", facts.get("createdAt")))
    return [
        SourceMessage(chat, place, at, facts.get("model"), facts.get("usage"))
        for chat in _messages(source, message, place)
    ]


def _messages(source: Source, message: Mapping[str, Any], place: str) -> Iterator[Message]:
    parts = message.get("parts")
    if not isinstance(parts, list):
        tools = message.get("toolInvocations") or ()
        parts = [{"type": "dynamic-tool", **_tool_part(invocation)} for invocation in tools]
        if message.get("content") or not parts:
            parts.append({"type": "text", "text": message.get("content") or ""})
    parts = [_with_named_tool(part) for part in parts] + [
        {"type": "file", "mediaType": file.get("contentType"), "url": file.get("url"), "filename": file.get("name")}
        for file in message.get("experimental_attachments") or ()
    ]
    if message["role"] == "system":
        yield system("\n".join(part["text"] for part in known_parts(source, parts, place, {"text"})))
    elif message["role"] == "user":
        yield user([_user_part(part) for part in parts])
    else:
        types = {"text", "reasoning", "step-start", *(part["type"] for part in parts if _is_tool(part))}
        for step in _steps(known_parts(source, parts, place, types)):
            yield from _step_messages(step)


def _with_named_tool(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part in the form of version 5. Version 4 has tool calls among the parts, with the type `tool-invocation`."""
    if part["type"] != "tool-invocation":
        return part
    return {"type": "dynamic-tool", **_tool_part(part["toolInvocation"])}


def _tool_part(invocation: Mapping[str, Any]) -> dict[str, Any]:
    """A tool invocation of version 4 with the field names of version 5."""
    return {
        **invocation,
        "input": invocation.get("args"),
        "output": invocation.get("result"),
        "state": invocation.get("state"),
    }


def _steps(parts: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The parts of each model call. A text after a tool part is from the next call."""
    step: list[Mapping[str, Any]] = []
    for part in parts:
        follows_tool = bool(step) and _is_tool(step[-1]) and not _is_tool(part)
        if step and (part["type"] == "step-start" or follows_tool):
            yield step
            step = []
        if part["type"] != "step-start":
            step.append(part)
    if step:
        yield step


def _is_tool(part: Mapping[str, Any]) -> bool:
    return str(part["type"]).startswith(("tool-", "dynamic-tool"))


def _step_messages(step: list[Mapping[str, Any]]) -> Iterator[Message]:
    tools = [part for part in step if _is_tool(part)]
    text = "".join(str(part.get("text") or "") for part in step if part["type"] == "text")
    reasoning = "".join(str(part.get("text") or "") for part in step if part["type"] == "reasoning")
    calls = [
        call(part.get("toolCallId"), part.get("toolName") or part["type"].removeprefix("tool-"), part.get("input"))
        for part in tools
    ]
    yield assistant(text, calls, reasoning=reasoning)
    for part in tools:
        if part.get("state") in {"output-available", "result"}:
            yield result(part.get("toolCallId"), part.get("output"))
        elif part.get("state") == "output-error":
            yield result(part.get("toolCallId"), str(part.get("errorText") or ""), is_error=True)
        elif part.get("state") == "output-denied":
            yield result(part.get("toolCallId"), "denied by the user", is_error=True)


def _user_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": str(part.get("text") or "")}
    media_type, data = str(part.get("mediaType", part.get("mimeType"))), part.get("data")  # version 4: mimeType, data
    url = str(part.get("url", f"data:{media_type};base64,{data}"))
    file = media(media_type, url, part.get("filename")) if part["type"] == "file" else None
    return file or {"type": "text", "text": json_text(dict(part))}


FORMAT: Final = Format(
    name="vercel-ui",
    title="UI messages of Vercel's AI SDK (JSON or JSONL)",
    matches=matches,
    read=read,
    also_matches=lambda value, first: _is_readable(value),  # noqa: ARG005 - any file may have such messages
)
