"""Operations on a whole conversation: load, trim, purge, fork, erase, expire.

A fork does not copy the entries that it shares; it reads them from the conversation that stores them. So before a shared
entry is trimmed, each fork that reads it gets copies of all its shared entries. That happens at most once for each fork.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import uuid4

from minutebook.errors import VersionConflict
from minutebook.record.message import Message, MessageRole
from minutebook.store.backend import LoadQuery
from minutebook.store.codec import Packed, microseconds, pack
from minutebook.store.rules import (
    id_hash,
    merged_ranges,
    require_fork_position,
    require_position,
    require_purge,
    trimmed_entry,
    unfolded_ranges,
)
from minutebook.store.sql import entries, folds, headers
from minutebook.store.sql.transaction import ConversationRow, Query, SqlTransaction, TooManyEntries
from minutebook.store.types import ConversationHeader, ErasureReceipt, ForkOrigin, LoadedConversation

COPY_BATCH_ENTRIES: Final = 500
"""Number of entries copied at a time."""


async def load(tx: SqlTransaction, query: LoadQuery) -> LoadedConversation:
    """Load a part of a conversation, in as few round trips as possible.

    Raises:
        TooManyEntries: it has more entries than this transaction may read.
    """
    header_rows, pin_rows = await tx.query(
        headers.header_query(tx, query.conversation), folds.pins_query(tx, query.conversation)
    )
    row = headers.row_of(header_rows[0]) if header_rows else await headers.get(tx, query.conversation)
    header, pins = row.conversation, frozenset(position for (position,) in pin_rows)
    start = max(header.first, await _find_start(tx, row, query))
    stop = header.length if query.limit is None else min(start + query.limit, header.length)
    if query.folded:
        active_folds = await folds.load_active_folds(tx, row, 0, header.length)
        pinned_exchanges = [await _find_exchange(tx, row, pin) for pin in pins]
        requested = merged_ranges([range(header.first, header.lead), *pinned_exchanges, range(start, stop)])
        unfolded = [span for part in requested for span in unfolded_ranges(active_folds, part.start, part.stop)]
        results = await tx.query(*_entry_queries(tx, row, unfolded))
    else:
        fold_rows, *results = await tx.query(
            folds.active_folds_query(row, start, stop), *_entry_queries(tx, row, [range(start, stop)])
        )
        active_folds = folds.folds_of_rows(fold_rows, stop)
    positions, loaded_entries = await tx.unpack(results)
    return LoadedConversation(header, start, tuple(loaded_entries), tuple(positions), tuple(active_folds), pins)


def _entry_queries(tx: SqlTransaction, row: ConversationRow, parts: list[range]) -> list[Query]:
    if tx.max_entries is not None and sum(map(len, parts)) > tx.max_entries:
        raise TooManyEntries
    return [tx.entry_query(span) for part in parts for span in row.spans(part.start, part.stop)]


async def _find_start(tx: SqlTransaction, row: ConversationRow, query: LoadQuery) -> int:
    """The position where the requested part starts."""
    header = row.conversation
    if query.last_turns is not None:
        if query.last_turns == 0:
            return header.length
        return (
            0 if query.last_turns >= header.turns else await entries.find_start_of_last_turns(tx, row, query.last_turns)
        )
    if query.last_messages is not None:
        position = max(header.first, header.length - query.last_messages)
        return await entries.find_exchange_start(tx, row, position) if position < header.length else position
    return min(query.since or 0, header.length)


async def _find_exchange(tx: SqlTransaction, row: ConversationRow, position: int) -> range:
    """The positions of the exchange that an entry belongs to."""
    return range(
        await entries.find_exchange_start(tx, row, position), await entries.find_exchange_stop(tx, row, position)
    )


async def trim(tx: SqlTransaction, row: ConversationRow, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed."""
    replacements: dict[int, Packed] = {}
    spans = [row.span(require_position(row.conversation, position)) for position in changes]
    _, stored = await entries.read(tx, spans)
    for (position, message), entry in zip(changes.items(), stored, strict=True):
        replacement = trimmed_entry(entry, message, position)
        if replacement is not None:
            replacements[position] = replacement[0]
    if not replacements:
        return 0
    first_position = min(replacements)
    for fork, stop in await _lock_reading_forks(tx, row):
        if first_position < stop:
            await _copy_shared_entries(tx, fork)
    if first_position < row.own_start:
        row = await _copy_shared_entries(tx, row)
    turns = await entries.read_turns(tx, row, replacements)
    await tx.replace_entries(row, dict(zip(replacements, zip(turns, replacements.values(), strict=True), strict=True)))
    await tx.execute("UPDATE conversation SET revision = revision + 1 WHERE number = ?", row.number)
    return len(replacements)


async def purge(tx: SqlTransaction, row: ConversationRow, before: int) -> int:
    """Delete the entries before a position, which folds must cover; return how many.

    Entries that a fork reads stay stored, but this conversation no longer has them.
    """
    header = row.conversation
    active_folds = await folds.load_active_folds(tx, row, 0, max(0, min(before, header.length)))
    await folds.seal(tx, row, require_purge(header, before, active_folds))
    count = max(0, before - header.first)
    if not count:
        return 0
    unshared_start = max(row.own_start, *(stop for _, stop in await _lock_reading_forks(tx, row)), 0)
    if unshared_start < before:
        await tx.delete_entries(row, unshared_start, before)
    await tx.execute("DELETE FROM pin WHERE conversation = ? AND position < ?", row.number, before)
    await tx.execute("UPDATE conversation SET first = ? WHERE number = ?", before, row.number)
    return count


async def fork(
    tx: SqlTransaction, row: ConversationRow, new_id: str, position: int | None, at: datetime
) -> ConversationHeader:
    """Create a conversation that shares the entries before a position. Only folds and pins are copied."""
    header = row.conversation
    existing = await headers.find(tx, new_id)
    if existing is not None:
        raise VersionConflict(new_id, existing.conversation.version, 0)
    is_split = position is not None and await entries.splits_exchange(tx, row, position)
    length = require_fork_position(header, position, splits_an_exchange=is_split)
    shares_all = length == header.length
    lineage = [(number, min(stop, length)) for number, stop in row.lineage]
    if length > row.own_start:
        lineage.append((row.number, length))
    fork_header = ConversationHeader(
        *(header.tenant, new_id, header.recipient, at, at, at),
        version=1,
        length=length,
        turns=header.turns if shares_all else await entries.count_turns_before(tx, row, length),
        lead=min(header.lead, length),
        first=header.first,
        open_calls=header.open_calls if shares_all else (),
        open_at=header.open_at if shares_all else None,
        labels=header.labels,
        origin=ForkOrigin(header.id, length),
    )
    fork_row = await headers.insert(tx, fork_header, origin_number=row.number, lineage=_without_empty_parts(lineage))
    return await folds.copy(tx, row, fork_row)


async def erase(
    tx: SqlTransaction, conversation: str | None, recipient: str | None, at: datetime, *, block: bool
) -> ErasureReceipt:
    """Delete conversations and their forks with all their rows. Tombstones stay, so that later writes are rejected."""
    if block and recipient is not None:
        await headers.block(tx, recipient, at)
    rows = await _lock_with_forks(tx, conversation, recipient)
    keys = [id_hash(tx.tenant, row.conversation.id) for row in rows]
    add_tombstone = "INSERT INTO tombstone (id, erased_at) VALUES (?, ?)"
    return await _delete(
        *(tx, rows, at),
        *((add_tombstone, (key, microseconds(at))) for key in keys),
        *(("DELETE FROM lease WHERE id = ?", (key,)) for key in keys),
    )


async def remove_expired(tx: SqlTransaction, conversation: str, before: datetime, at: datetime) -> ErasureReceipt:
    """Delete a conversation and its forks if the last append to each was before a time. Leases and the id stay usable."""
    rows = await _lock_with_forks(tx, conversation, None)
    has_expired = all(row.conversation.updated_at < before for row in rows)
    return await _delete(tx, rows if has_expired else [], at)


async def _delete(tx: SqlTransaction, rows: list[ConversationRow], at: datetime, *statements: Query) -> ErasureReceipt:
    """Delete all rows of conversations, and run other statements, in as few round trips as possible."""
    entry_count = sum(row.conversation.length - row.conversation.first for row in rows)
    fold_count = pin_count = 0
    if rows:
        await tx.delete_all_entries(rows)
        numbers = [row.number for row in rows]
        results = await tx.query(
            *(("DELETE FROM fold WHERE conversation = ? RETURNING 1", (number,)) for number in numbers),
            *(("DELETE FROM pin WHERE conversation = ? RETURNING 1", (number,)) for number in numbers),
            *(("DELETE FROM idempotency_key WHERE conversation = ?", (number,)) for number in numbers),
            *(("DELETE FROM document WHERE conversation = ?", (number,)) for number in numbers),
            *(("DELETE FROM conversation WHERE number = ?", (number,)) for number in numbers),
            *statements,
        )
        fold_count = sum(map(len, results[: len(rows)]))
        pin_count = sum(map(len, results[len(rows) : 2 * len(rows)]))
    return ErasureReceipt(str(uuid4()), at, len(rows), entry_count, fold_count, pin_count)


async def _lock_with_forks(
    tx: SqlTransaction, conversation: str | None, recipient: str | None
) -> list[ConversationRow]:
    """Lock and return the conversations to erase and all their forks, at any depth. A locked one cannot be forked."""
    # One query for each condition that an index can serve: with OR, SQLite would read all conversations of the tenant.
    conditions = (
        ("id = ?",) if recipient is None else ("recipient = ? AND recipient <> id", "id = ? AND recipient = id")
    )
    results = await tx.query(
        *(
            (f"{headers.SELECT} AND {condition} ORDER BY number{tx.FOR_UPDATE}", (tx.tenant, recipient or conversation))
            for condition in conditions
        )
    )
    roots = {row.number: row for rows in results for row in map(headers.row_of, rows)}
    return list((roots | await _lock_forks(tx, roots)).values())


async def _lock_forks(tx: SqlTransaction, numbers: Iterable[int]) -> dict[int, ConversationRow]:
    """Lock and return the forks of conversations, at any depth, by number."""
    query = f"{headers.SELECT} AND origin = ? ORDER BY number{tx.FOR_UPDATE}"
    forks: dict[int, ConversationRow] = {}
    level = list(numbers)
    while level:
        results = await tx.query(*((query, (tx.tenant, number)) for number in level))
        level_forks = {row.number: row for rows in results for row in map(headers.row_of, rows)}
        level = [number for number in level_forks if number not in forks]
        forks.update(level_forks)
    return forks


async def _lock_reading_forks(tx: SqlTransaction, row: ConversationRow) -> list[tuple[ConversationRow, int]]:
    """Lock and return the forks, at any depth, that read entries of this conversation.

    Each is returned with the position before which it reads them.
    """
    forks = (await _lock_forks(tx, [row.number])).values()
    return [(fork, stop) for fork in forks for number, stop in fork.lineage if number == row.number]


async def _copy_shared_entries(tx: SqlTransaction, fork: ConversationRow) -> ConversationRow:
    """Copy the entries that a fork reads from other conversations into it."""
    first, own_start = fork.conversation.first, fork.own_start
    for start in range(first, own_start, COPY_BATCH_ENTRIES):
        stop = min(start + COPY_BATCH_ENTRIES, own_start)
        _, shared = await entries.read(tx, fork.spans(start, stop))
        turns = await entries.count_turns_before(tx, fork, start + 1) - (shared[0].role is MessageRole.USER)
        await tx.write_entries(fork, start, turns, [pack(entry)[0] for entry in shared])
    await tx.execute("UPDATE conversation SET lineage = NULL WHERE number = ?", fork.number)
    return ConversationRow(fork.number, fork.conversation)


def _without_empty_parts(lineage: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The lineage without the conversations that a fork at an earlier position no longer reads."""
    parts: list[tuple[int, int]] = []
    for number, stop in lineage:
        if stop > (parts[-1][1] if parts else 0):
            parts.append((number, stop))
    return tuple(parts)
