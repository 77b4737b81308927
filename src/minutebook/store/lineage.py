"""Where the entries of a conversation were said: those that a fork shares, in what it was forked from."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from minutebook.store.contract import ConversationStore
from minutebook.store.types import Conversation

MOST_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """A conversation and what it was forked from."""

    root: str
    """The first of them all."""
    stretches: tuple[tuple[int, str], ...]
    """Up to which position, in which conversation; the oldest first."""
    own: str

    def home(self, position: int) -> str:
        """The conversation in which an entry was said."""
        return next((name for stop, name in self.stretches if position < stop), self.own)


class Lineage:
    """Finds lines by walking up from fork to origin. They never change, so each is walked once."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._known: dict[tuple[str, datetime], Line] = {}

    async def of(self, header: Conversation) -> Line:
        if header.origin is None:
            return Line(header.id, (), header.id)
        name = (header.id, header.created_at)
        known = self._known.get(name)
        if known is None:
            origin, cut = await self._store.header(header.origin.conversation), header.origin.position
            above = await self.of(origin)
            shared = [(min(stop, cut), where) for stop, where in (*above.stretches, (cut, origin.id))]
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            known = self._known[name] = Line(above.root, tuple(shared), header.id)
        return known
