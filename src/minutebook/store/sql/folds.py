"""Folds and pins as rows.

A fold is active if it is not undone and no later fold covers it. That is stored in each row, so reading the active folds
reads no others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.store.codec import fold_from_bytes, fold_to_bytes, is_storable, microseconds, moment
from minutebook.store.rules import (
    SEALED,
    find_lead,
    fold_to_undo,
    folds_of_fork,
    header_with_rewinds,
    new_fold,
    require_fold,
    require_position,
    require_rewind,
    require_same_fold,
    rewind_fold,
)
from minutebook.store.search import FIRST_FOLD_POSITION, fold_tokens
from minutebook.store.sql.entries import find_end_of_system_messages, splits_exchange
from minutebook.store.sql.headers import json_of
from minutebook.store.sql.transaction import KEY_SHIFT, ConversationRow, Query, SqlTransaction
from minutebook.store.types import ConversationHeader, StoredFold, require_name

COLUMNS: Final = "number, id, start, stop, body, created_at, undone_at, sealed, covered_by"
_SELECT: Final = f"SELECT {COLUMNS} FROM fold WHERE conversation = ?"  # noqa: S608 - a constant of ours
_IS_ACTIVE: Final = "conversation = ? AND undone_at IS NULL AND covered_by IS NULL"
_SELECT_ACTIVE: Final = f"SELECT id, start, stop, body FROM fold WHERE {_IS_ACTIVE} AND stop > ? ORDER BY stop LIMIT ?"  # noqa: S608 - a constant of ours
_INSERT: Final = f"INSERT INTO fold (conversation, {COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant of ours


async def load_folds(tx: SqlTransaction, row: ConversationRow) -> tuple[StoredFold, ...]:
    """All folds of a conversation, undone ones too, in the order in which they were added."""
    return tuple(map(stored_fold, await tx.rows(f"{_SELECT} ORDER BY number", row.number)))


async def load_active_folds(tx: SqlTransaction, row: ConversationRow, start: int, stop: int) -> list[Fold]:
    """The active folds that overlap a range of positions, by start."""
    (rows,) = await tx.query(active_folds_query(row, start, stop))
    return folds_of_rows(rows, stop)


def active_folds_query(row: ConversationRow, start: int, stop: int) -> Query:
    """The query for the active folds that overlap a range of positions.

    Active folds do not overlap each other, so the order of their ends is that of their starts, and a range has at most
    as many of them as positions.
    """
    return _SELECT_ACTIVE, (row.number, start, max(0, stop - start))


def folds_of_rows(rows: Iterable[Sequence[Any]], stop: int) -> list[Fold]:
    """The folds of the result of `active_folds_query`."""
    return [fold_from_bytes(*row) for row in rows if row[1] < stop]


async def add(
    tx: SqlTransaction, row: ConversationRow, fold: Fold, replacing: Sequence[str] | None, at: datetime
) -> StoredFold:
    """Add a fold, and mark the active folds in its range as covered by it."""
    require_name("fold id", fold.id)
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, fold_to_bytes(fold))
    fold_rows = await tx.rows(f"{_SELECT} AND id = ?", row.number, fold.id)
    if fold_rows:
        return require_same_fold(row.conversation.id, stored_fold(fold_rows[0]), fold)
    start, stop = (max(0, min(position, row.conversation.length)) for position in (fold.start, fold.stop))
    overlapping = await load_active_folds(tx, row, start, stop)
    splits = await splits_exchange(tx, row, fold.start) or await splits_exchange(tx, row, fold.stop)
    require_fold(row.conversation, fold, overlapping=overlapping, splits_an_exchange=splits, replacing=replacing)
    stored = new_fold(row.conversation, fold, at)
    await _insert(tx, row, stored)
    if fold.is_rewind:
        await _write_rewinds(tx, row)
    return stored


async def _insert(tx: SqlTransaction, row: ConversationRow, stored: StoredFold) -> None:
    fold = stored.fold
    ((number,),) = await tx.rows("SELECT coalesce(max(number) + 1, 0) FROM fold WHERE conversation = ?", row.number)
    cover = f"UPDATE fold SET covered_by = ? WHERE {_IS_ACTIVE} AND start >= ? AND stop <= ?"  # noqa: S608 - a constant of ours
    await tx.execute(cover, number, row.number, fold.start, fold.stop)
    fields = (fold.id, fold.start, fold.stop, fold_to_bytes(fold), microseconds(stored.created_at))
    await tx.execute(_INSERT, row.number, number, *fields, None, stored.sealed, None)
    await _index(tx, row, number, fold)


async def rewind(
    tx: SqlTransaction, row: ConversationRow, to: int, expected_version: int | None, reason: str, at: datetime
) -> ConversationHeader:
    """Hide the entries from a position on by a fold that shows nothing; return the new header."""
    header = row.conversation
    require_rewind(header, to, expected_version, splits_an_exchange=await splits_exchange(tx, row, to))
    if to == header.length:
        return header
    while fold := fold_to_undo(await load_active_folds(tx, row, 0, header.length), to, header.first):
        await _mark_undone(tx, row, fold.id, at)
    await _insert(tx, row, new_fold(header, rewind_fold(header, to, reason), at))
    await tx.execute("DELETE FROM pin WHERE conversation = ? AND position >= ?", row.number, to)
    await tx.execute("UPDATE conversation SET updated_at = ? WHERE number = ?", microseconds(at), row.number)
    return replace(await _write_rewinds(tx, row), updated_at=at)


async def _write_rewinds(tx: SqlTransaction, row: ConversationRow) -> ConversationHeader:
    """Write the header after the rewinds have changed, and return it."""
    folds = await load_folds(tx, row)
    end_of_system = partial(find_end_of_system_messages, tx, row)
    after = await header_with_rewinds(row.conversation, folds, end_of_system)
    update = "UPDATE conversation SET version = ?, lead = ?, open_at = ?, open_calls = ? WHERE number = ?"
    await tx.execute(update, after.version, after.lead, after.open_at, json_of(after.open_calls), row.number)
    return after


async def undo(tx: SqlTransaction, row: ConversationRow, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold undone. The folds it covered are active again, or covered by the fold that covers it."""
    stored = await _mark_undone(tx, row, fold_id, at)
    if stored.fold.is_rewind and stored.undone_at == at:
        await _write_rewinds(tx, row)
    return stored


async def _mark_undone(tx: SqlTransaction, row: ConversationRow, fold_id: str, at: datetime) -> StoredFold:
    fold_rows = await tx.rows(f"{_SELECT} AND id = ?", row.number, fold_id) if is_storable(fold_id) else []
    if not fold_rows:
        raise FoldNotFound(row.conversation.id, fold_id)
    number, covered_by, stored = fold_rows[0][0], fold_rows[0][8], stored_fold(fold_rows[0])
    if stored.sealed:
        raise FoldConflict(row.conversation.id, fold_id, SEALED, "it can no longer be undone")
    if stored.undone_at is not None:
        return stored
    uncover = "UPDATE fold SET covered_by = ? WHERE conversation = ? AND covered_by = ?"
    await tx.execute(uncover, covered_by, row.number, number)
    mark_undone = "UPDATE fold SET undone_at = ? WHERE conversation = ? AND number = ?"
    await tx.execute(mark_undone, microseconds(at), row.number, number)
    return replace(stored, undone_at=at)


async def seal(tx: SqlTransaction, row: ConversationRow, folds: Iterable[Fold]) -> None:
    """Mark folds as sealed: their entries are purged, so they cannot be undone."""
    mark_sealed = "UPDATE fold SET sealed = true WHERE conversation = ? AND id = ?"
    await tx.execute_many(mark_sealed, [(row.number, fold.id) for fold in folds])


async def copy(tx: SqlTransaction, row: ConversationRow, fork: ConversationRow) -> ConversationHeader:
    """Copy the folds and pins of the shared entries to a fork, and return its header.

    A fold is active there if the one that covers it is not copied.
    """
    stop = fork.conversation.length
    fold_rows = await tx.rows(f"{_SELECT} AND undone_at IS NULL AND stop <= ? ORDER BY number", row.number, stop)
    copied_ids = {stored.fold.id for stored in folds_of_fork(map(stored_fold, fold_rows), stop, row.conversation.first)}
    fold_rows = [fold for fold in fold_rows if fold[1] in copied_ids]
    copied_numbers = {fold[0] for fold in fold_rows}
    await tx.execute_many(
        _INSERT, [(fork.number, *fold[:8], fold[8] if fold[8] in copied_numbers else None) for fold in fold_rows]
    )
    for number, fold_id, start, fold_stop, body, *_ in fold_rows:
        await _index(tx, fork, number, fold_from_bytes(fold_id, start, fold_stop, body))
    await tx.execute(
        "INSERT INTO pin (conversation, position) SELECT ?, position FROM pin WHERE conversation = ? AND position < ?",
        *(fork.number, row.number, stop),
    )
    if stop >= row.conversation.lead:
        return fork.conversation
    end_of_system = partial(find_end_of_system_messages, tx, fork)
    lead = await find_lead(fork.conversation, await load_folds(tx, fork), end_of_system)
    await tx.execute("UPDATE conversation SET lead = ? WHERE number = ?", lead, fork.number)
    return replace(fork.conversation, lead=lead)


async def set_pin(tx: SqlTransaction, row: ConversationRow, position: int, *, pinned: bool) -> None:
    statement = (
        "INSERT INTO pin (conversation, position) VALUES (?, ?) ON CONFLICT DO NOTHING"
        if pinned
        else "DELETE FROM pin WHERE conversation = ? AND position = ?"
    )
    await tx.execute(statement, row.number, require_position(row.conversation, position))


def pins_query(tx: SqlTransaction, conversation: str) -> Query:
    """The query for the pinned positions of a conversation."""
    query = (
        "SELECT position FROM pin WHERE conversation = (SELECT number FROM conversation WHERE tenant = ? AND id = ?)"
    )
    return query, (tx.tenant, conversation)


def stored_fold(row: Sequence[Any]) -> StoredFold:
    _number, fold_id, start, stop, body, created_at, undone_at, sealed, _covered_by = row
    fold = fold_from_bytes(fold_id, start, stop, body)
    return StoredFold(fold, moment(created_at), None if undone_at is None else moment(undone_at), bool(sealed))


async def _index(tx: SqlTransaction, row: ConversationRow, number: int, fold: Fold) -> None:
    """Add the summary of a fold to the search index."""
    tokens = fold_tokens(fold, await tx.search_mode())
    if tokens:
        await tx.write_tokens(row.conversation, (row.number << KEY_SHIFT) + FIRST_FOLD_POSITION + number, tokens)
