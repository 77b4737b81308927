"""Short versions of the crash tests that `make torture --only run` runs, and what their checker finds."""

import pytest

from torture.checker import Violations
from torture.runs import compare_runs, complete_run, kill_runs

RUNS = [*complete_run(0), *complete_run(1)]


@pytest.mark.slow
def test_runs_that_are_killed_lose_and_repeat_nothing(tmp_path):
    result = kill_runs(f"sqlite:///{tmp_path}/runs.db", 5)

    assert result.kills == 5
    assert result.acknowledged
    assert not result.violations


@pytest.mark.parametrize("length", [0, 1, 3, len(RUNS) // 2, len(RUNS)])
def test_a_record_that_ends_after_an_exchange_is_valid(length):
    assert not compare_runs(RUNS[:length], length)


@pytest.mark.parametrize(
    ("stored", "violation"),
    [
        pytest.param(RUNS[:-1], Violations(lost=1), id="lost"),
        pytest.param(RUNS[:2], Violations(lost=len(RUNS) - 2, partial=1), id="partial"),
        pytest.param([*RUNS, RUNS[-1]], Violations(duplicates=1, out_of_order=1), id="duplicate"),
        pytest.param([RUNS[0], *RUNS[3:], *RUNS[1:3]], Violations(out_of_order=len(RUNS) - 1), id="out of order"),
    ],
)
def test_the_checker_finds_each_violation(stored, violation):
    assert compare_runs(stored, len(RUNS)) == violation
