"""Groups of appends, one after the other for each tenant; none waits long for a conversation that somebody else holds."""

import asyncio
from collections.abc import Sequence
from typing import Final

import psycopg

from minutebook.store.postgres_append import Ask, Due, append_all
from minutebook.store.postgres_pool import Connections
from minutebook.store.postgres_work import WRITING
from minutebook.store.types import Conversation

LARGEST_GROUP: Final = 500
MOST_KNOWN: Final = 4096
IMPATIENT_SECONDS: Final = 1.0
"""How long others wait for a group that waits for a conversation, before they go on without it."""


class Groups:
    """Appends that wait for their turn, and those that are on their way. All of it belongs to one event loop."""

    def __init__(self, connections: Connections, due: Due | None) -> None:
        self._connections = connections
        self._due = due
        self.known: dict[tuple[str, str], tuple[int, Conversation]] = {}
        """Tenant and id → the number and the header of conversations, as we left them; others may have gone on."""
        self._waiting: dict[str, list[Ask]] = {}
        self._busy: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Tenant and conversation → the group that is writing it; what is for it waits until that is done."""
        self._runners: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def append(self, tenant: str, ask: Ask) -> int:
        """Append with the next group of this tenant's appends."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        ask.answer = answer
        self._waiting.setdefault(tenant, []).append(ask)
        self._wake(tenant)
        return await answer

    async def finish(self) -> None:
        """Wait until everything that was asked for is answered."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _wake(self, tenant: str) -> None:
        if self._waiting.get(tenant) and tenant not in self._runners:
            self._runners[tenant] = task = asyncio.get_running_loop().create_task(self._run(tenant))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self, tenant: str) -> None:
        """Write group after group, until there is nothing left that can be written now."""
        await asyncio.sleep(0)  # others that were ready in the same moment come along
        while group := self._next(tenant):
            await asyncio.wait({self._launch(tenant, group)}, timeout=IMPATIENT_SECONDS)
        del self._runners[tenant]

    def _next(self, tenant: str) -> list[Ask]:
        """What waits and is not for a conversation that is being written."""
        waiting = [ask for ask in self._waiting.pop(tenant, []) if not ask.answer.done()]
        ready = [ask for ask in waiting if (tenant, ask.conversation) not in self._busy][:LARGEST_GROUP]
        if len(ready) < len(waiting):
            chosen = set(map(id, ready))
            self._waiting[tenant] = [ask for ask in waiting if id(ask) not in chosen]
        return ready

    def _launch(self, tenant: str, group: Sequence[Ask]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(self._write(tenant, group))
        self._tasks.add(task)
        places = [(tenant, ask.conversation) for ask in group]
        self._busy.update(dict.fromkeys(places, task))

        def done(_: object) -> None:
            self._tasks.discard(task)
            for place in places:
                if self._busy.get(place) is task:
                    del self._busy[place]
            self._wake(tenant)

        task.add_done_callback(done)
        return task

    async def _write(self, tenant: str, group: Sequence[Ask]) -> None:
        """One transaction for the group; one for each conversation, if one of them cannot be had soon."""
        parts: dict[str, list[Ask]] = {}
        for ask in group:
            parts.setdefault(ask.conversation, []).append(ask)
        outcomes: Sequence[int | Exception]
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        try:
            outcomes = await self._connections.carry_out(
                tenant,
                WRITING,
                lambda work: append_all(work, group, self._due, self.known),
                IMPATIENT_SECONDS if len(parts) > 1 else None,
            )
        except Exception as error:  # noqa: BLE001 - the edge of the task: every error belongs to whoever asked
            if len(parts) > 1 and isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                for part in parts.values():
                    self._launch(tenant, part)
                return
            outcomes = [error] * len(group)
        _answer(group, outcomes)


def _answer(group: Sequence[Ask], outcomes: Sequence[int | Exception]) -> None:
    for ask, outcome in zip(group, outcomes, strict=True):
        if ask.answer.done():
            continue
        if isinstance(outcome, Exception):
            ask.answer.set_exception(outcome)
        else:
            ask.answer.set_result(outcome)
