"""Searches settings of the recommended policy for a goal, on one half of the sessions, and reports on the other half."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import islice, product
from typing import Any, Final

from minutebook.errors import InvalidSetting, MissingSetting, one_of
from minutebook.history.budget import TokenBudgetManager
from minutebook.lab.policies import BUDGET_POLICY
from minutebook.lab.prompt_cache import Billing
from minutebook.lab.report import DEFAULT_BUDGET, PolicyResult, Report, evaluate
from minutebook.lab.sessions import RecordedSession

GOALS: Final = ("cost", "rereads", "recall")
"""cost: cheapest with at most a point less recall. rereads: cheapest with re-reads. recall: best recall at no more cost."""
_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "target": (0.15, 0.2, 0.3, 0.4, 0.6, 0.7),
    "names": (0.0, 0.03, 0.06, 0.1),
    "trigger": (0.6, 0.8, 1.0),
    "keep_results": (3, 6),
}
"""Setting → the values that are tried, as far as the policy has the setting."""
_COMBINATIONS: Final = 16
"""Maximum number of combinations of the best values."""
_BEST_VALUES: Final = 3
"""Number of values per setting that are combined."""
_MARGIN: Final = 0.01
"""How much worse than the default a tuned policy may be in what is not its goal."""


@dataclass(frozen=True, slots=True)
class Tuning:
    """The best settings that were found, and how they do on sessions that were not used to find them."""

    goal: str
    policy: str
    """The policy with its settings, as `--policy` takes it."""
    tried: int
    search: Report
    """The half of the sessions on which settings were compared, with the combinations of the last round."""
    test: Report
    """The default policy and the tuned one on the other half."""

    @property
    def settings(self) -> dict[str, str]:
        """The settings that differ from the default."""
        pairs = self.policy.partition(":")[2].split(",")
        return dict(pair.split("=", 1) for pair in pairs if pair)


def tune(
    sessions: Callable[[], Iterable[RecordedSession]],
    goal: str = "cost",
    *,
    budget: int = DEFAULT_BUDGET,
    billing: Billing | None = None,
    jobs: int | None = None,
    advance: Callable[[RecordedSession], None] | None = None,
) -> Tuning:
    """Find settings of the token budget for a goal. `sessions` is called once per round and returns all sessions.

    In the first round each setting is changed alone, in the second the best values are combined. The last round compares
    the result with the default on the other half of the sessions.

    Raises:
        InvalidSetting: the goal is unknown.
        MissingSetting: a half has fewer than two sessions.
    """
    if goal not in GOALS:
        raise InvalidSetting("goal", goal, one_of(GOALS, goal))

    def replay(policies: Iterable[str], half: int) -> Report:
        in_half = (session for session in sessions() if _half(session) == half)
        named = {policy: policy for policy in policies}
        return evaluate(named, in_half, budget=budget, billing=billing, jobs=jobs, advance=advance)

    settings = {setting.name for setting in fields(TokenBudgetManager)}
    values = {name: many for name, many in _VALUES.items() if name in settings}
    single = [_text({name: value}) for name, many in values.items() for value in many]
    first = replay([BUDGET_POLICY, *single], 0)
    _require_sessions(first)
    combinations = _combinations(values, first, goal)
    second = replay([BUDGET_POLICY, *combinations], 0)
    best = _best(second, goal)
    test = replay(dict.fromkeys((BUDGET_POLICY, best)), 1)
    _require_sessions(test)
    return Tuning(goal, best, len(single) + len(combinations), second, test)


def _half(session: RecordedSession) -> int:
    """0 or 1, by the id, so that a session is always in the same half."""
    return sha256(session.id.encode()).digest()[0] % 2


def _require_sessions(report: Report) -> None:
    if report.sessions < 2:
        raise MissingSetting(
            "a second session in one half", "add sessions: tuning needs at least two sessions in each half"
        )


def _text(settings: Mapping[str, Any]) -> str:
    joined = ",".join(f"{name}={value}" for name, value in settings.items())
    return f"{BUDGET_POLICY}:{joined}" if joined else BUDGET_POLICY


def _combinations(values: Mapping[str, Sequence[Any]], report: Report, goal: str) -> list[str]:
    """Combinations of the best values of each setting, those of the best ones first."""
    best: list[list[tuple[str, Any] | None]] = []
    for name, many in values.items():
        results = {None: BUDGET_POLICY} | {(name, value): _text({name: value}) for value in many}
        ranked = sorted(results, key=lambda choice: _score(report.result(results[choice]), report, goal))
        best.append(list(ranked[:_BEST_VALUES]))
    by_rank = sorted(
        product(*(list(enumerate(choices)) for choices in best)), key=lambda row: sum(rank for rank, _ in row)
    )
    texts = (_text(dict(choice for _, choice in row if choice is not None)) for row in by_rank)
    return list(islice(dict.fromkeys(text for text in texts if text != BUDGET_POLICY), _COMBINATIONS))


def _best(report: Report, goal: str) -> str:
    candidates = report.results[1:]
    return min(candidates, key=lambda result: _score(result, report, goal)).name


def _score(result: PolicyResult, report: Report, goal: str) -> tuple[float, float]:
    """By how much a policy is worse than the default in what is not its goal, and its value: lower is better."""
    default = report.result(BUDGET_POLICY)
    recall, default_recall = _recall(result), _recall(default)
    cost, default_cost = result.measure("cost"), default.measure("cost")
    refused = max(0, result.total("refused") - default.total("refused"))
    if goal == "recall":
        return max(0.0, cost - default_cost * (1 + _MARGIN)) + refused, -recall
    if goal == "rereads":
        return refused, result.measure("cost with re-reads")
    return max(0.0, default_recall - _MARGIN - recall) + refused, cost


def _recall(result: PolicyResult) -> float:
    return (result.measure("names") + result.measure("quotes")) / 2
