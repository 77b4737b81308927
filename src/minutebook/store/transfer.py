"""Export and import, written once on the other operations, so that every store reads what any other wrote.

Both work in steps of a few hundred entries, so memory does not grow with the conversation. An import names each of its
steps by an idempotency key: repeat it and the steps that were done are recognised, the others are done.
"""

import json
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from minutebook.errors import InvalidMessage, MinutebookError, UnreadableInput
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import MessageRole
from minutebook.store.codec import fold_to_json
from minutebook.store.types import ConversationHeader, ConversationStatus, ImportCounts, StoredFold
from minutebook.wire.chat import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from minutebook.store.base import ConversationStore

FORMAT: Final = 1
STEP: Final = 200
"""How many entries are read or written at a time."""
_ENTRY: Final = '{"entry":'


async def exported(store: "ConversationStore", conversation: str) -> AsyncIterator[str]:
    """The lines of a conversation as it was when the first of them was asked for."""
    beginning = await store.load(conversation, since=0, limit=0)
    header, folds = beginning.conversation, await store.folds(conversation)
    yield json.dumps(_header(header))
    if header.first:
        yield json.dumps({"purged": header.first})
    position = header.first
    while position < header.length:
        part = await store.load(conversation, since=position, limit=min(STEP, header.length - position))
        for entry in part.entries:
            yield f"{_ENTRY}{entry_to_json(entry)}}}"
        position = part.start + len(part.entries)
    for stored in folds:
        if stored.fold.stop <= header.length:
            yield json.dumps(_fold(stored))
    for pin in sorted(beginning.pins):
        yield json.dumps({"pin": pin})


async def imported(store: "ConversationStore", lines: AsyncIterable[str] | Iterable[str]) -> ImportCounts:
    """Add what `exported` wrote."""
    coming: _Coming | None = None
    conversations = entries = number = 0
    async for number, line in _numbered(lines):
        if not line.strip():
            continue
        kind, value = _read(line, number)
        if kind == "conversation":
            if coming is not None:
                await coming.finish()
            coming = _Coming(store, value)
            await coming.begin()
            conversations += 1
        elif coming is None:
            raise UnreadableInput("import", "a conversation's header comes before anything else", number)
        else:
            entries += kind == "entry"
            await coming.take(kind, value)
    if coming is not None:
        await coming.finish()
    return ImportCounts(conversations, entries)


@dataclass(slots=True)
class _Coming:
    """A conversation that is being imported."""

    store: "ConversationStore"
    header: dict[str, Any]
    waiting: list[ConversationEntry] = field(default_factory=list)
    steps: int = 0
    purged: int = 0

    @property
    def id(self) -> str:
        name: str = self.header["id"]
        return name

    async def begin(self) -> None:
        """Make it, empty: everything else is then a step that may be repeated."""
        await self.store.append(
            self.id,
            [],
            recipient=self.header["recipient"],
            labels=self.header["labels"],
            expected_version=0,
            idempotency_key="import",
        )

    async def take(self, kind: str, value: Any) -> None:
        if kind == "entry":
            if len(self.waiting) >= STEP and value.role is not MessageRole.TOOL:
                await self._flush()
            self.waiting.append(value)
            return
        if kind == "purged":
            await self._stand_in(value)
            return
        await self._flush()
        if kind == "pin":
            await self.store.pin(self.id, value)
            return
        fold, undone = value
        known = {stored.fold.id: stored for stored in await self.store.folds(self.id)} if undone else {}
        if fold.id not in known:
            await self.store.add_fold(self.id, fold)
        if undone:
            await self.store.undo_fold(self.id, fold.id)

    async def _stand_in(self, count: int) -> None:
        """Empty entries where the others were, so that positions stay; they go when the folds over them are there."""
        self.purged = count
        made_at = datetime.fromisoformat(self.header["created_at"])
        for number in range(count):
            await self.take("entry", ConversationEntry(MessageRole.ASSISTANT, "", UUID(int=0), number, made_at))
        await self._flush()

    async def _flush(self) -> None:
        if self.waiting:
            self.steps += 1
            await self.store.append(self.id, self.waiting, idempotency_key=f"import {self.steps}", broken="mark")
            self.waiting = []

    async def finish(self) -> None:
        await self._flush()
        if self.purged:
            await self.store.purge(self.id, before=self.purged)
        await self.store.set_status(self.id, ConversationStatus(self.header["status"]))


async def _numbered(lines: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[tuple[int, str]]:
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
        }
    }


def _fold(stored: StoredFold) -> dict[str, Any]:
    return {"fold": {**fold_to_json(stored.fold), "undone": stored.undone_at is not None}}


def _read(line: str, number: int) -> tuple[str, Any]:
    try:
        if line.startswith(_ENTRY):
            return "entry", entry_from_json(line.rstrip()[len(_ENTRY) : -1])
        ((kind, value),) = json.loads(line).items()
        if kind == "conversation":
            return kind, _read_header(value)
        if kind == "entry":
            return kind, entry_from_json(json.dumps(value))
        if kind == "fold":
            return kind, _read_fold(value)
        if kind in {"pin", "purged"} and type(value) is int:
            return kind, value
        raise UnreadableInput("import", f"{kind!r} is none of conversation, purged, entry, fold and pin", number)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidMessage) as problem:
        if isinstance(problem, MinutebookError) and not isinstance(problem, InvalidMessage):
            raise
        raise UnreadableInput("import", f"not a line that export wrote: {problem}", number) from problem


def _read_header(value: dict[str, Any]) -> dict[str, Any]:
    if value["format"] != FORMAT:
        raise ValueError(f"its format is {value['format']!r}; this version reads {FORMAT}")
    datetime.fromisoformat(value["created_at"])
    ConversationStatus(value["status"])
    return {name: value[name] for name in ("id", "recipient", "labels", "status", "created_at")}


def _read_fold(value: dict[str, Any]) -> tuple[Fold, bool]:
    fold = Fold(value["id"], value["start"], value["stop"], tuple(value["shown"]), value["reason"])
    return fold, bool(value["undone"])
