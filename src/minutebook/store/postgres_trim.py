"""Trimming single entries, where others may read the same rows.

A fork reads what it shares where it stands. So before a row is changed, whoever else reads it is given copies, of all
that it shares: as much work as there is to copy, done once for each fork.
"""

from collections.abc import Mapping
from typing import Final

from minutebook.record.message import Message, MessageRole
from minutebook.store import postgres_entries, postgres_words
from minutebook.store.codec import Packed, pack
from minutebook.store.postgres_entries import Kept, Rows
from minutebook.store.postgres_rows import COLUMNS, Filed, filed
from minutebook.store.postgres_work import Work
from minutebook.store.rules import require_position
from minutebook.store.trimming import trimmed

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
