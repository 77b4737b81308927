"""Short versions of the crash tests that `make torture` runs on the service."""

import pytest

from tests.servers import require_postgres, shared
from torture.checker import Violations
from torture.fork_server import ForkServer
from torture.replica import Replica
from torture.service import CLIENTS, kill_service


@pytest.fixture(scope="module")
def fork_server():
    with ForkServer() as server:
        yield server


def test_a_service_that_is_killed_once_loses_nothing_and_stores_nothing_twice(tmp_path, fork_server):
    result = kill_service(f"sqlite:///{tmp_path / 'chat.db'}", 1, fork_server=fork_server)

    assert result.acknowledged
    assert result.violations == Violations()


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_service_that_is_killed_while_it_streams_loses_nothing_and_stores_nothing_twice(
    client, tmp_path, fork_server
):
    result = kill_service(f"sqlite:///{tmp_path / 'chat.db'}", 3, clients=[client], fork_server=fork_server)

    assert result.acknowledged
    assert result.violations == Violations()


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [1, 2])
def test_killed_replicas_on_one_postgres_lose_nothing_and_store_nothing_twice(replicas, fork_server):
    require_postgres()

    result = kill_service(shared.empty(), 4, replicas=replicas, fork_server=fork_server)

    assert result.acknowledged
    assert result.violations == Violations()


@pytest.mark.slow
def test_a_replica_that_was_frozen_for_longer_than_its_leases_does_not_write(fork_server):
    require_postgres()

    result = kill_service(shared.empty(), 4, replicas=2, fork_server=fork_server, harm=Replica.freeze)

    assert result.acknowledged
    assert result.violations == Violations()
