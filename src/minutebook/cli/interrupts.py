"""What Ctrl-C and `kill` do to a command that waits for a model.

While it waits they cancel the work, which then has the time to record what came. At any other moment they are
exceptions, as ever: `KeyboardInterrupt`, and `SystemExit` with the code for a command that was told to stop.
"""

import asyncio
import signal
import socket
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self, TypeVar

from minutebook.cli.exits import STOPPED

T = TypeVar("T")

_LEAVE: Final = (signal.SIGTERM, signal.SIGHUP)


class Stops:
    """Runs async work so that a signal ends it in order. One event loop serves all of it: connections stay open."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._working = False
        self._heard: set[int] = set()
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with self._opened as opened:
            self._loop = opened.enter_context(asyncio.Runner()).get_loop()
            # Python acts on a signal between two of its own steps. A loop that waits for the network makes none, so
            # every signal is also a byte for it to read.
            ear, mouth = (opened.enter_context(end) for end in socket.socketpair())
            ear.setblocking(False)
            mouth.setblocking(False)
            self._loop.add_reader(ear, _drain, ear)
            opened.callback(self._loop.remove_reader, ear)
            opened.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False))
            for number in (signal.SIGINT, *_LEAVE):
                # A shell has what runs in the background ignore Ctrl-C, and nohup has it ignore the end of the terminal.
                if signal.getsignal(number) is not signal.SIG_IGN:
                    opened.callback(signal.signal, number, signal.signal(number, self._hear))
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work.

        Raises:
            KeyboardInterrupt: Ctrl-C came, and the work has ended in order.
            SystemExit: the command was told to stop, and the work has ended in order.
        """
        self._heard.clear()
        self._working = True
        try:
            self._task = task = self._loop.create_task(work)
            if self._heard:  # before there was something to cancel
                task.cancel()
            return self._loop.run_until_complete(task)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._working, self._task = False, None
            if self._heard.intersection(_LEAVE):
                raise SystemExit(STOPPED)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if not self._working:
            _raise(number)
        self._heard.add(number)
        if self._task is not None:
            self._loop.call_soon_threadsafe(self._task.cancel)


def _drain(ear: socket.socket) -> None:
    with suppress(BlockingIOError):
        ear.recv(4096)


def _raise(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(STOPPED)
