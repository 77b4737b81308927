"""Handling of Ctrl-C and `kill` in commands that run async code.

While a coroutine runs, a signal cancels it, so that it can store the partial answer. At other times SIGINT raises
`KeyboardInterrupt`, and SIGTERM and SIGHUP raise `SystemExit`.
"""

import asyncio
import signal
import socket
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from minutebook.cli.exits import TERMINATED

T = TypeVar("T")

_TERMINATION_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class InterruptibleRunner:
    """Runs coroutines on one event loop, so that connections stay open, and cancels them on a signal."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_running = False
        self._received_signals: set[int] = set()
        self._resources = ExitStack()

    def __enter__(self) -> Self:
        with self._resources as resources:
            self._loop = resources.enter_context(asyncio.Runner()).get_loop()
            # Python runs signal handlers between bytecode instructions, and a loop that waits for the network executes
            # none. Every signal is therefore also written to a socket that the loop reads.
            reader, writer = (resources.enter_context(end) for end in socket.socketpair())
            reader.setblocking(False)
            writer.setblocking(False)
            self._loop.add_reader(reader, _drain, reader)
            resources.callback(self._loop.remove_reader, reader)
            resources.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False))
            for number in (signal.SIGINT, *_TERMINATION_SIGNALS):
                # Signals that are ignored stay ignored: shells do this for background jobs, nohup for SIGHUP.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    resources.callback(signal.signal, number, signal.signal(number, self._on_signal))
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed; the coroutine was cancelled and has finished.
            SystemExit: SIGTERM or SIGHUP was received; the coroutine was cancelled and has finished.
        """
        self._received_signals.clear()
        self._is_running = True
        try:
            self._task = task = self._loop.create_task(coroutine)
            if self._received_signals:  # a signal was received before the task existed
                task.cancel()
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._is_running, self._task = False, None
            if self._received_signals.intersection(_TERMINATION_SIGNALS):
                raise SystemExit(TERMINATED)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_running:
            _raise_for(number)
        self._received_signals.add(number)
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


def _drain(reader: socket.socket) -> None:
    with suppress(BlockingIOError):
        reader.recv(4096)


def _raise_for(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(TERMINATED)
