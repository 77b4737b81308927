"""Folds and purging. The numbers of the active folds are stored, so that a load reads no others."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from minutebook.errors import FoldConflict, FoldNotFound
from minutebook.record.fold import Fold
from minutebook.record.message import MessageRole
from minutebook.store.codec import fold_from_bytes, fold_to_bytes
from minutebook.store.redis.connection import Value
from minutebook.store.redis.rows import ROLE_LETTERS, HeaderRow, append_fields, fold_from_record, fold_record, pairs_of
from minutebook.store.redis.tenant import TenantIndex
from minutebook.store.rules import (
    SEALED,
    EndOfSystem,
    fold_to_undo,
    folds_in_range,
    header_with_rewinds,
    new_fold,
    require_fold,
    require_purge,
    require_rewind,
    require_same_fold,
    rewind_fold,
    visible_folds,
)
from minutebook.store.types import ConversationHeader, StoredFold

NumberedFolds: TypeAlias = dict[int, StoredFold]
"""Number → fold, in the order in which the folds were added."""
ActiveStarts: TypeAlias = dict[int, int]
"""Number of an active fold → its start."""


async def get_all(index: TenantIndex, conversation: str) -> tuple[HeaderRow, NumberedFolds]:
    """A conversation and all its folds, undone ones too."""
    reply = await index.run_script("list_folds", conversation)
    return index.row(conversation, reply[1]), numbered_folds(reply[2])


def numbered_folds(flat: Sequence[bytes]) -> NumberedFolds:
    """Decode folds as a script returns them."""
    folds = {int(number): fold_from_record(record) for number, record in pairs_of(flat).items()}
    return dict(sorted(folds.items()))


async def add(
    index: TenantIndex, conversation: str, fold: Fold, replacing: Iterable[str] | None, at: datetime
) -> StoredFold:
    """Add a fold, which replaces the active folds that it covers."""
    fold = fold_from_bytes(fold.id, fold.start, fold.stop, fold_to_bytes(fold))
    while True:
        reply = await index.run_script("load_fold_range", conversation, fold.id, fold.start, fold.stop)
        row = index.row(conversation, reply[1])
        same_id_record, new_number, numbers, records, splits_an_exchange = reply[2:]
        if same_id_record:
            return require_same_fold(conversation, fold_from_record(same_id_record), fold)
        fold_numbers = {
            fold_from_record(record).fold: int(number) for number, record in zip(numbers, records, strict=True)
        }
        by_start = sorted(fold_numbers, key=lambda other: other.start)
        overlapping = folds_in_range(by_start, fold.start, min(fold.stop, row.conversation.length))
        replaced_folds = require_fold(
            row.conversation,
            fold,
            overlapping=overlapping,
            splits_an_exchange=bool(splits_an_exchange),
            replacing=replacing,
        )
        stored = new_fold(row.conversation, fold, at)
        inactive_numbers = [fold_numbers[replaced] for replaced in replaced_folds]
        header = None
        if fold.is_rewind:
            _, folds = await get_all(index, conversation)
            header = await _header_with_rewinds(index, row, folds | {new_number: stored})
        if await _write(index, row, {new_number: stored}, inactive_numbers, {new_number: fold.start}, header=header):
            return stored


async def undo(index: TenantIndex, conversation: str, fold_id: str, at: datetime) -> StoredFold:
    """Mark a fold as undone. The folds that are active then are computed from all folds."""
    while True:
        row, folds = await get_all(index, conversation)
        number = next((number for number, stored in folds.items() if stored.fold.id == fold_id), None)
        if number is None:
            raise FoldNotFound(conversation, fold_id)
        stored = folds[number]
        if stored.sealed:
            raise FoldConflict(conversation, fold_id, SEALED, "it can no longer be undone")
        if stored.undone_at is not None:
            return stored
        folds[number] = stored = replace(stored, undone_at=at)
        header = await _header_with_rewinds(index, row, folds) if stored.fold.is_rewind else None
        if await _write(index, row, {number: stored}, [number], active_starts(folds), header=header):
            return stored


async def purge(index: TenantIndex, conversation: str, before: int) -> int:
    """Delete the entries before a position, which folds cover; return their number. Forks have their own copies."""
    while True:
        row, folds = await get_all(index, conversation)
        header = row.conversation
        covering = {fold.id for fold in require_purge(header, before, _active_folds(folds))}
        count = max(0, before - header.first)
        if not count:
            return 0
        sealed = {
            number: replace(stored, sealed=True) for number, stored in folds.items() if stored.fold.id in covering
        }
        if await _write(index, row, sealed, (), {}, purged_before=before):
            return count


async def rewind(
    index: TenantIndex, conversation: str, to: int, expected_version: int | None, reason: str, at: datetime
) -> ConversationHeader:
    """Hide the entries from a position on by a fold that shows nothing; return the new header."""
    async with index.engine.append_lock(index.tenant, conversation):
        while True:
            reply = await index.run_script("load_fork_point", conversation, to)
            row, folds = index.row(conversation, reply[1]), numbered_folds(reply[4])
            header = row.conversation
            require_rewind(header, to, expected_version, splits_an_exchange=bool(reply[2]))
            if to == header.length:
                return header
            changed: NumberedFolds = {}
            while fold := fold_to_undo(_active_folds(folds), to, header.first):
                undone = next(number for number, stored in folds.items() if stored.fold is fold)
                if folds[undone].sealed:
                    raise FoldConflict(conversation, fold.id, SEALED, "it can no longer be undone")
                folds[undone] = changed[undone] = replace(folds[undone], undone_at=at)
            number = max(folds, default=-1) + 1
            folds[number] = changed[number] = new_fold(header, rewind_fold(header, to, reason), at)
            active = active_starts(folds)
            after = replace(await _header_with_rewinds(index, row, folds), updated_at=at)
            inactive = [other for other in folds if other not in active]
            if await _write(index, row, changed, inactive, active, header=after, unpinned_from=to):
                return after


async def _header_with_rewinds(index: TenantIndex, row: HeaderRow, folds: NumberedFolds) -> ConversationHeader:
    """The header after the rewinds among these folds have changed."""
    end_of_system = await read_end_of_system(index, row, row.conversation.length)
    return await header_with_rewinds(row.conversation, folds.values(), end_of_system)


async def read_end_of_system(index: TenantIndex, row: HeaderRow, length: int) -> EndOfSystem:
    """Read the roles of the first entries, to find where system messages end in them."""
    reply = await index.run_script("get_roles", row.conversation.id, row.nonce)
    roles = reply[1][:length] if reply[0] == b"done" else b""  # else the write is a conflict too

    async def end_of_system(position: int) -> int:
        following = roles[position:].lstrip(ROLE_LETTERS[MessageRole.SYSTEM].encode())
        return len(roles) - len(following)

    return end_of_system


def _active_folds(folds: NumberedFolds) -> list[Fold]:
    return visible_folds(stored.fold for stored in folds.values() if stored.undone_at is None)


def active_starts(folds: NumberedFolds) -> ActiveStarts:
    by_id = {stored.fold.id: number for number, stored in folds.items()}
    return {by_id[fold.id]: fold.start for fold in _active_folds(folds)}


def fold_args(folds: NumberedFolds) -> list[Value]:
    """Folds as arguments of a script."""
    records = [part for number, stored in folds.items() for part in (number, stored.fold.id, fold_record(stored))]
    return [len(folds), *records]


def active_args(active: ActiveStarts) -> list[Value]:
    """Active folds as arguments of a script."""
    return [len(active), *(part for pair in active.items() for part in pair)]


async def _write(
    index: TenantIndex,
    row: HeaderRow,
    folds: NumberedFolds,
    inactive: Sequence[int],
    active: ActiveStarts,
    *,
    purged_before: int | None = None,
    header: ConversationHeader | None = None,
    unpinned_from: int | None = None,
) -> bool:
    """Write folds and which are active; return False if the folds have changed since `row` was read.

    With a new header, also return False if the version has changed. The pins from `unpinned_from` on are removed.
    """
    conversation = row.conversation.id
    fields = [] if header is None else append_fields(header)
    args: list[Value] = [row.nonce, row.fold_changes, "" if purged_before is None else purged_before]
    args += ["" if header is None else row.conversation.version]
    args += ["" if unpinned_from is None else unpinned_from, *fold_args(folds)]
    args += [len(inactive), *inactive, *active_args(active), len(fields), *fields]
    reply = await index.run_script("write_folds", conversation, *args)
    if purged_before is not None or header is not None:
        index.engine.rows.pop((index.tenant, conversation), None)
    return bool(reply[0] == b"done")
