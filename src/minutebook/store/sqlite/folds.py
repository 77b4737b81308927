"""Folds and pins as rows. Which folds stand is written down, so that reading them costs no more than they are."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import apsw

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.store.codec import fold_from_bytes, fold_to_bytes, microseconds, moment
from minutebook.store.rules import require_fold, same_fold
from minutebook.store.sqlite.entries import splits
from minutebook.store.sqlite.headers import Filed, rows
from minutebook.store.types import StoredFold

_COLUMNS: Final = "number, id, start, stop, body, created_at, undone_at, sealed, covered_by"
_STANDING: Final = (
    "SELECT id, start, stop, body FROM fold INDEXED BY fold_standing"
    " WHERE conversation = ? AND undone_at IS NULL AND covered_by IS NULL AND start < ?"
)


def every(db: apsw.Connection, filed: Filed) -> tuple[StoredFold, ...]:
    """Every fold of a conversation, in the order in which they were added."""
    query = f"SELECT {_COLUMNS} FROM fold WHERE conversation = ? ORDER BY number"  # noqa: S608 - a constant
    return tuple(_stored(row) for row in rows(db, query, (filed.number,)))


def standing(db: apsw.Connection, filed: Filed, start: int, stop: int) -> list[Fold]:
    """The standing folds that touch a range, by their place.

    They do not overlap, so they end in the order in which they begin: read from the right, the first that ends before
    the range is the last that need be read.
    """
    found: list[Fold] = []
    for name, begin, end, body in db.execute(f"{_STANDING} ORDER BY start DESC", (filed.number, stop)):
        if end <= start:
            break
        found.append(fold_from_bytes(name, begin, end, body))
    return found[::-1]


def add(db: apsw.Connection, filed: Filed, fold: Fold, replacing: Iterable[str] | None, at: datetime) -> StoredFold:
    """Add a fold, and note which others it takes the place of."""
    body = fold_to_bytes(fold)
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, body)
    known = _find(db, filed, fold.id)
    if known is not None:
        return same_fold(filed.conversation.id, _stored(known), fold)
    near = standing(db, filed, fold.start, min(fold.stop, filed.conversation.length))
    cuts = splits(db, filed, fold.start) or splits(db, filed, fold.stop)
    covered = require_fold(filed.conversation, fold, near=near, splits=cuts, replacing=replacing)
    last = db.execute("SELECT max(number) FROM fold WHERE conversation = ?", (filed.number,)).get
    number = 0 if last is None else last + 1
    db.executemany(
        "UPDATE fold SET covered_by = ? WHERE conversation = ? AND id = ?",
        [(number, filed.number, other.id) for other in covered],
    )
    stored = StoredFold(fold, at)
    _insert(db, filed.number, number, stored, None, body)
    return stored


def undo(db: apsw.Connection, filed: Filed, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold undone; those it covered stand again, or are covered by what covered it."""
    row = _find(db, filed, fold_id)
    if row is None:
        raise FoldNotFound(filed.conversation.id, fold_id)
    stored = _stored(row)
    if stored.sealed:
        raise FoldConflict(filed.conversation.id, fold_id, "covers entries that were purged, and cannot be undone")
    if stored.undone_at is not None:
        return stored
    number, covered_by = row[0], row[8]
    db.execute(
        "UPDATE fold SET covered_by = ? WHERE conversation = ? AND covered_by = ?", (covered_by, filed.number, number)
    )
    db.execute(
        "UPDATE fold SET undone_at = ? WHERE conversation = ? AND number = ?", (microseconds(at), filed.number, number)
    )
    return replace(stored, undone_at=at)


def seal(db: apsw.Connection, filed: Filed, folds: Iterable[Fold]) -> None:
    """Mark folds whose entries were purged."""
    sealed = [(filed.number, fold.id) for fold in folds]
    db.executemany("UPDATE fold SET sealed = 1 WHERE conversation = ? AND id = ?", sealed)


def copy(db: apsw.Connection, filed: Filed, fork: Filed) -> None:
    """Give a fork the folds that lie within what it shares; one whose cover stays behind stands again."""
    folds = rows(
        db,
        f"SELECT {_COLUMNS} FROM fold WHERE conversation = ? AND undone_at IS NULL AND stop <= ? ORDER BY number",  # noqa: S608 - a constant
        (filed.number, fork.conversation.length),
    )
    there = {row[0] for row in folds}
    for row in folds:
        covered_by = row[8] if row[8] in there else None
        _insert(db, fork.number, row[0], _stored(row), covered_by, row[4])


def pins(db: apsw.Connection, filed: Filed) -> frozenset[int]:
    return frozenset(at for (at,) in rows(db, "SELECT position FROM pin WHERE conversation = ?", (filed.number,)))


def _find(db: apsw.Connection, filed: Filed, fold_id: str) -> tuple[Any, ...] | None:
    found: tuple[Any, ...] | None = db.execute(
        f"SELECT {_COLUMNS} FROM fold WHERE conversation = ? AND id = ?",  # noqa: S608 - a constant
        (filed.number, fold_id),
    ).fetchone()
    return found


def _insert(
    db: apsw.Connection, conversation: int, number: int, stored: StoredFold, covered_by: int | None, body: bytes
) -> None:
    fold = stored.fold
    known = (number, fold.id, fold.start, fold.stop, body, microseconds(stored.created_at), None)
    db.execute(
        f"INSERT INTO fold (conversation, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608 - a constant
        (conversation, *known, stored.sealed, covered_by),
    )


def _stored(row: tuple[Any, ...]) -> StoredFold:
    _number, name, start, stop, body, created_at, undone_at, sealed, _covered_by = row
    return StoredFold(
        fold_from_bytes(name, start, stop, body),
        moment(created_at),
        None if undone_at is None else moment(undone_at),
        bool(sealed),
    )
