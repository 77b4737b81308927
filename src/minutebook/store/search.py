"""Searching by reading: for stores that have no index of words, because they cannot or must not.

It costs what it reads. One page reads a bounded number of entries, and may therefore hold fewer hits than asked for, or
none, and still have a cursor.

What a word is, the same for every store.

Databases split text each in their own way, and none of them splits Japanese. Here a word is a run of letters and
digits, without regard to case; a Chinese or Japanese character is a word by itself. A store indexes these words and
looks them up exactly, so a search finds the same entries everywhere.
"""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from unicodedata import normalize

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.store.backend import Backend, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import cursor_of, microseconds, place_of
from minutebook.store.types import Conversation, Hit, Page

_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD: Final = re.compile(f"[{_IDEOGRAPHS}]|[^\\W_{_IDEOGRAPHS}]+")
_ASCII_WORD: Final = re.compile("[0-9a-z]+")
_LONGEST: Final = 64
"""Longer runs are data, such as a picture in base64, and not words that anybody types."""


def words(text: str) -> set[str]:
    """The different words of a text."""
    if text.isascii():
        found = set(_ASCII_WORD.findall(text.lower()))
    else:
        found = set(_WORD.findall(normalize("NFKC", text).casefold()))
    return {word for word in found if len(word) <= _LONGEST}


def query_words(query: str) -> list[str]:
    """The words of a query.

    Raises:
        InvalidSetting: it has none.
    """
    found = sorted(words(query))
    if not found:
        raise InvalidSetting("query", query, "at least one word, of letters or digits")
    return found


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


async def scanned(backend: Backend, query: SearchQuery) -> Page[Hit]:
    """The entries that have every word, newest conversation first, and in each the newest entry."""
    after = place_of(query.cursor, int, str, int)
    headers = (
        _headers(backend, query.recipient, after) if query.conversation is None else _only(backend, query.conversation)
    )
    found: list[Hit] = []
    read = 0
    last: _Place | None = None
    async for header in headers:
        stop = after[2] if after is not None and after[1] == header.id else header.length
        async for place in _places(backend, header, stop, set(query.words), whole=query.conversation is not None):
            if last is not None and (len(found) == query.limit or read >= MOST_READ):
                return Page(tuple(found), last.cursor)
            last, read = place, read + 1
            if place.hit is not None:
                found.append(place.hit)
    return Page(tuple(found), None)


async def _only(backend: Backend, conversation: str) -> AsyncIterator[Conversation]:
    yield await backend.header(conversation)


async def _headers(
    backend: Backend, recipient: str | None, after: tuple[int, str, int] | None
) -> AsyncIterator[Conversation]:
    """The conversations, from the one in which the last page ended."""
    cursor = None
    if after is not None:
        cursor = cursor_of(after[0], after[1])
        with suppress(ConversationNotFound):
            header = await backend.header(after[1])
            if recipient in {None, header.recipient}:
                yield header
    while True:
        page = await backend.list(ListQuery(recipient, None, cursor, STEP))
        for header in page.items:
            yield header
        cursor = page.cursor
        if cursor is None:
            return


async def _places(
    backend: Backend, header: Conversation, stop: int, wanted: set[str], *, whole: bool
) -> AsyncIterator[_Place]:
    """The entries of a conversation from the last to the first, each with the hit that it is, if it is one."""
    own = 0 if whole or header.origin is None else header.origin.position
    first = max(own, header.first)
    while stop > first:
        start = max(first, stop - STEP)
        try:
            part = await backend.load(LoadQuery(header.id, since=start, limit=stop - start))
        except ConversationNotFound:
            return
        for position, entry in zip(reversed(part.positions), reversed(part.entries), strict=True):
            if position < stop:
                hit = Hit(header.id, position, entry) if wanted <= words(entry.content or "") else None
                yield _Place(header, position, hit)
        stop = start
