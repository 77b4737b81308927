"""Messages of pydantic-ai, as `ModelMessagesTypeAdapter` writes them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    list_places,
    read_each,
    time_of,
)
from minutebook.formats.messages import assistant, call, image, json_text, result, system, user
from minutebook.formats.source import Source
from minutebook.record.message import Message


def is_message(value: Any) -> bool:
    if not has_keys(value, "kind", "parts") or value["kind"] not in {"request", "response"}:
        return False
    return isinstance(value["parts"], list) and all(has_keys(part, "part_kind") for part in value["parts"])


def matches(value: Any) -> bool:
    return is_message(value) or (isinstance(value, list) and bool(value) and all(map(is_message, value)))


def read(source: Source) -> Iterator[SourceConversation]:
    if is_message(next(iter(source.sample()), None)):
        items: list[SourceMessage] = []
        for value in source.values():
            if is_message(value.data):
                items += _items(value.data, value.place, is_first=not items)
            else:
                source.skip(value.place, "is not a pydantic-ai message")
        yield SourceConversation(items=items)
    else:
        yield from read_each(source, matches, _conversation)


def _conversation(value: list[Any], place: str) -> SourceConversation:
    items = [
        item
        for index, (message, message_place) in enumerate(zip(value, list_places(place), strict=False))
        for item in _items(message, message_place, is_first=not index)
    ]
    return SourceConversation(items=items, model=next((item.model for item in reversed(items) if item.model), None))


def _items(value: Mapping[str, Any], place: str, *, is_first: bool) -> Iterator[SourceMessage]:
    if value["kind"] == "response":
        yield SourceMessage(
            _answer(value["parts"]), place, time_of(value.get("timestamp")), value.get("model_name"), value.get("usage")
        )
        return
    if is_first and value.get("instructions"):
        yield SourceMessage(system(value["instructions"]), place)
    for part in value["parts"]:
        yield SourceMessage(_request_message(part), place, time_of(part.get("timestamp")))


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
    if has_keys(item, "kind", "data") and item["kind"] == "binary" and str(item.get("media_type")).startswith("image/"):
        return image(str(item["media_type"]), str(item["data"]))
    return {"type": "text", "text": json_text(item)}


FORMAT: Final = Format(name="pydantic-ai", title="pydantic-ai messages (JSON)", matches=matches, read=read)
