"""Totals of policies over many sessions, with intervals, and the comparison of two policies."""

import os
import pickle
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from typing import Any, Final

from minutebook.errors import InvalidSetting, MinutebookError
from minutebook.lab.outcome import MAX_MISSES, SessionOutcome, replay_session
from minutebook.lab.policies import PolicySpec, definition_of, policies_of
from minutebook.lab.progress_file import ProgressFile
from minutebook.lab.prompt_cache import Billing
from minutebook.lab.replay import FULL, Policies
from minutebook.lab.sessions import RecordedSession

DEFAULT_BUDGET: Final = 32_000
_SAMPLES: Final = 1_000
"""Number of bootstrap samples."""
MEASURES: Final[dict[str, tuple[str, str]]] = {
    "cost": ("cost", "full_cost"),
    "cost with re-reads": ("reread_cost", "full_cost"),
    "names": ("names_found", "names"),
    "names, other pattern": ("other_names_found", "other_names"),
    "quotes": ("lines_found", "lines"),
    "requests": ("requests_found", "requests"),
    "constraints": ("constraints_found", "constraints"),
    "decisions": ("decisions_found", "decisions"),
    "window": ("tokens", "room"),
}
"""Name → the two fields of an outcome whose totals are divided. Costs are relative to the full history; the others are shares."""
_COUNTS: Final = ("views", "refused", "invalid", "over", "cuts", "tokens", "cached", "written", "essentials_lost")


class ReplayInterrupted(MinutebookError):
    """A process that replayed sessions was killed."""

    template = (
        "a process that replayed sessions was killed, perhaps because memory ran out; use fewer jobs. A progress file "
        "(--resume) keeps the sessions that were finished"
    )


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """One policy over all sessions."""

    name: str
    outcomes: Sequence[SessionOutcome]

    def measure(self, name: str) -> float:
        part, whole = self.columns(name)
        return _ratio(sum(part), sum(whole))

    def interval(self, name: str) -> tuple[float, float]:
        """The 95 % interval of a measure, by resampling sessions."""
        return _interval(lambda totals: _ratio(totals[0], totals[1]), *self.columns(name))

    def columns(self, name: str) -> tuple[list[float], list[float]]:
        """The two fields of a measure, for each session."""
        part, whole = MEASURES[name]
        outcomes = self.outcomes
        return [getattr(outcome, part) for outcome in outcomes], [getattr(outcome, whole) for outcome in outcomes]

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

    @property
    def dollars(self) -> float | None:
        """The cost of all sessions in US dollars; None if the prices of a session's model are unknown."""
        is_priced = self.outcomes and all(outcome.model for outcome in self.outcomes)
        return self.total("cost") / 1e6 if is_priced else None

    @property
    def has_views(self) -> bool:
        """Whether any view was built. Without one, the measures mean nothing."""
        return bool(self.total("views"))

    def worst_sessions(self, count: int) -> list[SessionOutcome]:
        """The sessions with the most missed lines, the worst first."""
        missed = [outcome for outcome in self.outcomes if outcome.lines_missed]
        return sorted(missed, key=lambda outcome: (-outcome.lines_missed, outcome.session))[:count]

    def to_json(self) -> dict[str, Any]:
        return {
            "policy": self.name,
            **{name: self.measure(name) for name in MEASURES},
            "intervals": {name: self.interval(name) for name in MEASURES},
            **{name: self.total(name) for name in _COUNTS},
            "peak": max((outcome.peak for outcome in self.outcomes), default=0),
            "dearer": len(self.dearer),
            "worst": self.worst_ratio,
            "ms per view": self.milliseconds,
            "ms of the slowest view": 1e3 * max((outcome.slowest_seconds for outcome in self.outcomes), default=0.0),
            "dollars": self.dollars,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """The results of several policies over the same sessions. The first is the full history."""

    budget: int
    results: Sequence[PolicyResult]

    @property
    def sessions(self) -> int:
        return len(self.results[0].outcomes)

    @property
    def messages(self) -> int:
        messages: int = self.results[0].total("messages")
        return messages

    def pareto(self) -> set[str]:
        """The policies for which no other one is both cheaper and better in names and quotes."""
        values = {
            result.name: (-result.measure("cost"), result.measure("names"), result.measure("quotes"))
            for result in self.results
            if result.has_views
        }
        return {
            name
            for name, measures in values.items()
            if not any(
                others != measures and all(other >= value for other, value in zip(others, measures, strict=True))
                for others in values.values()
            )
        }

    def difference(self, first: str, second: str, measure: str) -> tuple[float, float]:
        """The 95 % interval of the second policy's measure minus the first's. If it contains 0, these sessions show no difference."""
        columns = (*self.result(second).columns(measure), *self.result(first).columns(measure))
        return _interval(lambda totals: _ratio(totals[0], totals[1]) - _ratio(totals[2], totals[3]), *columns)

    def indistinguishable(
        self, measures: Sequence[str] = ("cost", "names", "quotes")
    ) -> dict[tuple[str, str], list[str]]:
        """Pairs of policies, without the full history → the measures in which these sessions show no difference."""
        names = [result.name for result in self.results if result.name != FULL]
        found = {}
        for first, second in combinations(names, 2):
            intervals = {measure: self.difference(first, second, measure) for measure in measures}
            if same := [measure for measure, (low, high) in intervals.items() if low <= 0 <= high]:
                found[first, second] = same
        return found

    def result(self, name: str) -> PolicyResult:
        return next(result for result in self.results if result.name == name)

    def to_json(self) -> dict[str, Any]:
        pareto = self.pareto()
        rows = [{**result.to_json(), "pareto": result.name in pareto} for result in self.results]
        same = [{"policies": pair, "measures": measures} for pair, measures in self.indistinguishable().items()]
        return {
            "sessions": self.sessions,
            "messages": self.messages,
            "budget": self.budget,
            "policies": rows,
            "no difference": same,
        }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _interval(compute: Callable[[Sequence[float]], float], *columns: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of a function of the columns' totals, by resampling rows."""
    values = sorted(
        compute([sum(map(column.__getitem__, sample)) for column in columns]) for sample in _samples(len(columns[0]))
    )
    return values[int(0.025 * len(values))], values[max(0, int(0.975 * len(values)) - 1)]


@lru_cache(maxsize=4)
def _samples(count: int) -> list[Sequence[int]]:
    if count < 2:
        return [range(count)]
    generator = random.Random(0)  # noqa: S311 - sampling, not security
    return [generator.choices(range(count), k=count) for _ in range(_SAMPLES)]


def evaluate(
    policy: PolicySpec | Mapping[str, PolicySpec],
    sessions: Iterable[RecordedSession],
    *,
    budget: int = DEFAULT_BUDGET,
    billing: Billing | None = None,
    jobs: int | None = None,
    max_misses: int = MAX_MISSES,
    progress_file: str | os.PathLike[str] | None = None,
    advance: Callable[[RecordedSession], None] | None = None,
) -> Report:
    """Replay every session under a policy, or under several by name, and under the full history.

    A policy is the name of a manager or strategy with settings (`"token_budget:target=0.3"`), a history manager, or a
    function that takes the budget and returns a manager. `billing` is by default that of each session's model.

    There are as many processes as cores (`jobs`). A policy that cannot be pickled, such as a lambda, needs `jobs=1`.
    Finished sessions are stored in `progress_file`, if it is set, and not replayed again while the policies have the same names
    and settings; the code of a function is not compared. An outcome has at most `max_misses` missed lines as text. `advance`
    is called after each session.

    Raises:
        InvalidSetting: a policy or one of its settings is unknown, or a policy cannot be pickled.
        ReplayInterrupted: one of the processes was killed.
    """
    policies = policies_of(policy, budget)
    outcomes: dict[str, list[SessionOutcome]] = {name: [] for name in policies}
    definitions = sorted((name, definition_of(make)) for name, make in policies.items())
    with ProgressFile(progress_file, (definitions, budget, billing, max_misses)) as stored:
        work = partial(_replay_all, policies=policies, budget=budget, billing=billing, max_misses=max_misses)
        try:
            for session, results in _results(work, sessions, stored, jobs or os.cpu_count() or 1):
                for name, outcome in results.items():
                    outcomes[name].append(outcome)
                if advance is not None:
                    advance(session)
        except BrokenProcessPool as error:
            raise ReplayInterrupted from error
    return Report(budget, [PolicyResult(name, items) for name, items in outcomes.items()])


Outcomes = dict[str, SessionOutcome]


def _results(
    work: Callable[[RecordedSession], Outcomes], sessions: Iterable[RecordedSession], stored: ProgressFile, jobs: int
) -> Iterator[tuple[RecordedSession, Outcomes]]:
    """The outcomes of each session, in order. At most a few sessions per process are in memory."""
    if jobs == 1:
        for session in sessions:
            yield session, stored.get(session) or stored.add(session, work(session))
        return
    _require_pickling(work)
    with ProcessPoolExecutor(jobs) as pool:
        waiting: list[tuple[RecordedSession, Outcomes | Future[Outcomes]]] = []

        def first_result() -> tuple[RecordedSession, Outcomes]:
            session, result = waiting.pop(0)
            return session, result if isinstance(result, dict) else stored.add(session, result.result())

        for session in sessions:
            waiting.append((session, stored.get(session) or pool.submit(work, session)))
            if len(waiting) > 2 * jobs:
                yield first_result()
        while waiting:
            yield first_result()


def _require_pickling(work: Callable[[RecordedSession], Outcomes]) -> None:
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        expected = f"functions of a module or managers, which other processes can load ({error}); or pass jobs=1"
        raise InvalidSetting("policies", "a policy that cannot be pickled", expected) from error


def _replay_all(
    session: RecordedSession, *, policies: Policies, budget: int, billing: Billing | None, max_misses: int
) -> Outcomes:
    outcomes = {}
    for name, make_manager in policies.items():
        try:
            outcomes[name] = replay_session(session, make_manager, budget, billing=billing, max_misses=max_misses)
        except Exception as error:  # a policy may be any code; its error is raised with where it happened
            error.add_note(f"policy {name}, session {session.id}")
            raise
    return outcomes
