"""`minutebook worker`: compact conversations in the background, outside of the HTTP service."""

import asyncio
import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from minutebook.cli.database import postgres_of
from minutebook.cli.exits import Command
from minutebook.cli.options import config_file_option, count_option, flag, log_level_option
from minutebook.errors import InvalidSetting

if TYPE_CHECKING:
    from minutebook.service.config.schema import ServiceConfig

_LOG: Final = logging.getLogger("minutebook.worker")


@click.command("worker", cls=Command, short_help="Compact conversations in the background.")
@config_file_option
@click.option(
    "--db",
    "database_url",
    metavar="URL",
    help="PostgreSQL URL. Its user must own the tables, and it must not point to pgbouncer. Example: --db postgresql://localhost/chat",
)
@count_option("--concurrency", default=2, help_text="Jobs at the same time. Example: --concurrency 4")
@flag("--once", help_text="Stop when no job is due. Example: minutebook worker --once")
@log_level_option
def command(config_file: Path | None, database_url: str | None, concurrency: int, once: bool, log_level: str) -> None:
    """Run the jobs that the service queues if `worker.enabled` is set: summarize the older turns of long conversations.

    Any number of workers may run. Each needs the configuration of the service: database, encryption key, worker.* and, for
    `worker.summary_model`, upstream.*. A job that fails is retried later, and run at most 8 times in all.
    Other workers take over the jobs of a worker that died. SIGTERM stops a worker.

    Example: minutebook worker --db postgresql://localhost/chat --concurrency 4
    """
    from minutebook.service.config.loader import CommandLineFlag, config_path, load_config
    from minutebook.service.observability.logs import write_logs_to

    flags = {"database.url": CommandLineFlag("--db", database_url)}
    config = load_config(config_file or config_path(), flags=flags).config
    with write_logs_to(level=log_level.upper()), suppress(asyncio.CancelledError):
        asyncio.run(_work(config, concurrency, once=once))


async def _work(config: "ServiceConfig", concurrency: int, *, once: bool) -> None:
    from minutebook.agent.summarizer import ModelSummarizer
    from minutebook.conversation.compactor import TurnCompactor
    from minutebook.conversation.jobs import run_worker
    from minutebook.service.app import store_from, upstream_from

    store = store_from(config, queue_jobs=False)
    postgres = postgres_of(store)
    if postgres is None:
        raise InvalidSetting("--db", config.database.url, "a PostgreSQL URL: only PostgreSQL has a queue of jobs")
    model = config.worker.summary_model
    upstream = None if model is None else upstream_from(config)
    summarizer = None if upstream is None or model is None else ModelSummarizer(upstream.openai_adapter(model))

    async def compact(tenant: str, conversation: str) -> None:
        compactor = TurnCompactor(store.for_tenant(tenant), strategy=config.worker.strategy, summarizer=summarizer)
        if not await compactor.is_due(conversation):
            return
        result = await compactor.compact(conversation)
        if result.error is not None:
            _LOG.warning("a compaction failed: %s", type(result.error).__name__)
            raise result.error
        _LOG.info("compacted", extra={"folds": len(result.added), "tokens_before": result.tokens_before})

    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async with store:
            _LOG.info("the worker is ready")
            await run_worker(postgres, compact, concurrency=concurrency, wait=not once)
    finally:
        if upstream is not None:
            await upstream.close()
