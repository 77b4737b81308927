"""UI messages of Vercel's AI SDK, with parts (version 5 and later) or tool invocations (version 4)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, list_places, read_each, time_of
from minutebook.formats.messages import assistant, call, json_text, result, system, user
from minutebook.formats.requests.chat import facts_of, messages_of
from minutebook.formats.source import Source
from minutebook.record.message import Message


def is_message(value: Any) -> bool:
    if not isinstance(value, Mapping) or value.get("role") not in {"user", "assistant", "system"}:
        return False
    parts = value.get("parts")
    if isinstance(parts, list):
        return all(isinstance(part, Mapping) and isinstance(part.get("type"), str) for part in parts)
    return "toolInvocations" in value


def matches(value: Any) -> bool:
    messages = messages_of(value)
    return is_message(value) or (bool(messages) and all(map(is_message, messages or ())))


def read(source: Source) -> Iterator[SourceConversation]:
    if is_message(next(iter(source.sample()), None)):
        items = []
        for value in source.values():
            if is_message(value.data):
                items += _items(value.data, value.place)
            else:
                source.skip(value.place, "is not a UI message")
        yield SourceConversation(items=items)
    else:
        yield from read_each(source, matches, _conversation)


def _conversation(value: Any, place: str) -> SourceConversation:
    messages = messages_of(value) or []
    places = list_places(place)
    items = [
        item
        for message, message_place in zip(messages, places, strict=False)
        for item in _items(message, message_place)
    ]
    return SourceConversation(items=items, **(facts_of(value) if isinstance(value, Mapping) else {}))


def _items(message: Mapping[str, Any], place: str) -> list[SourceMessage]:
    metadata = message.get("metadata")
    facts = metadata if isinstance(metadata, Mapping) else {}
    at = time_of(message.get("createdAt", facts.get("createdAt")))
    return [SourceMessage(chat, place, at, facts.get("model"), facts.get("usage")) for chat in _messages(message)]


def _messages(message: Mapping[str, Any]) -> Iterator[Message]:
    parts = message.get("parts")
    if not isinstance(parts, list):
        parts = [{"type": "text", "text": message.get("content") or ""}]
        parts = [
            {"type": "dynamic-tool", **_tool_part(invocation)} for invocation in message["toolInvocations"]
        ] + parts
    if message["role"] == "system":
        yield system("\n".join(part["text"] for part in parts if part["type"] == "text"))
    elif message["role"] == "user":
        yield user([_user_part(part) for part in parts])
    else:
        for step in _steps(parts):
            yield from _step_messages(step)


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


def _user_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {"type": "text", "text": str(part.get("text") or "")}
    if part["type"] == "file" and str(part.get("mediaType")).startswith("image/"):
        return {"type": "image_url", "image_url": {"url": str(part.get("url"))}}
    return {"type": "text", "text": json_text(dict(part))}


FORMAT: Final = Format(
    name="vercel-ui", title="UI messages of Vercel's AI SDK (JSON or JSONL)", matches=matches, read=read
)
