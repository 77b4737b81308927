"""Our managers on real sessions, replayed in the lab as the benchmark does."""

from functools import cache

import pytest

from bench.corpus import folder
from bench.policies import MANAGERS
from minutebook.lab import TYPICAL_BILLING, Report, evaluate, load_sessions

SUBSETS = [
    pytest.param("coding_agents", 8_000, marks=pytest.mark.slow),
    pytest.param("coding_agents", 32_000, marks=pytest.mark.slow),
    ("customer_service", 4_000),
]


@cache
def report(name: str, budget: int) -> Report:
    path = folder()
    if path is None:
        pytest.skip("no corpus: MINUTEBOOK_CORPUS is not set and there is none beside the repository")
    sessions = list(load_sessions([path / f"{name}.jsonl.gz"], min_messages=40))
    policies = {policy: policy for policy in MANAGERS}
    return evaluate(policies, sessions[:: len(sessions) // 4][:4], budget=budget, billing=TYPICAL_BILLING, jobs=1)


@pytest.mark.parametrize(("name", "budget"), SUBSETS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_every_manager_keeps_its_guarantees_on_real_conversations(manager: str, name: str, budget: int) -> None:
    result = report(name, budget).result(manager)

    assert result.total("views") + result.total("refused") > 50
    assert result.total("invalid") == 0


@pytest.mark.parametrize(("name", "budget"), SUBSETS)
@pytest.mark.parametrize("manager", [manager for manager in MANAGERS if "budget" in manager])
def test_a_budget_is_kept_or_refused_on_real_conversations(manager: str, name: str, budget: int) -> None:
    result = report(name, budget).result(manager)

    assert max(outcome.messages for outcome in result.outcomes) > 40
    assert result.total("over") == 0
    assert result.total("essentials_lost") == 0
