"""Our own exports (`minutebook export`): a header line for each conversation, then its entries, folds and pins."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.errors import MinutebookError
from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.source import Source
from minutebook.record.fold import Fold
from minutebook.wire.chat import entry_from_json, entry_to_provider_message

_KINDS: Final = ("conversation", "purged", "entry", "fold", "pin")


def matches(value: Any) -> bool:
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    if has_keys(value, "conversation"):
        return has_keys(value["conversation"], "format", "id")
    return next(iter(value)) in _KINDS


def read(source: Source) -> Iterator[SourceConversation]:
    header: Mapping[str, Any] | None = None
    items: list[SourceMessage] = []
    folds: list[Fold] = []
    for value in source.values():
        if not matches(value.data):
            source.skip(value.place, "is not a line of an export")
        elif "conversation" in value.data:
            if header is not None:
                yield _conversation(header, items, folds)
            header, items, folds = value.data["conversation"], [], []
        elif "entry" in value.data:
            try:
                entry = entry_from_json(json.dumps(value.data["entry"]))
            except MinutebookError as error:
                source.skip(value.place, str(error))
                continue
            message = entry_to_provider_message(entry)
            items.append(SourceMessage(message, value.place, entry.created_at, entry.model or None))
    if header is not None:
        yield _conversation(header, items, folds)


def _conversation(header: Mapping[str, Any], items: list[SourceMessage], folds: list[Fold]) -> SourceConversation:
    return SourceConversation(
        items=items, id=str(header["id"]), created_at=time_of(header.get("created_at")), folds=tuple(folds)
    )


FORMAT: Final = Format(name="minutebook", title="our own exports (minutebook export)", matches=matches, read=read)
