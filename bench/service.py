"""The service beside asking the provider directly, and beside the litellm proxy: first words, requests, memory.

The ways take turns, in rounds of a second. Ratios are of one round, and the middle one counts; a time is judged by its
quietest round, since whatever else the machine does makes a round longer and never shorter. Both are told.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.corpus import ROOT
from bench.peers_env import HOME, OFFLINE
from bench.report import Part, Table, Target, progress, time_of, times
from bench.service_load import Heard, hold, load

CLIENTS = (1, 16, 64)
IDLE = 500
LITELLM = "litellm[proxy]==1.106.2"
KEY = "sk-bench"
ROUNDS = 9
SECONDS = 1.0


@dataclass(frozen=True)
class Way:
    """One way to the provider."""

    name: str
    port: int
    pid: int
    key: str = "none"
    named: bool = False
    """Whether requests name a conversation, so that it is kept."""


Rounds = dict[tuple[bool, int, str], list[Heard]]
"""Whether it was streamed, how many clients, and which way → what was heard in each round."""


def measure(*, quick: bool) -> Part:
    part = Part()
    rounds = 3 if quick else ROUNDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minutebook-bench-")))
        ways = list(_ways(stack, folder, part, quick=quick))
        for way in ways:
            load(way.port, clients=4, seconds=1.0, stream=True, key=way.key, named=way.named)  # what loads once
        heard: Rounds = {}
        for stream in (True, False):
            for clients in CLIENTS:
                progress(f"service: {clients} clients, {'streamed' if stream else 'whole'}, {rounds} rounds")
                for way in ways * rounds:
                    heard.setdefault((stream, clients, way.name), []).append(_heard(way, clients, stream=stream))
        for stream in (True, False):
            part.tables.append(_table(ways, heard, stream=stream))
        part.tables.append(_memory(ways, IDLE // 5 if quick else IDLE, part))
    _judge(part, ways, heard)
    part.figures["requests"] = {
        f"{name}, {'streamed' if stream else 'whole'}, {clients}": {
            "per_second": [each.per_second for each in found],
            "first": [each.first_token for each in found],
        }
        for (stream, clients, name), found in heard.items()
    }
    return part


def _heard(way: Way, clients: int, *, stream: bool) -> Heard:
    heard = load(way.port, clients=clients, seconds=SECONDS, stream=stream, key=way.key, named=way.named)
    settle(way.pid)
    return heard


def settle(pid: int) -> None:
    """Wait until a server has done what it put off, such as indexing: the next to be measured should have the machine."""
    for _ in range(20):
        before = cpu_seconds(pid)
        time.sleep(0.25)
        if cpu_seconds(pid) - before < 0.015:  # one tick
            return


def _ways(stack: ExitStack, folder: Path, part: Part, *, quick: bool) -> Iterator[Way]:
    provider = stack.enter_context(run_provider())
    yield Way("the provider itself", *provider)
    upstream = f"http://127.0.0.1:{provider[0]}/v1"
    ours = stack.enter_context(run_service(f"sqlite:///{folder / 'service.db'}", upstream))
    yield Way("minutebook, recorded", *ours, named=True)
    yield Way("minutebook, passed through", *ours)
    if quick:
        return
    command = _litellm()
    if command is None:
        part.tables.append(Table("litellm: not measured, it could not be installed", []))
        return
    yield Way("litellm proxy", *stack.enter_context(_litellm_proxy(command, folder, upstream)), key=KEY)


def _table(ways: list[Way], heard: Rounds, *, stream: bool) -> Table:
    table = Table(
        f"Chat completions, {'streamed' if stream else 'not streamed'}, answers of 20 words",
        ["", *(f"{clients} clients: {what}" for clients in CLIENTS for what in ("first words", "a second"))],
    )
    for way in ways:
        found = [heard[stream, clients, way.name] for clients in CLIENTS]
        cells = [
            (time_of(median(each.first_token for each in h)), f"{median(each.per_second for each in h):,.0f}")
            for h in found
        ]
        table.rows.append([way.name, *(cell for pair in cells for cell in pair)])
    table.notes += [
        "recorded: request and answer are stored durably (SQLite, synchronous=FULL) before the end is told.",
        "the middle of all rounds, each figure for itself",
    ]
    return table


def _memory(ways: list[Way], streams: int, part: Part) -> Table:
    table = Table(f"Memory of {streams} streams that have begun and wait", ["", "in all", "each"])
    for way in ways[1:]:
        progress(f"service: {way.name}, {streams} idle streams")
        before = _rss(way.pid)
        grown = asyncio.run(_held(way, streams)) - before
        part.figures.setdefault("idle", {})[way.name] = grown / streams
        table.rows.append([way.name, f"{grown / 1e6:,.1f} MB", f"{grown / streams / 1e3:,.0f} kB"])
    return table


async def _held(way: Way, streams: int) -> int:
    model = "bench-idle" if way.key == KEY else "idle"
    writers = await hold(way.port, streams, key=way.key, named=way.named, model=model)
    await asyncio.sleep(0.5)
    held = _rss(way.pid)
    for writer in writers:
        writer.close()
    return held


def _judge(part: Part, ways: list[Way], heard: Rounds) -> None:
    direct, ours = heard[True, 1, "the provider itself"], heard[True, 1, "minutebook, recorded"]
    added = sorted(us.first_token - them.first_token for us, them in zip(ours, direct, strict=True))
    measured = (
        f"{time_of(max(added[0], 1e-6))} in the quietest round, {time_of(max(median(added), 1e-6))} in the middle"
    )
    what = "at most 5 ms added to the first words, 1 client, recorded"
    part.targets.append(Target(what, measured, added[0] <= 0.005))
    if "litellm proxy" not in {way.name for way in ways}:
        return
    for stream in (True, False):
        for clients in CLIENTS:
            pairs = zip(
                heard[stream, clients, "minutebook, recorded"], heard[stream, clients, "litellm proxy"], strict=True
            )
            ratio = median(us.per_second / them.per_second for us, them in pairs)
            what = (
                f"at least 3 times litellm's requests a second, {clients} clients, {'streamed' if stream else 'whole'}"
            )
            part.targets.append(Target(what, times(ratio), ratio >= 3))


@contextmanager
def run_provider() -> Iterator[tuple[int, int]]:
    port = _free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.service_provider:app", "--port", str(port), "--no-access-log"]
    with _process([*command, "--log-level", "error"], port) as pid:
        yield port, pid


@contextmanager
def run_service(db: str, upstream: str) -> Iterator[tuple[int, int]]:
    port = _free_port()
    script = "from minutebook.cli.main import main; main()"
    options = ["serve", "--db", db, "--upstream", upstream, "--port", str(port), "--log-level", "error"]
    with _process([sys.executable, "-c", script, *options], port) as pid:
        yield port, pid


@contextmanager
def _litellm_proxy(command: Path, folder: Path, upstream: str) -> Iterator[tuple[int, int]]:
    port = _free_port()
    config = folder / "litellm.yaml"
    models = "".join(
        f"  - model_name: {name}\n    litellm_params:\n"
        f"      {{model: openai/{name}, api_base: '{upstream}', api_key: none}}\n"
        for name in ("bench", "bench-idle")
    )
    config.write_text(f"model_list:\n{models}general_settings: {{master_key: {KEY}}}\n", encoding="utf-8")
    options = ["--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    with _process([str(command), *options], port, quiet=True) as pid:
        yield port, pid


@contextmanager
def _process(command: list[str], port: int, *, quiet: bool = False) -> Iterator[int]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MINUTEBOOK_")} | OFFLINE
    hushed = subprocess.DEVNULL if quiet else None
    with subprocess.Popen(command, cwd=ROOT, env=clean, stdout=subprocess.DEVNULL, stderr=hushed) as process:
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
    raise RuntimeError(f"{process.args!r} does not listen")


def _litellm() -> Path | None:
    """The proxy, in an environment of its own, made if it is not there yet."""
    place = HOME / "litellm"
    command, stamp = place / "bin" / "litellm", place / "installed.txt"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == LITELLM:
        return command
    progress("installing the litellm proxy in an environment of its own (once, two minutes)")
    shutil.rmtree(place, ignore_errors=True)
    venv.create(place, with_pip=True, symlinks=True)
    done = subprocess.run(
        [str(place / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", LITELLM],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        return None
    stamp.write_text(LITELLM, encoding="utf-8")
    return command


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process so far, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> int:
    """The memory that a process has, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
