"""A server to be killed."""

import json
import signal
import socket
import time
from pathlib import Path

import httpx2

from torture.nursery import Born, Nursery

LEASE_SECONDS = 0.3
"""Short, so that what a kill leaves behind is over before the next."""
CONFIG = {
    "server": {"lease_seconds": LEASE_SECONDS},
    "conversation": {"retention": {"expose_tool_details": True}},
    "tools": [{"python": "torture.threads:look_up"}],
}


class Replica:
    """A `minutebook serve` in a process of its own, on a port that it keeps."""

    def __init__(self, nursery: Nursery, folder: Path, db: str, upstream: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = folder / "llm_config.json"
        config.write_text(json.dumps(CONFIG))
        self.url = f"http://127.0.0.1:{port}"
        self._arguments = [
            *("serve", "--json", "--log-level", "error", "--config", str(config)),
            *("--db", db, "--upstream", upstream, "--port", str(port)),
        ]
        self._nursery = nursery
        self._born: Born | None = None

    def start(self) -> None:
        """Start it, and wait until it answers: until then there is nothing to break."""
        self._born = self._nursery.start(self._arguments, {})
        assert self._born.line(), "the service did not start"
        assert httpx2.get(f"{self.url}/healthz", trust_env=False, timeout=30).is_success

    def kill(self) -> None:
        """Kill it as a power cut would, and start it again."""
        self._end(signal.SIGKILL)
        self.start()

    def freeze(self) -> None:
        """Let it do nothing for longer than its leases last, and then go on as if it still had them."""
        assert self._born is not None, "start first"
        self._born.send(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_SECONDS)
        self._born.send(signal.SIGCONT)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._born is not None:
            self._born.end(how)
            self._born = None
