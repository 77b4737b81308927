"""Totals of policies over many sessions, with intervals, and the comparison of two policies."""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from minutebook.history.cache_cost import TYPICAL_PRICES
from minutebook.lab.replay import Policies, SessionOutcome, replay_session
from minutebook.lab.sessions import RecordedSession
from minutebook.tokens.models import Prices

_SAMPLES: Final = 1_000
"""Number of bootstrap samples."""
Measure = Callable[[Sequence[SessionOutcome]], float]


def _share(part: str, whole: str) -> Measure:
    def measure(outcomes: Sequence[SessionOutcome]) -> float:
        total = sum(getattr(outcome, whole) for outcome in outcomes)
        return sum(getattr(outcome, part) for outcome in outcomes) / total if total else 1.0

    return measure


MEASURES: Final[dict[str, Measure]] = {
    "cost": _share("cost", "full_cost"),
    "cost with re-reads": _share("reread_cost", "full_cost"),
    "names": _share("names_found", "names"),
    "names, other pattern": _share("other_names_found", "other_names"),
    "quotes": _share("lines_found", "lines"),
    "requests": _share("requests_found", "requests"),
}
"""Name → function of the outcomes. Costs are relative to the full history; the others are shares."""


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy over all sessions."""

    name: str
    outcomes: Sequence[SessionOutcome]

    def measure(self, name: str) -> float:
        return MEASURES[name](self.outcomes)

    def interval(self, name: str) -> tuple[float, float]:
        """The 95 % interval of a measure, by resampling sessions."""
        return _interval(
            lambda indexes: MEASURES[name]([self.outcomes[index] for index in indexes]), len(self.outcomes)
        )

    def total(self, field: str) -> Any:
        return sum(getattr(outcome, field) for outcome in self.outcomes)

    @property
    def dearer(self) -> list[SessionOutcome]:
        """The sessions that cost more than the full history, the worst first."""
        worse = [outcome for outcome in self.outcomes if outcome.ratio > 1.0005]
        return sorted(worse, key=lambda outcome: -outcome.ratio)

    @property
    def worst_ratio(self) -> float:
        return max((outcome.ratio for outcome in self.outcomes), default=1.0)

    @property
    def milliseconds(self) -> float:
        """The mean time per view."""
        calls: int = self.total("views") + self.total("refused")
        seconds: float = self.total("seconds")
        return 1e3 * seconds / max(1, calls)

    def to_json(self) -> dict[str, Any]:
        counts = ("views", "refused", "invalid", "over", "cuts", "tokens", "cached", "essentials_lost")
        return {
            "policy": self.name,
            **{name: self.measure(name) for name in MEASURES},
            "intervals": {name: self.interval(name) for name in MEASURES},
            **{name: self.total(name) for name in counts},
            "dearer": len(self.dearer),
            "worst": self.worst_ratio,
            "ms per view": self.milliseconds,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The results of several policies over the same sessions."""

    sessions: int
    messages: int
    budget: int
    results: Sequence[PolicyResult]

    def pareto(self) -> set[str]:
        """The policies for which no other one is both cheaper and better in names and quotes."""
        values = {
            result.name: (-result.measure("cost"), result.measure("names"), result.measure("quotes"))
            for result in self.results
        }
        return {
            name
            for name, own in values.items()
            if not any(
                other != own and all(theirs >= mine for theirs, mine in zip(other, own, strict=True))
                for other in values.values()
            )
        }

    def difference(self, first: str, second: str, measure: str) -> tuple[float, float]:
        """The 95 % interval of the second policy's measure minus the first's. If it contains 0, these sessions show no difference."""
        left, right = self.result(first).outcomes, self.result(second).outcomes
        compute = MEASURES[measure]
        return _interval(
            lambda indexes: compute([right[index] for index in indexes]) - compute([left[index] for index in indexes]),
            len(left),
        )

    def result(self, name: str) -> PolicyResult:
        return next(result for result in self.results if result.name == name)

    def to_json(self) -> dict[str, Any]:
        pareto = self.pareto()
        rows = [{**result.to_json(), "pareto": result.name in pareto} for result in self.results]
        return {"sessions": self.sessions, "messages": self.messages, "budget": self.budget, "policies": rows}


def _interval(measure: Callable[[Sequence[int]], float], count: int) -> tuple[float, float]:
    if count < 2:
        value = measure(range(count))
        return value, value
    generator = random.Random(0)  # noqa: S311 - sampling, not security
    values = sorted(measure(generator.choices(range(count), k=count)) for _ in range(_SAMPLES))
    return values[int(0.025 * _SAMPLES)], values[int(0.975 * _SAMPLES) - 1]


def evaluate(
    policies: Policies,
    sessions: Iterable[RecordedSession],
    *,
    budget: int,
    prices: Prices = TYPICAL_PRICES,
    jobs: int | None = None,
    advance: Callable[[RecordedSession], None] | None = None,
) -> Report:
    """Replay every session under every policy, in as many processes as there are cores (`jobs`).

    A policy that is not picklable, such as a lambda, needs `jobs=1`. `advance` is called after each session.
    """
    outcomes: dict[str, list[SessionOutcome]] = {name: [] for name in policies}
    count = messages = 0
    work = partial(_replay_all, policies=policies, budget=budget, prices=prices)
    for session, results in _results(work, sessions, jobs or os.cpu_count() or 1):
        count, messages = count + 1, messages + len(session.messages)
        for name, outcome in results.items():
            outcomes[name].append(outcome)
        if advance is not None:
            advance(session)
    return Report(count, messages, budget, [PolicyResult(name, items) for name, items in outcomes.items()])


def _results(
    work: Callable[[RecordedSession], dict[str, SessionOutcome]], sessions: Iterable[RecordedSession], jobs: int
) -> Iterable[tuple[RecordedSession, dict[str, SessionOutcome]]]:
    """The outcomes of each session, in order. At most a few sessions per process are in memory."""
    if jobs == 1:
        yield from ((session, work(session)) for session in sessions)
        return
    with ProcessPoolExecutor(jobs) as pool:
        waiting = []
        for session in sessions:
            waiting.append((session, pool.submit(work, session)))
            if len(waiting) > 2 * jobs:
                first, future = waiting.pop(0)
                yield first, future.result()
        for session, future in waiting:
            yield session, future.result()


def _replay_all(
    session: RecordedSession, *, policies: Policies, budget: int, prices: Prices
) -> dict[str, SessionOutcome]:
    return {
        name: replay_session(session, make_manager, budget, prices=prices) for name, make_manager in policies.items()
    }
