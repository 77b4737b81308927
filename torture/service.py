"""Kills the service while it streams, under clients that retry until they have their answers."""

import asyncio
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from bench.report import progress
from minutebook.record.message import text_of
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say, slow
from minutebook.testing.script import ReceivedRequest
from torture.checker import Violations
from torture.client import RetryingClient
from torture.client_history import check_finished, check_running, find_abandoned
from torture.completions import CompletionClient
from torture.fork_server import ForkServer
from torture.kills import CrashResult
from torture.replica import Replica
from torture.responses import ResponseClient
from torture.threads import ThreadClient

KILLS_PER_PROGRESS = 20
MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.05, 0.8
"""Time between two kills."""
CLIENTS: Mapping[str, Callable[..., RetryingClient]] = {
    "completions": CompletionClient,
    "conversation": ResponseClient,
    "previous": partial(ResponseClient, uses_previous=True),
    "background": partial(ResponseClient, in_background=True),
    "unstored": partial(ResponseClient, stores=False),
    "threads": ThreadClient,
}
"""The kinds of clients. Each runs twice: with idempotency keys and with retry counts."""


def scripted_model() -> ScriptedModel:
    """A model that calls a tool for every question and then answers. The answers to two calls are different."""

    def answer(request: ReceivedRequest) -> Any:
        last = request.messages[-1]
        pace = slow(0.005, between_seconds=0.003)
        if last["role"] == "tool":
            return pace + say(f"The result of {last['tool_call_id']} is {last['content']}, as far as anybody knows.")
        return pace + call("look_up", what=text_of(last))

    return ScriptedModel(otherwise=answer)


def kill_service(
    db: str,
    kills: int,
    *,
    replicas: int = 1,
    clients: Sequence[str] = tuple(CLIENTS),
    seed: int = 7,
    name: str = "",
    fork_server: ForkServer | None = None,
    harm: Callable[[Replica], None] = Replica.kill,
) -> CrashResult:
    """Kill and restart random replicas at random moments under load. `harm` may do something else to them.

    Raises:
        AssertionError: a client got a response other than an answer or a request to retry, such as 409: a conversation was
            locked for longer than the lease of a killed replica.
    """
    draw, result, stopping = random.Random(seed), CrashResult(), threading.Event()
    with (
        ForkServer() if fork_server is None else nullcontext(fork_server) as forks,
        tempfile.TemporaryDirectory(prefix="minutebook-torture-") as folder,
        LoopbackProvider(scripted_model(), remember=10, wait=time.sleep) as provider,
        _run_replicas([Replica(forks, Path(folder), db, provider.base_url) for _ in range(replicas)]) as servers,
    ):
        running = [
            CLIENTS[kind](f"{kind}-{uses_keys}", servers, stopping, uses_keys)
            for kind in clients
            for uses_keys in (True, False)
        ]
        with _run_clients(running, stopping):
            start_seconds = 0.0
            for kill in range(kills):
                # A busy machine starts servers slowly and answers slowly, so a server lives longer than it took to start.
                time.sleep(start_seconds + draw.uniform(MIN_PAUSE_SECONDS, MAX_PAUSE_SECONDS))
                started = time.monotonic()
                harm(draw.choice(servers))
                start_seconds = time.monotonic() - started
                result.kills += 1
                result.violations += asyncio.run(_check_newest(db, running))
                _require_no_problem(running)
                if kill % KILLS_PER_PROGRESS == KILLS_PER_PROGRESS - 1:
                    answers = sum(client.answers for client in running)
                    progress(f"{name}: {kill + 1:,} of {kills:,} kills, {answers:,} answers")
    _require_no_problem(running)
    result.violations += asyncio.run(_check_all(db, running))
    result.acknowledged = sum(client.answers for client in running)
    result.retries = sum(client.retries for client in running)
    progress(f"{name}: failed attempts of clients: {_failures(running)}")
    return result


def _require_no_problem(clients: Sequence[RetryingClient]) -> None:
    problems = [client.problem for client in clients if client.problem is not None]
    assert not problems, "; ".join(problems)


def _failures(clients: Sequence[RetryingClient]) -> str:
    failures = sum((client.failures for client in clients), Counter[str]())
    return ", ".join(f"{count:,} x {reason}" for reason, count in failures.most_common()) or "none"


async def _check_newest(db: str, clients: Sequence[RetryingClient]) -> Violations:
    """Check the last two conversations of each client, while the clients run."""
    violations = Violations()
    async with open_store(db) as store:
        for client in clients:
            for history in client.histories[-2:]:
                violations += await check_running(store, history)
    return violations


async def _check_all(db: str, clients: Sequence[RetryingClient]) -> Violations:
    """Check all conversations, after the clients have stopped."""
    violations = Violations()
    histories = [history for client in clients for history in client.histories]
    async with open_store(db) as store:
        for history in histories:
            violations += await check_finished(store, history)
        abandoned = await find_abandoned(store, histories)
    progress(f"{abandoned.total:,} conversations were left by attempts that a kill ended")
    violations.duplicates += abandoned.mixed
    return violations


@contextmanager
def _run_replicas(replicas: list[Replica]) -> Iterator[list[Replica]]:
    try:
        for replica in replicas:
            replica.start()
        yield replicas
    finally:
        for replica in replicas:
            replica.stop()


@contextmanager
def _run_clients(clients: Sequence[RetryingClient], stopping: threading.Event) -> Iterator[None]:
    threads = [threading.Thread(target=client.run) for client in clients]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
