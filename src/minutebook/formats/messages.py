"""Functions that build chat messages, for the readers of formats that have no provider's messages."""

import json
from collections.abc import Sequence
from typing import Any


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
    return {"id": str(call_id), "type": "function", "function": {"name": str(name or ""), "arguments": text}}


def result(call_id: Any, content: Any, *, is_error: bool = False) -> dict[str, Any]:
    """A tool result. Content that is neither a text nor a list of parts is written as JSON."""
    is_content = isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content)
    )
    message = {"role": "tool", "tool_call_id": str(call_id), "content": content if is_content else json_text(content)}
    return {**message, "is_error": True} if is_error else message


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def image(media_type: str, data: str) -> dict[str, Any]:
    """A content part with an image. `data` is base64."""
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data}"}}


def json_text(value: Any) -> str:
    """The value as JSON. A text is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
