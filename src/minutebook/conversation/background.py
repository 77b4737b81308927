"""Compaction off the request path, on one machine: tasks in the same event loop.

Whoever appends says so and goes on; a few tasks look whether compaction is due and do it. A conversation is never
compacted twice at a time. What fails is tried again later and later, and told to somebody when it is given up.
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
    """Compacts conversations while others use them. Give `notice` to a `ConversationHistory`, or call it.

    `on_error(conversation, error)` hears of every compaction that was given up. The wait before the next try is drawn
    from 0 to `first_seconds`, then from twice as much and so on, up to `most_seconds`. Leaving the context finishes
    what was noticed; what fails then is tried no more.

    Raises:
        InvalidSetting: a setting cannot be meant.
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
        bus: EventBus | None = None,
        concurrency: int = 2,
        attempts: int = 5,
        first_seconds: float = 1.0,
        most_seconds: float = 60.0,
        draw: Callable[[], float] = random.random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        for name, value in (("concurrency", concurrency), ("attempts", attempts)):
            if value < 1:
                raise InvalidSetting(name, value, "1 or more")
        for name, seconds in (("first_seconds", first_seconds), ("most_seconds", most_seconds)):
            if seconds < 0:
                raise InvalidSetting(name, seconds, "0 or more")
        self._compactor = TurnCompactor(
            store,
            strategy=strategy,
            purge_compacted=purge_compacted,
            summarizer=summarizer,
            counter=counter,
            bus=bus,
        )
        self._on_error = on_error
        self._concurrency, self._attempts = concurrency, attempts
        self._first_seconds, self._most_seconds = first_seconds, most_seconds
        self._draw, self._sleep = draw, sleep
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._waiting: set[str] = set()
        self._running: set[str] = set()
        self._again: set[str] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._closing = asyncio.Event()
        self._complaints: list[Exception] = []

    def notice(self, conversation: str) -> None:
        """Something was appended: look soon whether compaction is due. Costs nothing, and may be said too often.

        Call it in the event loop that runs the compaction. What is said after the end is not heard; nothing is lost
        by that, because whether compaction is due stands in the store and is seen at the next append.
        """
        if self._closing.is_set():
            return
        if conversation in self._running:
            self._again.add(conversation)
        elif conversation not in self._waiting:
            self._waiting.add(conversation)
            self._queue.put_nowait(conversation)

    async def idle(self) -> None:
        """Wait until nothing is left to do."""
        await self._queue.join()

    async def __aenter__(self) -> Self:
        self._workers = [asyncio.create_task(self._work()) for _ in range(self._concurrency)]
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
        if self._complaints:
            raise EventFailed("an error of BackgroundCompaction", self._complaints)

    async def _work(self) -> None:
        while True:
            conversation = await self._queue.get()
            self._waiting.discard(conversation)
            self._running.add(conversation)
            try:
                await self._compact(conversation)
            finally:
                self._running.discard(conversation)
                if conversation in self._again:
                    self._again.discard(conversation)
                    self._waiting.add(conversation)
                    self._queue.put_nowait(conversation)
                self._queue.task_done()

    async def _compact(self, conversation: str) -> None:
        """Compact a conversation if that is due, trying again for as long as it may help."""
        for attempt in range(1, self._attempts + 1):
            problem = await self._try(conversation)
            if problem is None:
                return
            hopeless = isinstance(problem, (ConversationNotFound, EventFailed))
            if hopeless or attempt == self._attempts or self._closing.is_set():
                self._complain(conversation, problem)
                return
            await self._pause(attempt)

    async def _try(self, conversation: str) -> Exception | None:
        """What went wrong, if anything did."""
        try:
            if not await self._compactor.is_due(conversation):
                return None
            result = await self._compactor.compact(conversation)
        except ConversationErased:
            return None  # whoever erased it wants nothing kept of it, and so nothing is left to do
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return RuntimeError("the summarizer cancelled itself")  # a worker that ends would leave the rest undone
        except Exception as error:  # noqa: BLE001 - stores and buses are anybody's; the caller hears of it
            return error
        return result.error

    async def _pause(self, attempt: int) -> None:
        """Wait before the next try, or until there is no time to wait any more."""
        seconds = self._draw() * min(self._most_seconds, self._first_seconds * 2 ** (attempt - 1))
        pause = asyncio.ensure_future(self._sleep(seconds))
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({pause, closing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (pause, closing):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def _complain(self, conversation: str, problem: Exception) -> None:
        try:
            self._on_error(conversation, problem)
        except Exception as error:  # noqa: BLE001 - told when the context is left, so that the others go on until then
            self._complaints += [problem, error]
