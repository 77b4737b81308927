"""Short versions of the crash tests that `make torture` runs on the service."""

import threading

import openai
import pytest

from minutebook.testing import LoopbackProvider, ScriptedModel, say, slow
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


def test_an_official_client_continues_after_a_kill_during_a_background_response(tmp_path, fork_server):
    was_asked, may_answer = threading.Event(), threading.Event()

    def wait(seconds):
        was_asked.set()
        assert may_answer.wait(30)

    model = ScriptedModel(slow(1) + say("too late"), say("here"), say("not stored"))
    with LoopbackProvider(model, wait=wait) as provider:
        replica = Replica(fork_server, tmp_path, f"sqlite:///{tmp_path / 'chat.db'}", provider.base_url)
        replica.start()
        try:
            client = openai.OpenAI(base_url=f"{replica.url}/v1", api_key="none")
            conversation = client.conversations.create().id
            lost = client.responses.create(model="m", input="first", conversation=conversation, background=True)
            assert was_asked.wait(30)
            replica.kill()
            may_answer.set()

            answer = client.responses.create(model="m", input="second", conversation=conversation)
            unstored = client.responses.create(model="m", input="third", store=False)

            assert (answer.output_text, unstored.output_text) == ("here", "not stored")
            assert client.responses.retrieve(lost.id).status == "failed"
            texts = [item.content[0].text for item in client.conversations.items.list(conversation, order="asc")]
            assert texts == ["first", "second", "here"]
        finally:
            may_answer.set()
            replica.stop()


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
