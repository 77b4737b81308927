"""Folds and pins as rows. Which folds stand is written down, so that reading them costs no more than they are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.store.codec import fold_from_bytes, fold_to_bytes, is_plain, microseconds, moment
from minutebook.store.postgres.connection import Query, Work
from minutebook.store.postgres.entries import splits
from minutebook.store.postgres.headers import Filed
from minutebook.store.rules import require_fold, same_fold
from minutebook.store.types import StoredFold, require_name

_COLUMNS: Final = "number, id, start, stop, body, created_at, undone_at, sealed, covered_by"
_HERE: Final = "FROM minutebook.fold WHERE tenant = %s AND conversation = %s"
_STANDING: Final = (
    f"SELECT id, start, stop, body {_HERE} AND undone_at IS NULL AND covered_by IS NULL AND start < %s AND stop > %s"
    " ORDER BY start"
)
_CHANGE: Final = "UPDATE minutebook.fold SET"
_WHERE: Final = "WHERE tenant = %s AND conversation = %s"


async def every(work: Work, filed: Filed) -> tuple[StoredFold, ...]:
    """Every fold of a conversation, in the order in which they were added."""
    rows = await work.rows(f"SELECT {_COLUMNS} {_HERE} ORDER BY number", work.tenant, filed.number)
    return tuple(_stored(row) for row in rows)


async def standing(work: Work, filed: Filed, start: int, stop: int) -> list[Fold]:
    """The standing folds that touch a range, by their place."""
    (rows,) = await work.ask(standing_in(filed, start, stop))
    return folds_of(rows)


def standing_in(filed: Filed, start: int, stop: int) -> Query:
    """Asks for the standing folds that touch a range."""
    return _STANDING, (filed.conversation.tenant, filed.number, stop, start)


def folds_of(rows: Iterable[tuple[Any, ...]]) -> list[Fold]:
    """What was answered to `standing_in`."""
    return [fold_from_bytes(name, start, stop, body) for name, start, stop, body in rows]


async def add(work: Work, filed: Filed, fold: Fold, replacing: Iterable[str] | None, at: datetime) -> StoredFold:
    """Add a fold, and note which others it takes the place of."""
    require_name("fold id", fold.id)
    body = fold_to_bytes(fold)
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, body)
    known = await _find(work, filed, fold.id)
    if known is not None:
        return same_fold(filed.conversation.id, _stored(known), fold)
    length = filed.conversation.length
    start, stop = max(0, min(fold.start, length)), max(0, min(fold.stop, length))
    near = await standing(work, filed, start, stop)
    cuts = await splits(work, filed, fold.start) or await splits(work, filed, fold.stop)
    covered = require_fold(filed.conversation, fold, near=near, splits=cuts, replacing=replacing)
    number = (await work.row(f"SELECT coalesce(max(number) + 1, 0) {_HERE}", work.tenant, filed.number))[0]
    if covered:
        names = [other.id for other in covered]
        change = f"{_CHANGE} covered_by = %s {_WHERE} AND id = ANY(%s::text[])"
        await work.put(change, number, work.tenant, filed.number, names)
    stored = StoredFold(fold, at)
    await _insert(work, filed.number, number, stored, None, body)
    return stored


async def undo(work: Work, filed: Filed, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold undone; those it covered stand again, or are covered by what covered it."""
    row = await _find(work, filed, fold_id) if is_plain(fold_id) else None
    if row is None:
        raise FoldNotFound(filed.conversation.id, fold_id)
    stored = _stored(row)
    if stored.sealed:
        raise FoldConflict(filed.conversation.id, fold_id, "covers entries that were purged, and cannot be undone")
    if stored.undone_at is not None:
        return stored
    number, covered_by = row[0], row[8]
    change = f"{_CHANGE} covered_by = %s {_WHERE} AND covered_by = %s"
    await work.put(change, covered_by, work.tenant, filed.number, number)
    change = f"{_CHANGE} undone_at = %s {_WHERE} AND number = %s"
    await work.put(change, microseconds(at), work.tenant, filed.number, number)
    return replace(stored, undone_at=at)


async def seal(work: Work, filed: Filed, folds: Iterable[Fold]) -> None:
    """Mark folds whose entries were purged."""
    names = [fold.id for fold in folds]
    if names:
        change = f"{_CHANGE} sealed = true {_WHERE} AND id = ANY(%s::text[])"
        await work.put(change, work.tenant, filed.number, names)


async def copy(work: Work, filed: Filed, fork: Filed) -> None:
    """Give a fork the folds that lie within what it shares; one whose cover stays behind stands again."""
    await work.put(
        f"WITH kept AS (SELECT {_COLUMNS} {_HERE} AND undone_at IS NULL AND stop <= %s)"  # noqa: S608 - constants
        f" INSERT INTO minutebook.fold (tenant, conversation, {_COLUMNS})"
        " SELECT %s, %s, number, id, start, stop, body, created_at, undone_at, sealed,"
        " CASE WHEN EXISTS (SELECT FROM kept AS cover WHERE cover.number = kept.covered_by) THEN covered_by END FROM kept",
        *(work.tenant, filed.number, fork.conversation.length, work.tenant, fork.number),
    )
    await work.put(
        "INSERT INTO minutebook.pin (tenant, conversation, position) SELECT tenant, %s, position FROM minutebook.pin"
        " WHERE tenant = %s AND conversation = %s AND position < %s",
        *(fork.number, work.tenant, filed.number, fork.conversation.length),
    )


def pins_of(tenant: str, conversation: str) -> Query:
    """Asks for the positions that are pinned in the conversation of that id."""
    query = (
        "SELECT pinned.position FROM minutebook.conversation AS header CROSS JOIN LATERAL ("
        "  SELECT position FROM minutebook.pin WHERE pin.tenant = header.tenant AND pin.conversation = header.number OFFSET 0"
        ") AS pinned WHERE header.tenant = %s AND header.id = %s"
    )
    return query, (tenant, conversation)


async def _find(work: Work, filed: Filed, fold_id: str) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = await work.row(
        f"SELECT {_COLUMNS} {_HERE} AND id = %s", work.tenant, filed.number, fold_id
    )
    return found


async def _insert(
    work: Work, conversation: int, number: int, stored: StoredFold, covered_by: int | None, body: bytes
) -> None:
    fold = stored.fold
    await work.put(
        f"INSERT INTO minutebook.fold (tenant, conversation, {_COLUMNS})"  # noqa: S608 - constants
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *(work.tenant, conversation, number, fold.id, fold.start, fold.stop, body, microseconds(stored.created_at)),
        *(None, stored.sealed, covered_by),
    )


def _stored(row: tuple[Any, ...]) -> StoredFold:
    _number, name, start, stop, body, created_at, undone_at, sealed, _covered_by = row
    return StoredFold(
        fold_from_bytes(name, start, stop, body),
        moment(created_at),
        None if undone_at is None else moment(undone_at),
        sealed,
    )
