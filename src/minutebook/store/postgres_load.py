"""Loading: the few rows that are asked for, found by their place."""

from minutebook.store import postgres_entries, postgres_folds, postgres_rows
from minutebook.store.postgres_rows import Filed
from minutebook.store.postgres_work import Work
from minutebook.store.rules import gaps, merged
from minutebook.store.types import Loaded


async def load(
    work: Work,
    conversation: str,
    last_turns: int | None,
    last_messages: int | None,
    since: int | None,
    limit: int | None,
    *,
    folded: bool,
) -> Loaded:
    """A part of a conversation, on one snapshot, with as few questions as it takes."""
    filed, pins = await _found(work, conversation)
    header = filed.conversation
    start = max(header.first, await _start(work, filed, last_turns, last_messages, since))
    stop = header.length if limit is None else min(start + limit, header.length)
    if folded:
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


async def _start(work: Work, filed: Filed, last_turns: int | None, last_messages: int | None, since: int | None) -> int:
    header = filed.conversation
    if last_turns is not None:
        if last_turns == 0:
            return header.length
        return 0 if last_turns >= header.turns else await postgres_entries.turn_start(work, filed, last_turns)
    if last_messages is not None:
        at = max(header.first, header.length - last_messages)
        return await postgres_entries.exchange_start(work, filed, at) if at < header.length else at
    return min(since or 0, header.length)


async def _exchange(work: Work, filed: Filed, position: int) -> range:
    """The exchange that an entry belongs to."""
    start = await postgres_entries.exchange_start(work, filed, position)
    return range(start, await postgres_entries.exchange_stop(work, filed, position))
