"""The probe of `make bench-compare` runs on this tree, and the table marks what is worse."""

import pytest

from bench.compare import ROOT, Figure, measure, table
from bench.probe import PARTS, Cost
from bench.store_adapters import PostgresDatabases
from tests.servers import FAST, Postgres, require_postgres

FIGURES = {
    "calls": {"view_of, TokenBudgetManager, a coding session", "view_of, SlidingWindowManager, a coding session"},
    "runner": {"runner, a model call"},
    "store": {"SQLite, append, 1 writer", "SQLite, append, 64 writers", "SQLite, load the last 20 of 40"},
    "postgres": {
        "PostgreSQL, append, 1 writer",
        "PostgreSQL, append, 64 writers",
        "PostgreSQL, load the last 20 of 40",
    },
    "bytes": {"SQLite, bytes on disk for a byte of an agent session"},
    "service": {
        f"service, {way}, {form}, clients: {clients}"
        for way in ("recorded", "passed through")
        for form in ("whole", "streamed")
        for clients in (1, 16)
    },
    "import": {"import minutebook", "from minutebook import TokenBudgetManager, Transcript"},
}


@pytest.fixture
def databases():
    require_postgres()
    server = Postgres.make(FAST)
    yield PostgresDatabases(server.url())
    server.remove()


def test_every_part_is_tested() -> None:
    assert set(FIGURES) == set(PARTS)


@pytest.mark.parametrize(
    "part",
    [pytest.param(part, marks=[pytest.mark.slow] * (part == "service")) for part in sorted(set(PARTS) - {"postgres"})],
)
def test_a_part_measures_its_figures(part) -> None:
    costs, failures = measure({"new": ROOT}, part, tiny=True)

    assert not failures
    assert set(costs["new"]) == FIGURES[part]
    assert all(cost.wall > 0 for cost in costs["new"].values())


def test_postgres_is_measured_in_a_separate_database(databases) -> None:
    costs, failures = measure({"base": ROOT, "new": ROOT}, "postgres", databases, tiny=True)

    assert not failures
    assert set(costs["base"]) == set(costs["new"]) == FIGURES["postgres"]


def test_the_error_of_a_failed_probe_is_returned() -> None:
    costs, failures = measure({"new": ROOT}, "no such part", tiny=True)

    assert costs == {"new": {}}
    assert "invalid choice: 'no such part'" in failures["new"]


def test_a_figure_is_worse_from_15_percent_on_for_times_and_rates() -> None:
    figures = {
        "rate": Figure([Cost("/s", 0.010, 0.001)] * 3, [Cost("/s", 0.012, 0.001)] * 3),
        "time": Figure([Cost("ms", 0.010, 0.001)] * 3, [Cost("ms", 0.011, 0.002)] * 3),
        "bytes": Figure([Cost("bytes", 1.0)], [Cost("bytes", 1.1)]),
    }

    rate, time, size = table(figures, "").rows

    assert rate[1:6] == ["100 /s", "83.3 /s", "1.20", "1.20", "1.20-1.20"]
    assert (rate[-1], time[-1], size[-1]) == ("wall", "cpu", "")
    assert time[6:11] == ["1 ms", "2 ms", "2.00", "2.00", "2.00-2.00"]


def test_one_slow_round_does_not_count() -> None:
    base = [Cost("ms", seconds) for seconds in (1.0, 1.0, 1.0)]

    assert Figure(base, [Cost("ms", seconds) for seconds in (1.0, 9.0, 1.1)]).ratio("wall") == 1.1
