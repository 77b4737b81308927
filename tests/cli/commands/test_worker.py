"""`minutebook worker` runs the compactions that a service has queued."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from minutebook import open_store
from minutebook.service.app import store_from
from minutebook.service.config.loader import load_config
from minutebook.testing.contract.samples import turns
from tests.cli.conftest import PROGRAM, Run, inherited
from tests.servers import require_postgres, shared
from tests.service.serving import served

CONFIG = "worker:\n  enabled: true\n  max_turns: 4\n  keep_turns: 2\n"


@pytest.fixture(scope="session", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> object:
    folder = tmp_path_factory.getbasetemp()
    shared.home = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    yield
    shared.leave()


@pytest.fixture
def url() -> str:
    require_postgres()
    return str(shared.empty())


@pytest.fixture
def config(tmp_path: Path, url: str) -> Path:
    file = tmp_path / "llm_config.yaml"
    file.write_text(f"{CONFIG}database:\n  url: {url}\n")
    return file


def append(config: Path, **conversations: int) -> None:
    """Append turns to conversations, as the service does."""

    async def scenario() -> None:
        async with store_from(load_config(config).config) as store:
            for name, count in conversations.items():
                await store.append(name, turns(count))
            await store.for_tenant("other").append("theirs", turns(8))

    asyncio.run(scenario())


def folds(url: str, conversation: str, tenant: str = "default") -> list[tuple[int, int]]:
    async def scenario() -> list[tuple[int, int]]:
        async with open_store(url, tenant=tenant) as store:
            return [(stored.fold.start, stored.fold.stop) for stored in await store.folds(conversation)]

    return asyncio.run(scenario())


def test_a_worker_compacts_the_long_conversations_of_all_tenants(run: Run, config: Path, url: str) -> None:
    append(config, long=9, short=4)

    result = run("worker", "--config", config, "--once")

    assert result.exit_code == 0, result.output
    assert folds(url, "long") == [(0, 35)]  # all but the last two turns of five messages
    assert folds(url, "theirs", "other") == [(0, 30)]
    assert folds(url, "short") == []


def test_the_service_queues_jobs_and_shows_how_many_wait(run: Run, config: Path, url: str) -> None:
    environment = {"MINUTEBOOK_WORKER_ENABLED": "true", "MINUTEBOOK_WORKER_MAX_TURNS": "4"}
    with served(db=url, environment=environment) as service:
        client = service.client()
        for number in range(6):
            client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": f"question {number}"}],
                extra_headers={"X-Conversation-Id": "c"},
            )
        before = service.http().get("/metrics").text
        assert run("worker", "--config", config, "--once").exit_code == 0
        after = service.http().get("/metrics").text

    assert "minutebook_queued_jobs 1.0\n" in before
    assert "minutebook_queued_jobs 0.0\n" in after
    assert len(folds(url, "c")) == 1


def test_only_postgresql_has_workers(run: Run, tmp_path: Path) -> None:
    result = run("worker", "--db", tmp_path / "chat.db", "--once")

    assert result.exit_code == 2
    assert "only PostgreSQL has a queue of jobs" in result.stderr
    file = tmp_path / "llm_config.yaml"
    file.write_text(f"worker:\n  enabled: true\ndatabase:\n  url: {tmp_path / 'chat.db'}\n")
    assert "only PostgreSQL has a queue" in run("serve", "--config", file, "-p", "0").stderr


@pytest.mark.slow
def test_sigterm_stops_a_worker(config: Path) -> None:
    command = [*PROGRAM, "worker", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=inherited()) as process:
        assert process.stderr is not None
        assert "the worker is ready" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert (process.returncode, rest) == (0, "")
