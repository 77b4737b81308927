"""Entries as rows: append, read and delete them.

An entry's key is its conversation's number, shifted, plus its position, so the entries of a conversation are next to each
other in the table. Appends are the most frequent operation, so an append executes as few statements as possible.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, TypeAlias

import apsw

from minutebook.errors import IdempotencyConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import MAX_INLINE_BYTES, Packed, compress, decompress, microseconds, unpack
from minutebook.store.rules import header_after_append, new_header, require_recipient, require_version
from minutebook.store.search import message_tokens
from minutebook.store.sql import documents, headers
from minutebook.store.sql.entries import ROLE_NUMBERS, ROLES
from minutebook.store.sql.transaction import KEY_SHIFT, ConversationRow, SqlTransaction
from minutebook.store.sqlite import leases, search
from minutebook.store.sqlite.commit import WriteConnection
from minutebook.store.types import ConversationHeader, require_own_lease

INSERT: Final = (
    "INSERT INTO entry (key, role, turn, evaluation, sequence, created_at, source, text, rest)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_COLUMNS: Final = "key, role, evaluation, sequence, created_at, source, text, rest"
SELECT: Final = f"SELECT {_COLUMNS} FROM entry WHERE key >= ? AND key < ? ORDER BY key"  # noqa: S608 - a constant of ours
_POSITION_MASK: Final = (1 << KEY_SHIFT) - 1
_UPDATE_HEADER: Final = (
    "UPDATE conversation SET version = ?, length = ?, turns = ?, lead = ?, open_at = ?, open_calls = ?, updated_at = ?"
    " WHERE number = ?"
)
_SELECT_EARLIER_APPEND: Final = "SELECT digest, version FROM idempotency_key WHERE conversation = ? AND key = ?"
Sources: TypeAlias = dict[tuple[str | None, str | None], int | None]
"""(provider, model) → the number of its row in `source`."""


async def append(writable: WriteConnection, tx: SqlTransaction, command: AppendCommand, at: datetime) -> int:
    """Append entries in the transaction of the group; return the new version."""
    db, conversation, key = writable.connection, command.conversation, command.idempotency_hash
    cache_key = (tx.tenant, conversation)
    row: ConversationRow | None = writable.conversations.get(cache_key)
    if row is None:
        writable.flush()
        row = await headers.find(tx, conversation)
    if row is not None and key:
        earlier_append = db.execute(_SELECT_EARLIER_APPEND, (row.number, key)).fetchone()
        if earlier_append is not None:
            digest, version = earlier_append
            if digest != command.digest:
                raise IdempotencyConflict(conversation, command.idempotency_key or "")
            if command.release:
                await _release_lease(tx, command)
            return int(version)
    if command.lease is not None:
        require_own_lease(await leases.find(tx, tx.tenant, conversation), command.lease)
    require_version(row.conversation if row else None, conversation, command.expected_version)
    if command.documents:
        needs_bodies = not all(document.replace for document in command.documents)
        names = [(document.kind, document.id) for document in command.documents]
        stored_documents = await documents.find(tx, names, with_bodies=needs_bodies)
        write_actions = documents.write_actions(conversation, command.documents, stored_documents, at)
    is_new = row is None
    if row is None:
        before = new_header(tx.tenant, conversation, command.recipient, command.labels or {}, at)
        after = header_after_append(before, command.messages, broken=command.on_broken_exchange, at=at)
        row = ConversationRow((await headers.insert(tx, after)).number, before)
    else:
        require_recipient(row.conversation, command.recipient)
        after = header_after_append(row.conversation, command.messages, broken=command.on_broken_exchange, at=at)
    rows = entry_rows(db, row, row.conversation.length, row.conversation.turns, command.packed, writable.sources)
    if key:
        db.execute("INSERT INTO idempotency_key VALUES (?, ?, ?, ?)", (row.number, key, command.digest, after.version))
    if command.documents:
        for document, action in zip(command.documents, write_actions, strict=True):
            stored = stored_documents.get((document.kind, document.id))
            await documents.write(tx, row.number, document, action, stored, at)
        await documents.sweep_kinds(tx, [document.kind for document in command.documents], at)
    if not is_new:
        writable.defer(_UPDATE_HEADER, [_header_update(row.number, after)])
    writable.defer(INSERT, rows)
    writable.defer(search.INSERT, await _index_rows(writable, tx, row, command))
    writable.conversations[cache_key] = ConversationRow(row.number, after, row.lineage)
    if command.release:
        await _release_lease(tx, command)
    return after.version


async def _index_rows(
    writable: WriteConnection, tx: SqlTransaction, row: ConversationRow, command: AppendCommand
) -> list[tuple[int, str]]:
    """The rows of the search index for appended entries."""
    if writable.search_mode is None:
        writable.search_mode = await tx.search_mode()
    pairs = enumerate(
        zip(command.packed, command.messages, strict=True), entry_key(row.number, row.conversation.length)
    )
    mode = writable.search_mode
    tokens = ((key, message_tokens(message, entry.role, mode)) for key, (entry, message) in pairs)
    return [(key, search.row_tokens(row.conversation, row_tokens)) for key, row_tokens in tokens if row_tokens]


async def _release_lease(tx: SqlTransaction, command: AppendCommand) -> None:
    if command.lease is not None:
        await leases.release(tx, command.lease)


def _header_update(number: int, header: ConversationHeader) -> tuple[Any, ...]:
    """The values of `_UPDATE_HEADER`: the columns that an append changes. None of them is in an index."""
    open_calls = json.dumps(header.open_calls) if header.open_calls else None
    counts = (header.version, header.length, header.turns, header.lead, header.open_at, open_calls)
    return (*counts, microseconds(header.updated_at), number)


def entry_rows(
    db: apsw.Connection, row: ConversationRow, position: int, turn: int, packed: Sequence[Packed], sources: Sources
) -> list[tuple[Any, ...]]:
    """The values of `INSERT` for entries of a conversation from a position on. Writes their sources and payloads.

    `turn` is the number of user messages before them; `sources` is a cache.
    """
    rows = []
    tenant = row.conversation.tenant
    for key, entry in enumerate(packed, entry_key(row.number, position)):
        source = (entry.provider, entry.model)
        if source not in sources:
            sources[source] = None if source == (None, None) else _find_or_add_source(db, *source)
        pieces = (_store_piece(db, tenant, entry.text), _store_piece(db, tenant, entry.rest))
        turn += entry.role is MessageRole.USER
        fields = (entry.evaluation_id, entry.sequence, entry.created_at, sources[source])
        rows.append((key, ROLE_NUMBERS[entry.role], turn, *fields, *pieces))
    return rows


def _find_or_add_source(db: apsw.Connection, provider: str | None, model: str | None) -> int:
    row = db.execute("SELECT number FROM source WHERE provider IS ? AND model IS ?", (provider, model)).fetchone()
    if row is not None:
        return int(row[0])
    db.execute("INSERT INTO source (provider, model) VALUES (?, ?)", (provider, model))
    return db.last_insert_rowid()


def _store_piece(db: apsw.Connection, tenant: str, piece: bytes | None) -> bytes | int | None:
    """The column value for a piece: itself if it is small, else the number of its payload, which is stored once."""
    if piece is None:
        return None
    if len(piece) <= MAX_INLINE_BYTES:
        return compress(piece)
    digest = sha256(piece).digest()
    db.execute(
        "INSERT INTO payload (tenant, hash, uses, body) VALUES (?, ?, 1, ?)"
        " ON CONFLICT (tenant, hash) DO UPDATE SET uses = uses + 1",
        (tenant, digest, compress(piece)),
    )
    number: int = db.execute("SELECT number FROM payload WHERE tenant = ? AND hash = ?", (tenant, digest)).get
    return number


def rows(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of a query. They are untyped: the schema is ours."""
    return db.execute(statement, values).fetchall()


def entry_key(number: int, position: int) -> int:
    """The key of the entry at a position of the conversation with this number."""
    return (number << KEY_SHIFT) + position


def position_of(key: int) -> int:
    return key & _POSITION_MASK


def unpack_rows(db: apsw.Connection, entry_rows: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of rows of `SELECT`."""
    sources: dict[int | None, tuple[str | None, str | None]] = {None: (None, None)}
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for key, role, evaluation, sequence, created_at, source, text, rest in entry_rows:
        if source not in sources:
            sources[source] = db.execute("SELECT provider, model FROM source WHERE number = ?", (source,)).get
        pieces = (_read_piece(db, text), _read_piece(db, rest))
        entries.append(unpack(Packed(ROLES[role], evaluation, sequence, created_at, *sources[source], *pieces)))
        positions.append(position_of(key))
    return positions, entries


def delete(db: apsw.Connection, start: int, stop: int) -> int:
    """Delete the entries in a range of keys, and payloads that are no longer used. The search index is not changed."""
    key_range = (start, stop)
    for column in ("text", "rest"):
        query = f"SELECT {column}, count(*) FROM entry WHERE key >= ? AND key < ? AND typeof({column}) = 'integer' GROUP BY 1"  # noqa: S608 - one of two constants
        for payload, uses in rows(db, query, key_range):
            db.execute("UPDATE payload SET uses = uses - ? WHERE number = ?", (uses, payload))
            db.execute("DELETE FROM payload WHERE number = ? AND uses = 0", (payload,))
    db.execute("DELETE FROM entry WHERE key >= ? AND key < ?", key_range)
    return db.changes()


def _read_piece(db: apsw.Connection, value: Any) -> bytes | None:
    """The piece of a column value that `_store_piece` returned."""
    if value is None:
        return None
    if isinstance(value, int):
        value = db.execute("SELECT body FROM payload WHERE number = ?", (value,)).get
    return decompress(value)
