"""CPU time of a completion in conversations of different lengths, for the service and for `Conversation`.

`newest`: the client sends its newest message only, and the policy sends the last messages to the model. `whole`: the
client resends its whole history. It is compared with the CPU time to parse that history and to compare it with a copy.
`first` is the first request of a conversation after the service has started: the whole record is read and counted.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any

from bench.report import Part, Table, Target, progress, time_of, times
from bench.service_load import post, read_answer
from bench.service_processes import cpu_seconds, run_provider, run_service, wait_until_idle
from minutebook import AsyncConversation, open_store
from minutebook.service.http.json_codec import parse_json
from minutebook.wire import new_entries

LENGTHS = (10, 1_000, 9_000)
REQUESTS = 100
"""Requests of `newest`. Those of `whole` are a fifth, because each is slower."""
POLICY = "sliding_window"
MAX_GROWTH = 1.3
MAX_WHOLE = 3.0
ANSWER = "".join(f"word{word} " for word in range(20))


def history(length: int) -> list[dict[str, Any]]:
    """A conversation that ends with an answer."""
    roles = ("user", "assistant")
    return [{"role": roles[number % 2], "content": f"message {number} " + "about it " * 20} for number in range(length)]


def measure(part: Part, engine: str, *, quick: bool) -> None:
    """Add the figures of one engine to the report."""
    requests = REQUESTS // 2 if quick else REQUESTS
    figures: dict[str, list[float]] = {}
    with ExitStack() as stack:
        url = stack.enter_context(_database(engine))
        asyncio.run(_fill(url))
        provider = stack.enter_context(run_provider())
        port, pid = stack.enter_context(run_service(url, f"http://127.0.0.1:{provider[0]}/v1"))
        for length in LENGTHS:
            progress(f"scale: {engine}, completions in a conversation of {length:,} messages")
            newest = lambda number: [{"role": "user", "content": f"and {number}?"}]  # noqa: E731
            figures.setdefault("service, first", []).append(_cpu(port, pid, f"newest-{length}", newest, 1))
            _cpu(port, pid, f"newest-{length}", newest, 10)
            figures.setdefault("service, newest", []).append(_cpu(port, pid, f"newest-{length}", newest, requests))
            whole = _whole(length)
            _cpu(port, pid, f"whole-{length}", whole, 3)
            figures.setdefault("service, whole", []).append(_cpu(port, pid, f"whole-{length}", whole, requests // 5))
            figures.setdefault("parse and compare", []).append(_parse_and_compare(length))
            opened, viewed = asyncio.run(_library(url, f"library-{length}", requests))
            figures.setdefault("Conversation, open", []).append(opened)
            figures.setdefault("Conversation, append and view", []).append(viewed)
    _report(part, engine, figures)


@contextmanager
def _database(engine: str) -> Iterator[str]:
    with ExitStack() as stack:
        if engine == "SQLite":
            yield f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/chat.db"
            return
        from tests.servers import Postgres

        server = Postgres.make((), on_disk=True)
        stack.callback(server.remove)
        yield server.url()


async def _fill(url: str) -> None:
    async with open_store(url, search=False) as store:
        for length in LENGTHS:
            for name in ("newest", "whole", "library"):
                await store.append(f"{name}-{length}", new_entries(history(length)))


def _whole(length: int) -> Callable[[int], list[dict[str, Any]]]:
    """The messages of each request of a client that resends its history, with the answers that it got."""
    messages = history(length)

    def next_messages(number: int) -> list[dict[str, Any]]:
        messages.append({"role": "user", "content": f"and {number}?"})
        sent = list(messages)
        messages.append({"role": "assistant", "content": ANSWER})
        return sent

    return next_messages


def _cpu(
    port: int, pid: int, conversation: str, messages_of: Callable[[int], Sequence[dict[str, Any]]], requests: int
) -> float:
    """CPU seconds of the service for one request."""
    wait_until_idle(pid)
    before = cpu_seconds(pid)
    asyncio.run(_send(port, conversation, messages_of, requests))
    wait_until_idle(pid)
    return (cpu_seconds(pid) - before) / requests


async def _send(
    port: int, conversation: str, messages_of: Callable[[int], Sequence[dict[str, Any]]], requests: int
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    headers = {"x-conversation-id": conversation, "x-history-policy": POLICY}
    try:
        for number in range(requests):
            body = json.dumps({"model": "bench", "messages": messages_of(number)}).encode()
            writer.write(post(port, "/v1/chat/completions", body, key="none", headers=headers))
            await writer.drain()
            await read_answer(reader)
    finally:
        writer.close()


def _parse_and_compare(length: int) -> float:
    """CPU seconds of the service's strict parser, and of a comparison."""
    data, copy = json.dumps({"messages": history(length)}).encode(), history(length)
    measured = []
    for _ in range(9):
        started = time.process_time()
        _ = parse_json(data, max_depth=64, max_values=100_000)["messages"] == copy
        measured.append(time.process_time() - started)
    return median(measured)


async def _library(url: str, conversation: str, requests: int) -> tuple[float, float]:
    """CPU seconds to open a conversation, and for one append and view."""
    async with open_store(url) as store:
        started = time.process_time()
        async with AsyncConversation(conversation, store=store, manager="sliding_window") as chat:
            await chat.view()
            opened = time.process_time() - started
            started = time.process_time()
            for number in range(requests):
                await chat.append(f"and {number}?")
                await chat.view()
                await chat.append({"role": "assistant", "content": ANSWER})
            return opened, (time.process_time() - started) / requests


def _report(part: Part, engine: str, figures: dict[str, list[float]]) -> None:
    columns = [f"{engine}, CPU", *(f"{length:,}" for length in LENGTHS), "growth"]
    table = Table(f"Scale: {engine}, CPU of one completion by length of its conversation", columns)
    for name, seconds in figures.items():
        table.rows.append([name, *map(time_of, seconds), times(seconds[-1] / max(seconds[0], 1e-6))])
    part.tables.append(table)
    part.figures[f"{engine}, length"] = figures
    for name in ("service, newest", "Conversation, append and view"):
        growth = figures[name][-1] / figures[name][0]
        what = f"{engine}: {name}: at most {MAX_GROWTH} times the CPU at {LENGTHS[-1]:,} as at {LENGTHS[0]} messages"
        part.targets.append(Target(what, times(growth), growth <= MAX_GROWTH))
    whole = figures["service, whole"][-1] / figures["parse and compare"][-1]
    what = f"{engine}: a resent history of {LENGTHS[-1]:,} costs at most {MAX_WHOLE:g} times its parsing and comparing"
    part.targets.append(Target(what, times(whole), whole <= MAX_WHOLE))
