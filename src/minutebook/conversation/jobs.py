"""Background jobs on PostgreSQL. An append enqueues the job in its own transaction.

    needs_job = lambda header: header.turns > 10
    store = PostgresStore(url, needs_job=needs_job)  # in the service
    await run_worker(store, handle)                  # in every worker process

A conversation has at most one queued and one running job. A failed job is retried with exponential backoff. The jobs of a
crashed worker go to the others. If the worker was only slow, two workers may handle the same job, and the store rejects
the second fold with a conflict. Handlers must expect that, and must be safe to call again.

The queue is procrastinate. A worker connects to the database directly (not through pgbouncer) as the owner of the tables,
because it gets new jobs by LISTEN/NOTIFY.
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
MAX_DELAY_SECONDS: Final = 3600.0
Handler = Callable[[str, str], Awaitable[None]]
"""Does the job of one conversation, given the tenant and the conversation's id."""
_RETRY_LATER: Final = (
    "SELECT minutebook_jobs.enqueue(%(tenant)s, %(conversation)s, %(tries)s, now() + make_interval(secs => %(delay)s))"
)
_RECLAIM: Final = "SELECT minutebook_jobs.reclaim(%(lease_seconds)s)"


async def run_worker(
    store: PostgresStore,
    handle: Handler,
    *,
    concurrency: int = 1,
    tries: int = 8,
    delay_seconds: float = 2.0,
    lease_seconds: float = 60.0,
    wait: bool = True,
) -> None:
    """Run up to `concurrency` jobs at a time until cancelled; with `wait=False`, until none is due.

    A handler that raises is called again after `delay_seconds`, twice that, and so on, at most `tries` times in all.
    Then the job stays in the queue, marked as failed. The job of a deleted conversation succeeds. A worker without a
    heartbeat for `lease_seconds` loses its jobs.

    Raises:
        InvalidSetting: a number is out of range.
    """
    for name, count in (("concurrency", concurrency), ("tries", tries)):
        if count < 1:
            raise InvalidSetting(name, count, "1 or more")
    if delay_seconds < 0:
        raise InvalidSetting("delay_seconds", delay_seconds, "0 or more")
    if lease_seconds <= 0:
        raise InvalidSetting("lease_seconds", lease_seconds, "a number above 0")
    await store.create_job_tables()
    connector = procrastinate.PsycopgConnector(
        conninfo=make_conninfo(store.url, options="-c search_path=minutebook_jobs,pg_catalog"), max_size=concurrency + 3
    )
    app = procrastinate.App(connector=connector)

    @app.task(name=TASK, queue=QUEUE)
    async def work(**job: Any) -> None:
        attempt = job["tries"] + 1
        try:
            with suppress(ConversationNotFound):
                await handle(job["tenant"], job["conversation"])
        except Exception:
            if attempt >= tries:
                raise
            delay = min(delay_seconds * 2 ** (attempt - 1), MAX_DELAY_SECONDS)
            await connector.execute_query_async(_RETRY_LATER, **{**job, "tries": attempt, "delay": delay})

    async def reclaim_jobs() -> None:
        while True:
            await connector.execute_query_async(_RECLAIM, lease_seconds=lease_seconds)
            await asyncio.sleep(lease_seconds / 2)

    async with app.open_async():
        await connector.execute_query_async(_RECLAIM, lease_seconds=lease_seconds)
        reclaim_task = asyncio.ensure_future(reclaim_jobs())
        try:
            await app.run_worker_async(
                queues=[QUEUE],
                concurrency=concurrency,
                wait=wait,
                fetch_job_polling_interval=1.0,  # a job that waits for a running one becomes due without a NOTIFY
                delete_jobs="successful",
                install_signal_handlers=False,
                update_heartbeat_interval=lease_seconds / 6,
                stalled_worker_timeout=lease_seconds,
            )
        finally:
            reclaim_task.cancel()
            with suppress(asyncio.CancelledError):
                await reclaim_task
