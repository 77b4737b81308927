"""A search without an index: reads the entries instead, for Redis and encrypted stores.

One page reads a bounded number of entries, so it may have fewer hits than `limit`, or none, and still have a cursor.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from minutebook.errors import ConversationNotFound
from minutebook.store.backend import Backend, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import cursor_of, cursor_values, microseconds
from minutebook.store.search import FIRST_FOLD_POSITION, SearchTarget, require_search, summary_entry
from minutebook.store.types import ConversationHeader, Page, SearchHit, StoredFold

MAX_SCANNED_ENTRIES: Final = 5_000
"""Maximum number of entries that one page of a scan reads."""
BATCH: Final = 200
"""Number of entries or headers that a scan reads at a time."""


@dataclass(frozen=True, slots=True)
class _ScannedItem:
    """An entry or a fold that a scan has read."""

    header: ConversationHeader
    position: int
    """The position of the entry; for a fold, `FIRST_FOLD_POSITION` plus its number."""
    hit: SearchHit | None
    """None if it does not match the query."""

    @property
    def cursor(self) -> str:
        return cursor_of(microseconds(self.header.created_at), self.header.id, self.position)


async def scan(backend: Backend, query: SearchQuery, mode: str) -> Page[SearchHit]:
    """Search by reading entries: newest conversation first, and the newest entries of each first."""
    require_search(mode)
    after = cursor_values(query.cursor, int, str, int)
    target = SearchTarget(query, mode)
    if query.conversation is not None:
        headers = _single_header(backend, query.conversation)
    else:
        headers = _headers(backend, query.recipient, after)
    hits: list[SearchHit] = []
    read_count = 0
    last_item: _ScannedItem | None = None
    async for header in headers:
        if query.recipient not in {None, header.recipient}:
            continue
        stop = after[2] if after is not None and after[1] == header.id else FIRST_FOLD_POSITION << 1
        async for item in _scan_conversation(backend, header, stop, target):
            if last_item is not None and (len(hits) == query.limit or read_count >= MAX_SCANNED_ENTRIES):
                return Page(tuple(hits), last_item.cursor)
            last_item, read_count = item, read_count + 1
            if item.hit is not None:
                hits.append(item.hit)
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
            yield await backend.header(conversation)
    while True:
        page = await backend.list(ListQuery(recipient, None, cursor, BATCH))
        for header in page.items:
            yield header
        cursor = page.cursor
        if cursor is None:
            return


async def _scan_conversation(
    backend: Backend, header: ConversationHeader, stop: int, target: SearchTarget
) -> AsyncIterator[_ScannedItem]:
    """The active folds and the entries of a conversation before `stop`, from last to first.

    In a search of all conversations, a fork's shared entries are left out: they are found in the conversation they come
    from.
    """
    with suppress(ConversationNotFound):
        for number, stored in reversed(_active_folds(await backend.folds(header.id))):
            if FIRST_FOLD_POSITION + number < stop:
                fold = stored.fold
                hit = target.hit(header.id, fold.start, summary_entry(fold, stored), fold)
                yield _ScannedItem(header, FIRST_FOLD_POSITION + number, hit)
        shared_stop = header.origin.position if header.origin and target.query.conversation is None else 0
        first, stop = max(shared_stop, header.first), min(stop, header.length)
        while stop > first:
            start = max(first, stop - BATCH)
            loaded = await backend.load(LoadQuery(header.id, since=start, limit=stop - start))
            for position, entry in zip(reversed(loaded.positions), reversed(loaded.entries), strict=True):
                if position < stop:
                    yield _ScannedItem(header, position, target.hit(header.id, position, entry))
            stop = start


def _active_folds(stored_folds: Sequence[StoredFold]) -> list[tuple[int, StoredFold]]:
    """The folds that are neither undone nor covered by a later one, with their numbers."""
    active: list[tuple[int, StoredFold]] = []
    for number, stored in enumerate(stored_folds):
        if stored.undone_at is None:
            fold = stored.fold
            active = [
                earlier
                for earlier in active
                if not (fold.start <= earlier[1].fold.start and earlier[1].fold.stop <= fold.stop)
            ]
            active.append((number, stored))
    return active
