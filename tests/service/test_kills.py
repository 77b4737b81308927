"""A short version of what `make torture` does to the service for long."""

import pytest

from tests.servers import require_postgres, shared
from torture.ledger import Found
from torture.nursery import Nursery
from torture.replica import Replica
from torture.serving import MIX, kill_service


@pytest.fixture(scope="module")
def nursery():
    """What servers are copied from, so that a test does not load them again and again."""
    with Nursery() as loaded:
        yield loaded


def test_a_killed_service_loses_and_duplicates_nothing(tmp_path, nursery):
    tally = kill_service(f"sqlite:///{tmp_path / 'chat.db'}", 1, nursery=nursery)

    assert tally.acknowledged
    assert tally.found == Found()


@pytest.mark.slow
@pytest.mark.parametrize("endpoint", MIX)
def test_a_service_killed_during_a_stream_loses_and_duplicates_nothing(endpoint, tmp_path, nursery):
    tally = kill_service(f"sqlite:///{tmp_path / 'chat.db'}", 3, talk=[endpoint], nursery=nursery)

    assert tally.acknowledged
    assert tally.found == Found()


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_on_one_postgres_behave_as_one_while_they_are_killed(replicas, nursery):
    require_postgres()

    tally = kill_service(shared.empty(), 4, replicas=replicas, nursery=nursery)

    assert tally.acknowledged
    assert tally.found == Found()


@pytest.mark.slow
def test_a_frozen_replica_without_its_leases_overwrites_nothing(nursery):
    require_postgres()

    tally = kill_service(shared.empty(), 4, replicas=2, nursery=nursery, harm=Replica.freeze)

    assert tally.acknowledged
    assert tally.found == Found()
