"""Searching by reading: for stores that have no index of words, because they cannot or must not.

It costs what it reads. One page reads a bounded number of entries, and may therefore hold fewer hits than asked for, or
none, and still have a cursor.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from minutebook.errors import ConversationNotFound
from minutebook.store.codec import microseconds
from minutebook.store.contract import ConversationStore
from minutebook.store.cursor import cursor_of, place_of
from minutebook.store.types import Conversation, Hit, Page
from minutebook.store.words import words

MOST_READ: Final = 5_000
STEP: Final = 200


@dataclass(frozen=True, slots=True)
class _Place:
    header: Conversation
    position: int
    hit: Hit | None

    @property
    def cursor(self) -> str:
        return cursor_of(microseconds(self.header.created_at), self.header.id, self.position)


async def scanned(
    store: ConversationStore,
    query: list[str],
    conversation: str | None,
    recipient: str | None,
    cursor: str | None,
    limit: int,
) -> Page[Hit]:
    """The entries that have every word, newest conversation first, and in each the newest entry."""
    after = place_of(cursor, int, str, int)
    headers = _headers(store, recipient, after) if conversation is None else _only(store, conversation)
    found: list[Hit] = []
    read = 0
    last: _Place | None = None
    async for header in headers:
        stop = after[2] if after is not None and after[1] == header.id else header.length
        async for place in _places(store, header, stop, set(query), whole=conversation is not None):
            if last is not None and (len(found) == limit or read >= MOST_READ):
                return Page(tuple(found), last.cursor)
            last, read = place, read + 1
            if place.hit is not None:
                found.append(place.hit)
    return Page(tuple(found), None)


async def _only(store: ConversationStore, conversation: str) -> AsyncIterator[Conversation]:
    yield await store.header(conversation)


async def _headers(
    store: ConversationStore, recipient: str | None, after: tuple[int, str, int] | None
) -> AsyncIterator[Conversation]:
    """The conversations, from the one in which the last page ended."""
    cursor = None
    if after is not None:
        cursor = cursor_of(after[0], after[1])
        with suppress(ConversationNotFound):
            header = await store.header(after[1])
            if recipient in {None, header.recipient}:
                yield header
    while True:
        page = await store.list(recipient=recipient, cursor=cursor, limit=STEP)
        for header in page.items:
            yield header
        cursor = page.cursor
        if cursor is None:
            return


async def _places(
    store: ConversationStore, header: Conversation, stop: int, wanted: set[str], *, whole: bool
) -> AsyncIterator[_Place]:
    """The entries of a conversation from the last to the first, each with the hit that it is, if it is one."""
    own = 0 if whole or header.origin is None else header.origin.position
    first = max(own, header.first)
    while stop > first:
        start = max(first, stop - STEP)
        try:
            part = await store.load(header.id, since=start, limit=stop - start)
        except ConversationNotFound:
            return
        for position, entry in zip(reversed(part.positions), reversed(part.entries), strict=True):
            if position < stop:
                hit = Hit(header.id, position, entry) if wanted <= words(entry.content or "") else None
                yield _Place(header, position, hit)
        stop = start
