"""Loading: the few rows that are asked for, found by their place."""

import apsw

from minutebook.store import sqlite_entries, sqlite_folds
from minutebook.store.rules import gaps, merged
from minutebook.store.sqlite_rows import Filed
from minutebook.store.types import Loaded


def load(
    db: apsw.Connection,
    filed: Filed,
    last_turns: int | None,
    last_messages: int | None,
    since: int | None,
    limit: int | None,
    *,
    folded: bool,
) -> Loaded:
    """A part of a conversation, read in the transaction that found it."""
    header = filed.conversation
    start = max(header.first, _start(db, filed, last_turns, last_messages, since))
    stop = header.length if limit is None else min(start + limit, header.length)
    pins = sqlite_folds.pins(db, filed)
    if folded:
        folds = sqlite_folds.standing(db, filed, 0, header.length)
        wanted = merged([range(header.first, header.lead), *_pinned(db, filed, pins), range(start, stop)])
        parts = [gap for part in wanted for gap in gaps(folds, part.start, part.stop)]
    else:
        folds = sqlite_folds.standing(db, filed, start, stop)
        parts = [range(start, stop)]
    positions, entries = sqlite_entries.read(
        db, (span for part in parts for span in filed.spans(part.start, part.stop))
    )
    return Loaded(header, start, tuple(entries), tuple(positions), tuple(folds), pins)


def _start(
    db: apsw.Connection, filed: Filed, last_turns: int | None, last_messages: int | None, since: int | None
) -> int:
    header = filed.conversation
    if last_turns is not None:
        if last_turns == 0:
            return header.length
        first = header.turns - last_turns + 1
        return 0 if first <= 1 else sqlite_entries.turn_start(db, filed, first)
    if last_messages is not None:
        at = max(header.first, header.length - last_messages)
        return sqlite_entries.exchange_start(db, filed, at) if at < header.length else at
    return min(since or 0, header.length)


def _pinned(db: apsw.Connection, filed: Filed, pins: frozenset[int]) -> list[range]:
    """The exchanges that pinned entries belong to."""
    return [
        range(sqlite_entries.exchange_start(db, filed, pin), sqlite_entries.exchange_stop(db, filed, pin))
        for pin in pins
    ]
