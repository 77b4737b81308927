"""Full-text search: the definition of a word, and a search without an index.

A word is a run of letters and digits in any case; a Chinese or Japanese character is a word by itself. Databases split
text in different ways, and none of them splits Japanese. So a store indexes these words and looks them up exactly, and a
search finds the same entries in every store.

Stores without an index of words (Redis, encrypted stores) read the entries instead. One page reads a bounded number of
entries, so it may have fewer hits than `limit`, or none, and still have a cursor.
"""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from unicodedata import normalize

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.store.backend import Backend, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import cursor_of, cursor_values, microseconds
from minutebook.store.types import ConversationHeader, Page, SearchHit

_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD: Final = re.compile(f"[{_IDEOGRAPHS}]|[^\\W_{_IDEOGRAPHS}]+")
_ASCII_WORD: Final = re.compile("[0-9a-z]+")
_MAX_WORD_CHARACTERS: Final = 64
"""Longer runs are data, such as an image in base64, and not words that a user searches for."""


def words(text: str) -> set[str]:
    """The distinct words of a text."""
    if text.isascii():
        all_words = set(_ASCII_WORD.findall(text.lower()))
    else:
        all_words = set(_WORD.findall(normalize("NFKC", text).casefold()))
    return {word for word in all_words if len(word) <= _MAX_WORD_CHARACTERS}


def query_words(query: str) -> list[str]:
    """The words of a query, sorted.

    Raises:
        InvalidSetting: it has none.
    """
    sorted_words = sorted(words(query))
    if not sorted_words:
        raise InvalidSetting("query", query, "at least one word of letters or digits")
    return sorted_words


MAX_SCANNED_ENTRIES: Final = 5_000
"""Maximum number of entries that one page of a scan reads."""
BATCH: Final = 200
"""Number of entries or headers that a scan reads at a time."""


@dataclass(frozen=True, slots=True)
class _ScannedEntry:
    header: ConversationHeader
    position: int
    hit: SearchHit | None
    """None if the entry does not have all words."""

    @property
    def cursor(self) -> str:
        return cursor_of(microseconds(self.header.created_at), self.header.id, self.position)


async def scan(backend: Backend, query: SearchQuery) -> Page[SearchHit]:
    """Search by reading entries: newest conversation first, and the newest entries of each first."""
    after = cursor_values(query.cursor, int, str, int)
    in_conversation = query.conversation is not None
    if query.conversation is not None:
        headers = _single_header(backend, query.conversation)
    else:
        headers = _headers(backend, query.recipient, after)
    hits: list[SearchHit] = []
    read_count = 0
    last: _ScannedEntry | None = None
    async for header in headers:
        stop = after[2] if after is not None and after[1] == header.id else header.length
        async for scanned_entry in _scan_entries(
            backend, header, stop, set(query.words), include_shared=in_conversation
        ):
            if last is not None and (len(hits) == query.limit or read_count >= MAX_SCANNED_ENTRIES):
                return Page(tuple(hits), last.cursor)
            last, read_count = scanned_entry, read_count + 1
            if scanned_entry.hit is not None:
                hits.append(scanned_entry.hit)
    return Page(tuple(hits), None)


async def _single_header(backend: Backend, conversation: str) -> AsyncIterator[ConversationHeader]:
    yield await backend.header(conversation)


async def _headers(
    backend: Backend, recipient: str | None, after: tuple[int, str, int] | None
) -> AsyncIterator[ConversationHeader]:
    """The conversations, starting with the one in which the previous page ended."""
    cursor = None
    if after is not None:
        created_at, conversation, _ = after
        cursor = cursor_of(created_at, conversation)
        with suppress(ConversationNotFound):
            header = await backend.header(conversation)
            if recipient in {None, header.recipient}:
                yield header
    while True:
        page = await backend.list(ListQuery(recipient, None, cursor, BATCH))
        for header in page.items:
            yield header
        cursor = page.cursor
        if cursor is None:
            return


async def _scan_entries(
    backend: Backend, header: ConversationHeader, stop: int, query_words: set[str], *, include_shared: bool
) -> AsyncIterator[_ScannedEntry]:
    """The entries of a conversation before `stop`, from last to first.

    Without `include_shared`, a fork's shared entries are left out: they are found in the conversation they come from.
    """
    own_start = 0 if include_shared or header.origin is None else header.origin.position
    first = max(own_start, header.first)
    while stop > first:
        start = max(first, stop - BATCH)
        try:
            loaded = await backend.load(LoadQuery(header.id, since=start, limit=stop - start))
        except ConversationNotFound:
            return
        for position, entry in zip(reversed(loaded.positions), reversed(loaded.entries), strict=True):
            if position < stop:
                hit = SearchHit(header.id, position, entry) if query_words <= words(entry.content or "") else None
                yield _ScannedEntry(header, position, hit)
        stop = start
