"""The search index, which follows the record at a distance.

Indexing an entry costs several times what storing it does, so an append leaves it for later: for when there is nothing
else to do, or somebody searches. What is still to do is in the database, so it outlives the process. A row of the index
stands for a stretch of entries: whoever finds one looks through the stretch.
"""

from collections.abc import Iterable
from typing import Any, Final

from minutebook.store import postgres_entries
from minutebook.store.postgres_rows import COLUMNS, Filed, filed
from minutebook.store.postgres_work import Work
from minutebook.store.words import words

STEP: Final = 512
"""How many entries are indexed in one transaction for somebody who waits for it, about: others want to write, too."""
SMALL_STEP: Final = 64
"""How many, when nobody waits."""
STRETCH: Final = 64
"""How many entries one row stands for at most."""
LARGE: Final = 64 * 1024
"""A stretch whose words take more than this many bytes takes no more entries."""
LARGEST: Final = 512 * 1024
"""More words than this PostgreSQL does not take; such a stretch is found by every search and looked through."""

MOST_BEGUN: Final = 100
"""How many conversations may have a last stretch that waits to become whole, when nobody searches."""

_BEHIND: Final = (
    f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND behind AND length - indexed >= %s"  # noqa: S608 - a constant
    " ORDER BY number LIMIT %s FOR UPDATE"
)
_MORE: Final = "SELECT 1 FROM minutebook.conversation WHERE tenant = %s AND behind AND length - indexed >= %s LIMIT %s"
_LAST: Final = (
    "SELECT start, stop, tsvector_to_array(words) FROM minutebook.word WHERE tenant = %s AND conversation = %s"
    " AND start < %s ORDER BY start DESC LIMIT 1"
)
_WRITE: Final = (
    "INSERT INTO minutebook.word (tenant, conversation, start, stop, words) VALUES (%s, %s, %s, %s,"
    " CASE WHEN %s::text[] IS NULL THEN NULL ELSE array_to_tsvector(%s::text[]) END)"
    " ON CONFLICT (tenant, conversation, start) DO UPDATE SET stop = excluded.stop, words = excluded.words"
)


async def is_behind(work: Work) -> bool:
    """Whether there are entries that a search would not find."""
    return bool(
        await work.row("SELECT 1 FROM minutebook.conversation WHERE tenant = %s AND behind LIMIT 1", work.tenant)
    )


async def catch_up(work: Work, step: int = STEP, *, whole: bool = False) -> bool:
    """Index a number of entries; return whether there are more. With `whole`, only what fills its stretch.

    A stretch that is indexed before it is whole is indexed again with all of its words, and again.
    """
    least = 0
    if whole and len(await work.rows(_MORE, work.tenant, 0, MOST_BEGUN + 1)) <= MOST_BEGUN:
        least = STRETCH
    left = step
    for row in await work.rows(_BEHIND, work.tenant, least, STRETCH):
        one = filed(row)
        stop = min(one.conversation.length, one.indexed + left)
        await _index(work, one, one.indexed, stop)
        left -= stop - one.indexed
        if left <= 0:
            break
    return bool(await work.row(_MORE, work.tenant, least, 1))


async def forget(work: Work, one: Filed, start: int, stop: int) -> None:
    """Take a range of entries out of the index; what shares a stretch with them is indexed anew."""
    rows = await work.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start < %s AND stop > %s"
        " RETURNING start, stop",
        *(work.tenant, one.number, stop, start),
    )
    for low, high in rows:
        for part in (range(low, min(start, high)), range(max(stop, low), high)):
            if part:
                await _write(work, one, part.start, part.stop, [])


async def renew(work: Work, one: Filed, position: int) -> None:
    """Index anew the stretch of an entry that was changed, if there is one yet."""
    rows = await work.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start <= %s AND stop > %s"
        " RETURNING start, stop",
        *(work.tenant, one.number, position, position),
    )
    for low, high in rows:
        await _write(work, one, low, high, [])


async def index(work: Work, one: Filed, start: int, stop: int) -> None:
    """Index a range of a conversation's own entries, none of which is indexed."""
    await _write(work, one, start, stop, [])


async def _index(work: Work, one: Filed, start: int, stop: int) -> None:
    last = await work.row(_LAST, work.tenant, one.number, start) if start > one.own else None
    low, known = start, set[str]()
    if last is not None and last[1] == start and start - last[0] < STRETCH and last[2] and _size(last[2]) < LARGE:
        low, known = last[0], set(last[2])
    await _write(work, one, low, stop, known, start)
    change = "UPDATE minutebook.conversation SET indexed = %s, behind = length > %s WHERE tenant = %s AND number = %s"
    await work.put(change, stop, stop, work.tenant, one.number)


async def _write(work: Work, one: Filed, low: int, stop: int, known: Iterable[str], start: int | None = None) -> None:
    """Write the rows for the stretches of a range, of which the words up to `start` are known."""
    found, changes = set(known), []
    texts = dict(
        [pair async for pair in postgres_entries.texts(work, (one.number, low if start is None else start, stop))]
    )
    for position, text in texts.items():
        if position - low >= STRETCH or _size(found) >= LARGE:
            changes.append(_row(work, one, low, position, found))
            low, found = position, set()
        found |= words(text)
    changes.append(_row(work, one, low, stop, found))
    await work.ask(*changes)


def _row(work: Work, one: Filed, low: int, stop: int, found: set[str]) -> tuple[str, tuple[Any, ...]]:
    listed = sorted(found) if _size(found) <= LARGEST else None
    return _WRITE, (work.tenant, one.number, low, stop, listed, listed)


def _size(found: Iterable[str]) -> int:
    return sum(len(word.encode()) + 4 for word in found)
