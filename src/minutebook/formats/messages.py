"""Functions that build chat messages, for the readers of formats that have no provider's messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from minutebook.record.message import Message, call_ids, is_result
from minutebook.wire.anthropic import FILE_NAME


def assistant(
    text: str | None, calls: Sequence[dict[str, Any]] = (), *, reasoning: str | None = None
) -> dict[str, Any]:
    """An assistant message. Reasoning is kept under `reasoning_content`, as several providers name it."""
    message: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = reasoning
    return {**message, "tool_calls": list(calls)} if calls else message


def call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    """A tool call. Arguments that are not a text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json_text({} if arguments is None else arguments)
    return {"id": _id(call_id), "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def result(call_id: Any, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    """A tool result. Content that is neither a text nor a list of texts, images and files is written as JSON."""
    is_content = isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(part, dict) and part.get("type") in {"text", "image_url", "file"} for part in content)
    )
    message = {"role": "tool", "tool_call_id": _id(call_id), "content": content if is_content else json_text(content)}
    return {**message, "is_error": True} if is_error else message


def _id(call_id: Any) -> str:
    """The id of a call. Empty if the file has none: `with_call_ids` then gives one to the call and its result."""
    return "" if call_id is None else str(call_id)


def with_call_ids(messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
    """The messages with an id for each call that has none and for its result, and a description of each new id.

    Results without an id belong to the calls before them, in order.
    """
    used = {call_id for message in messages for call_id in call_ids(message)}
    result: list[Message] = []
    descriptions: list[str] = []
    unanswered: list[str] = []

    def with_id(index: int, number: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        if call.get("id"):
            return call
        new_id = f"call_{index}_{number}"
        while new_id in used:
            new_id += "_"
        used.add(new_id)
        unanswered.append(new_id)
        descriptions.append(f"message {index}: call {number} had no id and has the new id {new_id!r}")
        return {**call, "id": new_id}

    for index, message in enumerate(messages):
        if is_result(message):
            has_no_id = unanswered and not message.get("tool_call_id")
            result.append({**message, "tool_call_id": unanswered.pop(0)} if has_no_id else message)
        elif calls := message.get("tool_calls"):
            unanswered.clear()
            calls_with_ids = [with_id(index, number, call) for number, call in enumerate(calls)]
            result.append({**message, "tool_calls": calls_with_ids})
        else:
            result.append(message)
    return result, descriptions


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def image_at(url: str) -> dict[str, Any]:
    """A content part with an image. `url` may be a data URL."""
    return {"type": "image_url", "image_url": {"url": url}}


def media(media_type: str, url: str, name: Any = None) -> dict[str, Any] | None:
    """A content part with an image, or with a file if `url` is a data URL; None if chat messages have none for it."""
    if media_type.startswith("image/"):
        return image_at(url)
    if not url.startswith("data:") or not media_type.startswith(("application/pdf", "text/")):
        return None
    return {"type": "file", "file": {"filename": str(name or FILE_NAME), "file_data": url}}


def media_data(media_type: str, data: str, name: Any = None) -> dict[str, Any] | None:
    """Like `media`. `data` is base64."""
    return media(media_type, f"data:{media_type};base64,{data}", name)


def content_of(parts: Sequence[dict[str, Any]], separator: str = "\n") -> str | list[dict[str, Any]]:
    """The parts as the content of a message: a text if they are all texts."""
    if all(part["type"] == "text" for part in parts):
        return separator.join(part["text"] for part in parts)
    return list(parts)


def json_text(value: Any) -> str:
    """The value as JSON. A text is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
