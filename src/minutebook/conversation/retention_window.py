"""The window of retention: which turns are sent, and which of them with their tool calls. It moves in steps.

A window that moves with every turn changes the start of every request, so the provider's prompt cache is lost each time. So
both boundaries stay until a maximum is exceeded and then move far enough for several turns. They are computed from left to
right, once per turn: messages that are appended later never change an earlier step.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from minutebook.history.incremental import (
    IncrementalManager,
    IncrementalView,
    IncrementalWindow,
    KeepSet,
    last_exchange,
)
from minutebook.history.tool_calls import ToolStripper
from minutebook.record.message import Message, is_user, role_of, text_of
from minutebook.record.transcript import Transcript

_TARGET: Final = 0.4
"""Share of the maximum number of messages that remains after a step. Measured: 30 turns of plain chat then cost 0.8 of the
full history; with one turn per step they cost 3 times as much."""
_TOOLS_FACTOR: Final = 3
"""Maximum turns with tools, as a multiple of the minimum. The step rewrites the preserved turns in the cache, so it must
strip more than these."""


def is_visible(message: Message) -> bool:
    """Whether users see the message: their own ones, and answers with text."""
    return is_user(message) or (role_of(message) == "assistant" and bool(text_of(message)))


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """The limits of the window."""

    messages: int
    """Maximum visible messages of finished turns; 0 keeps only the open turn."""
    turns: int
    """Minimum finished turns that are sent."""
    turns_with_tools: int
    """Minimum finished turns that are sent with their tool calls."""


@dataclass(slots=True)
class RetentionBoundaries:
    """The numbers of the first turn that is sent and of the first one with tools, after each turn that was opened."""

    limits: RetentionLimits
    first: int = 0
    first_with_tools: int = 0
    _counts: list[int] = field(default_factory=list)
    """For each turn, the number of visible messages before it."""

    @classmethod
    def of(cls, source: Transcript, limits: RetentionLimits) -> "RetentionBoundaries":
        """The boundaries in a transcript. They are cached with it, so a call costs as much as there are new turns."""
        boundaries = source.remember((cls.__name__, limits), lambda: cls(limits))
        boundaries.advance(source)
        return boundaries

    def advance(self, source: Transcript) -> None:
        """Process the turns that were opened since the last call."""
        starts, limits = source.turn_starts, self.limits
        for turn in range(len(self._counts), len(starts)):
            start = starts[turn - 1] if turn else starts[0]
            count = self._counts[-1] if turn else 0
            self._counts.append(count + sum(map(is_visible, source[start : starts[turn]])))
            if self._visible(turn) > limits.messages:
                self._drop_turns(turn)
                self.first_with_tools = max(self.first_with_tools, turn - limits.turns_with_tools)
            elif turn - self.first_with_tools > limits.turns_with_tools * _TOOLS_FACTOR:
                self.first_with_tools = turn - limits.turns_with_tools

    def _visible(self, turn: int) -> int:
        """The number of visible messages that are sent of turns before this one."""
        return self._counts[turn] - self._counts[self.first]

    def _drop_turns(self, turn: int) -> None:
        last = turn - self.limits.turns if self.limits.messages else turn
        while self.first < last and self._visible(turn) > self.limits.messages * _TARGET:
            self.first += 1


@dataclass(slots=True, frozen=True)
class RecentTurns(IncrementalManager):
    """Leave out the oldest turns when finished turns have too many visible messages."""

    limits: RetentionLimits

    def new_view(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:  # noqa: ARG002 - it depends on messages alone
        reason = f"older than the last {self.limits.messages} messages"
        return IncrementalWindow(source, keep, self._start, _no_extra_indexes, reason)

    def fits(self, messages: Sequence[Message]) -> bool:
        return not self._start(Transcript.of(messages))

    def _start(self, source: Transcript) -> int:
        first = RetentionBoundaries.of(source, self.limits).first
        return source.turn_starts[first] if first else 0


@dataclass(slots=True, frozen=True)
class OldToolStripper(ToolStripper):
    """Show turns before the boundary of retention as text only."""

    limits: RetentionLimits = RetentionLimits(0, 0, 0)

    def _boundary(self, source: Transcript) -> int:
        first = RetentionBoundaries.of(source, self.limits).first_with_tools
        return min(source.turn_starts[first], last_exchange(source).start) if first else 0


def _no_extra_indexes(source: Transcript, start: int) -> set[int]:  # noqa: ARG001 - the signature of a window
    return set()
