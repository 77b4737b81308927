"""The conversations that a fork comes from.

An entry is encrypted for the conversation that it was appended to, and a fold for the oldest conversation of its lineage. So
a fork can decrypt the entries and folds that it shares.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from minutebook.store.backend import Backend
from minutebook.store.types import ConversationHeader

MAX_CACHED: Final = 10_000
"""Maximum number of lineages in the cache."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """A conversation and the conversations that it was forked from, directly and indirectly."""

    conversation: str
    root: str
    """The oldest conversation of the lineage."""
    shared: tuple[tuple[int, str], ...] = ()
    """(stop, conversation), the oldest first: the entries before `stop` were appended to that conversation."""

    def conversation_at(self, position: int) -> str:
        """The conversation that the entry at a position was appended to."""
        return next((name for stop, name in self.shared if position < stop), self.conversation)


class LineageCache:
    """Finds lineages by following the origins of forks. A lineage never changes."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._lineages: dict[tuple[str, datetime], Lineage] = {}

    async def find(self, header: ConversationHeader) -> Lineage:
        if header.origin is None:
            return Lineage(header.id, header.id)
        key = (header.id, header.created_at)
        lineage = self._lineages.get(key)
        if lineage is None:
            origin, length = await self._inner.header(header.origin.conversation), header.origin.position
            parent = await self.find(origin)
            shared = [(min(stop, length), name) for stop, name in (*parent.shared, (length, origin.id))]
            if len(self._lineages) >= MAX_CACHED:
                self._lineages.clear()
            lineage = self._lineages[key] = Lineage(header.id, parent.root, tuple(shared))
        return lineage
