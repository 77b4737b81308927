"""Servers that start at once: a process that has loaded everything, and is copied for each of them.

`minutebook serve` takes a second or two to load its modules, every time. A torture kills it hundreds of times, and what
matters happens after that. Each copy is a process of its own, with nothing open, and runs the same command.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Self, TextIO

_ROOT = Path(__file__).parents[1]
_MOST_BYTES = 65_536
_LOADED = (
    "minutebook.cli.commands.serve",
    "minutebook.cli.server",
    "minutebook.store.sqlite.store",
    "minutebook.store.postgres.store",
    "aiohttp",
    "anyio._backends._asyncio",
    "openai",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)


class Born:
    """A running `minutebook serve`."""

    def __init__(self, pid: int, said: TextIO) -> None:
        self._pid, self._said = pid, said

    def line(self) -> str:
        """The next line that it prints; nothing if it ended."""
        return self._said.readline()

    def send(self, what: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, what)

    def end(self, how: signal.Signals) -> None:
        """Send it a signal that ends it, and wait until it is gone: then nobody has the other end of its output."""
        self.send(how)
        with self._said:
            self._said.read()


class Nursery:
    """The process that is copied. Whatever came from it ends with it."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "torture.nursery", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=_ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.close()
        self._process.wait()

    def start(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Born:
        """Run `minutebook` with these arguments, and these variables besides its own."""
        reader, writer = os.pipe()
        try:
            asked = json.dumps([list(arguments), dict(variables)]).encode()
            socket.send_fds(self._line, [asked], [writer])
        finally:
            os.close(writer)
        said = os.fdopen(reader)
        answer = self._line.recv(_MOST_BYTES)
        assert answer, "the nursery ended"
        return Born(int(answer), said)


def main(line: socket.socket) -> None:
    """Copy this process for everybody who asks, until nobody can ask any more."""
    _load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the copies, so they leave nothing behind
    born: list[int] = []
    while True:
        asked, (*given,), _, _ = socket.recv_fds(line, _MOST_BYTES, 1)
        if not asked:
            break
        arguments, variables = json.loads(asked)
        pid = os.fork()
        if not pid:
            line.close()
            _run(arguments, variables, given[0])
        os.close(given[0])
        born.append(pid)
        line.send(str(pid).encode())
    for pid in born:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _load() -> None:
    """Load what the command loads, and what its first requests do."""
    for module in _LOADED:
        import_module(module)
    from minutebook.service.state import counter_of, info_of

    for model in ("default", "scripted"):
        info_of(model)
        counter_of(model).count(model)
    gc.freeze()


def _run(arguments: list[str], variables: dict[str, str], output: int) -> NoReturn:
    """Be `minutebook`, to the end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output, 1)
    os.close(output)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the old one knows a file or a terminal, and this is a pipe
    for name in [name for name in os.environ if name.startswith("MINUTEBOOK_")]:
        del os.environ[name]
    os.environ.update(variables)
    from minutebook.cli.main import main as minutebook

    sys.argv = ["minutebook", *arguments]
    code: Any = 1
    try:
        minutebook()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        main(given)
