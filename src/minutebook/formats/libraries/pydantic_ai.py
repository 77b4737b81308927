"""Messages of pydantic-ai, as `ModelMessagesTypeAdapter` writes them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    holds_messages,
    list_places,
    read_each,
    read_items,
    time_of,
)
from minutebook.formats.messages import assistant, call, json_text, media_data, result, system, user
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import known_parts, shape_test
from minutebook.record.message import Message

_REQUEST_PARTS: Final = frozenset({"system-prompt", "user-prompt", "tool-return", "retry-prompt"})


@shape_test
def is_message(value: Any) -> bool:
    if not has_keys(value, "kind", "parts") or value["kind"] not in {"request", "response"}:
        return False
    return isinstance(value["parts"], list) and all(has_keys(part, "part_kind") for part in value["parts"])


@shape_test
def matches(value: Any) -> bool:
    return is_message(value) or (isinstance(value, list) and bool(value) and all(map(is_message, value)))


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_message, matches):
        yield _conversation(source, source.values())
    else:
        yield from read_each(
            source,
            lambda value: matches(value) and not is_message(value),
            lambda value, place: _conversation(source, map(Value, value, list_places(place))),
        )


def _conversation(source: Source, values: Iterable[Value]) -> SourceConversation:
    instructions = None

    def read_message(value: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
        nonlocal instructions
        if (text := value.get("instructions")) and instructions is None:
            instructions = text
            yield SourceMessage(system(json_text(text)), place)
        elif text and text != instructions:
            source.skip(f"{place}, instructions", "are not those of the first request")
        yield from _items(source, value, place)

    items = read_items(source, values, is_message, read_message)
    return SourceConversation(items=items, model=next((item.model for item in reversed(items) if item.model), None))


def _items(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
    if value["kind"] == "response":
        parts = known_parts(source, value["parts"], place, {"text", "thinking", "tool-call"}, key="part_kind")
        if parts or not value["parts"]:
            at = time_of(value.get("timestamp"))
            yield SourceMessage(_answer(parts), place, at, value.get("model_name"), _usage(value.get("usage")))
        return
    for part in known_parts(source, value["parts"], place, _REQUEST_PARTS, key="part_kind"):
        yield SourceMessage(_request_message(part), place, time_of(part.get("timestamp")))


def _usage(counts: Any) -> dict[str, Any] | None:
    """The usage, with the counts also under the names of the Responses API."""
    if not isinstance(counts, Mapping):
        return None
    cached, written = counts.get("cache_read_tokens"), counts.get("cache_write_tokens")
    return {
        **counts,
        "input_tokens": counts.get("input_tokens", counts.get("request_tokens")),
        "output_tokens": counts.get("output_tokens", counts.get("response_tokens")),
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    }


def _answer(parts: list[Mapping[str, Any]]) -> Message:
    text = "".join(str(part.get("content") or "") for part in parts if part["part_kind"] == "text")
    thinking = "".join(str(part.get("content") or "") for part in parts if part["part_kind"] == "thinking")
    calls = [
        call(part.get("tool_call_id"), part.get("tool_name"), part.get("args"))
        for part in parts
        if part["part_kind"] == "tool-call"
    ]
    return assistant(text, calls, reasoning=thinking)


def _request_message(part: Mapping[str, Any]) -> Message:
    kind, content = part["part_kind"], part.get("content")
    if kind == "system-prompt":
        return system(json_text(content))
    if kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        return result(part.get("tool_call_id"), content, is_error=kind == "retry-prompt")
    if isinstance(content, list):
        return user([_user_part(item) for item in content])
    return user(json_text(content))


def _user_part(item: Any) -> dict[str, Any]:
    if isinstance(item, str):
        return {"type": "text", "text": item}
    if has_keys(item, "kind") and item["kind"] == "image-url":
        return {"type": "image_url", "image_url": {"url": str(item.get("url"))}}
    file = None
    if has_keys(item, "kind", "data", "media_type") and item["kind"] == "binary":
        data = str(item["data"]).replace("-", "+").replace("_", "/")  # URL-safe base64
        file = media_data(str(item["media_type"]), data, item.get("identifier"))
    return file or {"type": "text", "text": json_text(item)}


FORMAT: Final = Format(name="pydantic-ai", title="pydantic-ai messages (JSON)", matches=matches, read=read)
