"""Compares a stored conversation with the turns that its writers know to be stored."""

import asyncio
from collections import Counter
from dataclasses import astuple, dataclass, field
from itertools import pairwise

from minutebook.errors import ConversationNotFound
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.types import LoadedConversation
from minutebook.store.url import open_store
from torture.writers import turn


@dataclass
class Violations:
    """Counts of what must not happen. False if all are 0."""

    lost: int = 0
    """Acknowledged, but not stored."""
    partial: int = 0
    """Turns that are stored in part."""
    gaps: int = 0
    """Reads whose positions are not consecutive or do not match the header."""
    duplicates: int = 0
    """Stored more than once."""
    out_of_order: int = 0
    """Stored after a later turn of the same writer, or without an earlier one."""

    def __add__(self, other: "Violations") -> "Violations":
        return Violations(*(count + more for count, more in zip(astuple(self), astuple(other), strict=True)))

    def __bool__(self) -> bool:
        return self != Violations()


@dataclass
class ConversationChecker:
    """Checks one conversation. Each check reads the entries after those of the previous one."""

    url: str
    conversation: str
    single: bool = False
    """A turn is one message."""
    acknowledged: set[str] = field(default_factory=set)
    """Keys of the turns that a writer knows to be stored."""
    stored: Counter[str] = field(default_factory=Counter)
    """Keys of the stored turns."""
    unacknowledged: int = 0
    """Turns that were not acknowledged when they were first read. A retry could store them twice."""
    violations: Violations = field(default_factory=Violations)
    _read_until: int = 0
    _next_turns: Counter[str] = field(default_factory=Counter)

    def check(self) -> None:
        """Read the new entries, and count violations."""
        loaded = asyncio.run(self._load())
        if loaded is not None:
            self._check_entries(loaded)
        self.violations.lost = len(self.acknowledged - self.stored.keys())
        self.violations.duplicates = sum(self.stored.values()) - len(self.stored)

    async def _load(self) -> LoadedConversation | None:
        async with open_store(self.url) as store:
            try:
                return await store.load(self.conversation, since=self._read_until)
            except ConversationNotFound:
                return None  # the writer was killed before it created the conversation

    def _check_entries(self, loaded: LoadedConversation) -> None:
        entries = loaded.entries
        expected = range(self._read_until, self._read_until + len(entries))
        self.violations.gaps += list(loaded.positions) != list(expected) or loaded.conversation.length != expected.stop
        self.violations.partial += bool(loaded.conversation.open_calls)
        starts = [index for index, entry in enumerate(entries) if entry.role is MessageRole.USER]
        self.violations.partial += bool(entries) and starts[:1] != [0]
        for start, stop in pairwise([*starts, len(entries)]):
            key = entries[start].content or ""
            complete = turn(key, single=self.single)
            self.violations.partial += list(map(_content, entries[start:stop])) != list(map(_content, complete))
            self._count_turn(key)
        self._read_until = expected.stop

    def _count_turn(self, key: str) -> None:
        self.stored[key] += 1
        self.unacknowledged += key not in self.acknowledged
        writer, _, number = key.rpartition(" ")
        self.violations.out_of_order += int(number) != self._next_turns[writer]
        self._next_turns[writer] = int(number) + 1


def _content(entry: ConversationEntry) -> tuple[object, ...]:
    return entry.role, entry.content, entry.tool_calls
