"""The search index, which follows the record at a distance.

Indexing an entry costs several times what storing it does, so an append leaves it for later: for when there is nothing
else to do, or somebody searches. What is still to do is in the database, so it outlives the process. A row of the index
stands for a stretch of entries: whoever finds one looks through the stretch.
"""

from typing import Final

from minutebook.store import postgres_entries
from minutebook.store.postgres_filter import filter_of, size
from minutebook.store.postgres_rows import COLUMNS, Filed, filed
from minutebook.store.postgres_work import Query, Work
from minutebook.store.words import words

STEP: Final = 512
"""How many entries are indexed in one transaction for somebody who waits for it, about: others want to write, too."""
SMALL_STEP: Final = 64
"""How many, when nobody waits."""
STRETCH: Final = 64
"""How many entries one row stands for at most."""
MANY: Final = 1024
"""A stretch that has so many words takes no more entries: its filter then fits into its row, a few of which fit a page."""

MOST_BEGUN: Final = 100
"""How many conversations may have a last stretch that waits to become whole, when nobody searches."""

_BEHIND: Final = (
    f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND behind AND length - indexed >= %s"  # noqa: S608 - a constant
    " ORDER BY number LIMIT %s FOR UPDATE"
)
_MORE: Final = "SELECT 1 FROM minutebook.conversation WHERE tenant = %s AND behind AND length - indexed >= %s LIMIT %s"
_LAST: Final = (
    "SELECT start, stop, octet_length(words) FROM minutebook.word WHERE tenant = %s AND conversation = %s"
    " AND start < %s ORDER BY start DESC LIMIT 1"
)
_WRITE: Final = (
    "INSERT INTO minutebook.word (tenant, conversation, start, stop, words) VALUES (%s, %s, %s, %s, %s)"
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
                await index(work, one, part.start, part.stop)


async def renew(work: Work, one: Filed, position: int) -> None:
    """Index anew the stretch of an entry that was changed, if there is one yet."""
    rows = await work.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start <= %s AND stop > %s"
        " RETURNING start, stop",
        *(work.tenant, one.number, position, position),
    )
    for low, high in rows:
        await index(work, one, low, high)


async def index(work: Work, one: Filed, start: int, stop: int) -> None:
    """Index a range of a conversation's own entries; write a row for each of its stretches."""
    low, found, changes = start, set[str](), list[Query]()
    async for position, text in postgres_entries.texts(work, (one.number, start, stop)):
        if position - low >= STRETCH or len(found) >= MANY:
            changes.append(_row(work, one, low, position, found))
            low, found = position, set()
        found |= words(text)
    await work.ask(*changes, _row(work, one, low, stop, found))


async def _index(work: Work, one: Filed, start: int, stop: int) -> None:
    """Index what was appended; a last stretch that is not whole is read again, since its words are not kept."""
    last = await work.row(_LAST, work.tenant, one.number, start) if start > one.own else None
    low = start
    if last is not None and last[1] == start and start - last[0] < STRETCH and last[2] < size(MANY):
        low = last[0]
    await index(work, one, low, stop)
    change = "UPDATE minutebook.conversation SET indexed = %s, behind = length > %s WHERE tenant = %s AND number = %s"
    await work.put(change, stop, stop, work.tenant, one.number)


def _row(work: Work, one: Filed, low: int, stop: int, found: set[str]) -> Query:
    return _WRITE, (work.tenant, one.number, low, stop, filter_of(found))
