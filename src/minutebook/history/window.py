"""Managers that keep the newest messages or turns of a conversation."""

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from minutebook.errors import InvalidSetting
from minutebook.history.incremental import IncrementalManager, IncrementalView, IncrementalWindow, PreservedMessages
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript


@dataclass(slots=True, frozen=True)
class SlidingWindowManager(IncrementalManager):
    """Keep system message plus last N messages.

    Exchanges are not split: the newest exchange is kept whole, so the view can exceed N messages, and an older exchange that
    starts before the window is dropped. Without `slack` the window moves at every call, which invalidates the prompt cache,
    so it costs more than sending everything (1.6 times for 40 messages, replayed over coding agents). With `slack` it moves
    once every `slack + 1` messages.

    Raises:
        InvalidSetting: a size is negative.
    """

    window_size: int
    """Number of recent messages to retain (excluding system). 0 keeps the system messages only."""
    slack: int = 0
    """Number of messages above `window_size` before the window is cut back to it."""
    align: Literal["exchange", "turn"] = "exchange"
    """Whether the window may start at any exchange, or only at a user message if it has one."""
    preserve_request: bool = True
    """Keep the newest user message also when it is older than the window."""
    preserve_first_user: bool = False
    """Keep the first user message: it is often the task."""

    def __post_init__(self) -> None:
        require_count("window_size", self.window_size)
        require_count("slack", self.slack)
        if self.align not in {"exchange", "turn"}:
            raise InvalidSetting("align", self.align, "'exchange' or 'turn'")

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        reason = f"older than the window of {self.window_size} messages"
        return IncrementalWindow(source, preserved, self._start, self._request_indexes, reason)

    def fits(self, messages: Sequence[Message]) -> bool:
        return len(messages) - Transcript.of(messages).leading_system_count <= self.window_size

    def _start(self, source: Transcript) -> int:
        end, leading = len(source), source.leading_system_count
        start = leading + count_before_window(end - leading, self.window_size, self.slack)
        if start >= end or start <= leading:
            return start
        exchange = source.exchange_of(start)
        if exchange.start < start:
            start = exchange.start if exchange.stop == end else exchange.stop
        if self.align == "exchange":
            return start
        turn = bisect_left(source.turn_starts, start)
        return source.turn_starts[turn] if turn < len(source.turn_starts) else start

    def _request_indexes(self, source: Transcript, start: int) -> set[int]:  # noqa: ARG002
        if not self.window_size:
            return set()
        newest = source.newest_request if self.preserve_request else None
        first = source.first_request if self.preserve_first_user else None
        return {index for index in (newest, first) if index is not None}


@dataclass(slots=True, frozen=True)
class TurnWindowManager(IncrementalManager):
    """Keep system messages plus the last N turns. A turn is a user message and everything before the next one.

    Messages before the first user message are dropped together with the first turn. Each dropped turn invalidates the
    prompt cache, so if turns are short, a window without `slack` costs more than sending everything (1.08 times for 10
    turns, replayed over customer-service dialogues).

    Raises:
        InvalidSetting: a number is negative.
    """

    turns: int
    """Number of recent turns to keep. 0 keeps the system messages only."""
    slack: int = 0
    """Number of turns above `turns` before the view is cut back to `turns`."""

    def __post_init__(self) -> None:
        require_count("turns", self.turns)
        require_count("slack", self.slack)

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return IncrementalWindow(
            source, preserved, self._start, _no_extra_indexes, f"older than the last {self.turns} turns"
        )

    def fits(self, messages: Sequence[Message]) -> bool:
        return len(Transcript.of(messages).turn_starts) <= self.turns

    def _start(self, source: Transcript) -> int:
        turn_count = len(source.turn_starts)
        dropped_turns = count_before_window(turn_count, self.turns, self.slack)
        if not dropped_turns:
            return 0
        return source.turn_starts[dropped_turns] if dropped_turns < turn_count else len(source)


def count_before_window(count: int, size: int, slack: int) -> int:
    """The number of items before a window of `size` over `count` items that moves by `slack + 1` items at a time.

    The number depends on no earlier call, so a list that grows item by item has the same window as the whole list.
    """
    step = slack + 1
    return max(0, (count - size) // step * step)


def require_count(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidSetting(name, value, "a whole number, 0 or more")


def _no_extra_indexes(source: Transcript, start: int) -> set[int]:  # noqa: ARG001
    return set()
