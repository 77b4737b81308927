"""What a caller asks of every manager, whatever its strategy."""

from dataclasses import dataclass, field

from minutebook.errors import InvalidSetting
from minutebook.history.protocol import SessionProtocol


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
