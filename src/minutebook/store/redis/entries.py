"""Loads and trims entries.

A load first reads the header, folds and pins in one script, then the entries. Entries hardly ever change, so they need not
be read at the same moment; if some were purged or trimmed or have expired in between, the load starts again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Final

from minutebook.errors import StoreDamaged
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.store.backend import LoadQuery
from minutebook.store.redis.connection import Value
from minutebook.store.redis.rows import HeaderRow, decoded_entries, encoded_entry, fold_from_record
from minutebook.store.redis.tenant import TenantIndex
from minutebook.store.rules import folds_in_range, merged_ranges, require_position, trimmed_entry, unfolded_ranges
from minutebook.store.types import LoadedConversation

MAX_ENTRIES_PER_SCRIPT: Final = 500
"""The server runs nothing else during a script."""
MAX_ATTEMPTS: Final = 5
"""If entries are still missing after this many attempts, the server has lost them: purges are not that frequent."""


async def load(index: TenantIndex, query: LoadQuery) -> LoadedConversation:
    """Load a part of a conversation."""
    conversation = query.conversation
    kind, value = "since", query.since or 0
    if query.last_turns is not None:
        kind, value = "turns", query.last_turns
    elif query.last_messages is not None:
        kind, value = "messages", query.last_messages
    args: tuple[Value, ...] = (kind, value, "" if query.limit is None else query.limit, "1" if query.folded else "")
    for _ in range(MAX_ATTEMPTS):
        reply = await index.run_script("plan_load", conversation, *args)
        _, fields, start, stop, fold_records, pins, exchange_bounds = reply
        row = index.row(conversation, fields)
        folds = sorted((fold_from_record(record).fold for record in fold_records), key=lambda fold: fold.start)
        if query.folded:
            header = row.conversation
            pinned_exchanges = [
                range(*bounds) for bounds in zip(exchange_bounds[::2], exchange_bounds[1::2], strict=True)
            ]
            requested = merged_ranges([range(header.first, header.lead), *pinned_exchanges, range(start, stop)])
            parts = [span for part in requested for span in unfolded_ranges(folds, part.start, part.stop)]
        else:
            folds = folds_in_range(folds, start, stop)
            parts = [range(start, stop)] if start < stop else []
        entries = await _read(index, row, parts)
        if entries is not None:
            positions = tuple(position for part in parts for position in part)
            pinned_positions = frozenset(map(int, pins))
            return LoadedConversation(
                row.conversation, start, tuple(entries), positions, tuple(folds), pinned_positions
            )
    problem = "some entries are missing, although they were not purged, trimmed or erased and have not expired"
    raise StoreDamaged(index.engine.address.name, problem)


async def _read(index: TenantIndex, row: HeaderRow, parts: Iterable[range]) -> list[ConversationEntry] | None:
    """The entries of some ranges; None if one was removed or trimmed since `row` was read."""
    entries: list[ConversationEntry] = []
    for batch in _batches(parts):
        reply = await _load_entries(index, row, batch)
        if reply is None:
            return None
        entries += decoded_entries(index.engine.address.name, *reply)
    return entries


async def _load_entries(
    index: TenantIndex, row: HeaderRow, parts: Iterable[range]
) -> tuple[list[bytes], list[bytes]] | None:
    """The encoded entries of some ranges and their payloads; None if one was removed or trimmed since `row` was read."""
    bounds = [bound for part in parts for bound in (part.start, part.stop)]
    reply = await index.run_script("load_entries", row.conversation.id, row.nonce, row.conversation.revision, *bounds)
    return None if reply[0] == b"conflict" else (reply[1], reply[2])


def _batches(parts: Iterable[range]) -> Iterator[Sequence[range]]:
    """The same positions in batches of at most `MAX_ENTRIES_PER_SCRIPT`."""
    batch: list[range] = []
    room = MAX_ENTRIES_PER_SCRIPT
    for part in parts:
        remaining = part
        while remaining:
            batch_part, remaining = remaining[:room], remaining[room:]
            batch.append(batch_part)
            room -= len(batch_part)
            if room == 0:
                yield batch
                batch, room = [], MAX_ENTRIES_PER_SCRIPT
    if batch:
        yield batch


async def trim(index: TenantIndex, conversation: str, changes: Mapping[int, Message]) -> int:
    """Replace messages by smaller ones; return how many changed. Forks have their own copies."""
    while True:
        row = await index.get(conversation)
        positions = [require_position(row.conversation, position) for position in changes]
        reply = await _load_entries(index, row, [range(position, position + 1) for position in positions])
        if reply is None:
            continue
        encoded, payloads = reply
        entries = decoded_entries(index.engine.address.name, encoded, payloads)
        args: list[Value] = []
        count = 0
        for position, before, entry in zip(positions, encoded, entries, strict=True):
            replacement = trimmed_entry(entry, changes[position], position)
            if replacement is None:
                continue
            count += 1
            after = encoded_entry(replacement[0])
            digest = sha1(before, usedforsecurity=False).hexdigest()
            args += [position, digest, after.data, len(after.payloads) // 2, *after.payloads]
        if not count:
            return 0
        if (await index.run_script("trim", conversation, row.nonce, count, *args))[0] == b"done":
            return count
