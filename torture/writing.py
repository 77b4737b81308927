"""A process that writes to a store until it is done or killed; each key that it says was acknowledged.

The process is forked from one that has everything imported, so that a thousand of them are started, and killed, in the
time in which an interpreter would start a hundred.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

from minutebook.errors import StoreUnavailable
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import entries_of

PATIENCE_SECONDS = 120
"""How long nothing may be heard of a process before it counts as hanging."""
AGAIN_SECONDS = 0.02

_forks = get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "torture.writing",
        "minutebook.store.sqlite.store",
        "minutebook.store.postgres.store",
        "minutebook.store.redis.store",
    ]
)


@dataclass(frozen=True)
class Task:
    """What a process is to write. A turn is known by its key, `NAME WRITER NUMBER`, which is its user message."""

    url: str
    conversation: str
    name: str
    starts: tuple[int, ...]
    """For each writer, the number of its first turn."""
    stop: int
    """The number after its last."""
    single: bool = False
    """One message instead of a whole turn."""
    patient: bool = False
    """Whether to ask again, with the same key, while the store is away."""


def turn(key: str, *, single: bool = False) -> list[ConversationEntry]:
    """A user message, two calls, their results and an answer; or the user message alone."""
    ids = [f"{key.replace(' ', '-')}-{at}" for at in range(2)]
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    messages: list[Message] = [
        {"role": "user", "content": key},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": one, "content": "found " * 20} for one in ids),
        {"role": "assistant", "content": f"answer to {key}"},
    ]
    return entries_of(messages[:1] if single else messages)


class Writing:
    """Such a process, seen from outside."""

    def __init__(self, task: Task) -> None:
        self._heard, said = _forks.Pipe(duplex=False)
        self._process = _forks.Process(target=_run, args=(task, said), daemon=True)
        self._process.start()
        said.close()  # the process has the only other end, so that its death is heard

    def acknowledged(self) -> Iterator[str]:
        """The keys of what is acknowledged, until the process ends."""
        while True:
            if not self._heard.poll(PATIENCE_SECONDS):
                self.kill()
                raise TimeoutError(f"nothing was heard of a writer for {PATIENCE_SECONDS} s")
            try:
                yield self._heard.recv_bytes().decode()
            except EOFError:
                return

    def kill(self) -> None:
        """End it as a power cut would: it gets no chance to do anything more."""
        if self._process.pid is not None and self._process.exitcode is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def wait(self) -> int | None:
        """How it ended, when it has."""
        self._heard.close()
        self._process.join(PATIENCE_SECONDS)
        return self._process.exitcode


def _run(task: Task, said: Connection) -> None:
    logging.disable(logging.CRITICAL)  # that the server is gone is what is wanted, and need not be said
    asyncio.run(_write(task, said))


async def _write(task: Task, said: Connection) -> None:
    async with open_store(task.url) as store:

        async def write(writer: int, start: int) -> None:
            for number in range(start, task.stop):
                key = f"{task.name} {writer} {number}"
                entries = turn(key, single=task.single)
                while True:
                    try:
                        await store.append(task.conversation, entries, idempotency_key=key)
                        break
                    except StoreUnavailable:
                        if not task.patient:
                            raise
                        await asyncio.sleep(AGAIN_SECONDS)
                said.send_bytes(key.encode())

        await asyncio.gather(*(write(writer, start) for writer, start in enumerate(task.starts)))
