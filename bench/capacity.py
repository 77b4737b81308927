"""What a number of daily users needs: processes of the service, PostgreSQL, its write-ahead log and its disk.

One service process and one PostgreSQL server on this machine answer chat completions, and their CPU time and bytes per
request are measured. The table multiplies these. It assumes that capacity grows with the number of processes, which
`bench --only scale` and the tests with several replicas support, and it does not contain the time of the provider.
"""

import math
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import Part, Table, progress, time_of
from bench.service_load import load
from bench.service_processes import cpu_seconds, run_provider, run_service, wait_until_idle

USERS = (10_000, 100_000, 1_000_000)
REQUESTS_PER_USER = 10
"""Requests of a daily user per day."""
PEAK = 5
"""Requests per second at the busiest time, compared with the average of the day."""
UTILISATION = 0.6
"""Share of a core that a process should use at the peak."""
CLIENTS = 16
SECONDS = 30.0
QUICK_SECONDS = 5.0
DAY_SECONDS = 86_400
DAYS_PER_MONTH = 30
CONNECTIONS = 10
"""Connections of a service process at most: its pool, and two for appends."""


@dataclass
class RequestCosts:
    """The costs of one chat completion."""

    service_seconds: float
    """CPU time of the service."""
    postgres_seconds: float
    """CPU time of PostgreSQL."""
    wal_bytes: float
    database_bytes: float
    per_second: float
    """Requests per second of the one service process."""


def measure(*, quick: bool) -> Part:
    with ExitStack() as stack:
        url, postmaster = stack.enter_context(_postgres())
        provider_port, _ = stack.enter_context(run_provider())
        port, pid = stack.enter_context(run_service(url, f"http://127.0.0.1:{provider_port}/v1"))
        load(port, clients=CLIENTS, seconds=1.0, stream=False, named=True)  # loads what is loaded on first use
        wait_until_idle(pid)
        progress("capacity: chat completions on PostgreSQL")
        costs = _measure_requests(port, pid, url, postmaster, QUICK_SECONDS if quick else SECONDS)
    return Part([_cost_table(costs), capacity_table(costs)], figures={"request": vars(costs)})


def _measure_requests(port: int, pid: int, url: str, postmaster: int, seconds: float) -> RequestCosts:
    wal, size = _sizes(url)
    service, postgres = cpu_seconds(pid), _server_cpu(postmaster)
    result = load(port, clients=CLIENTS, seconds=seconds, stream=False, named=True)
    wait_until_idle(pid)
    service, postgres = cpu_seconds(pid) - service, _server_cpu(postmaster) - postgres
    wal_after, size_after = _sizes(url)
    count = result.answers
    return RequestCosts(
        service / count, postgres / count, (wal_after - wal) / count, (size_after - size) / count, result.per_second
    )


@contextmanager
def _postgres() -> Iterator[tuple[str, int]]:
    """The URL and the process id of a new server, which waits for the disk."""
    from tests.servers import Postgres

    server = Postgres.make((), on_disk=True)
    try:
        yield server.url(), server.pid
    finally:
        server.remove()


def _sizes(url: str) -> tuple[int, int]:
    import psycopg

    with psycopg.connect(url) as db:
        query = "SELECT pg_current_wal_insert_lsn() - '0/0', pg_database_size(current_database())"
        row = db.execute(query).fetchone() or (0, 0)
    return int(row[0]), int(row[1])


def _server_cpu(postmaster: int) -> float:
    """CPU time of all processes of a PostgreSQL server."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    return sum(cpu_seconds(int(pid)) for pid in children if Path(f"/proc/{pid}").exists())


def _cost_table(costs: RequestCosts) -> Table:
    machine = (
        f"Python {platform.python_version()}, {platform.machine()}. Service, PostgreSQL, provider and clients share the"
        f" {os.cpu_count()} cores of this machine."
    )
    table = Table("Capacity: one chat completion, recorded on PostgreSQL", ["", "per request"])
    table.rows += [
        ["CPU of the service", time_of(costs.service_seconds)],
        ["CPU of PostgreSQL", time_of(costs.postgres_seconds)],
        ["write-ahead log", _bytes(costs.wal_bytes)],
        ["database", _bytes(costs.database_bytes)],
        ["requests/s of one process", f"{costs.per_second:,.0f}"],
    ]
    table.notes += [
        f"{CLIENTS} clients, answers of 20 words, no streaming. Each request creates a conversation, so bytes are a maximum.",
        machine,
    ]
    return table


def capacity_table(costs: RequestCosts) -> Table:
    """What numbers of daily users need, from the costs of one request."""
    table = Table("Capacity: what daily users need", ["daily users", *(f"{users:,}" for users in USERS)])
    rates = [users * REQUESTS_PER_USER * PEAK / DAY_SECONDS for users in USERS]
    daily = [users * REQUESTS_PER_USER for users in USERS]
    processes = [math.ceil(rate * costs.service_seconds / UTILISATION) for rate in rates]
    table.rows += [
        ["requests/s at the peak", *(f"{rate:,.0f}" for rate in rates)],
        ["service processes", *(f"{count:,}" for count in processes)],
        ["connections to PostgreSQL", *(f"{count * CONNECTIONS:,}" for count in processes)],
        ["cores of PostgreSQL", *(f"{math.ceil(rate * costs.postgres_seconds / UTILISATION):,}" for rate in rates)],
        ["write-ahead log at the peak", *(f"{_bytes(rate * costs.wal_bytes)}/s" for rate in rates)],
        [
            "growth of the database per month",
            *(_bytes(count * DAYS_PER_MONTH * costs.database_bytes) for count in daily),
        ],
    ]
    table.notes.append(
        f"{REQUESTS_PER_USER} requests per user and day, {PEAK} times the average at the peak, {UTILISATION:.0%} of a core used."
    )
    return table


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1_000:
            return f"{count:,.1f} {unit}"
        count /= 1_000
    return f"{count:,.1f} TB"
