"""The command at a real terminal, and a provider whose answers can be held back."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from tests.cli.conftest import inherited
from tests.programs import Program

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
PATIENCE_SECONDS = 60.0


class Terminal:
    """A program in a terminal of 100 columns: what it shows, and keys to press."""

    def __init__(self, *arguments: str | Path, **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        variables = {**inherited(), "TERM": "xterm-256color", **environment}
        self.process = Program(*arguments, terminal=theirs, env=variables)
        os.close(theirs)
        self.raw = ""
        self._read = 0

    @property
    def screen(self) -> str:
        """All that was shown, without colours."""
        return ESCAPES.sub("", self.raw).replace("\r", "")

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def expect(self, text: str) -> str:
        """What is shown up to and with this text, from where the last one ended."""
        while text not in self.screen[self._read :]:
            if not self._more():
                raise AssertionError(f"{text!r} is not in {self.screen[self._read :]!r}")
        start, self._read = self._read, self.screen.index(text, self._read) + len(text)
        return self.screen[start : self._read]

    def settle(self) -> None:
        """Wait until the program waits, for keys or for the network.

        It shows its prompt a moment before it does, and a signal in that moment is noticed with the next key.
        """
        stat = Path(f"/proc/{self.process.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "S":
            os.sched_yield()

    def at_prompt(self) -> None:
        self.expect("> ")
        self.settle()

    def say(self, line: str) -> None:
        """Type a line at the prompt."""
        self.expect("> ")
        self.press(f"{line}\n")
        self.expect(f"{line}\n")

    def end(self) -> int:
        """How it ended, once it has."""
        while self._more():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def close(self) -> None:
        """Shut the window; the program is told, and ends."""
        os.close(self._ours)
        try:
            self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def _more(self) -> bool:
        ready, _, _ = select.select([self._ours], [], [], PATIENCE_SECONDS)
        try:
            data = os.read(self._ours, 65_536) if ready else b""
        except OSError:  # nobody is at the other end any more
            data = b""
        self.raw += data.decode(errors="replace")
        return bool(data)


@contextmanager
def terminal(*arguments: str | Path, **environment: str) -> Iterator[Terminal]:
    made = Terminal(*arguments, **environment)
    try:
        yield made
    finally:
        made.close()


class Pause:
    """A provider's `wait` that lets so many pieces of a slow answer go, and holds the next back until it may go too."""

    def __init__(self, pieces: int) -> None:
        self._left = pieces
        self._go = Event()
        self.reached = Event()
        """Set when there is nothing more to send for now."""

    def __call__(self, seconds: float) -> None:
        if self._left:
            self._left -= 1
        else:
            self.reached.set()
            self._go.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        self._go.set()
