"""What every handle does alike, so that a store is only its own reading and writing."""

from abc import abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

from minutebook.store.contract import ConversationStore
from minutebook.store.rules import now, require_name
from minutebook.store.transfer import exported, imported
from minutebook.store.types import Imported


class Handle(ConversationStore):
    """A tenant, a clock, export and import: the parts of a store that need no database."""

    def __init__(self, *, tenant: str = "default", clock: Callable[[], datetime] = now) -> None:
        self._tenant = require_name("tenant", tenant)
        self._clock = clock

    @property
    def tenant(self) -> str:
        """Whose conversations this handle sees."""
        return self._tenant

    def _now(self) -> datetime:
        return self._clock().astimezone(UTC)

    def export(self, conversation: str) -> AsyncIterator[str]:
        """A conversation as lines of JSON."""
        return exported(self, conversation)

    async def import_(self, lines: AsyncIterable[str] | Iterable[str]) -> Imported:
        """Add the conversations that `export` wrote."""
        return await imported(self, lines)

    @abstractmethod
    async def close(self) -> None:
        """Finish what was begun and let go."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
