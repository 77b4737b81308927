"""Folds and pins as rows. Which folds stand is stored, so that reading them costs no more than they are."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.store.codec import fold_from_bytes, fold_to_bytes, is_plain, microseconds, moment
from minutebook.store.rules import require_fold, require_position, same_fold
from minutebook.store.sql.entries import splits
from minutebook.store.sql.transaction import ConversationRow, Query, SqlTransaction
from minutebook.store.types import StoredFold, require_name

_COLUMNS: Final = "number, id, start, stop, body, created_at, undone_at, sealed, covered_by"
_SELECT: Final = f"SELECT {_COLUMNS} FROM fold WHERE conversation = ?"  # noqa: S608 - a constant of ours
_STANDS: Final = "conversation = ? AND undone_at IS NULL AND covered_by IS NULL"
_STANDING: Final = f"SELECT id, start, stop, body FROM fold WHERE {_STANDS} AND stop > ? ORDER BY stop LIMIT ?"  # noqa: S608 - a constant of ours
_INSERT: Final = f"INSERT INTO fold (conversation, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant of ours


async def every(tx: SqlTransaction, row: ConversationRow) -> tuple[StoredFold, ...]:
    """Every fold of a conversation, in the order in which they were added."""
    return tuple(map(_stored, await tx.rows(f"{_SELECT} ORDER BY number", row.number)))


async def standing(tx: SqlTransaction, row: ConversationRow, start: int, stop: int) -> list[Fold]:
    """The standing folds that touch a range, by their place."""
    return touching(await tx.rows_of(standing_query(row, start, stop)), stop)


def standing_query(row: ConversationRow, start: int, stop: int) -> Query:
    """The query for the standing folds that touch a range.

    Standing folds do not overlap: they end in the order in which they begin, and a range touches no more of them than
    it has positions.
    """
    return _STANDING, (row.number, start, max(0, stop - start))


def touching(answers: Iterable[Sequence[Any]], stop: int) -> list[Fold]:
    """What was answered to `standing_query`."""
    return [fold_from_bytes(*row) for rows in answers for row in rows if row[1] < stop]


async def add(
    tx: SqlTransaction, row: ConversationRow, fold: Fold, replacing: Sequence[str] | None, at: datetime
) -> StoredFold:
    """Add a fold, and note which others it covers."""
    require_name("fold id", fold.id)
    body = fold_to_bytes(fold)
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, body)
    known = await tx.rows(f"{_SELECT} AND id = ?", row.number, fold.id)
    if known:
        return same_fold(row.conversation.id, _stored(known[0]), fold)
    start, stop = (max(0, min(one, row.conversation.length)) for one in (fold.start, fold.stop))
    near = await standing(tx, row, start, stop)
    cuts = await splits(tx, row, fold.start) or await splits(tx, row, fold.stop)
    require_fold(row.conversation, fold, near=near, splits=cuts, replacing=replacing)
    ((number,),) = await tx.rows("SELECT coalesce(max(number) + 1, 0) FROM fold WHERE conversation = ?", row.number)
    if near:
        cover = f"UPDATE fold SET covered_by = ? WHERE {_STANDS} AND start >= ? AND stop <= ?"  # noqa: S608 - a constant of ours
        await tx.put(cover, number, row.number, fold.start, fold.stop)
    facts = (fold.id, fold.start, fold.stop, body, microseconds(at))
    await tx.put(_INSERT, row.number, number, *facts, None, False, None)
    return StoredFold(fold, at)


async def undo(tx: SqlTransaction, row: ConversationRow, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold undone; those it covered stand again, or are covered by what covers it."""
    found = await tx.rows(f"{_SELECT} AND id = ?", row.number, fold_id) if is_plain(fold_id) else []
    if not found:
        raise FoldNotFound(row.conversation.id, fold_id)
    number, covered_by, stored = found[0][0], found[0][8], _stored(found[0])
    if stored.sealed:
        raise FoldConflict(row.conversation.id, fold_id, "covers entries that were purged, and cannot be undone")
    if stored.undone_at is not None:
        return stored
    uncover = "UPDATE fold SET covered_by = ? WHERE conversation = ? AND covered_by = ?"
    await tx.put(uncover, covered_by, row.number, number)
    undo = "UPDATE fold SET undone_at = ? WHERE conversation = ? AND number = ?"
    await tx.put(undo, microseconds(at), row.number, number)
    return replace(stored, undone_at=at)


async def seal(tx: SqlTransaction, row: ConversationRow, folds: Iterable[Fold]) -> None:
    """Mark folds whose entries were purged."""
    seals = "UPDATE fold SET sealed = true WHERE conversation = ? AND id = ?"
    await tx.put_each(seals, [(row.number, fold.id) for fold in folds])


async def copy(tx: SqlTransaction, row: ConversationRow, fork: ConversationRow) -> None:
    """Give a fork the folds and pins within what it shares; a fold whose cover is not copied stands again."""
    stop = fork.conversation.length
    folds = await tx.rows(f"{_SELECT} AND undone_at IS NULL AND stop <= ? ORDER BY number", row.number, stop)
    copied = {fold[0] for fold in folds}
    await tx.put_each(_INSERT, [(fork.number, *fold[:8], fold[8] if fold[8] in copied else None) for fold in folds])
    await tx.put(
        "INSERT INTO pin (conversation, position) SELECT ?, position FROM pin WHERE conversation = ? AND position < ?",
        *(fork.number, row.number, stop),
    )


async def set_pin(tx: SqlTransaction, row: ConversationRow, position: int, *, pinned: bool) -> None:
    statement = (
        "INSERT INTO pin (conversation, position) VALUES (?, ?) ON CONFLICT DO NOTHING"
        if pinned
        else "DELETE FROM pin WHERE conversation = ? AND position = ?"
    )
    await tx.put(statement, row.number, require_position(row.conversation, position))


def pins_query(tx: SqlTransaction, conversation: str) -> Query:
    """The query for the positions that are pinned in the conversation of that id."""
    query = (
        "SELECT position FROM pin WHERE conversation = (SELECT number FROM conversation WHERE tenant = ? AND id = ?)"
    )
    return query, (tx.tenant, conversation)


def _stored(row: Sequence[Any]) -> StoredFold:
    _number, name, start, stop, body, created_at, undone_at, sealed, _covered_by = row
    fold = fold_from_bytes(name, start, stop, body)
    return StoredFold(fold, moment(created_at), None if undone_at is None else moment(undone_at), bool(sealed))
