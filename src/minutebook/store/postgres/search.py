"""The search index: a Bloom filter of the words of every range of entries.

A search reads the entries of the ranges whose filter matches, so a filter only has to exclude ranges. It takes about 1.5
bytes per word, its false positive rate is about 1 in 300, and its words cannot be read from it.

Indexing an entry costs several times as much as storing it, so entries are indexed later: when no append is in progress,
or by the next search. The header of a conversation says how far it is indexed, so nothing is lost if a process ends.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from hashlib import blake2b
from typing import Any, Final

from minutebook.store.backend import SearchQuery
from minutebook.store.codec import cursor_of, cursor_values
from minutebook.store.postgres import entries as postgres_entries
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.search import words
from minutebook.store.sql.conversations import FOR_RECIPIENT
from minutebook.store.sql.headers import COLUMNS, row_of
from minutebook.store.sql.transaction import ConversationRow, EntrySpan, Query
from minutebook.store.types import Page, SearchHit

BITS_PER_WORD: Final = 12
_PROBES_PER_WORD: Final = 8
_MIN_FILTER_BYTES, _MAX_FILTER_BYTES = 8, 4096
"""With too many words for the maximum size, a filter matches everything. That is slow and still correct."""

MATCHES: Final = (
    "NOT EXISTS (SELECT FROM unnest(%s::integer[]) AS probe"
    " WHERE get_bit(words, probe %% (8 * octet_length(words))) = 0)"
)
"""SQL condition: the filter matches all words. Its value is the list of the words' `probes`."""


def filter_size(word_count: int) -> int:
    """The size in bytes of a filter for `word_count` words."""
    return min(max(_MIN_FILTER_BYTES, (word_count * BITS_PER_WORD + 7) // 8), _MAX_FILTER_BYTES)


def filter_of(words: Collection[str]) -> bytes:
    """The Bloom filter of some words."""
    bloom_filter = bytearray(filter_size(len(words)))
    bits = 8 * len(bloom_filter)
    for probe in probes(words):
        bit = probe % bits
        bloom_filter[bit >> 3] |= 1 << (bit & 7)
    return bytes(bloom_filter)


def probes(words: Iterable[str]) -> list[int]:
    """The hashes of the words; each, modulo the filter's size, is a bit to set or test. Stored filters depend on them."""
    hashes: list[int] = []
    for word in words:
        digest = int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest())
        first, step = digest >> 32, digest & 0xFFFFFFFF
        hashes += [(first + number * step) & 0x7FFFFFFF for number in range(_PROBES_PER_WORD)]
    return hashes


RANGES_PER_QUERY: Final = 16
"""Ranges with a matching filter that are fetched at a time."""
READ_INDEX_IN_ORDER: Final = (
    "SELECT set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true)"
)
"""Without table statistics, the planner would sort all conversations of a tenant instead of reading an index in order."""
_MAX_NUMBER: Final = 1 << 62
_SELECT_RANGES: Final = "SELECT conversation, start, stop FROM minutebook.word WHERE tenant = %s AND"
_NEWEST_MATCHES: Final = f"{MATCHES} ORDER BY conversation DESC, start DESC LIMIT {RANGES_PER_QUERY}"
_RANGES_BEFORE: Final = f"{_SELECT_RANGES} (conversation, start) < (%s, %s) AND {_NEWEST_MATCHES}"
_RANGES_OF_RECIPIENT: Final = (
    f"{_SELECT_RANGES} (conversation, start) < (%s, %s) AND conversation = ANY(ARRAY("  # noqa: S608 - constants
    f"  SELECT number FROM minutebook.conversation WHERE tenant = %s AND {FOR_RECIPIENT}"
    f")) AND {_NEWEST_MATCHES}"
)
_RANGES_OF_CONVERSATION: Final = (
    f"{_SELECT_RANGES} conversation = %s AND stop > %s AND start < %s AND {_NEWEST_MATCHES}"
)


async def search_entries(
    conn: TenantConnection, query: SearchQuery, conversation: ConversationRow | None
) -> Page[SearchHit]:
    """The entries that have all words, newest first, in one conversation or in all."""
    before = cursor_values(query.cursor, int, int) or (_MAX_NUMBER, 0)
    query_words = set(query.words)
    if conversation is not None:
        hits = _hits_in_conversation(conn, conversation, query_words, before)
    else:
        hits = _hits_anywhere(conn, query.recipient, query_words, before)
    page: list[tuple[int, int, ConversationRow]] = []
    async for hit in hits:
        page.append(hit)
        if len(page) > query.limit:
            break
    items = [
        SearchHit(
            row.conversation.id,
            position,
            (await postgres_entries.read(conn, EntrySpan(number, position, position + 1)))[0],
        )
        for number, position, row in page[: query.limit]
    ]
    return Page(tuple(items), cursor_of(*page[query.limit - 1][:2]) if len(page) > query.limit else None)


async def _hits_in_conversation(
    conn: TenantConnection, row: ConversationRow, query_words: set[str], before: tuple[int, int]
) -> AsyncIterator[tuple[int, int, ConversationRow]]:
    """Conversation number, position and row of each hit.

    The entries that a fork shares belong to a conversation with a lower number, since the origin was created earlier.
    """
    header = row.conversation
    before_number, before_position = before
    for number, start, stop in reversed(row.spans(header.first, header.length)):
        if number > before_number:
            continue
        high = min(stop, before_position) if number == before_number else stop
        while high > start:
            ranges = await _find_ranges(conn, _RANGES_OF_CONVERSATION, (number, start, high), query_words)
            for _, range_start, range_stop in ranges:
                low, end = max(range_start, start), min(range_stop, high)
                async for position in _find_positions(conn, number, low, end, query_words):
                    yield number, position, row
            high = ranges[-1][1] if len(ranges) == RANGES_PER_QUERY else start


async def _hits_anywhere(
    conn: TenantConnection, recipient: str | None, query_words: set[str], before: tuple[int, int]
) -> AsyncIterator[tuple[int, int, ConversationRow]]:
    """Conversation number, position and row of each hit."""
    row: ConversationRow | None = None
    high = before
    while True:
        if recipient is None:
            ranges = await _find_ranges(conn, _RANGES_BEFORE, high, query_words)
        else:
            values = (*high, conn.tenant, recipient, recipient)
            ranges = await _find_ranges(conn, _RANGES_OF_RECIPIENT, values, query_words)
        for number, range_start, range_stop in ranges:
            if row is None or row.number != number:
                row = await _load_row(conn, number)
            header = row.conversation
            # The entries before the fork position are found in the origin.
            own_start = header.origin.position if header.origin else 0
            start = max(range_start, header.first, own_start)
            stop = min(range_stop, before[1]) if number == before[0] else range_stop
            async for position in _find_positions(conn, number, start, stop, query_words):
                yield number, position, row
        if len(ranges) < RANGES_PER_QUERY:
            return
        high = (ranges[-1][0], ranges[-1][1])


async def _find_ranges(conn: TenantConnection, query: str, values: tuple[Any, ...], query_words: set[str]) -> list[Any]:
    """Conversation number, start and stop of the next ranges whose filter matches all words, newest first."""
    select = (query, (conn.tenant, *values, probes(sorted(query_words))))
    if query is _RANGES_OF_RECIPIENT:  # has to sort, since it selects a few conversations
        return (await conn.query(select))[0]
    return (await conn.query((READ_INDEX_IN_ORDER, ()), select))[1]


async def _find_positions(
    conn: TenantConnection, number: int, start: int, stop: int, query_words: set[str]
) -> AsyncIterator[int]:
    """The positions in a range whose text has all words, newest first."""
    span = EntrySpan(number, start, stop)
    texts = [pair async for pair in postgres_entries.read_texts(conn, span)] if start < stop else []
    for position, text in reversed(texts):
        if query_words <= words(text):
            yield position


async def _load_row(conn: TenantConnection, number: int) -> ConversationRow:
    row = await conn.row(
        f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND number = %s",  # noqa: S608 - a constant
        *(conn.tenant, number),
    )
    return row_of(row)


STEP_ENTRIES: Final = 512
"""Entries indexed in one transaction before a search; a longer transaction would block writers."""
IDLE_STEP_ENTRIES: Final = 64
"""Entries indexed in one transaction in the background."""
MAX_RANGE_ENTRIES: Final = 64
"""Entries that one row of the index covers."""
MAX_RANGE_WORDS: Final = 1024
"""A range with this many words gets no more entries, so that several rows with their filters fit into one page."""
MAX_PARTIAL_RANGES: Final = 100
"""Conversations whose last range is not full and not indexed; with more, the background indexes them too."""

_LOCK_UNINDEXED: Final = (
    f"SELECT {COLUMNS} FROM minutebook.conversation WHERE tenant = %s AND has_unindexed AND length - indexed >= %s"  # noqa: S608 - a constant
    " ORDER BY number LIMIT %s FOR UPDATE"
)
_FIND_UNINDEXED: Final = (
    "SELECT 1 FROM minutebook.conversation WHERE tenant = %s AND has_unindexed AND length - indexed >= %s LIMIT %s"
)
_LAST_RANGE: Final = (
    "SELECT start, stop, octet_length(words) FROM minutebook.word WHERE tenant = %s AND conversation = %s"
    " AND start < %s ORDER BY start DESC LIMIT 1"
)
_WRITE_RANGE: Final = (
    "INSERT INTO minutebook.word (tenant, conversation, start, stop, words) VALUES (%s, %s, %s, %s, %s)"
    " ON CONFLICT (tenant, conversation, start) DO UPDATE SET stop = excluded.stop, words = excluded.words"
)


async def has_unindexed_entries(conn: TenantConnection) -> bool:
    """Whether the tenant has entries that a search would not find."""
    return bool(
        await conn.row("SELECT 1 FROM minutebook.conversation WHERE tenant = %s AND has_unindexed LIMIT 1", conn.tenant)
    )


async def index_next(
    conn: TenantConnection, max_entries: int = STEP_ENTRIES, *, full_ranges_only: bool = False
) -> bool:
    """Index the next entries; return whether there are more.

    With `full_ranges_only`, conversations with less than one full range to index are left for later: a partial range is
    indexed again as a whole when it grows.
    """
    min_entries = 0
    if full_ranges_only:
        unindexed = await conn.rows(_FIND_UNINDEXED, conn.tenant, 0, MAX_PARTIAL_RANGES + 1)
        if len(unindexed) <= MAX_PARTIAL_RANGES:
            min_entries = MAX_RANGE_ENTRIES
    remaining = max_entries
    for values in await conn.rows(_LOCK_UNINDEXED, conn.tenant, min_entries, MAX_RANGE_ENTRIES):
        row = row_of(values)
        stop = min(row.conversation.length, row.indexed + remaining)
        await _index_new_entries(conn, row, row.indexed, stop)
        remaining -= stop - row.indexed
        if remaining <= 0:
            break
    return bool(await conn.row(_FIND_UNINDEXED, conn.tenant, min_entries, 1))


async def remove_from_index(conn: TenantConnection, row: ConversationRow, start: int, stop: int) -> None:
    """Remove positions from the index; the other entries of the ranges they are in are indexed again."""
    removed = await conn.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start < %s AND stop > %s"
        " RETURNING start, stop",
        *(conn.tenant, row.number, stop, start),
    )
    for low, high in removed:
        for part in (range(low, min(start, high)), range(max(stop, low), high)):
            if part:
                await index_range(conn, row, part.start, part.stop)


async def reindex_entry(conn: TenantConnection, row: ConversationRow, position: int) -> None:
    """Index the range of a changed entry again, if it was indexed."""
    removed = await conn.rows(
        "DELETE FROM minutebook.word WHERE tenant = %s AND conversation = %s AND start <= %s AND stop > %s"
        " RETURNING start, stop",
        *(conn.tenant, row.number, position, position),
    )
    for low, high in removed:
        await index_range(conn, row, low, high)


async def index_range(conn: TenantConnection, row: ConversationRow, start: int, stop: int) -> None:
    """Index positions of a conversation's own entries."""
    range_start, range_words, changes = start, set[str](), list[Query]()
    async for position, text in postgres_entries.read_texts(conn, EntrySpan(row.number, start, stop)):
        if position - range_start >= MAX_RANGE_ENTRIES or len(range_words) >= MAX_RANGE_WORDS:
            changes.append(_write_range(conn, row, range_start, position, range_words))
            range_start, range_words = position, set()
        range_words |= words(text)
    await conn.query(*changes, _write_range(conn, row, range_start, stop, range_words))


async def _index_new_entries(conn: TenantConnection, row: ConversationRow, start: int, stop: int) -> None:
    """Index appended entries. The last range, if it is not full, is read again, since its words are not stored."""
    range_start = start
    if start > row.own_start:
        last = await conn.row(_LAST_RANGE, conn.tenant, row.number, start)
        if last is not None:
            last_start, last_stop, filter_bytes = last
            has_room = start - last_start < MAX_RANGE_ENTRIES and filter_bytes < filter_size(MAX_RANGE_WORDS)
            if last_stop == start and has_room:
                range_start = last_start
    await index_range(conn, row, range_start, stop)
    update = (
        "UPDATE minutebook.conversation SET indexed = %s, has_unindexed = length > %s WHERE tenant = %s AND number = %s"
    )
    await conn.execute(update, stop, stop, conn.tenant, row.number)


def _write_range(conn: TenantConnection, row: ConversationRow, start: int, stop: int, range_words: set[str]) -> Query:
    return _WRITE_RANGE, (conn.tenant, row.number, start, stop, filter_of(range_words))
