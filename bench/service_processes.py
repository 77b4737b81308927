"""The processes of the service benchmarks: the provider, the service, and how much CPU time and memory a process uses."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.corpus import ROOT
from bench.peers_env import OFFLINE


@dataclass(frozen=True)
class Route:
    """One route to send requests to the provider."""

    name: str
    port: int
    pid: int
    key: str = "none"
    named: bool = False
    """Whether requests name a conversation, so that it is stored."""
    headers: Mapping[str, str] = field(default_factory=dict)
    can_stream: bool = True


@contextmanager
def run_provider() -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.service_provider:app", "--port", str(port), "--no-access-log"]
    with run_process([*command, "--log-level", "error"], port) as pid:
        yield port, pid


@contextmanager
def run_service(db: str, upstream: str) -> Iterator[tuple[int, int]]:
    port = free_port()
    script = "from minutebook.cli.main import main; main()"
    options = ["serve", "--db", db, "--upstream", upstream, "--port", str(port), "--log-level", "error"]
    with run_process([sys.executable, "-c", script, *options], port) as pid:
        yield port, pid


@contextmanager
def run_process(command: list[str], port: int, *, quiet: bool = False) -> Iterator[int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")} | OFFLINE
    stderr = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, cwd=ROOT, env=clean, stdout=subprocess.DEVNULL, stderr=stderr) as process:
        try:
            _wait_for(port, process)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    for _ in range(1_200):
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not listen on its port")


def wait_until_idle(pid: int) -> None:
    """Wait until a server has finished background work, so that it does not disturb the next measurement."""
    for _ in range(20):
        before = cpu_seconds(pid)
        time.sleep(0.25)
        if cpu_seconds(pid) - before < 0.015:  # one tick
            return


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, with a resolution of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
