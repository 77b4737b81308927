"""The full-text index. It is updated after the append, in the background or before a search.

Indexing an entry writes several times as many pages as storing it, so an append only marks its conversation as
unindexed. The mark is in the database, so it survives the process. One row of the index has the words of a block of up
to `BLOCK_ENTRIES` entries and the key of the first of them; a search reads the texts of the blocks that match.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeAlias

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.store.backend import SearchQuery
from minutebook.store.codec import cursor_of, cursor_values
from minutebook.store.search import words
from minutebook.store.sql import headers
from minutebook.store.sql.transaction import ConversationRow
from minutebook.store.sqlite import entries
from minutebook.store.sqlite.entries import conversation_number, entry_key, position_of, rows
from minutebook.store.types import Page, SearchHit

BATCH_ENTRIES: Final = 2_000
"""Approximate number of entries indexed in one transaction before a search. Other writes run between batches."""
BACKGROUND_BATCH_ENTRIES: Final = 256
"""The same for indexing in the background."""
BLOCK_ENTRIES: Final = 16
"""Maximum number of entries of one index row."""
MAX_PARTIAL_BLOCKS: Final = 100
"""If more conversations are unindexed, background indexing does not wait until their last blocks are full."""

_SELECT_UNINDEXED: Final = (
    "SELECT number, indexed, length FROM unindexed JOIN conversation ON number = unindexed.conversation"
    " WHERE length - indexed >= ? ORDER BY number LIMIT ?"
)
KeyRange: TypeAlias = tuple[int, int]
"""The first key and the key after the last."""


def has_unindexed(db: apsw.Connection) -> bool:
    """Whether there are entries that a search would not find."""
    return bool(rows(db, "SELECT 1 FROM unindexed LIMIT 1"))


def index_next_batch(db: apsw.Connection, *, full_blocks_only: bool = False) -> bool:
    """Index a batch of entries; return whether there are more.

    With `full_blocks_only` (in the background), entries wait until their block is full, unless too many blocks wait.
    """
    partial_blocks = len(rows(db, _SELECT_UNINDEXED, (0, MAX_PARTIAL_BLOCKS + 1))) if full_blocks_only else 0
    waits_for_blocks = full_blocks_only and partial_blocks <= MAX_PARTIAL_BLOCKS
    min_entries = BLOCK_ENTRIES if waits_for_blocks else 0
    remaining = BACKGROUND_BATCH_ENTRIES if full_blocks_only else BATCH_ENTRIES
    for number, indexed, length in rows(db, _SELECT_UNINDEXED, (min_entries, remaining)):
        stop = min(length, indexed + remaining)
        if waits_for_blocks:
            stop -= (stop - indexed) % BLOCK_ENTRIES
        index(db, number, indexed, stop)
        db.execute("UPDATE conversation SET indexed = ? WHERE number = ?", (stop, number))
        if stop == length:
            db.execute("DELETE FROM unindexed WHERE conversation = ?", (number,))
        remaining -= stop - indexed
        if remaining < BLOCK_ENTRIES:
            break
    return bool(rows(db, _SELECT_UNINDEXED, (min_entries, 1)))


def index(db: apsw.Connection, number: int, start: int, stop: int) -> None:
    """Index a range of positions of a conversation's own entries, none of which is indexed yet."""
    block_starts = range(entry_key(number, start), entry_key(number, stop), BLOCK_ENTRIES)
    index_blocks(db, ((key, min(key + BLOCK_ENTRIES, block_starts.stop)) for key in block_starts))


def index_blocks(db: apsw.Connection, blocks: Iterable[KeyRange]) -> None:
    """Insert a row for each block that has words."""
    index_rows = []
    for start, stop in blocks:
        block_words = set[str]().union(*(words(text) for _, text in entries.searchable_texts(db, start, stop)))
        if block_words:
            index_rows.append((start, " ".join(block_words)))
    db.executemany("INSERT INTO word (rowid, words) VALUES (?, ?)", index_rows)


def delete_blocks(db: apsw.Connection, start: int, stop: int) -> list[KeyRange]:
    """Delete the blocks that overlap a range of keys of one conversation, and return them.

    Call `index_blocks` with them after the entries were changed or deleted, to index the remaining entries.
    """
    first_key = _first_block_key(start)
    query = "SELECT rowid FROM word WHERE rowid >= ? AND rowid < ? ORDER BY rowid"
    starts = [key for (key,) in rows(db, query, (first_key, stop))]
    if not starts:
        return []
    db.executemany("DELETE FROM word WHERE rowid = ?", [(key,) for key in starts])
    next_rows = rows(db, "SELECT rowid FROM word WHERE rowid >= ? ORDER BY rowid LIMIT 1", (stop,))
    next_start = next_rows[0][0] if next_rows else stop + BLOCK_ENTRIES
    return [
        (key, min(key + BLOCK_ENTRIES, next_key))
        for key, next_key in zip(starts, [*starts[1:], next_start], strict=True)
    ]


def _first_block_key(key: int) -> int:
    """The lowest key that a block with this entry may start at: a block never spans two conversations."""
    return max(entry_key(conversation_number(key), 0), key - BLOCK_ENTRIES + 1)


def matching_keys(db: apsw.Connection, query_words: frozenset[str], start: int, stop: int) -> Iterator[int]:
    """The keys of the entries in a range that have all words, from last to first."""
    query = "SELECT rowid FROM word WHERE word MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC"
    match = " AND ".join(f'"{word}"' for word in sorted(query_words))
    for (block,) in db.execute(query, (match, _first_block_key(start), stop)):
        texts = list(entries.searchable_texts(db, max(block, start), min(block + BLOCK_ENTRIES, stop)))
        yield from (key for key, text in reversed(texts) if query_words <= words(text))
        stop = block


def search(db: apsw.Connection, tenant: str, query: SearchQuery, within: ConversationRow | None) -> Page[SearchHit]:
    """The entries that have all words, in one conversation or in all, by descending key."""
    after = cursor_values(query.cursor, int)
    stop = after[0] if after else 1 << 62
    query_words = frozenset(query.words)
    if within is not None:
        matches = _matches_in_conversation(db, within, query_words, stop)
    else:
        matches = _matches_in_all(db, tenant, query.recipient, query_words, stop)
    first_matches = list(islice(matches, query.limit + 1))
    page, has_more = first_matches[: query.limit], len(first_matches) > query.limit
    hits = tuple(SearchHit(row.conversation.id, position_of(key), _entry(db, key)) for key, row in page)
    return Page(hits, cursor_of(page[-1][0]) if has_more else None)


def _matches_in_conversation(
    db: apsw.Connection, row: ConversationRow, query_words: frozenset[str], stop_key: int
) -> Iterator[tuple[int, ConversationRow]]:
    """Matches in one conversation. Entries that a fork shares have lower keys, since a fork is newer than its origin."""
    header = row.conversation
    for number, start, stop in reversed(row.spans(header.first, header.length)):
        for key in matching_keys(db, query_words, entry_key(number, start), min(entry_key(number, stop), stop_key)):
            yield key, row


def _matches_in_all(
    db: apsw.Connection, tenant: str, recipient: str | None, query_words: frozenset[str], stop_key: int
) -> Iterator[tuple[int, ConversationRow]]:
    number: int | None = None
    row: ConversationRow | None = None
    for key in matching_keys(db, query_words, 0, stop_key):
        if conversation_number(key) != number:
            number = conversation_number(key)
            row = _visible_row(db, number, tenant, recipient)
        if row is not None and position_of(key) >= _first_searched_position(row):
            yield key, row


def _first_searched_position(row: ConversationRow) -> int:
    """Where the own entries of a conversation begin. A fork's copies are found in the conversation they come from."""
    header = row.conversation
    return max(header.first, header.origin.position if header.origin else 0)


def _visible_row(db: apsw.Connection, number: int, tenant: str, recipient: str | None) -> ConversationRow | None:
    """The conversation with this number, if it is the tenant's and the recipient's."""
    columns = db.execute(f"{headers.SELECT} AND number = ?", (tenant, number)).fetchone()
    if columns is None:
        return None
    row = headers.row_of(columns)
    return row if recipient in {None, row.conversation.recipient} else None


def _entry(db: apsw.Connection, key: int) -> ConversationEntry:
    return entries.unpack_rows(db, rows(db, entries.SELECT, (key, key + 1)))[1][0]
