"""Anthropic's Messages API: requests, lists of messages, responses and batches."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
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
    ANTHROPIC_KEYS,
    fact_fields,
    facts_of,
    messages_of,
    read_message_stream,
    without_messages,
)
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import Message, leading_system_count, text_of
from minutebook.wire.anthropic import FIELDS_KEY
from minutebook.wire.read import read_input
from minutebook.wire.write import FORMAT_KEYS, anthropic_arguments

_ROLES: Final = frozenset({"user", "assistant", "system"})
_CHAT_PARTS: Final = frozenset(
    {"image_url", "input_audio", "file", "refusal", "input_text", "output_text", "input_image"}
)
_FOREIGN_KEYS: Final = frozenset({"tool_calls", "parts", "toolInvocations"})
"""Keys of messages of other APIs."""
_EVIDENCE: Final = frozenset(
    {*ANTHROPIC_KEYS, "thinking"}
    | {"params", "input_schema", "stop_reason", "stop_sequence", "cache_control", "top_k", "output_config"}
)
_CHAT_KEYS: Final = FORMAT_KEYS | {"role", "content", "tool_calls", "tool_call_id", "is_error"}
"""Keys of chat messages that were read from messages of this API."""
_OWN_BLOCKS: Final = frozenset({"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "image", "document"})


@shape_test
def is_message(value: Any) -> bool:
    """Whether a value may be a message of this API. A text message may also be a chat message."""
    if not isinstance(value, Mapping) or value.get("role") not in _ROLES or value.keys() & _FOREIGN_KEYS:
        return False
    content = value.get("content")
    if isinstance(content, str):
        return True
    return isinstance(content, (list, tuple)) and all(
        isinstance(block, Mapping) and isinstance(block.get("type"), str) and block["type"] not in _CHAT_PARTS
        for block in content
    )


def _has_own_blocks(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, (list, tuple)) and any(
        block["type"] in _OWN_BLOCKS or block.keys() & {"cache_control", "signature", "citations"} for block in content
    )


@shape_test
def matches(value: Any) -> bool:
    if not _is_readable(value):
        return False
    messages = messages_of(value)
    return (
        messages is None or any(map(_has_own_blocks, messages)) or (isinstance(value, Mapping) and _is_request(value))
    )


def _is_readable(value: Any) -> bool:
    """Whether a value can be read. It matches only if something in it shows that it is not chat data."""
    messages = messages_of(value)
    if messages is None:
        return is_message(value) or _is_response(value)
    return all(map(is_message, messages))


def _is_request(value: Mapping[str, Any]) -> bool:
    body = value.get("params", value)
    is_claude = "claude" in str(body.get("model") or "")
    has_own_tools = any(has_keys(tool, "input_schema") for tool in body.get("tools") or ())
    return is_claude or has_own_tools or "params" in value or bool(body.keys() & ANTHROPIC_KEYS)


def _response_of(value: Any) -> Any:
    """The message of a response or of a line of a batch's results; None if the value is neither."""
    if has_keys(value, "custom_id", "result") and has_keys(value["result"], "message"):
        value = value["result"]["message"]
    return value if has_keys(value, "stop_reason") and value.get("type") == "message" else None


def _is_response(value: Any) -> bool:
    return _response_of(value) is not None


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, lambda value: is_message(value) and not _is_response(value), _is_conversation):
        yield read_message_stream(source, is_message, _items)
    else:
        yield from read_each(source, _is_conversation, _conversation)


@shape_test
def _is_conversation(value: Any) -> bool:
    """Whether a value contains messages. In a file of such values, a single message belongs to none of them."""
    return _is_readable(value) and (messages_of(value) is not None or _is_response(value))


def _items(messages: Iterable[Any], places: Iterable[str]) -> list[SourceMessage]:
    """The chat messages. The first one of a message with blocks has the message's other fields under `FIELDS_KEY`."""
    originals = list(messages)
    places_by_index = list(islice(places, len(originals)))
    originals_by_place = dict(zip(places_by_index, originals, strict=True))
    items = []
    for item in items_of(originals, places_by_index, api="anthropic"):
        fields = _fields(originals_by_place.pop(item.place, {}))
        is_kept = not fields.keys() - item.message.keys()
        items.append(item if is_kept else replace(item, message={**item.message, FIELDS_KEY: fields}))
    return items


def _fields(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key not in _CHAT_KEYS}


def _with_fields(message: Message) -> Message:
    """The message with its unknown fields under `FIELDS_KEY`. A message that was read with only texts has them itself."""
    fields = {} if FIELDS_KEY in message else _fields(message)
    return {**message, FIELDS_KEY: fields} if fields else message


def _conversation(value: Any, place: str) -> SourceConversation:
    response = _response_of(value)
    if response is not None:
        answer = read_input(response)
        items = [SourceMessage(message, place, None, answer.model, answer.usage) for message in answer.messages]
        return SourceConversation(items=items, id=value.get("custom_id", value.get("id")), model=answer.model)
    if not isinstance(value, Mapping):
        return SourceConversation(items=_items(value, list_places(place)))
    body = value.get("params", value)
    system = body.get("system")
    system_messages = [{"role": "system", "content": system}] if system else []
    system_places = [f"{place}, system"] * len(system_messages)
    items = _items(chain(system_messages, body["messages"]), chain(system_places, list_places(place)))
    return SourceConversation(items=items, **facts_of(value), data=without_messages(value))


def write(conversation: SourceConversation) -> Any:
    messages, is_own = conversation.messages, conversation.format == FORMAT.name
    arguments = anthropic_arguments(list(map(_with_fields, messages)) if is_own else messages, as_read=is_own)
    data = dict(conversation.data) or fact_fields(conversation)
    body = data.get("params")
    target = dict(body) if isinstance(body, Mapping) else data
    prompt = "\n".join(map(text_of, messages[: leading_system_count(messages)]))
    original = target.get("system")
    if original and text_of({"content": original}) == prompt:
        arguments["system"] = original
    target = {**target, **arguments}
    return {**data, "params": target} if isinstance(body, Mapping) else target


FORMAT: Final = Format(
    name="anthropic",
    title="Anthropic messages: requests, lists of messages, responses, batches (JSON or JSONL)",
    has_api_messages=True,
    matches=matches,
    read=read,
    provider="anthropic",
    write=write,
    evidence=_EVIDENCE,
)
