"""Appending: the one path that every message takes, so it asks the database for as little as it can."""

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias

import apsw

from minutebook.errors import IdempotencyConflict
from minutebook.record.message import MessageRole
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import LARGE, Packed, microseconds, squeezed
from minutebook.store.rules import created, grown, require_recipient, require_version
from minutebook.store.sql import documents, headers, leases
from minutebook.store.sql.entries import NUMBER_OF
from minutebook.store.sql.transaction import ConversationRow, SqlTransaction
from minutebook.store.sqlite.commit import Unit
from minutebook.store.types import Conversation, require_standing

SHIFT: Final = 32
"""An entry's place is its conversation's number, shifted by this, plus its position."""
WRITE: Final = (
    "INSERT INTO entry (place, role, turn, evaluation, sequence, created_at, source, text, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
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
