"""Compares libraries that build views, in one process.

A contestant gets the messages of a growing conversation, converted to its own classes beforehand, and builds the view
before every model call. Contestants alternate in several rounds, and the time of a call is its minimum over the rounds, so
that other load on the machine affects all alike.
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
WARM_UP_TEXT = "AGENTS.md é 你好"
"""Text with words that are not single tokens. Counting it makes splintr build its table of merges, which happens once."""


class Contestant(Protocol):
    def add(self, start: int, stop: int) -> None:
        """Add these messages of the conversation."""

    def view(self) -> Sequence[Any]:
        """The messages to send to the model now."""


ContestantFactory: TypeAlias = Callable[[], Contestant]
Kind: TypeAlias = Literal["tokens", "count"]


@dataclass(frozen=True)
class ContestEntry:
    """A contestant. `make` converts the messages once, and returns a function that creates the contestant for a round."""

    name: str
    kind: Kind
    make: Callable[[list[Message]], ContestantFactory]
    sample: int | None = None
    """Number of measured calls, evenly spread, of a contestant that is slow. It must be stateless."""


@dataclass
class Timing:
    name: str
    kind: Kind
    calls: int
    """Number of calls that were measured."""
    of: int
    """Number of calls of the conversation."""
    seconds: list[float] = field(default_factory=list)
    """Time of each call: adding the new messages, and building the view."""
    views: list[float] = field(default_factory=list)
    """Time of building the view, for each call."""
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
        """Time of all calls of the conversation, extrapolated if only some were measured."""
        return self.mean * self.of

    def quantile(self, share: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * share))]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def contest(
    entries: Sequence[ContestEntry], messages: list[Message], calls: list[int], *, rounds: int, allowance_seconds: float
) -> list[Timing]:
    """Measure the contestants in alternating rounds. One that has used its allowance skips the remaining rounds."""
    timings: list[Timing] = []
    factories: list[ContestantFactory | None] = []
    for entry in entries:
        timing = Timing(entry.name, entry.kind, min(entry.sample or len(calls), len(calls)), len(calls))
        timings.append(timing)
        try:
            factories.append(entry.make(messages))
        except Exception as error:
            factories.append(None)
            timing.error = f"{type(error).__name__}: {error}"
    spent = dict.fromkeys(range(len(entries)), 0.0)
    gc.collect()
    gc.freeze()  # objects of the imported libraries must not slow down garbage collection in the measurements
    for number in range(rounds):
        for index, (timing, make_contestant) in enumerate(zip(timings, factories, strict=True)):
            if make_contestant is None or timing.error or spent[index] > allowance_seconds:
                continue
            started = perf_counter()
            try:
                _run_round(timing, make_contestant(), calls)
            except Exception as error:
                timing.error = f"{type(error).__name__}: {error}"
            spent[index] += perf_counter() - started
            if not number:
                progress(f"{timing.name}: {spent[index]:.1f} s per round")
    gc.unfreeze()
    return timings


def _run_round(timing: Timing, contestant: Contestant, calls: list[int]) -> None:
    measured = {calls[(2 * number + 1) * len(calls) // (2 * timing.calls)] for number in range(timing.calls)}
    seconds: list[float] = []
    views: list[float] = []
    start = 0
    view: Sequence[Any] = ()
    for stop in calls:
        if stop in measured:
            started = perf_counter()
            contestant.add(start, stop)
            added = perf_counter()
            view = contestant.view()
            stopped = perf_counter()
            seconds.append(stopped - started)
            views.append(stopped - added)
        else:
            contestant.add(start, stop)
        start = stop
    timing.seconds = [min(pair) for pair in zip(timing.seconds or seconds, seconds, strict=True)]
    timing.views = [min(pair) for pair in zip(timing.views or views, views, strict=True)]
    timing.rounds += 1
    timing.last_view = len(view)


def clear_count_cache() -> None:
    """Clear the cache of token counts, as in a new process. Loads the vocabulary again, so that this is not measured."""
    vocabulary._loaded.clear()  # noqa: SLF001 - the library never needs to clear it
    ExactCounter().count(WARM_UP_TEXT)


class OnTranscript:
    """A manager of ours on a `Transcript`. Appending and counting are part of the call."""

    def __init__(self, messages: list[Message], manager: HistoryManager) -> None:
        clear_count_cache()
        self._messages = messages
        self._manager: Any = manager
        self._transcript = Transcript(broken="mark")

    def add(self, start: int, stop: int) -> None:
        self._transcript.extend(self._messages[start:stop])

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._manager.curate(self._transcript)
        return view


class OnList:
    """A manager of ours on a plain list, which it reads completely for every call."""

    def __init__(self, messages: list[Message], manager: HistoryManager) -> None:
        clear_count_cache()
        self._messages = messages
        self._manager: Any = manager
        self._list: list[Message] = []

    def add(self, start: int, stop: int) -> None:
        self._list += self._messages[start:stop]

    def view(self) -> Sequence[Any]:
        view: Sequence[Any] = self._manager.curate(self._list)
        return view


class LastMessages:
    """The smallest possible window: it ignores pairs and system messages."""

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._last: deque[Message] = deque(maxlen=WINDOW)

    def add(self, start: int, stop: int) -> None:
        self._last.extend(self._messages[start:stop])

    def view(self) -> Sequence[Any]:
        return list(self._last)


OURS = "minutebook budget, Transcript"
OUR_WINDOW = "minutebook window, Transcript"
FLOOR = "collections.deque(maxlen)"


def our_entries() -> list[ContestEntry]:
    budget, window = TokenBudgetManager(BUDGET), SlidingWindowManager(WINDOW)
    return [
        ContestEntry(OURS, "tokens", lambda messages: lambda: OnTranscript(messages, budget)),
        ContestEntry("minutebook budget, plain list", "tokens", lambda messages: lambda: OnList(messages, budget), 80),
        ContestEntry(OUR_WINDOW, "count", lambda messages: lambda: OnTranscript(messages, window)),
        ContestEntry("minutebook window, plain list", "count", lambda messages: lambda: OnList(messages, window), 80),
        ContestEntry(FLOOR, "count", lambda messages: lambda: LastMessages(messages)),
    ]
