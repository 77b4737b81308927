"""Entries as rows: appended, read by their place, and deleted.

Appending is the path that every message takes, so it asks the database for as little as it can.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias

import apsw

from minutebook.errors import IdempotencyConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole, text_of
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import LARGE, Packed, microseconds, squeezed, unpack, unsqueezed
from minutebook.store.rules import created, grown, require_recipient, require_version
from minutebook.store.sql import documents, headers, leases
from minutebook.store.sql.entries import NUMBER_OF, ROLES
from minutebook.store.sql.transaction import ConversationRow, SqlTransaction
from minutebook.store.sqlite.commit import Unit
from minutebook.store.types import Conversation, require_standing

SHIFT: Final = 32
"""An entry's place is its conversation's number, shifted by this, plus its position."""
WRITE: Final = (
    "INSERT INTO entry (place, role, turn, evaluation, sequence, created_at, source, text, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COLUMNS: Final = "place, role, evaluation, sequence, created_at, source, text, rest"
READ: Final = f"SELECT {_COLUMNS} FROM entry WHERE place >= ? AND place < ? ORDER BY place"  # noqa: S608 - a constant of ours
_POSITION: Final = (1 << SHIFT) - 1
_GROW: Final = (
    "UPDATE conversation SET version = ?, length = ?, turns = ?, lead = ?, open_at = ?, open_calls = ?, updated_at = ?"
    " WHERE number = ?"
)
_BEHIND: Final = "INSERT OR IGNORE INTO unindexed VALUES (?)"
_ANSWERED: Final = "SELECT digest, version FROM answer WHERE conversation = ? AND key = ?"
Sources: TypeAlias = dict[tuple[str | None, str | None], int | None]
"""Provider and model → the number under which they are stored."""


async def append(unit: Unit, tx: SqlTransaction, command: AppendCommand, at: datetime) -> int:
    """Add entries at the end, in the transaction of the group; return the new version."""
    db, conversation, key = unit.connection, command.conversation, command.key
    name = (tx.tenant, conversation)
    row: ConversationRow | None = unit.known.get(name)
    if row is None:
        unit.flush()
        row = await headers.find(tx, conversation)
    if row is not None and key:
        answered = db.execute(_ANSWERED, (row.number, key)).fetchone()
        if answered is not None and answered[0] != command.digest:
            raise IdempotencyConflict(conversation, command.idempotency_key or "")
        if answered is not None:
            if command.release:
                await _release(tx, command, at)
            return int(answered[1])
    if command.lease is not None:
        require_standing(await leases.find(tx, conversation), command.lease, at)
    require_version(row.conversation if row else None, conversation, command.expected_version)
    if command.documents:
        bodies = not all(one.replace for one in command.documents)
        known = await documents.find(tx, [(one.kind, one.id) for one in command.documents], bodies=bodies)
        verdicts = documents.verdicts(conversation, command.documents, known, at)
    is_new = row is None
    if row is None:
        before = created(tx.tenant, conversation, command.recipient, command.labels or {}, at)
        after = grown(before, command.messages, broken=command.broken, at=at)
        row = ConversationRow((await headers.insert(tx, after)).number, before)
    else:
        require_recipient(row.conversation, command.recipient)
        after = grown(row.conversation, command.messages, broken=command.broken, at=at)
    rows = entry_rows(db, row, row.conversation.length, row.conversation.turns, command.packed, unit.sources)
    if key:
        db.execute("INSERT INTO answer VALUES (?, ?, ?, ?)", (row.number, key, command.digest, after.version))
    if command.documents:
        for one, verdict in zip(command.documents, verdicts, strict=True):
            await documents.write(tx, row.number, one, verdict, known.get((one.kind, one.id)), at)
        await documents.sweep_kinds(tx, [one.kind for one in command.documents], at)
    if not is_new:
        unit.later(_GROW, [_growth(row.number, after)])
    unit.later(WRITE, rows)
    if row.number not in unit.behind:
        unit.behind.add(row.number)
        unit.later(_BEHIND, [(row.number,)])
    unit.known[name] = ConversationRow(row.number, after, row.lineage)
    if command.release:
        await _release(tx, command, at)
    return after.version


async def _release(tx: SqlTransaction, command: AppendCommand, at: datetime) -> None:
    if command.lease is not None:
        await leases.release(tx, command.lease, at)


def _growth(number: int, one: Conversation) -> tuple[Any, ...]:
    """What an append changes, for `_GROW`; no index is touched."""
    waiting = json.dumps(one.open_calls) if one.open_calls else None
    counts = (one.version, one.length, one.turns, one.lead, one.open_at, waiting)
    return (*counts, microseconds(one.updated_at), number)


def entry_rows(
    db: apsw.Connection, row: ConversationRow, position: int, turn: int, packed: Sequence[Packed], sources: Sources
) -> list[tuple[Any, ...]]:
    """Entries of a conversation from a position on, as rows for `WRITE`.

    `turn` is the number of user messages before them; `sources` are those whose number is known already.
    """
    rows = []
    for place, one in enumerate(packed, (row.number << SHIFT) + position):
        names = (one.provider, one.model)
        if names not in sources:
            sources[names] = None if names == (None, None) else _source(db, *names)
        pieces = (_piece(db, row.conversation.tenant, one.text), _piece(db, row.conversation.tenant, one.rest))
        facts = (one.evaluation_id, one.sequence, one.created_at, sources[names])
        turn += one.role is MessageRole.USER
        rows.append((place, NUMBER_OF[one.role], turn, *facts, *pieces))
    return rows


def _source(db: apsw.Connection, provider: str | None, model: str | None) -> int:
    known = db.execute("SELECT number FROM source WHERE provider IS ? AND model IS ?", (provider, model)).fetchone()
    if known is not None:
        return int(known[0])
    db.execute("INSERT INTO source (provider, model) VALUES (?, ?)", (provider, model))
    return db.last_insert_rowid()


def _piece(db: apsw.Connection, tenant: str, piece: bytes | None) -> bytes | int | None:
    """A piece as its row has it: itself, or the number of the payload that has it for everybody."""
    if piece is None:
        return None
    if len(piece) <= LARGE:
        return squeezed(piece)
    digest = sha256(piece).digest()
    db.execute(
        "INSERT INTO payload (tenant, hash, uses, body) VALUES (?, ?, 1, ?)"
        " ON CONFLICT (tenant, hash) DO UPDATE SET uses = uses + 1",
        (tenant, digest, squeezed(piece)),
    )
    number: int = db.execute("SELECT number FROM payload WHERE tenant = ? AND hash = ?", (tenant, digest)).get
    return number


def rows(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of an answer. What a column holds is our own affair, so its type is not checked."""
    return db.execute(statement, values).fetchall()


def place(number: int, position: int) -> int:
    return (number << SHIFT) + position


def position_of(entry_place: int) -> int:
    return entry_place & _POSITION


def unpacked(db: apsw.Connection, found: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of rows of `READ`."""
    sources: dict[int | None, tuple[str | None, str | None]] = {None: (None, None)}
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for at, role, evaluation, sequence, created_at, source, text, rest in found:
        if source not in sources:
            sources[source] = db.execute("SELECT provider, model FROM source WHERE number = ?", (source,)).get
        pieces = (_stored_piece(db, text), _stored_piece(db, rest))
        entries.append(unpack(Packed(ROLES[role], evaluation, sequence, created_at, *sources[source], *pieces)))
        positions.append(position_of(at))
    return positions, entries


def texts(db: apsw.Connection, start: int, stop: int) -> Iterator[tuple[int, str]]:
    """The places and texts of a stretch: what can be searched for, without the rest of the entries."""
    query = "SELECT place, text, rest FROM entry WHERE place >= ? AND place < ? ORDER BY place"
    for at, text, rest in rows(db, query, (start, stop)):
        piece = _stored_piece(db, text)
        if piece is None:
            yield at, text_of(json.loads((_stored_piece(db, rest) or b"{}").decode("utf-8", "surrogatepass")))
        else:
            yield at, piece.decode("utf-8", "surrogatepass")


def delete(db: apsw.Connection, start: int, stop: int) -> int:
    """Remove the entries of a range of places, and the payloads that nothing uses any more. See `search.forget`."""
    span = (start, stop)
    for column in ("text", "rest"):
        used = f"SELECT {column}, count(*) FROM entry WHERE place >= ? AND place < ? AND typeof({column}) = 'integer' GROUP BY 1"  # noqa: S608 - one of two constants
        for number, uses in rows(db, used, span):
            db.execute("UPDATE payload SET uses = uses - ? WHERE number = ?", (uses, number))
            db.execute("DELETE FROM payload WHERE number = ? AND uses = 0", (number,))
    db.execute("DELETE FROM entry WHERE place >= ? AND place < ?", span)
    return db.changes()


def _stored_piece(db: apsw.Connection, kept: Any) -> bytes | None:
    if kept is None:
        return None
    if isinstance(kept, int):
        kept = db.execute("SELECT body FROM payload WHERE number = ?", (kept,)).get
    return unsqueezed(kept)
