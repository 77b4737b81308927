"""Our own exports (`minutebook export`), and the files of `minutebook chat` before chats were stored in the database.

An export has a header line for each conversation, then its entries, folds and pins. A chat file has only entries.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.errors import MinutebookError
from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test
from minutebook.record.fold import Fold
from minutebook.wire.chat import entry_from_json, entry_to_provider_message

_KINDS: Final = ("conversation", "purged", "entry", "fold", "pin")


@shape_test
def matches(value: Any) -> bool:
    if is_chat_entry(value):
        return True
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    kind = next(iter(value))
    return kind in _KINDS and (kind != "conversation" or has_keys(value["conversation"], "format"))


def is_chat_entry(value: Any) -> bool:
    """Whether a value is a line of a chat file."""
    return has_keys(value, "message", "evaluation_id", "sequence")


@dataclass(slots=True)
class _Conversation:
    """The data that was read from the lines of one conversation so far."""

    header: Mapping[str, Any]
    place: str = ""
    items: list[SourceMessage] = field(default_factory=list)
    folds: list[Fold] = field(default_factory=list)

    def add(self, value: Value, source: Source) -> None:
        try:
            if fold := value.data.get("fold"):
                if not fold.get("undone"):
                    shown = tuple(fold["shown"])
                    self.folds.append(Fold(fold["id"], fold["start"], fold["stop"], shown, fold["reason"]))
            elif entry := value.data if is_chat_entry(value.data) else value.data.get("entry"):
                stored_entry = entry_from_json(json.dumps(entry))
                message = entry_to_provider_message(stored_entry)
                self.items.append(
                    SourceMessage(message, value.place, stored_entry.created_at, stored_entry.model or None)
                )
        except (MinutebookError, KeyError, TypeError, AttributeError, ValueError) as error:
            source.skip(value.place, f"is not a line of an export ({error})")

    def conversation(self, source: Source) -> SourceConversation:
        return SourceConversation(
            items=self.items,
            place=self.place,
            id=str(self.header.get("id", source.stem)),
            model=next((item.model for item in reversed(self.items) if item.model), None),
            created_at=time_of(self.header.get("created_at")),
            folds=tuple(self.folds),
        )


def read(source: Source) -> Iterator[SourceConversation]:
    current: _Conversation | None = None
    for value in source.values():
        if not matches(value.data):
            source.skip(value.place, "is not a line of an export")
        elif "conversation" in value.data:
            if current is not None:
                yield current.conversation(source)
            current = _Conversation(value.data["conversation"], value.place)
        else:
            current = current or _Conversation({})
            current.add(value, source)
    if current is not None:
        yield current.conversation(source)


FORMAT: Final = Format(name="minutebook", title="our own exports (minutebook export)", matches=matches, read=read)
