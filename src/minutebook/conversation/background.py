"""Compaction in background tasks of the same event loop, so that requests do not wait for it.

An append only queues its conversation. A few worker tasks check whether compaction is due and run it. A conversation is
compacted by one worker at a time. Failures are retried with exponential backoff, then reported to `on_error`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.compactor import TurnCompactor
from minutebook.errors import ConversationErased, ConversationNotFound, EventFailed, InvalidSetting
from minutebook.history.protocol import EventBus
from minutebook.store.base import ConversationStore
from minutebook.tokens import TokenCounter


class BackgroundCompaction:
    """Compacts conversations in the background. Pass `notice` to a `ConversationHistory`, or call it after appends.

    `max_tokens` is the limit of the histories' views; their summaries have at most a share of it.

    `on_error(conversation, error)` is called when all attempts failed. The delay before a retry is random, between 0 and
    `first_seconds`, doubled for each further retry, up to `max_seconds`. Leaving the context compacts what is queued,
    without further retries.

    Raises:
        InvalidSetting: a number is out of range.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        on_error: Callable[[str, Exception], object],
        strategy: TurnStrategy | None = None,
        purge_compacted: bool = False,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        max_tokens: int | None = None,
        bus: EventBus | None = None,
        concurrency: int = 2,
        attempts: int = 5,
        first_seconds: float = 1.0,
        max_seconds: float = 60.0,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        for name, value in (("concurrency", concurrency), ("attempts", attempts)):
            if value < 1:
                raise InvalidSetting(name, value, "1 or more")
        for name, seconds in (("first_seconds", first_seconds), ("max_seconds", max_seconds)):
            if seconds < 0:
                raise InvalidSetting(name, seconds, "0 or more")
        self._compactor = TurnCompactor(
            store,
            strategy=strategy,
            purge_compacted=purge_compacted,
            summarizer=summarizer,
            counter=counter,
            max_tokens=max_tokens,
            bus=bus,
        )
        self._on_error = on_error
        self._concurrency, self._attempts = concurrency, attempts
        self._first_seconds, self._max_seconds = first_seconds, max_seconds
        self._draw, self._sleep = draw, sleep
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._running: set[str] = set()
        self._changed_while_running: set[str] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._callback_errors: list[Exception] = []

    def notice(self, conversation: str) -> None:
        """Queue a check whether compaction is due. Call it after an append; redundant calls are cheap.

        Call it in the event loop that runs the compaction. Calls after the context is left are ignored: the next append
        makes another instance check the whole conversation.
        """
        if self._closing.is_set():
            return
        if conversation in self._running:
            self._changed_while_running.add(conversation)
        elif conversation not in self._queued:
            self._queued.add(conversation)
            self._queue.put_nowait(conversation)

    async def idle(self) -> None:
        """Wait until the queue is empty and no worker is busy."""
        await self._queue.join()

    async def __aenter__(self) -> Self:
        self._workers = [asyncio.create_task(self._run_worker()) for _ in range(self._concurrency)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        try:
            await self._queue.join()
        finally:
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)
            self._workers = []
        if self._callback_errors:
            raise EventFailed("BackgroundCompaction.on_error", self._callback_errors)

    async def _run_worker(self) -> None:
        while True:
            conversation = await self._queue.get()
            self._queued.discard(conversation)
            self._running.add(conversation)
            try:
                await self._compact(conversation)
            finally:
                self._running.discard(conversation)
                if conversation in self._changed_while_running:
                    self._changed_while_running.discard(conversation)
                    self._queued.add(conversation)
                    self._queue.put_nowait(conversation)
                self._queue.task_done()

    async def _compact(self, conversation: str) -> None:
        """Compact a conversation if that is due. Retry errors that may be transient."""
        for attempt in range(1, self._attempts + 1):
            problem = await self._attempt(conversation)
            if problem is None:
                return
            is_permanent = isinstance(problem, (ConversationNotFound, EventFailed))
            if is_permanent or attempt == self._attempts or self._closing.is_set():
                self._report_error(conversation, problem)
                return
            await self._wait_before_retry(attempt)

    async def _attempt(self, conversation: str) -> Exception | None:
        """Compact a conversation if that is due, and return the error if it failed."""
        try:
            if not await self._compactor.is_due(conversation):
                return None
            result = await self._compactor.compact(conversation)
        except ConversationErased:
            return None  # an erased conversation needs no compaction
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The summarizer raised it. The worker must survive, or its queue would never be finished.
            return RuntimeError("the summarizer cancelled itself")
        except Exception as error:  # noqa: BLE001 - stores and buses are user-supplied code; the error is reported
            return error
        return result.error

    async def _wait_before_retry(self, attempt: int) -> None:
        """Wait for the backoff delay, or until the context is left."""
        seconds = self._draw() * min(self._max_seconds, self._first_seconds * 2 ** (attempt - 1))
        sleep_task = asyncio.ensure_future(self._sleep(seconds))
        closing_task = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({sleep_task, closing_task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sleep_task, closing_task):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def _report_error(self, conversation: str, problem: Exception) -> None:
        try:
            self._on_error(conversation, problem)
        except Exception as error:  # noqa: BLE001 - raised when the context is left, so that the worker continues
            self._callback_errors += [problem, error]
