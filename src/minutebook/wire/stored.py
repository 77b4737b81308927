"""Entries as JSON, the form in which stores and exports keep them."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from minutebook.errors import InvalidMessage
from minutebook.record.entry import ConversationEntry
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry


def entry_to_json(entry: ConversationEntry) -> str:
    """One line of JSON that holds the whole entry; ASCII, so lone surrogates and any encoding survive."""
    return json.dumps(
        {
            "message": entry_to_provider_message(entry),
            "evaluation_id": str(entry.evaluation_id),
            "sequence": entry.sequence,
            "created_at": entry.created_at.isoformat(),
            "provider": entry.provider,
            "model": entry.model,
        },
        separators=(",", ":"),
    )


def entry_from_json(line: str) -> ConversationEntry:
    """The entry that `entry_to_json` wrote.

    Raises:
        InvalidMessage: the line is not an entry.
    """
    try:
        stored = json.loads(line)
        known = _known(stored)
    except (ValueError, KeyError, TypeError) as problem:
        raise InvalidMessage("entry", f"cannot be read: {problem!r}") from problem
    return provider_message_to_entry(stored["message"], **known)


def _known(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "evaluation_id": UUID(stored["evaluation_id"]),
        "sequence": stored["sequence"],
        "created_at": datetime.fromisoformat(stored["created_at"]),
        "provider": stored.get("provider"),
        "model": stored.get("model"),
    }
