"""Compares the service with direct requests to the provider and with the litellm proxy: latency, throughput, memory.

The routes alternate in rounds of one second. A ratio is the median of the ratios of each round. A time is compared by its
minimum, since other load on the machine can only make it longer; its median is reported too.
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
from bench.service_load import LoadResult, load, open_idle_streams

CLIENTS = (1, 16, 64)
IDLE = 500
LITELLM = "litellm[proxy]==1.106.2"
KEY = "sk-bench"
ROUNDS = 9
SECONDS = 1.0


@dataclass(frozen=True)
class Route:
    """One route to send requests to the provider."""

    name: str
    port: int
    pid: int
    key: str = "none"
    named: bool = False
    """Whether requests name a conversation, so that it is stored."""


Rounds = dict[tuple[bool, int, str], list[LoadResult]]
"""(is streamed, number of clients, name of the route) → the result of each round."""


def measure(*, quick: bool) -> Part:
    part = Part()
    rounds = 3 if quick else ROUNDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minutebook-bench-")))
        routes = list(_start_routes(stack, folder, part, quick=quick))
        for route in routes:
            load(
                route.port, clients=4, seconds=1.0, stream=True, key=route.key, named=route.named
            )  # loads what is loaded on first use
        results: Rounds = {}
        for stream in (True, False):
            for clients in CLIENTS:
                progress(f"service: {clients} clients, {'streamed' if stream else 'whole'}, {rounds} rounds")
                for route in routes * rounds:
                    results.setdefault((stream, clients, route.name), []).append(
                        _run_load(route, clients, stream=stream)
                    )
        for stream in (True, False):
            part.tables.append(_table(routes, results, stream=stream))
        part.tables.append(_measure_memory(routes, IDLE // 5 if quick else IDLE, part))
    _add_targets(part, routes, results)
    part.figures["requests"] = {
        f"{name}, {'streamed' if stream else 'whole'}, {clients}": {
            "per_second": [result.per_second for result in rounds_results],
            "first": [result.first_token for result in rounds_results],
        }
        for (stream, clients, name), rounds_results in results.items()
    }
    return part


def _run_load(route: Route, clients: int, *, stream: bool) -> LoadResult:
    result = load(route.port, clients=clients, seconds=SECONDS, stream=stream, key=route.key, named=route.named)
    wait_until_idle(route.pid)
    return result


def wait_until_idle(pid: int) -> None:
    """Wait until a server has finished background work, so that it does not disturb the next measurement."""
    for _ in range(20):
        before = cpu_seconds(pid)
        time.sleep(0.25)
        if cpu_seconds(pid) - before < 0.015:  # one tick
            return


def _start_routes(stack: ExitStack, folder: Path, part: Part, *, quick: bool) -> Iterator[Route]:
    provider = stack.enter_context(run_provider())
    yield Route("the provider itself", *provider)
    upstream = f"http://127.0.0.1:{provider[0]}/v1"
    ours = stack.enter_context(run_service(f"sqlite:///{folder / 'service.db'}", upstream))
    yield Route("minutebook, recorded", *ours, named=True)
    yield Route("minutebook, passed through", *ours)
    if quick:
        return
    command = _find_or_install_litellm()
    if command is None:
        part.tables.append(Table("litellm: skipped, it could not be installed", []))
        return
    yield Route("litellm proxy", *stack.enter_context(_litellm_proxy(command, folder, upstream)), key=KEY)


def _table(routes: list[Route], results: Rounds, *, stream: bool) -> Table:
    table = Table(
        f"Chat completions, {'streamed' if stream else 'not streamed'}, answers of 20 words",
        ["", *(f"{clients} clients: {what}" for clients in CLIENTS for what in ("first token", "per second"))],
    )
    for route in routes:
        results_by_clients = [results[stream, clients, route.name] for clients in CLIENTS]
        cells = [
            (
                time_of(median(result.first_token for result in route_results)),
                f"{median(result.per_second for result in route_results):,.0f}",
            )
            for route_results in results_by_clients
        ]
        table.rows.append([route.name, *(cell for pair in cells for cell in pair)])
    table.notes += [
        "recorded: request and answer are stored durably (SQLite, synchronous=FULL) before the last event is sent.",
        "medians over all rounds",
    ]
    return table


def _measure_memory(routes: list[Route], streams: int, part: Part) -> Table:
    table = Table(f"Memory of {streams} idle streams", ["", "total", "per stream"])
    for route in routes[1:]:
        progress(f"service: {route.name}, {streams} idle streams")
        before = _rss(route.pid)
        growth = asyncio.run(_memory_with_streams(route, streams)) - before
        part.figures.setdefault("idle", {})[route.name] = growth / streams
        table.rows.append([route.name, f"{growth / 1e6:,.1f} MB", f"{growth / streams / 1e3:,.0f} kB"])
    return table


async def _memory_with_streams(route: Route, streams: int) -> int:
    model = "bench-idle" if route.key == KEY else "idle"
    writers = await open_idle_streams(route.port, streams, key=route.key, named=route.named, model=model)
    await asyncio.sleep(0.5)
    memory = _rss(route.pid)
    for writer in writers:
        writer.close()
    return memory


def _add_targets(part: Part, routes: list[Route], results: Rounds) -> None:
    direct, ours = results[True, 1, "the provider itself"], results[True, 1, "minutebook, recorded"]
    added = sorted(our.first_token - their.first_token for our, their in zip(ours, direct, strict=True))
    measured = f"{time_of(max(added[0], 1e-6))} minimum, {time_of(max(median(added), 1e-6))} median"
    what = "at most 5 ms added to the first token, 1 client, recorded"
    part.targets.append(Target(what, measured, added[0] <= 0.005))
    if "litellm proxy" not in {route.name for route in routes}:
        return
    for stream in (True, False):
        for clients in CLIENTS:
            pairs = zip(
                results[stream, clients, "minutebook, recorded"], results[stream, clients, "litellm proxy"], strict=True
            )
            ratio = median(our.per_second / their.per_second for our, their in pairs)
            what = f"at least 3 times litellm's requests per second, {clients} clients, {'streamed' if stream else 'whole'}"
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


def _find_or_install_litellm() -> Path | None:
    """The command of the proxy. It is installed in a separate environment if necessary; None if that fails."""
    folder = HOME / "litellm"
    command, installed = folder / "bin" / "litellm", folder / "installed.txt"
    if installed.is_file() and installed.read_text(encoding="utf-8") == LITELLM:
        return command
    progress("installing the litellm proxy in a separate environment (once, takes two minutes)")
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    process = subprocess.run(
        [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install", LITELLM],
        capture_output=True,
        check=False,
    )
    if process.returncode:
        return None
    installed.write_text(LITELLM, encoding="utf-8")
    return command


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, with a resolution of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss(pid: int) -> int:
    """The resident memory of a process, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
