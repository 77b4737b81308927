"""The table and the picture of `minutebook lab` in the README: simulated sessions, replayed with the default policies."""

from functools import cache
from pathlib import Path

from minutebook.cli.lab.inputs import DEFAULT_POLICIES
from minutebook.lab import TYPICAL_BILLING, RecordedSession, Report, evaluate
from minutebook.lab.plot import svg
from minutebook.testing import coding_session
from minutebook.tokens import ExactCounter

PAGE = Path(__file__).parent / "assets" / "lab.svg"
SESSIONS = 3
TURNS = 20
BUDGET = 16_000


def picture() -> str:
    replayed = report()
    points = {result.name: (result.measure("cost"), result.measure("names")) for result in replayed.results}
    title = f"Cost and recall on {SESSIONS} simulated coding sessions, {BUDGET:,} tokens"
    return svg(points, {}, title=title, frontier=True)


def table_rows() -> list[str]:
    """A row of the README's table for each policy."""
    return [
        f"| `{result.name}` | {result.measure('cost'):.2f} | {result.measure('names'):.1%} | {result.measure('quotes'):.1%} "
        f"| {len(result.dearer)} |"
        for result in report().results
    ]


@cache
def report() -> Report:
    sessions = [
        RecordedSession(f"session {seed}", coding_session(seed=seed, turns=TURNS), ExactCounter())
        for seed in range(SESSIONS)
    ]
    policies = {policy: policy for policy in DEFAULT_POLICIES}
    return evaluate(policies, sessions, budget=BUDGET, billing=TYPICAL_BILLING, jobs=1)
