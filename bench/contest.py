"""Measuring libraries against each other, call by call, in one process.

A contestant is fed the messages of a growing conversation in its own classes, converted beforehand, and asked for the
view before every call of the model. Contestants take turns, several rounds of them, and each call counts as the fastest
of its rounds, so that what else the machine does falls on all of them alike and mostly falls out.
"""

import gc
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias

from bench.report import progress
from minutebook import HistoryManager, Message, SlidingWindowManager, TokenBudgetManager, Transcript
from minutebook.tokens import ExactCounter, vocabulary

BUDGET = 32_000
WINDOW = 40
FIRST = "AGENTS.md é 你好"
"""Not all of these are tokens by themselves: the first such text makes splintr build its table of merges, once."""


class Contestant(Protocol):
    def feed(self, start: int, stop: int) -> None:
        """Take on these messages of the conversation."""

    def view(self) -> Sequence[Any]:
        """What the model would be sent now."""


Fresh: TypeAlias = Callable[[], Contestant]
Kind: TypeAlias = Literal["tokens", "count"]


@dataclass(frozen=True)
class Entry:
    """How a contestant is made: `make` converts the messages once and returns what starts it anew each round."""

    name: str
    kind: Kind
    make: Callable[[list[Message]], Fresh]
    sample: int | None = None
    """At how many calls, evenly spread, one that takes too long is asked; it must not keep anything between calls."""


@dataclass
class Timing:
    name: str
    kind: Kind
    calls: int
    """At how many calls of the conversation it was asked."""
    of: int
    seconds: list[float] = field(default_factory=list)
    """Each call: taking on what is new, and the view."""
    views: list[float] = field(default_factory=list)
    """Of that, the view alone."""
    rounds: int = 0
    last_view: int = 0
    error: str = ""

    @property
    def mean(self) -> float:
        return fmean(self.seconds)

    @property
    def mean_view(self) -> float:
        return fmean(self.views)

    @property
    def total(self) -> float:
        """Of all calls of the conversation; where only some were measured, as if the others were like them."""
        return self.mean * self.of

    def quantile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * share))]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def contest(
    entries: Sequence[Entry], messages: list[Message], calls: list[int], *, rounds: int, allowance_seconds: float
) -> list[Timing]:
    """Measure each, in turns, until all have had their rounds or used up what one may spend."""
    timings: list[Timing] = []
    starters: list[Fresh | None] = []
    for entry in entries:
        timing = Timing(entry.name, entry.kind, min(entry.sample or len(calls), len(calls)), len(calls))
        timings.append(timing)
        try:
            starters.append(entry.make(messages))
        except Exception as error:
            starters.append(None)
            timing.error = f"{type(error).__name__}: {error}"
    spent = dict.fromkeys(range(len(entries)), 0.0)
    gc.collect()
    gc.freeze()  # what the others have imported must not make our collections slower, nor ours theirs
    for number in range(rounds):
        for at, (timing, fresh) in enumerate(zip(timings, starters, strict=True)):
            if fresh is None or timing.error or spent[at] > allowance_seconds:
                continue
            began = perf_counter()
            try:
                _round(timing, fresh(), calls)
            except Exception as error:
                timing.error = f"{type(error).__name__}: {error}"
            spent[at] += perf_counter() - began
            if not number:
                progress(f"{timing.name}: {spent[at]:.1f} s a round")
    gc.unfreeze()
    return timings


def _round(timing: Timing, contestant: Contestant, calls: list[int]) -> None:
    asked = {calls[(2 * number + 1) * len(calls) // (2 * timing.calls)] for number in range(timing.calls)}
    seconds: list[float] = []
    views: list[float] = []
    start = 0
    view: Sequence[Any] = ()
    for stop in calls:
        if stop in asked:
            began = perf_counter()
            contestant.feed(start, stop)
            fed = perf_counter()
            view = contestant.view()
            done = perf_counter()
            seconds.append(done - began)
            views.append(done - fed)
        else:
            contestant.feed(start, stop)
        start = stop
    timing.seconds = [min(pair) for pair in zip(timing.seconds or seconds, seconds, strict=True)]
    timing.views = [min(pair) for pair in zip(timing.views or views, views, strict=True)]
    timing.rounds += 1
    timing.last_view = len(view)


def forget_counts() -> None:
    """Have our counter know no text, as in a new process: it remembers what it has counted.

    The vocabulary is loaded again here, outside of what is measured.
    """
    vocabulary._loaded.clear()  # noqa: SLF001 - nothing in the library needs to forget
    ExactCounter().count(FIRST)


class Indexed:
    """A manager of ours on a `Transcript`; appending and counting are part of the call."""

    def __init__(self, messages: list[Message], manager: HistoryManager) -> None:
        forget_counts()
        self._messages = messages
        self._manager: Any = manager
        self._transcript = Transcript(broken="mark")

    def feed(self, start: int, stop: int) -> None:
        self._transcript.extend(self._messages[start:stop])

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._manager.curate(self._transcript)
        return view


class Plain:
    """A manager of ours on a plain list, which it has to read anew at every call."""

    def __init__(self, messages: list[Message], manager: HistoryManager) -> None:
        forget_counts()
        self._messages = messages
        self._manager: Any = manager
        self._list: list[Message] = []

    def feed(self, start: int, stop: int) -> None:
        self._list += self._messages[start:stop]

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._manager.curate(self._list)
        return view


class LastN:
    """The least that a window can be: no pairs, no system message."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._last: deque[Message] = deque(maxlen=WINDOW)

    def feed(self, start: int, stop: int) -> None:
        self._last.extend(self._messages[start:stop])

    def view(self) -> Sequence[Any]:
        return list(self._last)


OURS = "minutebook budget, Transcript"
OUR_WINDOW = "minutebook window, Transcript"
FLOOR = "collections.deque(maxlen)"


def our_entries() -> list[Entry]:
    budget, window = TokenBudgetManager(BUDGET), SlidingWindowManager(WINDOW)
    return [
        Entry(OURS, "tokens", lambda messages: lambda: Indexed(messages, budget)),
        Entry("minutebook budget, plain list", "tokens", lambda messages: lambda: Plain(messages, budget), 80),
        Entry(OUR_WINDOW, "count", lambda messages: lambda: Indexed(messages, window)),
        Entry("minutebook window, plain list", "count", lambda messages: lambda: Plain(messages, window), 80),
        Entry(FLOOR, "count", lambda messages: lambda: LastN(messages)),
    ]
