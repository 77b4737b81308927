"""What a history manager is, and what it sees of the session.

What a caller asks of every manager, whatever its strategy.

Facts about curation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message


@runtime_checkable
class SessionProtocol(Protocol):
    """What a manager may know of the session it curates for."""

    @property
    def session_id(self) -> UUID | None:
        """Which session this is."""
        ...


class HistoryManager(Protocol):
    """Protocol for conversation history curation."""

    def curate(self, messages: Sequence[Message], *, session: SessionProtocol) -> list[Message]:
        """Return a curated view of the conversation history.

        A new list: a subset of the messages, a transformation of them, or all of them. It holds at least the leading
        system messages, keeps every call with its results, and leaves the input alone. The same input gives the same
        view.
        """
        ...


class EventBus(Protocol):
    """Whatever events are published on."""

    def publish(self, event: object, /) -> Any:
        """Hand an event to whoever listens."""
        ...


@dataclass(slots=True, frozen=True)
class CurationContext:
    """Immutable context for history curation decisions.

    Raises:
        InvalidSetting: `preserve_last_n` is negative.
    """

    session: SessionProtocol | None = None
    """The active session for state queries."""
    preserve_system: bool = True
    """Whether to always preserve the leading system messages."""
    preserve_last_n: int | None = None
    """If set, always preserve at least the last N messages, and the rest of the exchange that holds the oldest."""
    pins: frozenset[int] = field(default=frozenset())
    """Messages, by their index, that must stay as they are, with the exchanges they belong to."""

    def __post_init__(self) -> None:
        if self.preserve_last_n is not None and self.preserve_last_n < 0:
            raise InvalidSetting("preserve_last_n", self.preserve_last_n, "0 or more, or None")


NO_CONTEXT = CurationContext()


@dataclass(slots=True, frozen=True)
class HistoryCurated:
    """Emitted when conversation history is curated."""

    prompt_name: str
    original_count: int
    curated_count: int
    strategy: str
    session_id: UUID | None
    created_at: datetime
    tokens_before: int | None = None
    """The tokens of the whole conversation, where whoever tells it has counted."""
    tokens_after: int | None = None
    """The tokens of the view."""
