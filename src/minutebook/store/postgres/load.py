"""Loading: the few rows that are asked for, found by their place.

Trimming single entries, where others may read the same rows.

A fork reads what it shares where it stands. So before a row is changed, whoever else reads it is given copies, of all
that it shares: as much work as there is to copy, done once for each fork.
"""

from collections.abc import Mapping
from typing import Final

from minutebook.record.message import Message, MessageRole
from minutebook.store.backend import LoadQuery
from minutebook.store.codec import Packed, pack
from minutebook.store.postgres import entries as postgres_entries
from minutebook.store.postgres import folds as postgres_folds
from minutebook.store.postgres import headers as postgres_rows
from minutebook.store.postgres import search as postgres_words
from minutebook.store.postgres.connection import Work
from minutebook.store.postgres.entries import Kept, Rows
from minutebook.store.postgres.headers import COLUMNS, Filed, filed
from minutebook.store.rules import gaps, merged, require_position, trimmed
from minutebook.store.types import Loaded


async def load(work: Work, query: LoadQuery) -> Loaded:
    """A part of a conversation, on one snapshot, with as few questions as it takes."""
    filed, pins = await _found(work, query.conversation)
    header = filed.conversation
    start = max(header.first, await _start(work, filed, query))
    stop = header.length if query.limit is None else min(start + query.limit, header.length)
    if query.folded:
        folds = await postgres_folds.standing(work, filed, 0, header.length)
        pinned = [await _exchange(work, filed, pin) for pin in pins]
        wanted = merged([range(header.first, header.lead), *pinned, range(start, stop)])
        parts = [gap for part in wanted for gap in gaps(folds, part.start, part.stop)]
        spans = [span for part in parts for span in filed.spans(part.start, part.stop)]
        positions, entries = await postgres_entries.read(work, spans)
    else:
        reads = [postgres_entries.reading(work.tenant, span) for span in filed.spans(start, stop)]
        rows, *answers = await work.ask(postgres_folds.standing_in(filed, start, stop), *reads)
        folds = postgres_folds.folds_of(rows)
        positions, entries = await postgres_entries.unpacked(work, answers)
    return Loaded(header, start, tuple(entries), tuple(positions), tuple(folds), pins)


async def _found(work: Work, conversation: str) -> tuple[Filed, frozenset[int]]:
    rows, pins = await work.ask(
        postgres_rows.lookup(work.tenant, conversation), postgres_folds.pins_of(work.tenant, conversation)
    )
    filed = postgres_rows.filed(rows[0]) if rows else await postgres_rows.found(work, conversation)
    return filed, frozenset(position for (position,) in pins)


async def _start(work: Work, filed: Filed, query: LoadQuery) -> int:
    header = filed.conversation
    if query.last_turns is not None:
        if query.last_turns == 0:
            return header.length
        return (
            0 if query.last_turns >= header.turns else await postgres_entries.turn_start(work, filed, query.last_turns)
        )
    if query.last_messages is not None:
        at = max(header.first, header.length - query.last_messages)
        return await postgres_entries.exchange_start(work, filed, at) if at < header.length else at
    return min(query.since or 0, header.length)


async def _exchange(work: Work, filed: Filed, position: int) -> range:
    """The exchange that an entry belongs to."""
    start = await postgres_entries.exchange_start(work, filed, position)
    return range(start, await postgres_entries.exchange_stop(work, filed, position))


STEP: Final = 500
"""How many entries are copied at a time."""
_FORKS: Final = (
    f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND origin = ANY(%s::bigint[])"  # noqa: S608 - a constant
    " ORDER BY number FOR UPDATE"
)


async def trim(work: Work, one: Filed, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed."""
    less: dict[int, Packed] = {}
    for at, message in changes.items():
        number = one.holder(require_position(one.conversation, at))
        _, entries = await postgres_entries.read(work, [(number, at, at + 1)])
        made = trimmed(entries[0], message, at)
        if made is not None:
            less[at] = made[0]
    if not less:
        return 0
    first = min(less)
    for fork, stop in await readers(work, one):
        if first < stop:
            await _unshare(work, fork)
    if first < one.own:
        one = await _unshare(work, one)
    for at, packed in less.items():
        await _rewrite(work, one, at, packed)
    return len(less)


async def readers(work: Work, one: Filed) -> list[tuple[Filed, int]]:
    """The forks, and forks of forks, that read entries of this conversation's own, and up to which position."""
    found: list[tuple[Filed, int]] = []
    level = [one.number]
    while level:
        forks = [filed(row) for row in await work.rows(_FORKS, work.tenant, level)]
        found += [(fork, stop) for fork in forks for number, stop in fork.lineage if number == one.number]
        level = [fork.number for fork in forks]
    return found


async def _unshare(work: Work, fork: Filed) -> Filed:
    """Give a fork copies of all that it reads from others."""
    header = fork.conversation
    start = header.first
    while start < fork.own:
        stop = min(start + STEP, fork.own)
        _, entries = await postgres_entries.read(work, fork.spans(start, stop))
        turns = await postgres_entries.turns_before(work, fork, start + 1) - (entries[0].role is MessageRole.USER)
        packed = [pack(entry)[0] for entry in entries]
        rows = Rows()
        rows.add(fork.number, start, turns, packed, [Kept(entry) for entry in packed])
        await rows.write(work)
        start = stop
    if header.first < fork.own:
        await postgres_words.index(work, fork, header.first, fork.own)
    change = "UPDATE minutebook.conversation SET lineage = NULL WHERE tenant = %s AND number = %s"
    await work.put(change, work.tenant, fork.number)
    return Filed(fork.number, header, (), fork.indexed)


async def _rewrite(work: Work, one: Filed, at: int, packed: Packed) -> None:
    """Put another message in the place of one; what it used goes with it."""
    turns = await postgres_entries.turns_before(work, one, at + 1)  # itself is no user message
    await postgres_entries.delete(work, [one.number], at, at + 1)
    rows = Rows()
    rows.add(one.number, at, turns, [packed], [Kept(packed)])
    await rows.write(work)
    await postgres_words.renew(work, one, at)
