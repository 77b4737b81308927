"""A server that can be killed and restarted on the same port."""

import json
import signal
import socket
import time
from pathlib import Path

import httpx2

from torture.fork_server import ForkedProcess, ForkServer

LEASE_SECONDS = 0.3
"""Short, so that the leases of a killed server expire before the next kill."""
WAIT_SECONDS = 2 * LEASE_SECONDS
"""How long a request waits for a locked conversation before it gets 409."""
CONFIG = {
    "server": {"lease_seconds": LEASE_SECONDS, "wait_seconds": WAIT_SECONDS},
    "conversation": {"retention": {"expose_tool_details": True}},
    "tools": [{"python": "torture.threads:look_up"}],
}


class Replica:
    """A `minutebook serve` in a separate process, on a fixed port."""

    def __init__(self, fork_server: ForkServer, folder: Path, db: str, upstream: str) -> None:
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
        self._fork_server = fork_server
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        """Start the server, and wait until it responds."""
        self._process = self._fork_server.start(self._arguments, {})
        assert self._process.read_line(), "the service did not start"
        assert httpx2.get(f"{self.url}/healthz", trust_env=False, timeout=30).is_success

    def kill(self) -> None:
        """Kill the server as a power cut would, and start it again."""
        self._end(signal.SIGKILL)
        self.start()

    def freeze(self) -> None:
        """Suspend the server for longer than its leases, then resume it: it continues as if it still had them."""
        assert self._process is not None, "start first"
        self._process.send(signal.SIGSTOP)
        time.sleep(1.5 * LEASE_SECONDS)
        self._process.send(signal.SIGCONT)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, signal_number: signal.Signals) -> None:
        if self._process is not None:
            self._process.end(signal_number)
            self._process = None
