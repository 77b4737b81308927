"""What a history manager is, and what it sees of the session."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

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
