"""Loading: one look at what there is, then the entries that are wanted, wherever they are.

Entries hardly ever change, so they are not read at the same moment as the header; only if some were purged or trimmed or
have expired in between is all of it done again.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from minutebook.record.entry import ConversationEntry
from minutebook.store.backend import LoadQuery
from minutebook.store.redis.rows import Filed, fold_of, whole
from minutebook.store.redis.tenant import Shelf
from minutebook.store.rules import folds_in_range, gaps, merged_ranges
from minutebook.store.types import LoadedConversation

AT_A_TIME: Final = 500
"""How many entries one script reads: others wait for it."""
TRIES: Final = 5
"""After so many, it is not others who purge: the server has dropped a part."""


async def load(shelf: Shelf, query: LoadQuery) -> LoadedConversation:
    """A part of a conversation."""
    conversation = query.conversation
    kind, count = "since", query.since or 0
    if query.last_turns is not None:
        kind, count = "turns", query.last_turns
    elif query.last_messages is not None:
        kind, count = "messages", query.last_messages
    for _ in range(TRIES):
        args = (kind, count, "" if query.limit is None else query.limit, "1" if query.folded else "")
        reply = await shelf.ask("load_header", conversation, *args)
        filed, start, stop = shelf.filed(conversation, reply[1]), reply[2], reply[3]
        folds = sorted((fold_of(record).fold for record in reply[4]), key=lambda fold: fold.start)
        pins = frozenset(int(pin) for pin in reply[5])
        if query.folded:
            header, bounds = filed.conversation, reply[6]
            pinned = [range(bounds[at], bounds[at + 1]) for at in range(0, len(bounds), 2)]
            wanted = merged_ranges([range(header.first, header.lead), *pinned, range(start, stop)])
            parts = [gap for part in wanted for gap in gaps(folds, part.start, part.stop)]
        else:
            folds = folds_in_range(folds, start, stop)
            parts = [range(start, stop)] if start < stop else []
        entries = await read(shelf, filed, parts)
        if entries is not None:
            places = tuple(place for part in parts for place in part)
            return LoadedConversation(filed.conversation, start, tuple(entries), places, tuple(folds), pins)
    raise shelf.damaged("entries are missing that were neither purged nor erased")


async def read(shelf: Shelf, filed: Filed, parts: Iterable[range]) -> list[ConversationEntry] | None:
    """The entries at some positions; None if not all of them are there any more."""
    found: list[ConversationEntry] = []
    for some in _steps(parts):
        spans = [end for part in some for end in (part.start, part.stop)]
        reply = await shelf.ask("load", filed.conversation.id, filed.nonce, filed.trims, *spans)
        if reply[0] == b"moved":
            return None
        bodies = {reply[2][at]: reply[2][at + 1] for at in range(0, len(reply[2]), 2)}
        found += whole(shelf.engine.address.name, reply[1], bodies)
    return found


def _steps(parts: Iterable[range]) -> Iterator[Sequence[range]]:
    """The same positions in steps of no more than so many."""
    step: list[range] = []
    room = AT_A_TIME
    for part in parts:
        rest = part
        while rest:
            some, rest = rest[:room], rest[room:]
            step.append(some)
            room -= len(some)
            if room == 0:
                yield step
                step, room = [], AT_A_TIME
    if step:
        yield step
