"""Read the input of a client: text, messages of OpenAI, Anthropic and Gemini, and objects of the openai and anthropic clients.

This is the only reader of such input. Everything becomes chat messages, the format of the record. What a chat message
cannot express is stored in it under `write.FORMAT_KEYS`, so that writing it in the client's format restores everything.
"""

from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from itertools import groupby
from operator import is_
from typing import Any, Final, Literal

from minutebook.errors import InvalidMessage
from minutebook.record.message import (
    CALL_BLOCKS,
    JSON_SCALARS,
    Message,
    refuse_recursion,
    require_message,
    type_of,
)
from minutebook.record.shapes import require_content
from minutebook.tokens.counter import ITEMS_KEY
from minutebook.wire.anthropic import START_KEY, from_anthropic, user_from_anthropic
from minutebook.wire.gemini import numbered_messages
from minutebook.wire.input_format import (
    BLOCK_TYPES,
    has_cache_marks,
    is_anthropic_message,
    is_anthropic_response,
    is_event_type,
    is_gemini_content,
    is_item,
    is_message_in_both_apis,
    is_plain_chat,
    parts_in,
)
from minutebook.wire.responses import becomes_message, items_to_messages, message_to_items

_EXPECTED_INPUT: Final = (
    "text, a chat message, an Anthropic message, a Responses item, a Gemini content, a list of these, or a "
    "response object of the openai or anthropic client"
)
_READ_STREAM: Final = (
    "pass the final response: open the stream with the client's stream(), read it, and call its "
    "get_final_completion(), get_final_response() or get_final_message()"
)
_JSON_FIELDS: Final = ("content", "tool_calls", "function_call", "parts")
"""Fields of a message that are read, so they must be JSON data. Other fields are kept unchanged."""
_CLIENT_FIELDS: Final = frozenset({"parsed", "parsed_arguments", "parsed_output", "index"})
"""Fields that the `parse` and `stream` methods of the clients add to a response. Providers reject them."""
_RESPONSE_FIELDS: Final = frozenset({"choices", "message", "tool_calls", "function", "output", "content"})
"""Fields of a response whose values may contain such fields."""


@dataclass(frozen=True, slots=True)
class ClientInput:
    """A client's input as chat messages. The other fields are set if the input was a response."""

    messages: list[Message]
    usage: Mapping[str, Any] | None = None
    """The usage in the format of the provider."""
    model: str | None = None
    finish: str | None = None
    """The provider's finish reason."""


def read(client_input: Any) -> list[Message]:
    """The chat messages of a client's input. Text becomes a user message, a response object becomes its messages.

    Chat messages are returned unchanged, not copied. Messages in the format of Anthropic, Gemini or the Responses
    API are converted.

    Raises:
        InvalidMessage: the input is empty text, or it or one of its messages has an unknown format.
    """
    return read_input(client_input).messages


@refuse_recursion()
def read_input(client_input: Any) -> ClientInput:
    """Like `read`, with the usage, the model and the finish reason if the input is a response object.

    Raises:
        InvalidMessage: the input is empty text, or it or one of its messages has an unknown format.
    """
    if isinstance(client_input, str):
        if not client_input:
            raise InvalidMessage("", "is an empty text; expected the text of a user message")
        return ClientInput([{"role": "user", "content": client_input}])
    value = _json_data(client_input)
    if isinstance(value, Mapping):
        _require_json(value)
        response = _read_response(value)
        return response if response is not None else ClientInput(list(_messages([client_input])))
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        return ClientInput(list(_messages(value)))
    raise InvalidMessage("", f"is of type {type(client_input).__name__}; {_fix(client_input)}")


def _fix(value: Any) -> str:
    """What to pass instead of an object that cannot be read."""
    if isinstance(value, Awaitable):
        return "await it and pass the result"
    if isinstance(value, (AsyncIterable, AbstractContextManager, AbstractAsyncContextManager)):
        return _READ_STREAM
    if callable(getattr(value, "parse", None)):  # of `with_raw_response`
        return "pass the result of its parse()"
    return f"expected {_EXPECTED_INPUT}"


def read_arguments(arguments: Iterable[Any]) -> list[ClientInput]:
    """Like `read_input` for each argument of a call. Neighbouring Responses items are read together, as in a list.

    Raises:
        InvalidMessage: an argument has an unknown format, or is a reasoning item without the item that it belongs to.
    """
    inputs: list[ClientInput] = []
    for are_items, group in groupby(map(_item_of, arguments), key=lambda pair: pair[1] is not None):
        pairs = list(group)
        for value in [[item for _, item in pairs]] if are_items else [argument for argument, _ in pairs]:
            _require_messages(value)
            inputs.append(read_input(value))
    return inputs


def _item_of(argument: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """The argument, and its JSON data if it is one item of the Responses API."""
    if not isinstance(argument, Mapping) and not isinstance(getattr(argument, "type", None), str):
        return argument, None
    value = _json_data(argument)
    if isinstance(value, Mapping) and isinstance(value.get("type", ""), str) and is_item(value):
        return argument, value
    return argument, None


def _require_messages(value: Any) -> None:
    """Refuse a list of items that has no message, call or output. The other items can only be stored in such a message."""
    items = list(map(_json_data, value)) if isinstance(value, list) else []
    if items and all(isinstance(item, Mapping) and is_item(item) and not becomes_message(item) for item in items):
        kinds = " and ".join(dict.fromkeys(str(item["type"]) for item in items))
        problem = f"is a {kinds} item alone; append all items of the output together: append(*response.output)"
        raise InvalidMessage("", problem)


def _json_data(value: Any) -> Any:
    """The value with each object of a client, which is a pydantic model, replaced by its JSON data without null fields.

    The value itself or the blocks in its content may be such objects. Other values are returned unchanged.
    """
    dump = getattr(value, "model_dump", None)
    if callable(dump) and not isinstance(value, type):
        return _without_client_fields(dump(mode="json", by_alias=True, exclude_none=True, warnings=False))
    content = value.get("content") if type(value) is dict else None
    if isinstance(content, (list, tuple)):
        blocks = [_json_data(block) for block in content]
        return value if all(map(is_, blocks, content)) else {**value, "content": blocks}
    return value


def _require_json(value: Mapping[str, Any], index: int | None = None) -> None:
    for field in _JSON_FIELDS if "role" in value else value:
        inner = value.get(field)
        if type(inner) not in JSON_SCALARS and (problem := _json_problem(inner)) is not None:
            path, type_name = problem
            expected = "text or a list of parts" if field + path == "content" else "JSON data"
            raise InvalidMessage(f"{field}{path}", f"is of type {type_name}; expected {expected}", index)


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


def _without_client_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_client_fields(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_client_fields(inner) if key in _RESPONSE_FIELDS else inner
        for key, inner in value.items()
        if key not in _CLIENT_FIELDS
    }


def _read_response(value: Mapping[str, Any]) -> ClientInput | None:
    """The messages, usage, model and finish reason of a response; None if the value is not a response."""
    if isinstance(value.get("choices"), (list, tuple)):
        return _read_completion(value)
    if "finish_reason" in value and isinstance(value.get("message"), Mapping):
        return _read_completion({"choices": [value]})
    if value.get("object") == "response" and isinstance(value.get("output"), (list, tuple)):
        items = [_require_mapping(_json_data(item), 0) for item in value["output"]]
        messages = [message for _, message in _item_messages(items, 0)]
        return ClientInput(messages, value.get("usage"), value.get("model"), value.get("status"))
    if is_anthropic_response(value):
        messages = list(_anthropic_messages(value, 0))
        return ClientInput(messages, value.get("usage"), value.get("model"), value.get("stop_reason"))
    return None


def _read_completion(completion: Mapping[str, Any]) -> ClientInput:
    choice = next(iter(completion["choices"]), None)
    if not isinstance(choice, Mapping) or not isinstance(message := choice.get("message"), Mapping):
        raise InvalidMessage("choices[0].message", f"is missing, as in a chunk of a stream; {_READ_STREAM}")
    fields = {key: value for key, value in message.items() if value is not None}
    answer = {"role": "assistant", "content": None if fields.get("tool_calls") else "", **fields}
    return ClientInput([answer], completion.get("usage"), completion.get("model"), choice.get("finish_reason"))


def read_numbered(
    values: Iterable[Any], *, api: Literal["anthropic", "responses"] | None = None
) -> Iterator[tuple[int, Message]]:
    """Read a list of messages. Yields each chat message with the index of the value that it was read from.

    Neighbouring Responses items are read together, because they may be parts of one message. Pass `api` if it is known. By
    default the values are read as messages of Anthropic or items if one has a block or a type that only that API has.

    Raises, while iterating:
        InvalidMessage: a value has an unknown format.
    """
    originals = list(values)
    are_plain_chat = [api is None and is_plain_chat(value) for value in originals]
    json_values = [
        value if is_plain_value else _require_mapping(_json_data(value), index)
        for index, (value, is_plain_value) in enumerate(zip(originals, are_plain_chat, strict=True))
    ]
    others = [value for value, is_plain_value in zip(json_values, are_plain_chat, strict=True) if not is_plain_value]
    if json_values and len(others) == len(json_values) and all(map(is_gemini_content, json_values)):
        yield from numbered_messages(json_values)
        return
    if api == "responses":
        yield from _item_messages(json_values, 0)
        return
    is_anthropic = api == "anthropic"
    has_items = not is_anthropic and any(map(is_item, others))
    has_blocks = is_anthropic or any(map(is_anthropic_message, others))
    items: list[Mapping[str, Any]] = []
    for index, value in enumerate(json_values):
        if are_plain_chat[index] and not has_items and not has_blocks:
            yield index, value
            continue
        if has_items and (is_item(value) or is_message_in_both_apis(value)):
            items.append(value)
            continue
        yield from _item_messages(items, index - len(items))
        items = []
        response = _read_response(value)
        if response is not None:
            yield from ((index, message) for message in response.messages)
        elif has_blocks:
            previous = json_values[index - 1] if index else None
            is_known = is_anthropic and any(type_of(part) != "text" for part in parts_in(value))
            read_messages = (
                _anthropic_messages(value, index) if is_known else _read_message(value, index, originals[index])
            )
            messages = _with_start_key(read_messages, value, previous)
            yield from ((index, message) for message in messages)
        else:
            yield index, _require_chat(value, index, from_client_object=value is not originals[index])
    yield from _item_messages(items, len(json_values) - len(items))


def _messages(values: Iterable[Any]) -> Iterator[Message]:
    return (message for _, message in read_numbered(values))


def _read_message(value: Mapping[str, Any], index: int, original: Any) -> list[Message]:
    """The chat messages of one message of a list in which some messages have Anthropic's blocks."""
    is_system_with_blocks = value.get("role") == "system" and any(parts_in(value))
    if is_anthropic_message(value) or has_cache_marks(value) or is_system_with_blocks:
        return list(_anthropic_messages(value, index))
    return [_require_chat(value, index, from_client_object=value is not original)]


def _with_start_key(
    messages: Iterable[Message], value: Mapping[str, Any], previous: Mapping[str, Any] | None
) -> Iterator[Message]:
    """The chat messages of `value`, the first with `START_KEY` if `to_anthropic` would merge it with `previous`."""
    role, previous_role = value.get("role"), None if previous is None else previous.get("role")
    would_merge = role == previous_role or (role == "system" and previous_role == "user")
    for message_index, message in enumerate(messages):
        has_start_key = would_merge and message_index == 0
        yield {**message, START_KEY: True} if has_start_key else message


def _item_messages(items: Sequence[Mapping[str, Any]], start: int) -> Iterator[tuple[int, Message]]:
    """The chat messages of items, each with the index of its first item, counted from `start`."""
    index = start
    for message in items_to_messages(items):
        item_count = len(message_to_items(message))
        # Without `ITEMS_KEY`, a message with only a role and a text would be written as a chat message, not as an item.
        needs_key = message.keys() == {"role", "content"}
        yield index, {**message, ITEMS_KEY: {"marks": [{"of": 0}]}} if needs_key else message
        index += item_count


def _require_mapping(value: Any, index: int) -> Mapping[str, Any]:
    if isinstance(value, str):
        raise InvalidMessage("", "is text; in a list, write {'role': 'user', 'content': …}", index)
    if not isinstance(value, Mapping):
        raise InvalidMessage("", f"is of type {type(value).__name__}; expected {_EXPECTED_INPUT}", index)
    _require_json(value, index)
    return value


def _require_chat(message: Mapping[str, Any], index: int, *, from_client_object: bool) -> Message:
    if is_gemini_content(message):
        raise InvalidMessage("parts", "is Gemini's format, but other messages of the list have another format", index)
    role = message.get("role")
    if not isinstance(role, str):
        raise InvalidMessage("role", _role_problem(message), index)
    if from_client_object and role == "assistant" and "content" not in message:
        return {**message, "content": None}  # the dump of a client's object leaves null fields out
    if type(message.get("content")) is not str:
        require_content(message, index)
    return require_message(message, index)


def _role_problem(value: Mapping[str, Any]) -> str:
    """Why a value without a valid role is not a message, and what to pass instead."""
    if (role := value.get("role")) is not None:
        return f"is of type {type(role).__name__}; expected {_EXPECTED_INPUT}"
    kind = type_of(value)
    if kind in BLOCK_TYPES:
        return (
            f"is missing, because this is a {kind} block; pass a message with the blocks: {{'role': …, 'content': […]}}"
        )
    if is_event_type(kind):
        return f"is missing, because this is an event of a stream ({kind}); {_READ_STREAM}"
    return f"is missing; expected {_EXPECTED_INPUT}"


def _anthropic_messages(message: Mapping[str, Any], index: int) -> Iterable[Message]:
    """The chat messages of an Anthropic message. Each tool result becomes a separate message before the other blocks."""
    blocks = message.get("content")
    if isinstance(blocks, str):
        return [{"role": message["role"], "content": blocks}]
    if not isinstance(blocks, (list, tuple)) or not all(isinstance(block, Mapping) for block in blocks):
        raise InvalidMessage("content", "is not a list of content blocks", index)
    if message.get("role") == "assistant":
        _require_fields(blocks, "tool_use", {"id": str, "name": str, "input": Mapping}, index)
        return [from_anthropic(blocks)]
    _require_fields(blocks, "tool_result", {"tool_use_id": str}, index)
    for block_index, block in enumerate(blocks):
        content = block.get("content") if block.get("type") == "tool_result" else None
        if isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) for part in content):
            continue
        if content is not None and not isinstance(content, str):
            raise InvalidMessage(f"content[{block_index}].content", "is not text or a list of content blocks", index)
    return user_from_anthropic(blocks, str(message.get("role")))


def _require_fields(
    blocks: Sequence[Mapping[str, Any]], block_type: str, field_types: Mapping[str, type], index: int
) -> None:
    """Refuse tool-call and tool-result blocks of another type than `block_type`, and blocks of that type without the fields."""
    for block_index, block in enumerate(blocks):
        if type_of(block) in CALL_BLOCKS and block["type"] != block_type:
            raise InvalidMessage(
                f"content[{block_index}]", f"is a {block['type']} block in a message of the wrong role", index
            )
        for name, field_type in field_types.items() if block.get("type") == block_type else ():
            if not isinstance(block.get(name), field_type):
                raise InvalidMessage(f"content[{block_index}].{name}", f"is missing in a {block_type} block", index)
