"""A conversation as a whole: loading, trimming, purging, forking, erasing.

A fork reads what it shares where it is stored. So before an entry is trimmed, whoever else reads it is given copies of all
that it shares: as much work as there is to copy, done once for each fork.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import uuid4

from minutebook.errors import VersionConflict
from minutebook.record.message import Message, MessageRole
from minutebook.store.backend import LoadQuery
from minutebook.store.codec import Packed, microseconds, pack
from minutebook.store.rules import gaps, merged, require_cut, require_position, require_purge, tombstone, trimmed
from minutebook.store.sql import entries, folds, headers
from minutebook.store.sql.transaction import ConversationRow, Query, SqlTransaction, TakesLong
from minutebook.store.types import Conversation, Loaded, Origin, Receipt

STEP: Final = 500
"""How many entries are copied at a time."""
FOR_RECIPIENT: Final = "((recipient = ? AND recipient <> id) OR (id = ? AND recipient = id))"
"""Takes a recipient twice. What has none but itself is found by its id; the index of recipients has the others."""


async def load(tx: SqlTransaction, query: LoadQuery) -> Loaded:
    """A part of a conversation, in as few round trips as possible.

    Raises:
        TakesLong: it has more entries than this transaction should read.
    """
    rows, pinned = await tx.rows_of(headers.by_id(tx, query.conversation), folds.pins_query(tx, query.conversation))
    row = headers.row_of(rows[0]) if rows else await headers.get(tx, query.conversation)
    header, pins = row.conversation, frozenset(position for (position,) in pinned)
    start = max(header.first, await _start(tx, row, query))
    stop = header.length if query.limit is None else min(start + query.limit, header.length)
    if query.folded:
        shown = await folds.standing(tx, row, 0, header.length)
        exchanges = [await _exchange(tx, row, pin) for pin in pins]
        wanted = merged([range(header.first, header.lead), *exchanges, range(start, stop)])
        parts = [gap for part in wanted for gap in gaps(shown, part.start, part.stop)]
        answers = await tx.rows_of(*_reads(tx, row, parts))
    else:
        folded, *answers = await tx.rows_of(
            folds.standing_query(row, start, stop), *_reads(tx, row, [range(start, stop)])
        )
        shown = folds.touching([folded], stop)
    positions, found = await tx.unpack(answers)
    return Loaded(header, start, tuple(found), tuple(positions), tuple(shown), pins)


def _reads(tx: SqlTransaction, row: ConversationRow, parts: list[range]) -> list[Query]:
    if tx.most_entries is not None and sum(map(len, parts)) > tx.most_entries:
        raise TakesLong
    return [tx.entry_query(span) for part in parts for span in row.spans(part.start, part.stop)]


async def _start(tx: SqlTransaction, row: ConversationRow, query: LoadQuery) -> int:
    header = row.conversation
    if query.last_turns is not None:
        if query.last_turns == 0:
            return header.length
        return 0 if query.last_turns >= header.turns else await entries.turn_start(tx, row, query.last_turns)
    if query.last_messages is not None:
        at = max(header.first, header.length - query.last_messages)
        return await entries.exchange_start(tx, row, at) if at < header.length else at
    return min(query.since or 0, header.length)


async def _exchange(tx: SqlTransaction, row: ConversationRow, position: int) -> range:
    """The exchange that an entry belongs to."""
    return range(await entries.exchange_start(tx, row, position), await entries.exchange_stop(tx, row, position))


async def trim(tx: SqlTransaction, row: ConversationRow, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed."""
    smaller: dict[int, Packed] = {}
    for at, message in changes.items():
        _, found = await entries.read(tx, [row.span(require_position(row.conversation, at))])
        change = trimmed(found[0], message, at)
        if change is not None:
            smaller[at] = change[0]
    if not smaller:
        return 0
    first = min(smaller)
    for fork, stop in await _readers(tx, row):
        if first < stop:
            await _unshare(tx, fork)
    if first < row.own:
        row = await _unshare(tx, row)
    for at, packed in smaller.items():
        turns = await entries.turns_before(tx, row, at + 1) - (packed.role is MessageRole.USER)
        await tx.replace_entry(row, at, turns, packed)
    return len(smaller)


async def purge(tx: SqlTransaction, row: ConversationRow, before: int) -> int:
    """Delete entries that folds stand for; those that a fork reads stay for it, out of this conversation's sight."""
    header = row.conversation
    shown = await folds.standing(tx, row, 0, max(0, min(before, header.length)))
    await folds.seal(tx, row, require_purge(header, before, shown))
    count = max(0, before - header.first)
    if not count:
        return 0
    start = max(row.own, *(stop for _, stop in await _readers(tx, row)), 0)
    if start < before:
        await tx.delete_entries(row, start, before)
    await tx.put("DELETE FROM pin WHERE conversation = ? AND position < ?", row.number, before)
    await tx.put("UPDATE conversation SET first = ? WHERE number = ?", before, row.number)
    return count


async def fork(tx: SqlTransaction, row: ConversationRow, new_id: str, at: int | None, when: datetime) -> Conversation:
    """A conversation that reads what it shares where it is stored: nothing is copied but folds and pins."""
    header = row.conversation
    taken = await headers.find(tx, new_id)
    if taken is not None:
        raise VersionConflict(new_id, taken.conversation.version, 0)
    cut = require_cut(header, at, splits=at is not None and await entries.splits(tx, row, at))
    whole = cut == header.length
    lineage = [(number, min(stop, cut)) for number, stop in row.lineage]
    if cut > row.own:
        lineage.append((row.number, cut))
    new = Conversation(
        *(header.tenant, new_id, header.recipient, when, when, when),
        version=1,
        length=cut,
        turns=header.turns if whole else await entries.turns_before(tx, row, cut),
        lead=min(header.lead, cut),
        first=header.first,
        open_calls=header.open_calls if whole else (),
        open_at=header.open_at if whole else None,
        labels=header.labels,
        origin=Origin(header.id, cut),
    )
    await folds.copy(tx, row, await headers.insert(tx, new, origin=row.number, lineage=_stretches(lineage)))
    return new


async def erase(tx: SqlTransaction, conversation: str | None, recipient: str | None, at: datetime) -> Receipt:
    """Delete conversations, their forks and all that belongs to them; leave tombstones, which refuse late writes."""
    rows = await _family(tx, conversation, recipient)
    counts = {"entries": sum(one.conversation.length - one.conversation.first for one in rows), "folds": 0, "pins": 0}
    if rows:
        await tx.delete_all_entries(rows)
        numbers = [(one.number,) for one in rows]
        keys = [tombstone(tx.tenant, one.conversation.id) for one in rows]
        marks = [(key, microseconds(at)) for key in keys]
        await tx.put_each("INSERT INTO tombstone (id, erased_at) VALUES (?, ?)", marks)
        counts["folds"] = await tx.put_each("DELETE FROM fold WHERE conversation = ?", numbers)
        counts["pins"] = await tx.put_each("DELETE FROM pin WHERE conversation = ?", numbers)
        await tx.put_each("DELETE FROM answer WHERE conversation = ?", numbers)
        await tx.put_each("DELETE FROM document WHERE conversation = ?", numbers)
        await tx.put_each("DELETE FROM lease WHERE id = ?", [(key,) for key in keys])
        await tx.put_each("DELETE FROM conversation WHERE number = ?", numbers)
    return Receipt(str(uuid4()), at, conversations=len(rows), **counts)


async def _family(tx: SqlTransaction, conversation: str | None, recipient: str | None) -> list[ConversationRow]:
    """The named conversations, their forks, the forks of those and so on; once one is locked, nobody forks it."""
    where, values = ("id = ?", [conversation]) if recipient is None else (FOR_RECIPIENT, [recipient, recipient])
    named = await tx.rows(f"{headers.SELECT} AND {where} ORDER BY number{tx.FOR_UPDATE}", tx.tenant, *values)
    found = {one.number: one for one in map(headers.row_of, named)}
    return list((found | await _forks(tx, found)).values())


async def _forks(tx: SqlTransaction, rows: Iterable[int]) -> dict[int, ConversationRow]:
    """The forks of conversations, by number, the forks of those and so on."""
    query = f"{headers.SELECT} AND origin = ? ORDER BY number{tx.FOR_UPDATE}"
    found: dict[int, ConversationRow] = {}
    level = list(rows)
    while level:
        answers = await tx.rows_of(*((query, (tx.tenant, number)) for number in level))
        level_rows = [headers.row_of(row) for answer in answers for row in answer]
        level = [one.number for one in level_rows if one.number not in found]
        found.update((one.number, one) for one in level_rows)
    return found


async def _readers(tx: SqlTransaction, row: ConversationRow) -> list[tuple[ConversationRow, int]]:
    """The forks, and forks of forks, that read this conversation's own entries, and up to which position."""
    forks = (await _forks(tx, [row.number])).values()
    return [(fork, stop) for fork in forks for number, stop in fork.lineage if number == row.number]


async def _unshare(tx: SqlTransaction, fork: ConversationRow) -> ConversationRow:
    """Give a fork copies of all that it reads from others."""
    first, own = fork.conversation.first, fork.own
    for start in range(first, own, STEP):
        stop = min(start + STEP, own)
        _, found = await entries.read(tx, fork.spans(start, stop))
        turns = await entries.turns_before(tx, fork, start + 1) - (found[0].role is MessageRole.USER)
        await tx.write_entries(fork, start, turns, [pack(one)[0] for one in found])
    if first < own:
        await tx.index(fork, first, own)
    await tx.put("UPDATE conversation SET lineage = NULL WHERE number = ?", fork.number)
    return ConversationRow(fork.number, fork.conversation, (), fork.indexed)


def _stretches(lineage: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The stretches that are not empty once a fork has left earlier."""
    kept: list[tuple[int, int]] = []
    for number, stop in lineage:
        if stop > (kept[-1][1] if kept else 0):
            kept.append((number, stop))
    return tuple(kept)
