"""Which words a stretch of entries may have, in a byte and a half for each: a Bloom filter.

A stretch that is found is looked through anyway, so it need not be known which words it has, only which it has not. A
filter errs on one side: about one word in three hundred that is not there seems to be. It holds no word that could be read.

The search index, which follows the record at a distance.

Indexing an entry costs several times what storing it does, so an append leaves it for later: for when there is nothing
else to do, or somebody searches. What is still to do is in the database, so it outlives the process. A row of the index
stands for a stretch of entries: whoever finds one looks through the stretch.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from hashlib import blake2b
from typing import Any, Final

from minutebook.store.backend import SearchQuery
from minutebook.store.codec import cursor_of, place_of
from minutebook.store.postgres import entries as postgres_entries
from minutebook.store.postgres.connection import Work
from minutebook.store.search import words
from minutebook.store.sql.conversations import FOR_RECIPIENT
from minutebook.store.sql.headers import COLUMNS, row_of
from minutebook.store.sql.transaction import ConversationRow, Query
from minutebook.store.types import Hit, Page

BITS: Final = 12
"""How many bits there are for each word."""
_PROBES: Final = 8
"""How many of them a word sets."""
_LEAST, _MOST = 8, 4096
"""How many bytes a filter has. With more words than it has room for it says yes to everything: look for yourself."""

MATCHES: Final = (
    "NOT EXISTS (SELECT FROM unnest(%s::integer[]) AS probe"
    " WHERE get_bit(words, probe %% (8 * octet_length(words))) = 0)"
)
"""A condition on a filter, given the `probes` of every word that is searched for."""


def size(words: int) -> int:
    """How many bytes a filter for so many words has."""
    return min(max(_LEAST, (words * BITS + 7) // 8), _MOST)


def filter_of(words: Collection[str]) -> bytes:
    """The filter of some words."""
    made = bytearray(size(len(words)))
    bits = 8 * len(made)
    for probe in probes(words):
        at = probe % bits
        made[at >> 3] |= 1 << (at & 7)
    return bytes(made)


def probes(words: Iterable[str]) -> list[int]:
    """What a filter is asked for each word; all remainders must be set. The same in every process and for ever."""
    found: list[int] = []
    for word in words:
        digest = int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        first, step = digest >> 32, digest & 0xFFFFFFFF
        found += [(first + number * step) & 0x7FFFFFFF for number in range(_PROBES)]
    return found


STRETCHES: Final = 16
"""How many stretches that may hold what is searched for are asked for at a time."""
IN_ORDER: Final = "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
"""A server that has not looked at its tables yet thinks that sorting a tenant's conversations is quick."""
_END: Final = 1 << 62
_STRETCHES: Final = "SELECT conversation, start, stop FROM minutebook.word WHERE tenant = %s AND"
_LAST_FIRST: Final = f"{MATCHES} ORDER BY conversation DESC, start DESC LIMIT {STRETCHES}"
_FOUND: Final = f"{_STRETCHES} (conversation, start) < (%s, %s) AND {_LAST_FIRST}"
_FOUND_FOR: Final = (
    f"{_STRETCHES} (conversation, start) < (%s, %s) AND conversation = ANY(ARRAY("  # noqa: S608 - made of constants
    f"  SELECT number FROM minutebook.conversation WHERE tenant = %s AND {FOR_RECIPIENT}"
    f")) AND {_LAST_FIRST}"
)
_FOUND_IN: Final = f"{_STRETCHES} conversation = %s AND stop > %s AND start < %s AND {_LAST_FIRST}"


async def searched(work: Work, query: SearchQuery, within: ConversationRow | None) -> Page[Hit]:
    """The entries that have every word, in one conversation or all, from the last place to the first."""
    number, position = place_of(query.cursor, int, int) or (_END, 0)
    wanted = set(query.words)
    if within is not None:
        places = _within(work, within, wanted, (number, position))
    else:
        places = _anywhere(work, query.recipient, wanted, (number, position))
    page: list[tuple[int, int, ConversationRow]] = []
    async for place in places:
        page.append(place)
        if len(page) > query.limit:
            break
    items = [
        Hit(known.conversation.id, at, (await postgres_entries.read(work, (holder, at, at + 1)))[0])
        for holder, at, known in page[: query.limit]
    ]
    return Page(tuple(items), cursor_of(*page[query.limit - 1][:2]) if len(page) > query.limit else None)


async def _within(
    work: Work, known: ConversationRow, wanted: set[str], before: tuple[int, int]
) -> AsyncIterator[tuple[int, int, ConversationRow]]:
    """Places in one conversation; what it shares has a lower number, since a fork is younger than its origin."""
    header = known.conversation
    for number, start, stop in reversed(known.spans(header.first, header.length)):
        high = stop if number < before[0] else min(stop, before[1]) if number == before[0] else start
        while high > start:
            stretches = await _stretches(work, _FOUND_IN, (number, start, high), wanted)
            for _, low, end in stretches:
                async for at in _matches(work, number, max(low, start), min(end, high), wanted):
                    yield number, at, known
            high = stretches[-1][1] if len(stretches) == STRETCHES else start


async def _anywhere(
    work: Work, recipient: str | None, wanted: set[str], before: tuple[int, int]
) -> AsyncIterator[tuple[int, int, ConversationRow]]:
    owner: ConversationRow | None = None
    high = before
    while True:
        if recipient is None:
            stretches = await _stretches(work, _FOUND, high, wanted)
        else:
            stretches = await _stretches(work, _FOUND_FOR, (*high, work.tenant, recipient, recipient), wanted)
        for number, low, end in stretches:
            if owner is None or owner.number != number:
                owner = await _owner(work, number)
            # A fork's copies are not found here: they were said elsewhere.
            said_here = owner.conversation.origin.position if owner.conversation.origin else 0
            start = max(low, owner.conversation.first, said_here)
            stop = min(end, before[1]) if number == before[0] else end
            async for at in _matches(work, number, start, stop, wanted):
                yield number, at, owner
        if len(stretches) < STRETCHES:
            return
        high = (stretches[-1][0], stretches[-1][1])


async def _stretches(work: Work, query: str, values: tuple[Any, ...], wanted: set[str]) -> list[Any]:
    """The next stretches that seem to have every word, from the last to the first."""
    asked = (query, (work.tenant, *values, probes(sorted(wanted))))
    if query is _FOUND_FOR:  # sorts what it has found in few conversations
        return (await work.ask(asked))[0]
    return (await work.ask((IN_ORDER, ()), asked))[1]


async def _matches(work: Work, number: int, start: int, stop: int, wanted: set[str]) -> AsyncIterator[int]:
    """The positions in a stretch whose text has every word, from the last to the first."""
    texts = [pair async for pair in postgres_entries.texts(work, (number, start, stop))] if start < stop else []
    for position, text in reversed(texts):
        if wanted <= words(text):
            yield position


async def _owner(work: Work, number: int) -> ConversationRow:
    row = await work.row(
        f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND number = %s",  # noqa: S608 - a constant
        *(work.tenant, number),
    )
    return row_of(row)


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
        one = row_of(row)
        stop = min(one.conversation.length, one.indexed + left)
        await _index(work, one, one.indexed, stop)
        left -= stop - one.indexed
        if left <= 0:
            break
    return bool(await work.row(_MORE, work.tenant, least, 1))


async def forget(work: Work, one: ConversationRow, start: int, stop: int) -> None:
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


async def renew(work: Work, one: ConversationRow, position: int) -> None:
    """Index anew the stretch of an entry that was changed, if there is one yet."""
    rows = await work.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start <= %s AND stop > %s"
        " RETURNING start, stop",
        *(work.tenant, one.number, position, position),
    )
    for low, high in rows:
        await index(work, one, low, high)


async def index(work: Work, one: ConversationRow, start: int, stop: int) -> None:
    """Index a range of a conversation's own entries; write a row for each of its stretches."""
    low, found, changes = start, set[str](), list[Query]()
    async for position, text in postgres_entries.texts(work, (one.number, start, stop)):
        if position - low >= STRETCH or len(found) >= MANY:
            changes.append(_row(work, one, low, position, found))
            low, found = position, set()
        found |= words(text)
    await work.ask(*changes, _row(work, one, low, stop, found))


async def _index(work: Work, one: ConversationRow, start: int, stop: int) -> None:
    """Index what was appended; a last stretch that is not whole is read again, since its words are not kept."""
    last = await work.row(_LAST, work.tenant, one.number, start) if start > one.own else None
    low = start
    if last is not None and last[1] == start and start - last[0] < STRETCH and last[2] < size(MANY):
        low = last[0]
    await index(work, one, low, stop)
    change = "UPDATE minutebook.conversation SET indexed = %s, behind = length > %s WHERE tenant = %s AND number = %s"
    await work.put(change, stop, stop, work.tenant, one.number)


def _row(work: Work, one: ConversationRow, low: int, stop: int, found: set[str]) -> Query:
    return _WRITE, (work.tenant, one.number, low, stop, filter_of(found))
