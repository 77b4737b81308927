"""Background jobs on PostgreSQL: queued by the append that makes them due, in its own transaction.

    due = lambda conversation: conversation.turns > 10
    store = PostgresStore(url, due=due)          # in the service
    await run_worker(store, handle)              # in as many workers as there are

A conversation has at most one job that waits and one that runs. A job that fails is tried again, later each time. A
worker that dies loses its jobs to the others; one that was only slow finds that its result comes too late: the store
refuses a fold that was made from other folds than stand there by now. Handlers must expect that, and to be called again.

The queue is procrastinate's. A worker needs a connection to the database itself, without a pgbouncer in between, as a
user who owns the tables: it is told of new jobs by the server.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import procrastinate
from psycopg.conninfo import make_conninfo

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.store.postgres.store import PostgresStore

QUEUE: Final = "minutebook"
TASK: Final = "minutebook.conversation"
LONGEST_DELAY_SECONDS: Final = 3600.0
Handler = Callable[[str, str], Awaitable[None]]
"""What is done for a tenant's conversation."""
_LATER: Final = (
    "SELECT minutebook_jobs.put(%(tenant)s, %(conversation)s, %(tries)s, now() + make_interval(secs => %(delay)s))"
)
_RECLAIM: Final = "SELECT minutebook_jobs.reclaim(%(lease_seconds)s)"


async def run_worker(
    store: PostgresStore,
    handle: Handler,
    *,
    at_once: int = 1,
    tries: int = 8,
    delay_seconds: float = 2.0,
    lease_seconds: float = 60.0,
    wait: bool = True,
) -> None:
    """Carry out jobs until this is cancelled; with `wait=False`, until none is due.

    A handler that raises is called again after `delay_seconds`, twice that, and so on, `tries` times in all; then the
    job stays in the queue, marked as failed, for somebody to look at. A conversation that is no longer there needs
    nothing done. A worker that gave no sign of life for `lease_seconds` loses its jobs.
    """
    if at_once < 1 or tries < 1 or delay_seconds < 0 or lease_seconds <= 0:
        raise InvalidSetting("run_worker", (at_once, tries, delay_seconds, lease_seconds), "numbers above 0")
    await store.ready_for_jobs()
    connector = procrastinate.PsycopgConnector(
        conninfo=make_conninfo(store.url, options="-c search_path=minutebook_jobs,pg_catalog"), max_size=at_once + 3
    )
    app = procrastinate.App(connector=connector)

    @app.task(name=TASK, queue=QUEUE)
    async def work(**job: Any) -> None:
        done = job["tries"] + 1
        try:
            with suppress(ConversationNotFound):
                await handle(job["tenant"], job["conversation"])
        except Exception:
            if done >= tries:
                raise
            delay = min(delay_seconds * 2 ** (done - 1), LONGEST_DELAY_SECONDS)
            await connector.execute_query_async(_LATER, **{**job, "tries": done, "delay": delay})

    async def reclaim() -> None:
        while True:
            await connector.execute_query_async(_RECLAIM, lease_seconds=lease_seconds)
            await asyncio.sleep(lease_seconds / 2)

    async with app.open_async():
        await connector.execute_query_async(_RECLAIM, lease_seconds=lease_seconds)
        reclaiming = asyncio.ensure_future(reclaim())
        try:
            await app.run_worker_async(
                queues=[QUEUE],
                concurrency=at_once,
                wait=wait,
                fetch_job_polling_interval=1.0,  # nobody is told when the job before it is done
                delete_jobs="successful",
                install_signal_handlers=False,
                update_heartbeat_interval=lease_seconds / 6,
                stalled_worker_timeout=lease_seconds,
            )
        finally:
            reclaiming.cancel()
            with suppress(asyncio.CancelledError):
                await reclaiming
