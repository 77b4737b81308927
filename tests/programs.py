"""`minutebook` in a process of its own that does not load itself anew.

A new interpreter takes a second to load the clients and the web framework. So one process loads them, once for each
worker of a test run, and is copied for every command (`multiprocessing` calls that a fork server). What loading does by
itself is tested where nothing is loaded before: `tests/test_import.py`, `tests/cli/test_main.py`, the commands in docs.
"""

import atexit
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import termios
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.reduction import DupFd
from pathlib import Path

_COPIES = multiprocessing.get_context("forkserver")
PRELOADED = [
    "minutebook.cli.commands.agent",
    "minutebook.cli.chat.command",
    "minutebook.cli.commands.serve",
    "minutebook.cli.server",
    "minutebook.store.postgres.store",
    "minutebook.store.sqlite.store",
    "aiohttp",
    "anyio._backends._asyncio",
    "openai.resources.chat.completions",
    "openai.types.responses",
    "pytest",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
]
for _name in PRELOADED:
    assert find_spec(_name), f"{_name} is not a module"  # the fork server ignores what it cannot import
_COPIES.set_forkserver_preload(PRELOADED)


class Program:
    """A running `minutebook`, with the methods of `subprocess.Popen` that tests use; outputs that are not given are pipes."""

    def __init__(self, *arguments, terminal=None, stdin=None, env=None, cwd=None):
        self.stdout = self.stderr = None
        theirs = [terminal] * 3
        if terminal is None:
            (out, theirs_out), (errors, theirs_errors) = os.pipe(), os.pipe()
            self.stdout, self.stderr = os.fdopen(out), os.fdopen(errors)
            theirs = [os.open(os.devnull, os.O_RDONLY) if stdin is None else stdin, theirs_out, theirs_errors]
        given = [_Given(each) for each in theirs]
        place = str(Path.cwd() if cwd is None else cwd)
        words = [str(each) for each in arguments]
        env = dict(os.environ if env is None else env)
        self._process = _COPIES.Process(target=_run, args=(words, given, env, place, terminal is not None))
        self._process.start()
        self.pid = self._process.pid
        if terminal is None:
            for each in theirs:
                os.close(each)

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self._process.exitcode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("minutebook", timeout)
        return self._process.exitcode

    def send_signal(self, number):
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class _Given:
    """A file that the other process gets too."""

    def __init__(self, number):
        self._number = number

    def __reduce__(self):
        return _taken, (DupFd(self._number),)


def _taken(given):
    return given.detach()


def _run(arguments, files, environment, folder, is_terminal):
    """Be `minutebook`, to the end."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    if is_terminal:  # which turns Ctrl-C into a signal for those it is the terminal of
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["minutebook", *arguments]
    from minutebook.cli.main import main

    try:
        main()
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        atexit._run_exitfuncs()  # a process that was copied would leave without them
