"""Loading: the few rows that are asked for, found by their place, on one snapshot."""

from minutebook.store.backend import LoadQuery
from minutebook.store.rules import gaps, merged
from minutebook.store.sql import entries, folds, headers
from minutebook.store.sql.transaction import ConversationRow, SqlTransaction, TakesLong
from minutebook.store.types import Loaded


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


def _reads(tx: SqlTransaction, row: ConversationRow, parts: list[range]) -> list[tuple[str, tuple[object, ...]]]:
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
