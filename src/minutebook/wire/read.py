"""Read what a client gives: text, messages, and the objects of the official openai and anthropic clients.

This is the only reader of such input. Everything becomes chat messages, the format of the record. Parts that a chat
message cannot express stay with it under keys of our own, so that writing it back in the client's format restores them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.message import Message, plain_copy
from minutebook.wire.anthropic import from_anthropic
from minutebook.wire.responses import items_to_messages

_READABLE: Final = (
    "text, a chat message, an Anthropic message, a Responses item, a list of these, or a response object of the openai or "
    "anthropic client"
)
ANTHROPIC_BLOCKS: Final = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document", "search_result"),
        *("server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
        *("mcp_tool_use", "mcp_tool_result", "container_upload", "bash_code_execution_tool_result"),
        "text_editor_code_execution_tool_result",
    }
)
"""Types of content blocks that only Anthropic's Messages API has."""
_RESPONSES_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
"""Types of content parts that only the Responses API has."""


@dataclass(frozen=True, slots=True)
class ClientInput:
    """What a client gave, as chat messages, with the facts of a response."""

    messages: list[Message]
    usage: Mapping[str, Any] | None = None
    """The usage that the provider reported, unchanged; None if the input is not a response."""
    model: str | None = None
    finish: str | None = None
    """The provider's finish reason."""


def read(given: Any) -> list[Message]:
    """The chat messages of what a client gave: text is a user message, a response object is its message.

    Chat messages are returned unchanged, not copied. Messages in the format of Anthropic or of the Responses API are
    converted.

    Raises:
        InvalidMessage: the input, or one of its messages, is not understood.
    """
    return read_input(given).messages


def read_input(given: Any) -> ClientInput:
    """Like `read`, with the usage, the model and the finish reason if the input is a response object.

    Raises:
        InvalidMessage: the input, or one of its messages, is not understood.
    """
    if isinstance(given, str):
        return ClientInput([{"role": "user", "content": given}])
    value = _plain(given)
    if isinstance(value, Mapping):
        response = _read_response(value)
        return response if response is not None else ClientInput(list(_messages([value])))
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return ClientInput(list(_messages(value)))
    raise InvalidMessage("it", f"is a {type(given).__name__}; expected {_READABLE}")


def foreign_block(message: Message) -> str | None:
    """The type of the first content block or item that only Anthropic or the Responses API has; None for a chat message."""
    content = message.get("content")
    if not isinstance(content, (list, tuple)):
        return None
    types = (part.get("type") for part in content if isinstance(part, Mapping))
    return next((kind for kind in types if kind in ANTHROPIC_BLOCKS or kind in _RESPONSES_PARTS), None)


def _plain(given: Any) -> Any:
    """A client's object as JSON data. The official clients' objects are pydantic models; null fields are left out."""
    dump = getattr(given, "model_dump", None)
    return dump(mode="json", exclude_none=True) if callable(dump) and not isinstance(given, type) else given


def _read_response(value: Mapping[str, Any]) -> ClientInput | None:
    """The message of a response object; None if the value is not a response."""
    if isinstance(value.get("choices"), (list, tuple)):
        return _read_completion(value)
    if value.get("object") == "response" and isinstance(value.get("output"), (list, tuple)):
        messages: list[Message] = list(items_to_messages([_mapping(item, 0) for item in value["output"]]))
        return ClientInput(messages, value.get("usage"), value.get("model"), value.get("status"))
    if value.get("type") == "message" and "stop_reason" in value:
        messages = list(_anthropic_messages(value, 0))
        return ClientInput(messages, value.get("usage"), value.get("model"), value.get("stop_reason"))
    return None


def _read_completion(completion: Mapping[str, Any]) -> ClientInput:
    choice = next(iter(completion["choices"]), None)
    if not isinstance(choice, Mapping) or not isinstance(message := choice.get("message"), Mapping):
        raise InvalidMessage(
            "choices[0].message", "is missing; pass a whole completion, or the final one of a stream, not a chunk"
        )
    fields = {key: value for key, value in message.items() if value is not None}
    answer = {"role": "assistant", "content": None if fields.get("tool_calls") else "", **fields}
    return ClientInput([answer], completion.get("usage"), completion.get("model"), choice.get("finish_reason"))


def _messages(values: Iterable[Any]) -> Iterator[Message]:
    """Read a list. Neighbouring Responses items are read together, because they may be parts of one message."""
    items: list[Mapping[str, Any]] = []
    for index, given in enumerate(values):
        if isinstance(given, str):
            raise InvalidMessage("it", "is text in a list; write {'role': 'user', 'content': …}", index)
        value = _mapping(_plain(given), index)
        if _is_item(value):
            items.append(value)
            continue
        if items:
            yield from items_to_messages(items)
            items = []
        response = _read_response(value)
        if response is not None:
            yield from response.messages
        elif _is_anthropic(value):
            yield from _anthropic_messages(value, index)
        else:
            yield _require_chat(value, index, is_object=value is not given)
    if items:
        yield from items_to_messages(items)


def _mapping(value: Any, index: int) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidMessage("it", f"is a {type(value).__name__}; expected {_READABLE}", index)
    return value


def _require_chat(message: Mapping[str, Any], index: int, *, is_object: bool) -> Message:
    if "parts" in message and "content" not in message:
        raise InvalidMessage("parts", "is Gemini's format, which cannot be read yet; convert it first", index)
    if not isinstance(message.get("role"), str):
        raise InvalidMessage("role", f"is {message.get('role')!r}; expected {_READABLE}", index)
    if is_object and message.get("role") == "assistant" and "content" not in message:
        return {**message, "content": None}  # the dump of a client's object leaves null fields out
    return message


def _is_item(value: Mapping[str, Any]) -> bool:
    """Whether a value is an item of the Responses API. A message item may have no type."""
    kind = value.get("type")
    if isinstance(kind, str) and kind != "message":
        return "role" not in value
    content = value.get("content")
    parts = content if isinstance(content, (list, tuple)) else ()
    if any(isinstance(part, Mapping) and part.get("type") in _RESPONSES_PARTS for part in parts):
        return True
    return kind == "message" and "stop_reason" not in value and not _is_anthropic(value)


def _is_anthropic(value: Mapping[str, Any]) -> bool:
    content = value.get("content")
    if value.get("role") not in {"user", "assistant"} or not isinstance(content, (list, tuple)):
        return False
    return any(isinstance(block, Mapping) and block.get("type") in ANTHROPIC_BLOCKS for block in content)


def _anthropic_messages(message: Mapping[str, Any], index: int) -> Iterator[Message]:
    """The chat messages of an Anthropic message: tool results become messages of their own, before the rest."""
    blocks = message.get("content")
    if isinstance(blocks, str):
        yield {"role": message["role"], "content": blocks}
        return
    if not isinstance(blocks, (list, tuple)) or not all(isinstance(block, Mapping) for block in blocks):
        raise InvalidMessage("content", "is not a list of content blocks", index)
    if message.get("role") == "assistant":
        _require_fields(blocks, "tool_use", ("id", "name", "input"), index)
        yield from_anthropic(blocks)
        return
    _require_fields(blocks, "tool_result", ("tool_use_id",), index)
    rest = [block for block in blocks if block.get("type") != "tool_result"]
    for block in blocks:
        if block.get("type") == "tool_result":
            yield _tool_message(block)
    if rest:
        yield {"role": "user", "content": [_chat_part(block) for block in rest]}


def _require_fields(blocks: Sequence[Mapping[str, Any]], kind: str, names: Sequence[str], index: int) -> None:
    for position, block in enumerate(blocks):
        for name in names if block.get("type") == kind else ():
            if name not in block:
                raise InvalidMessage(f"content[{position}].{name}", f"is missing in a {kind} block", index)


def _tool_message(block: Mapping[str, Any]) -> Message:
    content = block.get("content", "")
    message: dict[str, Any] = {
        "role": "tool",
        "tool_call_id": block["tool_use_id"],
        "content": content if isinstance(content, str) else [_chat_part(part) for part in content],
    }
    if block.get("is_error"):
        message["is_error"] = True
    if "cache_control" in block:
        message["cache_control"] = plain_copy(block["cache_control"])
    return message


def _chat_part(block: Mapping[str, Any]) -> dict[str, Any]:
    """A block as a part of a chat message. An image becomes an `image_url`; other blocks stay as they are."""
    source = block.get("source")
    if block.get("type") != "image" or not isinstance(source, Mapping) or source.get("type") not in {"base64", "url"}:
        return dict(block)
    is_url = source["type"] == "url"
    url = source.get("url", "") if is_url else f"data:{source.get('media_type')};base64,{source.get('data', '')}"
    rest = {key: value for key, value in block.items() if key not in {"type", "source"}}
    return {"type": "image_url", "image_url": {"url": url}, **rest}
