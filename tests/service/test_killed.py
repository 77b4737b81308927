"""A short version of what `make torture` does to the service for long."""

import pytest

from tests.servers import require_postgres, shared
from torture.ledger import Found
from torture.serving import kill_service


def test_a_service_that_is_killed_while_it_streams_loses_and_doubles_nothing(tmp_path):
    tally = kill_service(f"sqlite:///{tmp_path / 'chat.db'}", 2)
    assert tally.acknowledged
    assert tally.found == Found()


@pytest.mark.parametrize("replicas", [1, 2])
def test_replicas_on_one_postgres_behave_as_one_while_they_are_killed(replicas):
    require_postgres()
    tally = kill_service(shared.empty(), 2, replicas=replicas)
    assert tally.acknowledged
    assert tally.found == Found()
