"""Items of the Responses and Conversations APIs, computed from the entries of the record.

Items are not stored. The id of an item contains the position of its entry, its index within the entry and the entry's
evaluation id. So the entry is found without a search, and a fork's shared items have the same ids as in its origin. Items
that a client sent with an id keep it.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from minutebook.conversation.record_cache import are_large, compute
from minutebook.errors import RequestRefused
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, plain_copy
from minutebook.service.config.schema import LimitsConfig
from minutebook.service.http.json_codec import json_bytes
from minutebook.store.types import LoadedConversation
from minutebook.wire.chat import entry_to_provider_message
from minutebook.wire.responses import item_type, items_to_messages, message_to_items

Item = dict[str, Any]
_ID_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}
_ID: Final = re.compile(r"[a-z]+_(?P<position>[0-9a-f]{8})[0-9a-f]{36}")
_COMPACTION_PREFIX: Final = "minutebook."
"""Marks the `encrypted_content` of compaction items that this service created."""
MAX_ID_CHARACTERS: Final = 200


def item_id(kind: str, position: int, part: int, evaluation_id: UUID) -> str:
    """The id of an item without an id from the client. `part` is its index within the entry."""
    return f"{_ID_PREFIXES.get(kind, 'item')}_{position:08x}{part:04x}{evaluation_id.hex}"


def position_in(item_id: str) -> int | None:
    """The position of the entry in an item id of this service; None for other ids."""
    match = _ID.fullmatch(item_id)
    return None if match is None else int(match["position"], 16)


def items_at(position: int, entry: ConversationEntry) -> list[Item]:
    """The items of one entry."""
    return items_for_clients(entry_to_provider_message(entry), position, entry.evaluation_id)


def items_for_clients(
    message: Message, position: int, evaluation_id: UUID, *, last_status: str = "completed"
) -> list[Item]:
    """The items of a message with their ids and statuses. `last_status` is the status of the last item."""
    items = message_to_items(message)
    client_items: list[Item] = []
    for part, item in enumerate(items):
        kind = item_type(item)
        sent_id = item.get("id")
        id_field = {
            "id": sent_id if isinstance(sent_id, str) and sent_id else item_id(kind, position, part, evaluation_id)
        }
        has_status = kind in _ID_PREFIXES and kind != "compaction"
        status = {"status": last_status if part == len(items) - 1 else "completed"} if has_status else {}
        fields = {key: value for key, value in item.items() if value is not None or key not in {"id", "status"}}
        client_items.append(id_field | status | fields | id_field)
    return client_items


def items_of(loaded: LoadedConversation) -> Iterator[Item]:
    """All items of the loaded entries, in order."""
    for position, entry in zip(loaded.positions, loaded.entries, strict=True):
        yield from items_at(position, entry)


def input_items(
    sent: str | Sequence[Mapping[str, Any]] | None, limits: LimitsConfig, *, param: str = "input"
) -> list[Item]:
    """The items that a client sent in the field `param`, normalized: messages get a type and a list of content parts.

    Raises:
        RequestRefused: an item is too large, or its type is not supported.
    """
    if sent is None:
        return []
    if isinstance(sent, str):
        sent = [{"role": "user", "content": sent}]
    require_item_sizes(sent, param, limits)
    items: list[Item] = []
    for index, item in enumerate(sent):
        kind = item_type(item)
        if kind == "item_reference":
            problem = f"{param}[{index}]: item references are not supported. Send the item, or set `conversation`."
            raise RequestRefused(400, problem, "unsupported_item", f"{param}[{index}]")
        if kind == "compaction":
            items += items_of_compaction(item)
        else:
            items.append(_message_item(item) if kind == "message" else dict(item))
    return items


def missing_input() -> RequestRefused:
    return RequestRefused(400, "`input` is missing.", "missing_input", "input")


async def read_input(
    sent: str | Sequence[Mapping[str, Any]] | None, limits: LimitsConfig
) -> tuple[list[Item], Sequence[Message]]:
    """The items that a client sent, as `input_items`, and their messages."""

    def read() -> tuple[list[Item], Sequence[Message]]:
        items = input_items(sent, limits)
        return items, items_to_messages(items)

    return await compute(read, is_large=isinstance(sent, list) and are_large(sent))


def require_item_sizes(items: Iterable[Mapping[str, Any]], param: str, limits: LimitsConfig, *, first: int = 0) -> None:
    """Raises `RequestRefused` if an item is too large. `param` is the field with the items, `first` the index of the first."""
    for index, item in enumerate(items, first):
        size = len(json_bytes(item))
        if size > limits.item_bytes:
            problem = f"{param}[{index}] has {size} bytes; the maximum is {limits.item_bytes}."
            raise RequestRefused(413, problem, "item_too_large", f"{param}[{index}]")


def require_new_ids(items: Iterable[Mapping[str, Any]], stored: Iterable[Item]) -> None:
    """Raises `RequestRefused` if an id is invalid, or is that of another item of the request or of a stored item."""
    ids = [item["id"] for item in items if item.get("id") is not None]
    if any(not isinstance(sent_id, str) or len(sent_id) > MAX_ID_CHARACTERS for sent_id in ids):
        problem = f"The id of an item must be a string of at most {MAX_ID_CHARACTERS} characters."
        raise RequestRefused(400, problem, "invalid_item_id", "input")
    if len(set(ids)) < len(ids) or {item["id"] for item in stored}.intersection(ids):
        problem = "Duplicate item id. Send only new items, or omit the ids."
        raise RequestRefused(400, problem, "duplicate_item", "input")


def require_room(length: int, limits: LimitsConfig) -> None:
    """Raises `RequestRefused` if a conversation of this length exceeds the limit."""
    if length > limits.items_per_conversation:
        problem = f"A conversation can have at most {limits.items_per_conversation} messages. Start a new one."
        raise RequestRefused(400, problem, "conversation_full", "conversation")


def require_metadata(metadata: Mapping[str, str] | None, limits: LimitsConfig) -> None:
    """Raises `RequestRefused` if metadata exceeds a limit."""
    metadata = metadata or {}
    if len(metadata) > limits.metadata_keys:
        problem = f"metadata can have at most {limits.metadata_keys} keys."
        raise RequestRefused(400, problem, "invalid_metadata", "metadata")
    for key, value in metadata.items():
        if not 0 < len(key) <= limits.metadata_key_characters or len(value) > limits.metadata_value_characters:
            problem = (
                f"metadata keys must have 1 to {limits.metadata_key_characters} characters, "
                f"values at most {limits.metadata_value_characters}."
            )
            raise RequestRefused(400, problem, "invalid_metadata", "metadata")


def compaction_item(messages: Sequence[Message], compaction_id: str) -> Item:
    """A compaction item with the messages of a compacted view. The client sends it back unchanged."""
    text = urlsafe_b64encode(json_bytes([plain_copy(message) for message in messages])).decode()
    return {"id": compaction_id, "type": "compaction", "encrypted_content": f"{_COMPACTION_PREFIX}{text}"}


def items_of_compaction(item: Mapping[str, Any]) -> list[Item]:
    """The items in a compaction item of this service. A compaction item of another service is returned unchanged.

    Raises:
        RequestRefused: the client changed the item.
    """
    text = item.get("encrypted_content")
    if not isinstance(text, str) or not text.startswith(_COMPACTION_PREFIX):
        return [dict(item)]
    try:
        messages = json.loads(urlsafe_b64decode(text[len(_COMPACTION_PREFIX) :].encode()))
        return [item for message in messages for item in message_to_items(message)]
    except (ValueError, AttributeError, TypeError):
        problem = "Invalid compaction item: `encrypted_content` was changed. Send it back unchanged."
        raise RequestRefused(400, problem, "invalid_compaction", "input") from None


def _message_item(item: Mapping[str, Any]) -> Item:
    content = item.get("content")
    if isinstance(content, str):
        is_output = item.get("role") == "assistant"
        output_fields: Item = {"annotations": [], "logprobs": []} if is_output else {}
        content = [{"type": "output_text" if is_output else "input_text", "text": content, **output_fields}]
    other_fields = {key: value for key, value in item.items() if key not in {"type", "role", "content"}}
    return {"type": "message", "role": item.get("role"), "content": content, **other_fields}
