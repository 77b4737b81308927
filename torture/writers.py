"""Processes that write to a store until they are done or killed, and send the key of each acknowledged turn.

They are forked from a process that has imported everything: a thousand of them start, and are killed, in the time in
which an interpreter would start a hundred times.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from minutebook.errors import StoreUnavailable
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.store.url import open_store
from minutebook.testing.contract.samples import entries_of

TIMEOUT_SECONDS = 120
"""Time without a key after which a process counts as hanging."""
RETRY_SECONDS = 0.02

_forks = get_context("forkserver")
_forks.set_forkserver_preload(
    [
        "torture.writers",
        "torture.runs",
        "minutebook.store.sqlite.store",
        "minutebook.store.postgres.store",
        "minutebook.store.redis.store",
    ]
)


@dataclass(frozen=True)
class WriteTask:
    """The turns that a process writes. A turn is identified by its key, `NAME WRITER NUMBER`, which is its user message."""

    url: str
    conversation: str
    name: str
    starts: tuple[int, ...]
    """The number of the first turn of each writer."""
    stop: int
    """The number after the last turn of each writer."""
    single: bool = False
    """Write one message instead of a whole turn."""
    retry_unavailable: bool = False
    """Retry with the same key while the store is unavailable."""


def turn(key: str, *, single: bool = False) -> list[ConversationEntry]:
    """A user message, two calls, their results and an answer; with `single`, only the user message."""
    call_ids = [f"{key.replace(' ', '-')}-{number}" for number in range(2)]
    calls = [
        {"id": call_id, "type": "function", "function": {"name": "look", "arguments": "{}"}} for call_id in call_ids
    ]
    messages: list[Message] = [
        {"role": "user", "content": key},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call_id, "content": "found " * 20} for call_id in call_ids),
        {"role": "assistant", "content": f"answer to {key}"},
    ]
    return entries_of(messages[:1] if single else messages)


class WriterProcess:
    """A process that runs a task, started by the constructor."""

    def __init__(self, task: Any, target: Callable[[Any, Connection], None] | None = None) -> None:
        """`target` runs the task in the process, by default a `WriteTask`."""
        self._keys, key_sender = _forks.Pipe(duplex=False)
        self._process = _forks.Process(target=target or _run, args=(task, key_sender), daemon=True)
        self._process.start()
        key_sender.close()  # the process has the only other end, so that reading ends with the process

    def acknowledged_keys(self) -> Iterator[str]:
        """The keys of the acknowledged turns, until the process ends.

        Raises:
            TimeoutError: the process hangs; it was killed.
        """
        while True:
            if not self._keys.poll(TIMEOUT_SECONDS):
                self.kill()
                raise TimeoutError(f"a writer process sent nothing for {TIMEOUT_SECONDS} s")
            try:
                yield self._keys.recv_bytes().decode()
            except EOFError:
                return

    def kill(self) -> None:
        """End the process as a power cut would: it cannot react."""
        if self._process.pid is not None and self._process.exitcode is None:
            os.kill(self._process.pid, signal.SIGKILL)

    def wait(self) -> int | None:
        """Wait until the process has ended; return its exit code."""
        self._keys.close()
        self._process.join(TIMEOUT_SECONDS)
        return self._process.exitcode


def _run(task: WriteTask, key_sender: Connection) -> None:
    logging.disable(logging.CRITICAL)  # the driver logs that the server does not answer, which is part of the test
    asyncio.run(_write(task, key_sender))


async def _write(task: WriteTask, key_sender: Connection) -> None:
    async with open_store(task.url) as store:

        async def write_turns(writer: int, start: int) -> None:
            for number in range(start, task.stop):
                key = f"{task.name} {writer} {number}"
                entries = turn(key, single=task.single)
                while True:
                    try:
                        await store.append(task.conversation, entries, idempotency_key=key)
                        break
                    except StoreUnavailable:
                        if not task.retry_unavailable:
                            raise
                        await asyncio.sleep(RETRY_SECONDS)
                key_sender.send_bytes(key.encode())

        await asyncio.gather(*(write_turns(writer, start) for writer, start in enumerate(task.starts)))
