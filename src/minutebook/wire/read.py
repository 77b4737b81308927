"""Read what a client gives: text, messages, and the objects of the official openai and anthropic clients.

This is the only reader of such input. Everything becomes chat messages, the format of the record. Parts that a chat
message cannot express stay with it under keys of our own, so that writing it back in the client's format restores them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.message import CALL_BLOCKS, JSON_SCALARS, Message, is_result
from minutebook.record.shapes import require_content
from minutebook.tokens.counter import ITEMS_KEY
from minutebook.wire.anthropic import START_KEY, from_anthropic, user_from_anthropic
from minutebook.wire.gemini import numbered_messages
from minutebook.wire.responses import items_to_messages, message_to_items

_READABLE: Final = (
    "text, a chat message, an Anthropic message, a Responses item, a list of these, or a response object of the openai or "
    "anthropic client"
)
_ANTHROPIC_BLOCKS: Final = CALL_BLOCKS | {
    *("search_result", "container_upload", "tool_reference", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
    *("redacted_thinking", "compaction"),
}
"""Types of content blocks that only Anthropic's Messages API has."""
_REQUIRED_FIELDS: Final = {"text": "citations", "thinking": "signature", "image": "source", "document": "source"}
"""Types of content blocks that other providers have too, and the field that only Anthropic's have."""
_RESPONSES_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
"""Types of content parts that only the Responses API has."""
_JSON_FIELDS: Final = ("content", "tool_calls", "function_call", "parts")
"""Fields of a message that are read, so they must be JSON data. Other fields are kept unchanged."""
_PARSED_FIELDS: Final = frozenset({"parsed", "parsed_arguments", "parsed_output"})
"""Fields that the clients' `parse` methods add to a response. Providers reject them."""
_RESPONSE_FIELDS: Final = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})
"""Fields of a response that contain objects with parsed fields."""


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
        _require_json(value)
        response = _read_response(value)
        return response if response is not None else ClientInput(list(_messages([given])))
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return ClientInput(list(_messages(value)))
    raise InvalidMessage("it", f"is a {type(given).__name__}; expected {_READABLE}")


def _plain(given: Any) -> Any:
    """A client's object as JSON data, also inside lists. The clients' objects are pydantic models; null fields are left out."""
    dump = getattr(given, "model_dump", None)
    if callable(dump) and not isinstance(given, type):
        return _without_parsed(dump(mode="json", by_alias=True, exclude_none=True, warnings=False))
    content = given.get("content") if type(given) is dict else None
    if isinstance(content, (list, tuple)):
        blocks = [_plain(block) for block in content]
        return given if all(map(is_, blocks, content)) else {**given, "content": blocks}
    return given


def _require_json(value: Mapping[str, Any], index: int | None = None) -> None:
    for field in _JSON_FIELDS if "role" in value else value:
        inner = value.get(field)
        if type(inner) not in JSON_SCALARS and (problem := _json_problem(inner)) is not None:
            path, kind = problem
            expected = "text or a list of parts" if field + path == "content" else "JSON data"
            raise InvalidMessage(f"{field}{path}", f"is a {kind}; expected {expected}", index)


def _json_problem(value: Any) -> tuple[str, str] | None:
    """The path and the type of the first value that is not JSON data; None if all are."""
    if isinstance(value, Mapping):
        items = ((f".{key}", inner) for key, inner in value.items() if type(inner) not in JSON_SCALARS)
    elif isinstance(value, (list, tuple)):
        items = ((f"[{index}]", inner) for index, inner in enumerate(value) if type(inner) not in JSON_SCALARS)
    else:
        return None if isinstance(value, (str, int, float)) else ("", type(value).__name__)
    for path, inner in items:
        if (problem := _json_problem(inner)) is not None:
            return path + problem[0], problem[1]
    return None


def _without_parsed(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_parsed(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_parsed(inner) if key in _RESPONSE_FIELDS else inner
        for key, inner in value.items()
        if key not in _PARSED_FIELDS
    }


def _read_response(value: Mapping[str, Any]) -> ClientInput | None:
    """The message of a response object; None if the value is not a response."""
    if isinstance(value.get("choices"), (list, tuple)):
        return _read_completion(value)
    if "finish_reason" in value and isinstance(value.get("message"), Mapping):
        return _read_completion({"choices": [value]})
    if value.get("object") == "response" and isinstance(value.get("output"), (list, tuple)):
        items = [_mapping(_plain(item), 0) for item in value["output"]]
        messages = [message for _, message in _item_messages(items, 0)]
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


def read_numbered(values: Iterable[Any], *, is_anthropic: bool = False) -> Iterator[tuple[int, Message]]:
    """Read a list: each chat message with the index of the value that it was read from.

    Neighbouring Responses items are read together, because they may be parts of one message. With `is_anthropic`, the
    messages are known to be Anthropic's also if none has a block that only Anthropic has.

    Raises, while iterating:
        InvalidMessage: a value is not understood.
    """
    given = list(values)
    plain = [_mapping(_plain(value), index) for index, value in enumerate(given)]
    if plain and all(map(_is_content, plain)):
        yield from numbered_messages(plain)
        return
    has_items = not is_anthropic and any(map(_is_item, plain))
    has_blocks = is_anthropic or any(map(_is_anthropic, plain))
    items: list[Mapping[str, Any]] = []
    for index, value in enumerate(plain):
        if has_items and (_is_item(value) or _is_easy_message(value)):
            items.append(value)
            continue
        yield from _item_messages(items, index - len(items))
        items = []
        response = _read_response(value)
        if response is not None:
            yield from ((index, message) for message in response.messages)
        elif has_blocks:
            before = plain[index - 1] if index else None
            messages = _with_start(_read_message(value, index, given[index]), value, before)
            yield from ((index, message) for message in messages)
        else:
            yield index, _require_chat(value, index, is_object=value is not given[index])
    yield from _item_messages(items, len(plain) - len(items))


def _messages(values: Iterable[Any]) -> Iterator[Message]:
    return (message for _, message in read_numbered(values))


def _is_content(value: Mapping[str, Any]) -> bool:
    """Whether a value is a content of Gemini's API."""
    return "parts" in value and "content" not in value and "toolInvocations" not in value


def _read_message(value: Mapping[str, Any], index: int, given: Any) -> list[Message]:
    """The chat messages of one message of a list that has Anthropic's blocks."""
    if _is_anthropic(value) or _has_cache_marks(value) or (value.get("role") == "system" and any(_parts(value))):
        return list(_anthropic_messages(value, index))
    return [_require_chat(value, index, is_object=value is not given)]


def _with_start(
    messages: list[Message], value: Mapping[str, Any], before: Mapping[str, Any] | None
) -> Iterator[Message]:
    """Mark what Anthropic's format had apart: two messages of one role, and a system message within the conversation.

    Results are not marked: those of one exchange must be in one message.
    """
    role, role_before = value.get("role"), None if before is None else before.get("role")
    is_apart = role == role_before or (role == "system" and role_before == "user")
    for number, message in enumerate(messages):
        yield {**message, START_KEY: True} if is_apart and number == 0 and not is_result(message) else message


def _item_messages(items: Sequence[Mapping[str, Any]], start: int) -> Iterator[tuple[int, Message]]:
    """The chat messages of items. One with only a role and a text is marked, or it would be sent as a chat message."""
    index = start
    for message in items_to_messages(items):
        count = len(message_to_items(message))
        is_plain = message.keys() == {"role", "content"}
        yield index, {**message, ITEMS_KEY: {"marks": [{"of": 0}]}} if is_plain else message
        index += count


def _mapping(value: Any, index: int) -> Mapping[str, Any]:
    if isinstance(value, str):
        raise InvalidMessage("it", "is text in a list; write {'role': 'user', 'content': …}", index)
    if not isinstance(value, Mapping):
        raise InvalidMessage("it", f"is a {type(value).__name__}; expected {_READABLE}", index)
    _require_json(value, index)
    return value


def _require_chat(message: Mapping[str, Any], index: int, *, is_object: bool) -> Message:
    if _is_content(message):
        raise InvalidMessage("parts", "is Gemini's format, and other messages of the list are not", index)
    if not isinstance(message.get("role"), str):
        raise InvalidMessage("role", f"is {message.get('role')!r}; expected {_READABLE}", index)
    if is_object and message.get("role") == "assistant" and "content" not in message:
        return {**message, "content": None}  # the dump of a client's object leaves null fields out
    if type(message.get("content")) is not str:
        require_content(message, index)
    return message


def _is_item(value: Mapping[str, Any]) -> bool:
    """Whether a value is an item of the Responses API. A message item may have no type."""
    kind = value.get("type")
    if isinstance(kind, str) and kind != "message":
        return "role" not in value or "content" not in value
    if any(part.get("type") in _RESPONSES_PARTS for part in _parts(value)):
        return True
    return kind == "message" and "stop_reason" not in value and not _is_anthropic(value)


def _is_easy_message(value: Mapping[str, Any]) -> bool:
    """Whether a chat message has the same form as a message of the Responses API."""
    return value.get("role") in _ITEM_ROLES and value.keys() <= {"role", "content"} and not _is_anthropic(value)


_ITEM_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})


def _is_anthropic(value: Mapping[str, Any]) -> bool:
    return value.get("role") in {"user", "assistant"} and any(map(_is_anthropic_block, _parts(value)))


def _has_cache_marks(value: Mapping[str, Any]) -> bool:
    """Whether parts of a user or assistant message have cache marks. Servers with a chat API may accept these too."""
    return value.get("role") in {"user", "assistant"} and any("cache_control" in part for part in _parts(value))


def _is_anthropic_block(block: Mapping[str, Any]) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str):
        return False
    field = _REQUIRED_FIELDS.get(kind)
    return field in block if field is not None else kind in _ANTHROPIC_BLOCKS or kind.endswith("_tool_result")


def _parts(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    content = value.get("content")
    return (part for part in (content if isinstance(content, (list, tuple)) else ()) if isinstance(part, Mapping))


def _anthropic_messages(message: Mapping[str, Any], index: int) -> Iterable[Message]:
    """The chat messages of an Anthropic message: tool results become messages of their own, before the rest."""
    blocks = message.get("content")
    if isinstance(blocks, str):
        return [{"role": message["role"], "content": blocks}]
    if not isinstance(blocks, (list, tuple)) or not all(isinstance(block, Mapping) for block in blocks):
        raise InvalidMessage("content", "is not a list of content blocks", index)
    if message.get("role") == "assistant":
        _require_fields(blocks, "tool_use", {"id": str, "name": str, "input": Mapping}, index)
        return [from_anthropic(blocks)]
    _require_fields(blocks, "tool_result", {"tool_use_id": str}, index)
    for position, block in enumerate(blocks):
        content = block.get("content") if block.get("type") == "tool_result" else None
        if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) for part in content):
            continue
        if content is not None and not isinstance(content, str):
            raise InvalidMessage(f"content[{position}].content", "is not text or a list of content blocks", index)
    return user_from_anthropic(blocks, str(message.get("role")))


def _require_fields(blocks: Sequence[Mapping[str, Any]], kind: str, fields: Mapping[str, type], index: int) -> None:
    for position, block in enumerate(blocks):
        if block.get("type") in CALL_BLOCKS and block["type"] != kind:
            raise InvalidMessage(
                f"content[{position}]", f"is a {block['type']} block in a message of the wrong role", index
            )
        for name, expected in fields.items() if block.get("type") == kind else ():
            if not isinstance(block.get(name), expected):
                raise InvalidMessage(f"content[{position}].{name}", f"is missing in a {kind} block", index)
