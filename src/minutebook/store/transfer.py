"""Export and import. They use only the public operations of a store, so every store can read the export of any other.

Both work in batches of a few hundred entries, so memory does not grow with the conversation. An import compares each batch
with what the store has and appends only the rest. So it can be repeated, also after the conversation has grown.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    InvalidMessage,
    MinutebookError,
    UnreadableInput,
    VersionConflict,
)
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import MessageRole
from minutebook.store.codec import fold_to_json
from minutebook.store.types import ConversationHeader, ConversationStatus, ImportCounts, StoredFold
from minutebook.wire.chat import entry_from_json, entry_to_json, entry_to_provider_message

if TYPE_CHECKING:
    from minutebook.store.base import ConversationStore

FORMAT: Final = 1
BATCH: Final = 200
"""Number of entries that are read or written at a time."""
_ENTRY_PREFIX: Final = '{"entry":'
LineKind: TypeAlias = Literal["conversation", "purged", "entry", "fold", "pin"]


async def export_lines(store: "ConversationStore", conversation: str) -> AsyncIterator[str]:
    """The lines of a conversation, as it was when the first line was read."""
    snapshot = await store.load(conversation, since=0, limit=0)
    header, folds = snapshot.conversation, await store.folds(conversation)
    yield json.dumps(_header(header))
    if header.first:
        yield json.dumps({"purged": header.first})
    position = header.first
    while position < header.length:
        part = await store.load(conversation, since=position, limit=min(BATCH, header.length - position))
        for entry in part.entries:
            yield f"{_ENTRY_PREFIX}{entry_to_json(entry)}}}"
        position = part.start + len(part.entries)
    for stored in folds:
        if stored.fold.stop <= header.length:
            yield json.dumps(_fold(stored))
    for pin in sorted(snapshot.pins):
        yield json.dumps({"pin": pin})


async def import_lines(store: "ConversationStore", lines: AsyncIterable[str] | Iterable[str]) -> ImportCounts:
    """Add conversations that `export_lines` wrote."""
    importer: _ConversationImporter | None = None
    conversations = entries = number = 0
    async for number, line in _number_lines(lines):
        if not line.strip():
            continue
        kind, value = _parse(line, number)
        if kind == "conversation":
            if importer is not None:
                await importer.finish()
            importer = _ConversationImporter(store, value)
            await importer.find_stored()
            conversations += 1
        elif importer is None:
            raise UnreadableInput("import", "the first line must be the header of a conversation", number)
        else:
            entries += kind == "entry"
            await importer.add(kind, value)
    if importer is not None:
        await importer.finish()
    return ImportCounts(conversations, entries)


class _ImportedHeader(NamedTuple):
    id: str
    recipient: str
    labels: Mapping[str, str]
    status: ConversationStatus
    created_at: datetime
    updated_at: datetime
    status_updated_at: datetime


@dataclass(slots=True)
class _ConversationImporter:
    """Imports one conversation, with the times that it had."""

    store: "ConversationStore"
    """A handle whose clock shows `at`."""
    header: _ImportedHeader
    at: datetime = field(init=False)
    stored: ConversationHeader | None = None
    """What the store has of the conversation; None if it has none."""
    position: int = 0
    """The position of the first pending entry."""
    pending: list[ConversationEntry] = field(default_factory=list)
    """The entries of the next batch."""
    purged: int = 0

    def __post_init__(self) -> None:
        self.at = self.header.created_at
        self.store = self.store.for_tenant(self.store.tenant)
        self.store.backend.set_clock(lambda: self.at)

    @property
    def id(self) -> str:
        return self.header.id

    async def find_stored(self) -> None:
        """Read what the store has of the conversation.

        Raises:
            ConversationErased: it was erased; it is not imported again.
        """
        try:
            self.stored = await self.store.header(self.id)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return
        self.at = self.header.updated_at

    async def add(self, kind: LineKind, value: Any) -> None:
        if kind == "entry":
            if len(self.pending) >= BATCH and value.role is not MessageRole.TOOL:
                await self._flush()
            self.pending.append(value)
            return
        if kind == "purged":
            await self._add_placeholders(value)
            return
        await self._flush()
        if kind == "pin":
            await self.store.pin(self.id, value)
            return
        fold, undone = value
        existing_ids = {stored.fold.id for stored in await self.store.folds(self.id)}
        if fold.id not in existing_ids:
            await self.store.add_fold(self.id, fold)
        if undone:
            await self.store.undo_fold(self.id, fold.id)

    async def _add_placeholders(self, count: int) -> None:
        """Add empty entries for the purged ones, so that positions do not change. `finish` purges them."""
        self.purged = count
        for number in range(count):
            entry = ConversationEntry(MessageRole.ASSISTANT, "", UUID(int=0), number, self.header.created_at)
            await self.add("entry", entry)
        await self._flush()

    async def _flush(self) -> None:
        """Append the pending entries that the store does not have.

        Raises:
            VersionConflict: the store has other messages at their positions.
        """
        while self.pending or self.stored is None:
            await self._skip_stored()
            # The append that creates the conversation has its first messages: a crash leaves no empty conversation.
            # It has the time of creation, so where the last message is younger it is only the first message.
            is_new = self.stored is None
            has_one_time = self.header.created_at == self.header.updated_at
            batch = self.pending[:1] if is_new and not has_one_time else self.pending
            if batch or is_new:
                await self._append(batch)

    async def _skip_stored(self) -> None:
        """Drop the pending entries that the store has."""
        if self.stored is None or self.position >= self.stored.length:
            return
        count = min(self.stored.length - self.position, len(self.pending))
        first = max(self.position, self.stored.first)  # what was purged cannot be compared
        stored = await self.store.load(self.id, since=first, limit=max(self.position + count - first, 0))
        expected = [entry_to_provider_message(entry) for entry in self.pending[first - self.position : count]]
        if stored.messages != expected:
            raise VersionConflict(self.id, self.stored.version, 0)
        self.pending = self.pending[count:]
        self.position += count

    async def _append(self, batch: list[ConversationEntry]) -> None:
        version = 0 if self.stored is None else self.stored.version
        is_new = self.stored is None
        try:
            version_after = await self.store.append(
                self.id,
                batch,
                recipient=self.header.recipient if is_new else None,
                labels=self.header.labels if is_new else None,
                expected_version=version,
                broken="mark",
            )
        except VersionConflict:  # another import may have appended the same
            await self.find_stored()
            if self.stored is None or self.stored.version == version:
                raise
            return
        self.pending = self.pending[len(batch) :]
        self.position += len(batch)
        if self.stored is None:
            await self.find_stored()
        else:
            self.stored = replace(self.stored, version=version_after, length=self.position)

    async def finish(self) -> None:
        await self._flush()
        assert self.stored is not None
        if self.stored.first < self.purged:
            await self.store.purge(self.id, before=self.purged)
        status, at = self.header.status, self.header.status_updated_at
        if at >= self.stored.status_updated_at and (status, at) != (self.stored.status, self.stored.status_updated_at):
            self.at = at
            await self.store.set_status(self.id, status)


async def _number_lines(lines: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[tuple[int, str]]:
    number = 0
    if isinstance(lines, AsyncIterable):
        async for line in lines:
            number += 1
            yield number, line
    else:
        for line in lines:
            number += 1
            yield number, line


def _header(conversation: ConversationHeader) -> dict[str, Any]:
    return {
        "conversation": {
            "format": FORMAT,
            "id": conversation.id,
            "recipient": conversation.recipient,
            "status": conversation.status.value,
            "labels": dict(conversation.labels),
            "created_at": conversation.created_at.isoformat(),
            "updated_at": conversation.updated_at.isoformat(),
            "status_updated_at": conversation.status_updated_at.isoformat(),
        }
    }


def _fold(stored: StoredFold) -> dict[str, Any]:
    return {"fold": {**fold_to_json(stored.fold), "undone": stored.undone_at is not None}}


def _parse(line: str, number: int) -> tuple[LineKind, Any]:
    try:
        if line.startswith(_ENTRY_PREFIX):
            return "entry", entry_from_json(line.rstrip()[len(_ENTRY_PREFIX) : -1])
        ((kind, value),) = json.loads(line).items()
        if kind == "conversation":
            return kind, _parse_header(value)
        if kind == "entry":
            return kind, entry_from_json(json.dumps(value))
        if kind == "fold":
            return kind, _parse_fold(value)
        if kind in {"pin", "purged"} and type(value) is int:
            return kind, value
        problem = f"unknown kind of line {kind!r}; expected conversation, purged, entry, fold or pin"
        raise UnreadableInput("import", problem, number)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidMessage) as error:
        if isinstance(error, MinutebookError) and not isinstance(error, InvalidMessage):
            raise
        raise UnreadableInput("import", f"not a line of an export: {error}", number) from error


def _parse_header(value: dict[str, Any]) -> _ImportedHeader:
    if value["format"] != FORMAT:
        raise ValueError(f"its format is {value['format']!r}, but this version reads format {FORMAT}")
    created_at = datetime.fromisoformat(value["created_at"])
    updated_at = datetime.fromisoformat(value.get("updated_at", value["created_at"]))
    status_updated_at = datetime.fromisoformat(value.get("status_updated_at", value["created_at"]))
    status = ConversationStatus(value["status"])
    return _ImportedHeader(
        value["id"], value["recipient"], value["labels"], status, created_at, updated_at, status_updated_at
    )


def _parse_fold(value: dict[str, Any]) -> tuple[Fold, bool]:
    fold = Fold(value["id"], value["start"], value["stop"], tuple(value["shown"]), value["reason"])
    return fold, bool(value["undone"])
