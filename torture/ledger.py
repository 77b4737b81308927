"""What a conversation must hold, beside what it holds."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import pairwise

from minutebook.errors import ConversationNotFound
from minutebook.record.message import MessageRole
from minutebook.store.types import LoadedConversation
from minutebook.store.url import open_store
from torture.writing import turn


@dataclass
class Found:
    """What must not be: each of these is counted, and each must be 0."""

    lost: int = 0
    """Acknowledged and not there."""
    halves: int = 0
    """Turns of which a part is there."""
    gaps: int = 0
    """Places where positions do not follow each other, or the header says something else."""
    doubled: int = 0
    """There more than once."""
    disordered: int = 0
    """After a later one of the same writer, or with an earlier one missing."""

    def __add__(self, other: "Found") -> "Found":
        return Found(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def is_nothing(self) -> bool:
        return self == Found()


@dataclass
class Ledger:
    """One conversation's: what was acknowledged, and what was found on reading it, from where the last reading ended."""

    url: str
    conversation: str
    single: bool = False
    acknowledged: set[str] = field(default_factory=set)
    stored: Counter[str] = field(default_factory=Counter)
    unheard: int = 0
    """How many were stored and not acknowledged when they were first read: what a retry could double."""
    found: Found = field(default_factory=Found)
    _read: int = 0
    _next: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Read what is new; count what is wrong."""
        loaded = asyncio.run(self._load())
        if loaded is not None:
            self._take(loaded)
        self.found.lost = len(self.acknowledged - self.stored.keys())
        self.found.doubled = sum(self.stored.values()) - len(self.stored)

    async def _load(self) -> LoadedConversation | None:
        async with open_store(self.url) as store:
            try:
                return await store.load(self.conversation, since=self._read)
            except ConversationNotFound:
                return None  # killed before it was made; what was acknowledged is then lost

    def _take(self, loaded: LoadedConversation) -> None:
        expected = range(self._read, self._read + len(loaded.entries))
        self.found.gaps += list(loaded.positions) != list(expected) or loaded.conversation.length != expected.stop
        self.found.halves += bool(loaded.conversation.open_calls)
        entries = loaded.entries
        starts = [at for at, entry in enumerate(entries) if entry.role is MessageRole.USER]
        self.found.halves += bool(entries) and starts[:1] != [0]
        for start, stop in pairwise([*starts, len(entries)]):
            key = entries[start].content or ""
            whole = turn(key, single=self.single)
            self.found.halves += [(one.role, one.content, one.tool_calls) for one in entries[start:stop]] != [
                (one.role, one.content, one.tool_calls) for one in whole
            ]
            self._count(key)
        self._read = expected.stop

    def _count(self, key: str) -> None:
        self.stored[key] += 1
        self.unheard += key not in self.acknowledged
        writer, _, number = key.rpartition(" ")
        self.found.disordered += int(number) != self._next[writer]
        self._next[writer] = int(number) + 1
