"""Starts servers quickly: a process imports everything once, and is forked for each server.

`minutebook serve` takes a second or two to import its modules, and a crash test starts it hundreds of times. Each fork is
a separate process without open files or connections, and runs the same command.
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
_MAX_REQUEST_BYTES = 65_536
_PRELOADED_MODULES = (
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


class ForkedProcess:
    """A running `minutebook` command."""

    def __init__(self, pid: int, output: TextIO) -> None:
        self._pid, self._output = pid, output

    def read_line(self) -> str:
        """The next line of its output; empty if it has ended."""
        return self._output.readline()

    def send(self, signal_number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal_number)

    def end(self, signal_number: signal.Signals) -> None:
        """Send a signal that ends the process, and wait until its output is closed."""
        self.send(signal_number)
        with self._output:
            self._output.read()


class ForkServer:
    """The process that is forked. All forks end with it."""

    def __init__(self) -> None:
        self._socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_socket:
            command = [sys.executable, "-m", "torture.fork_server", str(child_socket.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[child_socket.fileno()], cwd=_ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.wait()

    def start(self, arguments: Sequence[str], variables: Mapping[str, str]) -> ForkedProcess:
        """Run `minutebook` with these arguments and additional environment variables."""
        reader, writer = os.pipe()
        try:
            request = json.dumps([list(arguments), dict(variables)]).encode()
            socket.send_fds(self._socket, [request], [writer])
        finally:
            os.close(writer)
        output = os.fdopen(reader)
        pid = self._socket.recv(_MAX_REQUEST_BYTES)
        assert pid, "the fork server ended"
        return ForkedProcess(int(pid), output)


def main(requests: socket.socket) -> None:
    """Fork this process for each request, until the other end of the socket is closed."""
    _preload()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no process waits for the forks, so they must not become zombies
    pids: list[int] = []
    while True:
        request, (*descriptors,), _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 1)
        if not request:
            break
        arguments, variables = json.loads(request)
        pid = os.fork()
        if not pid:
            requests.close()
            _run(arguments, variables, descriptors[0])
        os.close(descriptors[0])
        pids.append(pid)
        requests.send(str(pid).encode())
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _preload() -> None:
    """Load what the command and its first requests load."""
    for module in _PRELOADED_MODULES:
        import_module(module)
    from minutebook.service.state import counter_of
    from minutebook.tokens.models import known_models

    known_models()
    for model in ("default", "scripted"):
        counter_of(model).count(model)
    gc.freeze()


def _run(arguments: list[str], variables: dict[str, str], output: int) -> NoReturn:
    """Run the `minutebook` command in this process, and exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(output, 1)
    os.close(output)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the old object caches whether it is a file or a terminal
    for name in [name for name in os.environ if name.startswith("MINUTEBOOK_")]:
        del os.environ[name]
    os.environ.update(variables)
    from minutebook.cli.main import main as minutebook

    sys.argv = ["minutebook", *arguments]
    code: Any = 1
    try:
        minutebook()
    except SystemExit as exit_request:
        code = exit_request.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited_socket:
        main(inherited_socket)
