"""Goals, constraints and decisions survive many compactions without a model."""

import asyncio

import pytest

from bench.statements import STATEMENTS, STRATEGIES, surviving


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_constraints_and_decisions_are_in_view_after_20_compactions(strategy):
    kinds = asyncio.run(surviving(strategy, 0))

    assert len(kinds) >= 0.8 * sum(map(len, STATEMENTS.values()))
