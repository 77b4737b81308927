"""The protocol of history managers, the context that a caller passes to them, the guarantees, and the event of a curation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message


@runtime_checkable
class SessionProtocol(Protocol):
    """The part of a session that managers use."""

    @property
    def session_id(self) -> UUID | None:
        """Id of the session."""
        ...


class HistoryManager(Protocol):
    """Protocol for conversation history curation.

    Write `messages: Sequence[Message]` or `Sequence[dict[str, Any]]`, and return a list of either: type checkers accept
    both.
    """

    def curate(self, messages: Sequence[dict[str, Any]], *, session: SessionProtocol) -> Sequence[Message]:
        """Return a curated view of the conversation history.

        The result is a new list: a subset of the messages, a transformation of them, or all of them. It includes the
        leading system messages and does not separate calls from their results. The input is not changed, and the same
        input gives the same view.
        """
        ...


class EventBus(Protocol):
    """A bus on which events are published."""

    def publish(self, event: object, /) -> Any:
        """Pass the event to its subscribers."""
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
    """If set, always preserve at least the last N messages; the exchange of the oldest one is preserved whole."""
    pins: frozenset[int] = field(default=frozenset())
    """Indexes of messages that must stay unchanged, with their exchanges."""

    def __post_init__(self) -> None:
        if self.preserve_last_n is not None and self.preserve_last_n < 0:
            raise InvalidSetting("preserve_last_n", self.preserve_last_n, "0 or more, or None")


NO_CONTEXT = CurationContext()


class Guarantee(StrEnum):
    """The guarantees that the guard enforces."""

    VALID = "valid"
    """The view passes the provider's rules."""
    FITS = "fits"
    """The view is within the token limit."""
    KEEPS = "keeps what matters"
    """The required messages are included unchanged."""
    UNTOUCHED = "untouched when it fits"
    """A record that is within the manager's limits is sent unchanged."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that a view would have violated, and how. The guard has repaired the view."""

    guarantee: Guarantee
    detail: str
    in_record: bool = False
    """Whether the record itself has the problem, such as a lone surrogate. Otherwise the manager caused it."""

    def __str__(self) -> str:
        return f"{self.guarantee.value}: {self.detail}{' (in the record)' if self.in_record else ''}"


@dataclass(slots=True, frozen=True)
class HistoryCurated:
    """Emitted when conversation history is curated.

    It describes the view that was sent, after the guard's repairs. If a manager is called without the guard, it describes
    that manager's result, without tokens and violations.
    """

    prompt_name: str
    original_count: int
    curated_count: int
    strategy: str
    session_id: UUID | None
    created_at: datetime
    tokens_before: int | None = None
    """Tokens of the whole conversation, if they were counted."""
    tokens_after: int | None = None
    """Tokens of the view, if they were counted."""
    violations: tuple[Violation, ...] = ()
    """The guarantees that the view would have violated without the guard's repairs."""
