"""What changes a conversation as a whole: appending, purging, forking, erasing."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final
from uuid import uuid4

import apsw

from minutebook.errors import IdempotencyConflict, VersionConflict
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import microseconds
from minutebook.store.rules import (
    created,
    grown,
    require_cut,
    require_purge,
    require_recipient,
    require_version,
    tombstone,
)
from minutebook.store.sqlite import documents as sqlite_documents
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite import folds as sqlite_folds
from minutebook.store.sqlite import headers as sqlite_rows
from minutebook.store.sqlite import leases as sqlite_leases
from minutebook.store.sqlite import search as sqlite_words
from minutebook.store.sqlite import trim as sqlite_trim
from minutebook.store.sqlite.connection import Unit
from minutebook.store.sqlite.headers import Filed, place
from minutebook.store.types import Conversation, Origin, Receipt

_BEHIND: Final = "INSERT OR IGNORE INTO unindexed VALUES (?)"
_ANSWERED: Final = "SELECT digest, version FROM answer WHERE conversation = ? AND key = ?"


def append(unit: Unit, tenant: str, command: AppendCommand, at: datetime) -> int:
    """Add entries at the end, in the transaction of the group; return the new version."""
    db, conversation = unit.connection, command.conversation
    name = (tenant, conversation)
    filed: Filed | None = unit.known.get(name) or sqlite_rows.find(unit.db, tenant, conversation)
    key = command.key
    if filed is not None and key:
        answered = db.execute(_ANSWERED, (filed.number, key)).fetchone()
        if answered is not None and answered[0] != command.digest:
            raise IdempotencyConflict(conversation, command.idempotency_key or "")
        if answered is not None:
            _release(db, tenant, command, at)
            return int(answered[1])
    if command.lease is not None:
        sqlite_leases.require(db, tenant, command.lease, at)
    require_version(filed.conversation if filed else None, conversation, command.expected_version)
    number = None if filed is None else filed.number
    verdicts = [sqlite_documents.verdict(db, tenant, conversation, number, one, at) for one in command.documents]
    is_new = filed is None
    if filed is None:
        before = created(tenant, conversation, command.recipient, command.labels or {}, at)
        after = grown(before, command.messages, broken=command.broken, at=at)
        filed = Filed(sqlite_rows.insert(db, after, documents=len(command.documents)).number, before)
    else:
        require_recipient(filed.conversation, command.recipient)
        after = grown(filed.conversation, command.messages, broken=command.broken, at=at)
    made = sqlite_entries.made(db, filed, command.packed, unit.sources)
    if key:
        db.execute("INSERT INTO answer VALUES (?, ?, ?, ?)", (filed.number, key, command.digest, after.version))
    if command.documents:
        sqlite_documents.put(db, filed, command.documents, verdicts, at, counted=is_new)
        sqlite_documents.tidy(unit, tenant, command.documents, at)
    if not is_new:
        unit.later(sqlite_rows.GROW, [sqlite_rows.growth(filed.number, after)])
    unit.later(sqlite_entries.WRITE, made)
    if filed.number not in unit.behind:
        unit.behind.add(filed.number)
        unit.later(_BEHIND, [(filed.number,)])
    unit.known[name] = Filed(filed.number, after, filed.lineage)
    _release(db, tenant, command, at)
    return after.version


def _release(db: apsw.Connection, tenant: str, command: AppendCommand, at: datetime) -> None:
    if command.release and command.lease is not None:
        sqlite_leases.release(db, tenant, command.lease, at)


def purge(db: apsw.Connection, filed: Filed, before: int) -> int:
    """Delete entries that folds stand for; those that a fork reads stay for it, out of this conversation's sight."""
    header = filed.conversation
    folds = sqlite_folds.standing(db, filed, 0, min(before, header.length))
    sqlite_folds.seal(db, filed, require_purge(header, before, folds))
    gone = max(0, before - header.first)
    if not gone:
        return 0
    shared = max((stop for _, stop in sqlite_trim.readers(db, filed)), default=0)
    start = max(filed.own, shared)
    _remove(db, place(filed.number, start), place(filed.number, max(start, before)))
    db.execute("DELETE FROM pin WHERE conversation = ? AND position < ?", (filed.number, before))
    db.execute("UPDATE conversation SET first = ? WHERE number = ?", (before, filed.number))
    return gone


def fork(db: apsw.Connection, filed: Filed, new_id: str, at: int | None, when: datetime) -> Conversation:
    """A conversation that reads what it shares where it stands: nothing is copied but folds and pins."""
    header = filed.conversation
    taken = sqlite_rows.find(db, header.tenant, new_id)
    if taken is not None:
        raise VersionConflict(new_id, taken.conversation.version, 0)
    cut = require_cut(header, at, splits=at is not None and sqlite_entries.splits(db, filed, at))
    whole = cut == header.length
    lineage = [(number, min(stop, cut)) for number, stop in filed.lineage]
    if cut > filed.own:
        lineage.append((filed.number, cut))
    made = Conversation(
        *(header.tenant, new_id, header.recipient, when, when, when),
        version=1,
        length=cut,
        turns=header.turns if whole else sqlite_entries.turns_before(db, filed, cut),
        lead=min(header.lead, cut),
        first=header.first,
        open_calls=header.open_calls if whole else (),
        open_at=header.open_at if whole else None,
        labels=header.labels,
        origin=Origin(header.id, cut),
    )
    child = sqlite_rows.insert(db, made, origin=filed.number, lineage=_stretches(lineage))
    sqlite_folds.copy(db, filed, child)
    db.execute(
        "INSERT INTO pin SELECT ?, position FROM pin WHERE conversation = ? AND position < ?",
        (child.number, filed.number, cut),
    )
    return made


def erase(db: apsw.Connection, tenant: str, conversation: str | None, recipient: str | None, at: datetime) -> Receipt:
    """Remove conversations, their forks and all that belongs to them; leave what refuses late writes."""
    reached = sqlite_rows.rows(
        db,
        "WITH RECURSIVE reached (number, id) AS ("
        " SELECT number, id FROM conversation WHERE tenant = ? AND (id = ? OR recipient = ?)"
        " UNION SELECT fork.number, fork.id FROM conversation AS fork JOIN reached ON fork.origin = reached.number"
        ") SELECT number, id FROM reached",
        (tenant, conversation, recipient),
    )
    counts = {"entries": 0, "folds": 0, "pins": 0}
    for number, name in reached:
        filed = sqlite_rows.found(db, tenant, name)
        counts["entries"] += filed.conversation.length - filed.conversation.first
        _remove(db, place(number, 0), place(number + 1, 0))
        counts["folds"] += _delete(db, "fold", number)
        counts["pins"] += _delete(db, "pin", number)
        _delete(db, "answer", number)
        _delete(db, "document", number)
        db.execute("DELETE FROM lease WHERE id = ?", (tombstone(tenant, name),))
        _delete(db, "unindexed", number)
        db.execute("INSERT INTO tombstone VALUES (?, ?)", (tombstone(tenant, name), microseconds(at)))
    db.executemany("DELETE FROM conversation WHERE number = ?", [(number,) for number, _ in reached])
    return Receipt(str(uuid4()), at, conversations=len(reached), **counts)


def _remove(db: apsw.Connection, start: int, stop: int) -> None:
    """Remove entries with their words; what shared a stretch of the index with them is indexed anew."""
    stretches = sqlite_words.forget(db, start, stop)
    sqlite_entries.delete(db, start, stop)
    sqlite_words.index_again(db, stretches)


def _delete(db: apsw.Connection, table: str, number: int) -> int:
    db.execute(f"DELETE FROM {table} WHERE conversation = ?", (number,))  # noqa: S608 - one of our tables
    return db.changes()


def _stretches(lineage: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The stretches that are not empty once a fork has left earlier."""
    kept: list[tuple[int, int]] = []
    for number, stop in lineage:
        if stop > (kept[-1][1] if kept else 0):
            kept.append((number, stop))
    return tuple(kept)
