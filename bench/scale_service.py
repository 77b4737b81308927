"""What the service stores for a request besides its messages, its throughput over a slower network to PostgreSQL, and how
often it renews leases.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

from bench.report import Part, Table, Target, progress
from bench.service_load import CHAT_PATH, load, open_idle_streams, post, read_answer
from bench.service_processes import run_provider, run_service, wait_until_idle
from torture.proxy import run_proxy

CLIENTS = 64
SECONDS = 5.0
ROUNDS = 3
ROUND_TRIP_SECONDS = 0.003
MIN_SLOW_SHARE = 0.6
CONVERSATIONS = 100
TURNS = 10
MAX_BYTES = 600
STREAMS = 1_000
RENEWAL_SECONDS = 20.0
MAX_RENEWALS = 1.0


def measure(part: Part, *, quick: bool) -> None:
    """Add the figures of the service on PostgreSQL to the report."""
    from tests.servers import Postgres

    server = Postgres.make((), on_disk=True)
    try:
        with ExitStack() as stack:
            provider_port, _ = stack.enter_context(run_provider())
            provider = f"http://127.0.0.1:{provider_port}/v1"
            _measure_bookkeeping(part, server.url(), provider)
            _measure_slow_network(part, server.url(), provider, rounds=1 if quick else ROUNDS)
            _measure_renewals(part, server.url(), provider, streams=STREAMS // 10 if quick else STREAMS)
    finally:
        server.remove()


@contextmanager
def _service(url: str, provider: str) -> Iterator[int]:
    """The port of a service that has answered its first requests."""
    with run_service(url, provider) as (port, pid):
        load(port, clients=4, seconds=1.0, stream=False, named=True)
        wait_until_idle(pid)
        yield port


def _measure_bookkeeping(part: Part, url: str, provider: str) -> None:
    progress("scale: bytes of a request besides its messages")
    with _service(url, provider) as port:
        _execute(url, "TRUNCATE minutebook.document")
        asyncio.run(_converse(port))
    # The results for retries expire after 10 minutes, and later requests delete them.
    _execute(url, "DELETE FROM minutebook.document WHERE kind = 'reply'")
    _execute(url, "VACUUM FULL minutebook.document")
    query = "SELECT count(*), pg_relation_size('minutebook.document'), pg_indexes_size('minutebook.document')"
    count, rows, indexes = _execute(url, f"{query} FROM minutebook.document")
    size = (rows + indexes) / count
    columns = ["PostgreSQL, bytes per request", "rows", "their indexes", "sum"]
    table = Table("Scale: the service, what a request stores besides messages and their search index", columns)
    table.rows.append(["minutes", *(f"{value:,.0f}" for value in (rows / count, indexes / count, size))])
    table.notes.append(
        f"{count:,} requests in {CONVERSATIONS} conversations, after the results for retries have expired."
    )
    part.tables.append(table)
    part.targets.append(
        Target(f"PostgreSQL: at most {MAX_BYTES} bytes of minutes per request", f"{size:,.0f}", size <= MAX_BYTES)
    )


def _execute(url: str, statement: str) -> tuple[Any, ...]:
    """Run a statement on the rows of all tenants; return its first row."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as db:
        db.execute("SET minutebook.all_tenants = 'on'")
        cursor = db.execute(statement.encode())
        return (cursor.fetchone() or ()) if cursor.description else ()


async def _converse(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for conversation in range(CONVERSATIONS):
            for turn in range(TURNS):
                messages = [{"role": "user", "content": f"question {turn}: what about it?"}]
                body = json.dumps({"model": "bench", "messages": messages}).encode()
                headers = {"x-conversation-id": f"conversation {conversation}"}
                writer.write(post(port, CHAT_PATH, body, key="none", headers=headers))
                await writer.drain()
                await read_answer(reader)
    finally:
        writer.close()


def _measure_slow_network(part: Part, url: str, provider: str, *, rounds: int) -> None:
    """Both services use a proxy, so that its CPU time does not count. The rounds alternate."""
    progress(f"scale: {CLIENTS} clients of the service over networks of different speed")
    address = urlsplit(url)
    answers = {0.0: 0.0, ROUND_TRIP_SECONDS: 0.0}
    with ExitStack() as stack:
        proxy = stack.enter_context(run_proxy(address.hostname or "127.0.0.1", address.port or 5432))
        port = stack.enter_context(_service(url.replace(f":{address.port}", f":{proxy.address[1]}", 1), provider))
        for proxy.delay_seconds in [*answers] * rounds:
            result = load(port, clients=CLIENTS, seconds=SECONDS, stream=False, named=True)
            answers[proxy.delay_seconds] += result.per_second
        proxy.delay_seconds = 0.0
    columns = ["PostgreSQL", *(f"+{delay * 1_000:g} ms" for delay in answers)]
    table = Table(f"Scale: the service, requests per second of {CLIENTS} clients", columns)
    table.rows.append(["requests/s", *(f"{total / rounds:,.0f}" for total in answers.values())])
    part.tables.append(table)
    share = answers[ROUND_TRIP_SECONDS] / answers[0.0]
    claim = f"PostgreSQL: at +3 ms at least {MIN_SLOW_SHARE:.0%} of the requests per second, {CLIENTS} clients"
    part.targets.append(Target(claim, f"{share:.0%}", share >= MIN_SLOW_SHARE))


def _measure_renewals(part: Part, url: str, provider: str, *, streams: int) -> None:
    progress(f"scale: renewals of leases with {streams:,} open streams")
    with _service(url, provider) as port:
        leases, transactions = asyncio.run(_hold_streams(port, url, streams))
    table = Table(f"Scale: the service, transactions per second while {streams:,} streams are open", ["PostgreSQL", ""])
    table.rows += [["leases", f"{leases:,}"], ["transactions/s", f"{transactions:.2f}"]]
    part.tables.append(table)
    is_met = leases >= streams and transactions <= MAX_RENEWALS
    claim = f"PostgreSQL: at most {MAX_RENEWALS:g} transaction per second renews the leases of {streams:,} streams"
    part.targets.append(Target(claim, f"{transactions:.2f}", is_met))


async def _hold_streams(port: int, url: str, streams: int) -> tuple[int, float]:
    """The number of valid leases while the streams are open, and transactions per second."""
    writers = await open_idle_streams(port, streams, key="none", named=True, headers={})
    try:
        await asyncio.sleep(2)
        before, started = _transactions(url), time.perf_counter()
        await asyncio.sleep(RENEWAL_SECONDS)
        seconds = time.perf_counter() - started
        count = _transactions(url) - before
        valid = "until > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        (leases,) = _execute(url, f"SELECT count(*) FROM minutebook.lease WHERE {valid}")
        return leases, count / seconds
    finally:
        for writer in writers:
            writer.close()


def _transactions(url: str) -> int:
    """The number of transactions that changed something. Reading it is none."""
    (number,) = _execute(url, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    return int(number)
