"""Folds, and the purging that they allow. Which folds stand is written down, so that a load reads no others."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.store.codec import fold_from_bytes, fold_to_bytes
from minutebook.store.redis.connection import Value
from minutebook.store.redis.rows import Filed, fold_of, fold_record
from minutebook.store.redis.tenant import Shelf
from minutebook.store.rules import folds_in_range, require_fold, require_purge, require_same_fold, visible_folds
from minutebook.store.types import StoredFold

Numbered = dict[int, StoredFold]


async def every(shelf: Shelf, conversation: str) -> tuple[Filed, Numbered]:
    """A conversation and all of its folds, by their number, in the order in which they were added."""
    reply = await shelf.ask("list_folds", conversation)
    return shelf.filed(conversation, reply[1]), numbered(reply[2])


def numbered(flat: Sequence[bytes]) -> Numbered:
    """Folds as a script returned them."""
    found = {int(flat[at]): fold_of(flat[at + 1]) for at in range(0, len(flat), 2)}
    return dict(sorted(found.items()))


async def add(shelf: Shelf, conversation: str, fold: Fold, replacing: Iterable[str] | None, at: datetime) -> StoredFold:
    """Add a fold where it may stand."""
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, fold_to_bytes(fold))
    while True:
        reply = await shelf.ask("load_exchange", conversation, fold.id, fold.start, fold.stop)
        filed, number = shelf.filed(conversation, reply[1]), int(reply[3])
        if reply[2]:
            return require_same_fold(conversation, fold_of(reply[2]), fold)
        by_id = {fold_of(record).fold.id: int(at) for at, record in zip(reply[4], reply[5], strict=True)}
        others = sorted((fold_of(record).fold for record in reply[5]), key=lambda other: other.start)
        near = folds_in_range(others, fold.start, min(fold.stop, filed.conversation.length))
        covered = require_fold(filed.conversation, fold, near=near, splits=bool(reply[6]), replacing=replacing)
        stored = StoredFold(fold, at)
        lying = [by_id[other.id] for other in covered]
        if await _marked(shelf, filed, {number: stored}, lying, {number: fold.start}):
            return stored


async def undo(shelf: Shelf, conversation: str, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold undone; what stands then is found out from all of them."""
    while True:
        filed, folds = await every(shelf, conversation)
        number = next((number for number, one in folds.items() if one.fold.id == fold_id), None)
        if number is None:
            raise FoldNotFound(conversation, fold_id)
        stored = folds[number]
        if stored.sealed:
            raise FoldConflict(conversation, fold_id, "covers entries that were purged, and cannot be undone")
        if stored.undone_at is not None:
            return stored
        folds[number] = stored = replace(stored, undone_at=at)
        stands = standing_numbers(folds)
        if await _marked(shelf, filed, {number: stored}, [number], stands):
            return stored


async def purge(shelf: Shelf, conversation: str, before: int) -> int:
    """Delete the entries that folds stand for; a fork has copies of its own."""
    while True:
        filed, folds = await every(shelf, conversation)
        header = filed.conversation
        stands = visible_folds(one.fold for one in folds.values() if one.undone_at is None)
        covering = {fold.id for fold in require_purge(header, before, stands)}
        gone = max(0, before - header.first)
        if not gone:
            return 0
        sealed = {number: replace(one, sealed=True) for number, one in folds.items() if one.fold.id in covering}
        if await _marked(shelf, filed, sealed, (), {}, before=before):
            return gone


def standing_numbers(folds: Numbered) -> dict[int, int]:
    """The folds that stand: number → where it begins."""
    by_id = {one.fold.id: number for number, one in folds.items()}
    return {
        by_id[fold.id]: fold.start for fold in visible_folds(one.fold for one in folds.values() if not one.undone_at)
    }


def written(folds: Numbered) -> list[Value]:
    """Folds as the scripts take them."""
    records = [part for number, one in folds.items() for part in (number, one.fold.id, fold_record(one))]
    return [len(folds), *records]


def standing_args(stands: dict[int, int]) -> list[Value]:
    return [len(stands), *(part for pair in stands.items() for part in pair)]


async def _marked(
    shelf: Shelf,
    filed: Filed,
    folds: Numbered,
    lying: Sequence[int],
    stands: dict[int, int],
    *,
    before: int | None = None,
) -> bool:
    """Write it, unless a fold came or went since `filed` was read."""
    facts: list[Value] = [filed.nonce, filed.marks, "" if before is None else before]
    args = [*facts, *written(folds), len(lying), *lying, *standing_args(stands)]
    reply = await shelf.ask("set_standing_folds", filed.conversation.id, *args)
    if before is not None:
        shelf.engine.known.pop((shelf.tenant, filed.conversation.id), None)
    return bool(reply[0] == b"done")
