"""Trimming: the one loss that is allowed in the record besides purging and erasing.

What tools were asked and what they answered is most of a long conversation and the first that nobody needs any more. So
the content of a result and the arguments of a call may be replaced by less; who said what to whom, and which result
answers which call, stay as they were.
"""

from collections.abc import Mapping
from typing import Any, Final

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.frozen import thawed
from minutebook.record.message import Message, is_result
from minutebook.store.codec import Packed, pack
from minutebook.wire.chat import provider_message_to_entry

SEALED: Final = "sealed"
"""The key under which a message of an encrypted store has all that it says. Its wrapper has checked what is in it."""


def trimmed(entry: ConversationEntry, message: Message, position: int) -> tuple[Packed, Message] | None:
    """An entry with its message replaced by a smaller one; None if it is the same.

    Raises:
        InvalidSetting: more than tool payloads would change, or the new one is larger.
        InvalidMessage: it is no message.
    """
    made = provider_message_to_entry(
        message,
        evaluation_id=entry.evaluation_id,
        sequence=entry.sequence,
        created_at=entry.created_at,
        provider=entry.provider,
        model=entry.model,
    )
    (before, old), (after, new) = pack(entry, position), pack(made, position)
    if (before.text, before.rest) == (after.text, after.rest):
        return None
    if _is_sealed(old) and _is_sealed(new):
        old, new = {**old, SEALED: ""}, {**new, SEALED: ""}
    elif _size(after) > _size(before):
        raise InvalidSetting(
            f"changes[{position}]",
            f"{_size(after)} bytes",
            f"a message of {_size(before)} bytes at most, as it has now",
        )
    if _without_payloads(old) != _without_payloads(new):
        raise InvalidSetting(
            f"changes[{position}]",
            message.get("role"),
            "the message as it is, but for a result's content or the arguments of calls",
        )
    return after, new


def _without_payloads(message: Message) -> dict[str, Any]:
    """What must stay of a message, in its order."""
    kept: dict[str, Any] = thawed(message)
    if is_result(message):
        kept["content"] = None
    made = [call.get(name) for call in kept.get("tool_calls") or () for name in ("function", "custom")]
    for one in (*made, kept.get("function_call")):
        if isinstance(one, dict):
            one.update({key: None for key in ("arguments", "input") if key in one})
    return kept


def _is_sealed(message: Mapping[str, Any]) -> bool:
    return message.get("content") == "" and isinstance(message.get(SEALED), str)


def _size(packed: Packed) -> int:
    return len(packed.text or b"") + len(packed.rest or b"")
