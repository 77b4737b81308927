"""Items of the Responses and Conversations APIs, over entries of the record.

An item's id is made from where it stands and from what marks its entry, so it needs no place of its own in the store, a
fork has the same ids as what it was made from, and an id leads straight to its entry. Items that a client sent with an id
keep that one.
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from minutebook.errors import RequestRefused
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, plain_copy
from minutebook.service.config.schema import LimitsConfig
from minutebook.store.types import LoadedConversation
from minutebook.wire.chat import entry_to_provider_message, json_bytes
from minutebook.wire.responses import item_type, message_to_items

Item = dict[str, Any]
_PREFIXES: Final = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "reasoning": "rs",
    "compaction": "cmp",
}
_ID: Final = re.compile(r"[a-z]+_(?P<position>[0-9a-f]{8})(?P<part>[0-9a-f]{4})(?P<mark>[0-9a-f]{32})")
_SEALED: Final = "minutebook."
"""What our own compactions begin with, among all that stands in `encrypted_content`."""
LONGEST_ID: Final = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands: the position of its entry, and its number there."""

    position: int
    part: int
    mark: str


def item_id(kind: str, position: int, part: int, evaluation: UUID) -> str:
    """The id of an item that came with none."""
    return f"{_PREFIXES.get(kind, 'item')}_{position:08x}{part:04x}{evaluation.hex}"


def place_of(name: str) -> Place | None:
    """Where an id leads; None for one that is not ours."""
    found = _ID.fullmatch(name)
    return None if found is None else Place(int(found["position"], 16), int(found["part"], 16), found["mark"])


def items_at(position: int, entry: ConversationEntry) -> list[Item]:
    """The items of one entry."""
    return shown(entry_to_provider_message(entry), position, entry.evaluation_id)


def shown(message: Message, position: int, evaluation: UUID, *, last: str = "completed") -> list[Item]:
    """The items of a message as clients see them; `last` is how far the last of them got."""
    items = message_to_items(message)
    found: list[Item] = []
    for part, item in enumerate(items):
        kind = item_type(item)
        given = item.get("id")
        named = {"id": given if isinstance(given, str) and given else item_id(kind, position, part, evaluation)}
        told = kind in _PREFIXES and kind != "compaction"
        status = {"status": last if part == len(items) - 1 else "completed"} if told else {}
        found.append(
            named
            | status
            | {key: value for key, value in item.items() if value is not None or key not in {"id", "status"}}
            | named
        )
    return found


def items_of(loaded: LoadedConversation) -> Iterator[Item]:
    """All items of what was loaded, in order."""
    for position, entry in zip(loaded.positions, loaded.entries, strict=True):
        yield from items_at(position, entry)


def usual(given: str | Sequence[Mapping[str, Any]] | None, limits: LimitsConfig) -> list[Item]:
    """What a client sent, in the form in which items are shown: messages with their type and a list of parts.

    Raises:
        RequestRefused: an item is too large, or of a kind that means nothing here.
    """
    if given is None:
        return []
    if isinstance(given, str):
        return [_spoken({"role": "user", "content": given})]
    found: list[Item] = []
    for index, item in enumerate(given):
        size = len(json_bytes(item))
        if size > limits.item_bytes:
            said = f"input[{index}] has {size} bytes; an item may have {limits.item_bytes}."
            raise RequestRefused(413, said, "item_too_large", f"input[{index}]")
        kind = item_type(item)
        if kind == "item_reference":
            said = (
                f"input[{index}]: items are not looked up by reference here; send the item, or name its conversation."
            )
            raise RequestRefused(400, said, "unsupported_item", f"input[{index}]")
        found += unsealed(item) if kind == "compaction" else [_spoken(item) if kind == "message" else dict(item)]
    return found


def require_new_ids(items: Iterable[Mapping[str, Any]], loaded: LoadedConversation | None) -> None:
    """Within a conversation, an id names one item.

    Raises:
        RequestRefused: one comes twice.
    """
    given = [item["id"] for item in items if item.get("id") is not None]
    if any(not isinstance(name, str) or len(name) > LONGEST_ID for name in given):
        raise RequestRefused(
            400, f"An item's id must be text of up to {LONGEST_ID} characters.", "invalid_item_id", "input"
        )
    known = {item["id"] for item in items_of(loaded)} if given and loaded is not None else set()
    if len(set(given)) < len(given) or known.intersection(given):
        said = "Two items would have one id. Send only what is new, or leave the ids out."
        raise RequestRefused(400, said, "duplicate_item", "input")


def require_room(length: int, limits: LimitsConfig) -> None:
    """Raises `RequestRefused` if a conversation would hold more than it may."""
    if length > limits.items_per_conversation:
        said = f"A conversation holds {limits.items_per_conversation} messages at most. Begin another."
        raise RequestRefused(400, said, "conversation_full", "conversation")


def sealed(messages: Sequence[Message], name: str) -> Item:
    """A compaction item: what is shown in place of old messages, for a client that only has to hand it back."""
    text = urlsafe_b64encode(json_bytes([plain_copy(message) for message in messages])).decode()
    return {"id": name, "type": "compaction", "encrypted_content": f"{_SEALED}{text}"}


def unsealed(item: Mapping[str, Any]) -> list[Item]:
    """The items that a compaction of ours stands for; one of somebody else's stays as it is.

    Raises:
        RequestRefused: it was changed on its way.
    """
    text = item.get("encrypted_content")
    if not isinstance(text, str) or not text.startswith(_SEALED):
        return [dict(item)]
    try:
        messages = json.loads(urlsafe_b64decode(text[len(_SEALED) :].encode()))
        return [each for message in messages for each in message_to_items(message)]
    except (ValueError, AttributeError, TypeError):
        raise RequestRefused(
            400, "A compaction item is not as it was given out.", "invalid_compaction", "input"
        ) from None


def _spoken(item: Mapping[str, Any]) -> Item:
    content = item.get("content")
    if isinstance(content, str):
        spoken = item.get("role") == "assistant"
        more: Item = {"annotations": [], "logprobs": []} if spoken else {}
        content = [{"type": "output_text" if spoken else "input_text", "text": content, **more}]
    rest = {key: value for key, value in item.items() if key not in {"type", "role", "content"}}
    return {"type": "message", "role": item.get("role"), "content": content, **rest}
