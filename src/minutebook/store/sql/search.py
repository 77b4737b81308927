"""Search with an index of tokens: the index finds keys, and the entries and folds with these keys are compared."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from minutebook.store.backend import SearchQuery
from minutebook.store.codec import cursor_of, cursor_values
from minutebook.store.rules import merged_ranges
from minutebook.store.scan import MAX_SCANNED_ENTRIES
from minutebook.store.search import (
    FIRST_FOLD_POSITION,
    SearchTarget,
    index_query,
    summary_entry,
)
from minutebook.store.sql import folds, headers
from minutebook.store.sql.transaction import KEY_SHIFT, ConversationRow, EntrySpan, SqlTransaction
from minutebook.store.types import Page, SearchHit

_MAX_KEY: Final = 1 << 62
_POSITION: Final = (1 << KEY_SHIFT) - 1
"""The bits of a key that are the position."""
_MAX_BATCH: Final = 200
"""Maximum number of keys that are read from the index at a time."""
_SELECT_FOLD: Final = (
    f"SELECT {folds.COLUMNS} FROM fold WHERE conversation = ? AND number = ?"  # noqa: S608 - a constant of ours
    " AND undone_at IS NULL AND covered_by IS NULL"
)


class _Candidate(NamedTuple):
    """A key that the index returned, and the conversation that it is searched in."""

    key: int
    row: ConversationRow

    @property
    def number(self) -> int:
        return self.key >> KEY_SHIFT

    @property
    def position(self) -> int:
        return self.key & _POSITION

    @property
    def is_fold(self) -> bool:
        return self.position >= FIRST_FOLD_POSITION


async def search(tx: SqlTransaction, query: SearchQuery) -> Page[SearchHit]:
    """The entries and folds that match, by descending key."""
    mode = await tx.search_mode()
    tokens, target = index_query(query, tx.tenant, mode), SearchTarget(query, mode)
    after = cursor_values(query.cursor, int)
    before = after[0] if after else _MAX_KEY
    within = None if query.conversation is None else await headers.get(tx, query.conversation)
    batch_size = min(query.limit + 1, _MAX_BATCH)
    hits: list[tuple[int, SearchHit]] = []
    read_count = 0
    for start, end in _key_ranges(within):
        stop = min(end, before)
        while start < stop:
            keys = await tx.find_keys(tokens, start, stop, batch_size)
            for key, hit in await _load_hits(tx, target, keys, within):
                if len(hits) == query.limit:
                    return Page(tuple(hit for _, hit in hits), cursor_of(hits[-1][0]))
                hits.append((key, hit))
            read_count += len(keys)
            if len(keys) < batch_size:
                break
            stop = keys[-1]
            if read_count >= MAX_SCANNED_ENTRIES:
                return Page(tuple(hit for _, hit in hits), cursor_of(stop))
    return Page(tuple(hit for _, hit in hits), None)


def _key_ranges(within: ConversationRow | None) -> Iterator[tuple[int, int]]:
    """The ranges of keys to search, last first: those of one conversation, or all keys.

    A fork reads entries of conversations with lower numbers.
    """
    if within is None:
        yield 0, _MAX_KEY
        return
    header, number = within.conversation, within.number
    yield (number << KEY_SHIFT) + FIRST_FOLD_POSITION, (number + 1) << KEY_SHIFT
    for source, start, stop in reversed(within.spans(header.first, header.length)):
        yield (source << KEY_SHIFT) + start, (source << KEY_SHIFT) + stop


async def _load_hits(
    tx: SqlTransaction, target: SearchTarget, keys: Sequence[int], within: ConversationRow | None
) -> list[tuple[int, SearchHit]]:
    """The hits among some keys."""
    rows = {} if within is not None else await _visible_rows(tx, target.query, {key >> KEY_SHIFT for key in keys})
    candidates = [
        candidate
        for key in keys
        if (row := within or rows.get(key >> KEY_SHIFT)) is not None
        and ((candidate := _Candidate(key, row)).is_fold or within or candidate.position >= _first_position(row))
    ]
    entries = {candidate.key: candidate.row for candidate in candidates if not candidate.is_fold}
    parts = merged_ranges(range(key, key + 1) for key in entries)  # the keys of one row of an index are consecutive
    spans = [
        EntrySpan(part.start >> KEY_SHIFT, part.start & _POSITION, (part.stop - 1 & _POSITION) + 1) for part in parts
    ]
    results = await tx.query(*map(tx.entry_query, spans))
    hits: dict[int, SearchHit | None] = {}
    numbers = [span.number for span, result in zip(spans, results, strict=True) for _ in result]
    for number, position, entry in zip(numbers, *await tx.unpack(results), strict=True):
        key = (number << KEY_SHIFT) + position
        hits[key] = target.hit(entries[key].conversation.id, position, entry)
    summaries = [candidate for candidate in candidates if candidate.is_fold]
    fold_queries = [(_SELECT_FOLD, (summary.number, summary.position - FIRST_FOLD_POSITION)) for summary in summaries]
    for candidate, fold_rows in zip(summaries, await tx.query(*fold_queries), strict=True):
        for stored in map(folds.stored_fold, fold_rows):
            conversation, fold = candidate.row.conversation.id, stored.fold
            hits[candidate.key] = target.hit(conversation, fold.start, summary_entry(fold, stored), fold)
    return [(key, hit) for key in keys if (hit := hits.get(key)) is not None]


async def _visible_rows(tx: SqlTransaction, query: SearchQuery, numbers: set[int]) -> dict[int, ConversationRow]:
    """The conversations with these numbers that are the tenant's and the recipient's."""
    select = f"{headers.SELECT} AND number = ?"
    results = await tx.query(*((select, (tx.tenant, number)) for number in sorted(numbers)))
    rows = [headers.row_of(result[0]) for result in results if result]
    return {row.number: row for row in rows if query.recipient in {None, row.conversation.recipient}}


def _first_position(row: ConversationRow) -> int:
    """Where the own entries of a conversation begin. A fork's copies are found in the conversation they come from."""
    header = row.conversation
    return max(header.first, header.origin.position if header.origin else 0)
