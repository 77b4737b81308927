"""Loading: the few rows that are asked for, found by their place."""

import apsw

from minutebook.store.backend import LoadQuery
from minutebook.store.rules import gaps, merged
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite import folds as sqlite_folds
from minutebook.store.sqlite.headers import Filed
from minutebook.store.types import Loaded


class TakesLong(Exception):
    """There is more to read than the caller's own thread should."""


def load(db: apsw.Connection, filed: Filed, query: LoadQuery, *, most: int | None = None) -> Loaded:
    """A part of a conversation, read in the transaction that found it.

    Raises:
        TakesLong: it has more than `most` entries.
    """
    header = filed.conversation
    start = max(header.first, _start(db, filed, query))
    stop = header.length if query.limit is None else min(start + query.limit, header.length)
    pins = sqlite_folds.pins(db, filed)
    if query.folded:
        folds = sqlite_folds.standing(db, filed, 0, header.length)
        wanted = merged([range(header.first, header.lead), *_pinned(db, filed, pins), range(start, stop)])
        parts = [gap for part in wanted for gap in gaps(folds, part.start, part.stop)]
    else:
        folds = sqlite_folds.standing(db, filed, start, stop)
        parts = [range(start, stop)]
    if most is not None and sum(map(len, parts)) > most:
        raise TakesLong
    positions, entries = sqlite_entries.read(
        db, (span for part in parts for span in filed.spans(part.start, part.stop))
    )
    return Loaded(header, start, tuple(entries), tuple(positions), tuple(folds), pins)


def _start(db: apsw.Connection, filed: Filed, query: LoadQuery) -> int:
    header = filed.conversation
    if query.last_turns is not None:
        if query.last_turns == 0:
            return header.length
        return 0 if query.last_turns >= header.turns else sqlite_entries.turn_start(db, filed, query.last_turns)
    if query.last_messages is not None:
        at = max(header.first, header.length - query.last_messages)
        return sqlite_entries.exchange_start(db, filed, at) if at < header.length else at
    return min(query.since or 0, header.length)


def _pinned(db: apsw.Connection, filed: Filed, pins: frozenset[int]) -> list[range]:
    """The exchanges that pinned entries belong to."""
    return [
        range(sqlite_entries.exchange_start(db, filed, pin), sqlite_entries.exchange_stop(db, filed, pin))
        for pin in pins
    ]
