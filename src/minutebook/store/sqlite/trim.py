"""Trimming single entries, where others may read the same rows.

A fork reads what it shares where it stands. So before a row is changed, whoever else reads it is given copies, of all
that it shares: as much work as there is to copy, done once for each fork.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import apsw

from minutebook.record.message import Message, MessageRole
from minutebook.store.codec import Packed, pack
from minutebook.store.rules import require_position, trimmed
from minutebook.store.sqlite import entries as sqlite_entries
from minutebook.store.sqlite import headers as sqlite_rows
from minutebook.store.sqlite import search as sqlite_words
from minutebook.store.sqlite.headers import COLUMNS, Filed

STEP: Final = 500
"""How many entries are copied at a time."""
_FORKS: Final = (
    "WITH RECURSIVE fork (number) AS ("  # noqa: S608 - a constant of ours
    " SELECT number FROM conversation WHERE origin = ?"
    " UNION SELECT conversation.number FROM conversation JOIN fork ON conversation.origin = fork.number"
    f") SELECT {COLUMNS} FROM conversation WHERE number IN (SELECT number FROM fork)"
)


def trim(db: apsw.Connection, filed: Filed, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed."""
    less: dict[int, Packed] = {}
    for at, message in changes.items():
        place = filed.place(require_position(filed.conversation, at))
        made = trimmed(sqlite_entries.read(db, [(place, place + 1)])[1][0], message, at)
        if made is not None:
            less[at] = made[0]
    if not less:
        return 0
    first = min(less)
    for fork, stop in readers(db, filed):
        if first < stop:
            _unshare(db, fork)
    if first < filed.own:
        filed = _unshare(db, filed)
    for at, packed in less.items():
        _rewrite(db, filed, at, packed)
    return len(less)


def readers(db: apsw.Connection, filed: Filed) -> Iterator[tuple[Filed, int]]:
    """The forks, and forks of forks, that read entries of this conversation's own, and up to which position."""
    for row in sqlite_rows.rows(db, _FORKS, (filed.number,)):
        fork = sqlite_rows.filed(row)
        for number, stop in fork.lineage:
            if number == filed.number:
                yield fork, stop


def _unshare(db: apsw.Connection, fork: Filed) -> Filed:
    """Give a fork copies of all that it reads from others."""
    header = fork.conversation
    start = header.first
    while start < fork.own:
        stop = min(start + STEP, fork.own)
        _, entries = sqlite_entries.read(db, fork.spans(start, stop))
        turns = sqlite_entries.turns_before(db, fork, start + 1) - (entries[0].role is MessageRole.USER)
        here = Filed(fork.number, replace(header, length=start, turns=turns))
        sqlite_entries.write(db, here, [pack(one)[0] for one in entries], {})
        sqlite_words.index(db, fork.number, start, stop)
        start = stop
    db.execute("UPDATE conversation SET lineage = NULL WHERE number = ?", (fork.number,))
    return Filed(fork.number, header)


def _rewrite(db: apsw.Connection, filed: Filed, at: int, packed: Packed) -> None:
    """Put another message in the place of one; what it used goes with it."""
    place = filed.place(at)
    turns = sqlite_entries.turns_before(db, filed, at + 1)  # itself is no user message
    stretches = sqlite_words.forget(db, place, place + 1)
    sqlite_entries.delete(db, place, place + 1)
    here = Filed(filed.number, replace(filed.conversation, length=at, turns=turns))
    sqlite_entries.write(db, here, [packed], {})
    sqlite_words.index_again(db, stretches)
