"""Lists and searches, a page at a time."""

from collections.abc import AsyncIterator
from typing import Any, Final

from minutebook.store import postgres_entries
from minutebook.store.codec import microseconds
from minutebook.store.cursor import cursor_of, place_of
from minutebook.store.postgres_filter import MATCHES, probes
from minutebook.store.postgres_rows import COLUMNS, FOR_RECIPIENT, Filed, filed, found
from minutebook.store.postgres_work import Work
from minutebook.store.types import Conversation, ConversationStatus, Hit, Page
from minutebook.store.words import words

STRETCHES: Final = 16
"""How many stretches that may hold what is searched for are asked for at a time."""
_IN_ORDER: Final = "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
"""A server that has not looked at its tables yet thinks that sorting a tenant's conversations is quick."""
_NEWEST_FIRST: Final = "ORDER BY created_at DESC, number DESC LIMIT %s"
_OF_STATUS: Final = "status || '' = %s"
"""Written so that nobody uses the index of a status to find one recipient's."""
_AS_IT_IS: Final = "OFFSET 0 LIMIT %s"
"""What is one row at most is looked up, and in no order: an index that has one would be read through."""
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


async def listed(
    work: Work, recipient: str | None, status: ConversationStatus | None, cursor: str | None, limit: int
) -> Page[Conversation]:
    """The conversations after a cursor, newest first; there is an index for each way to ask."""
    after = place_of(cursor, int, int)
    parts, bindings = list[str](), list[Any]()
    for where, named, end in _ways(recipient, status):
        later = "" if after is None else " AND (created_at, number) < (%s, %s)"
        parts.append(f"(SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND {where}{later} {end})")  # noqa: S608 - made of constants
        bindings += [work.tenant, *named, *(after or ()), limit + 1]
    query = f"SELECT * FROM ({' UNION ALL '.join(parts)}) AS ours {_NEWEST_FIRST}"  # noqa: S608 - made of constants
    _, rows = await work.ask((_IN_ORDER, ()), (query, (*bindings, limit + 1)))
    items = [filed(row) for row in rows[:limit]]
    last = (microseconds(items[-1].conversation.created_at), items[-1].number) if len(rows) > limit else None
    return Page(tuple(one.conversation for one in items), cursor_of(*last) if last else None)


def _ways(recipient: str | None, status: ConversationStatus | None) -> list[tuple[str, tuple[str, ...], str]]:
    """Conditions, their values and an order, which together find all that is meant; there is an index for each.

    What has no recipient but itself is found by its id, the others by their recipient. Those of any status are merged from
    those of each.
    """
    if recipient is None:
        return [("status = %s", (one,), _NEWEST_FIRST) for one in ([status] if status else ConversationStatus)]
    kind, named = ("", (recipient,)) if status is None else (f" AND {_OF_STATUS}", (recipient, status))
    return [
        (f"recipient = %s AND recipient <> id{kind}", named, _NEWEST_FIRST),
        (f"id = %s AND recipient = id{kind}", named, _AS_IT_IS),
    ]


async def searched(
    work: Work, query: list[str], conversation: str | None, recipient: str | None, cursor: str | None, limit: int
) -> Page[Hit]:
    """The entries that have every word, from the last place to the first."""
    number, position = place_of(cursor, int, int) or (_END, 0)
    wanted = set(query)
    if conversation is not None:
        places = _within(work, await found(work, conversation), wanted, (number, position))
    else:
        places = _anywhere(work, recipient, wanted, (number, position))
    page: list[tuple[int, int, Filed]] = []
    async for place in places:
        page.append(place)
        if len(page) > limit:
            break
    items = [
        Hit(known.conversation.id, at, (await postgres_entries.read(work, [(holder, at, at + 1)]))[1][0])
        for holder, at, known in page[:limit]
    ]
    return Page(tuple(items), cursor_of(*page[limit - 1][:2]) if len(page) > limit else None)


async def _within(
    work: Work, known: Filed, wanted: set[str], before: tuple[int, int]
) -> AsyncIterator[tuple[int, int, Filed]]:
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
) -> AsyncIterator[tuple[int, int, Filed]]:
    owner: Filed | None = None
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
    return (await work.ask((_IN_ORDER, ()), asked))[1]


async def _matches(work: Work, number: int, start: int, stop: int, wanted: set[str]) -> AsyncIterator[int]:
    """The positions in a stretch whose text has every word, from the last to the first."""
    texts = [pair async for pair in postgres_entries.texts(work, (number, start, stop))] if start < stop else []
    for position, text in reversed(texts):
        if wanted <= words(text):
            yield position


async def _owner(work: Work, number: int) -> Filed:
    row = await work.row(
        f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND number = %s",  # noqa: S608 - a constant
        *(work.tenant, number),
    )
    return filed(row)
