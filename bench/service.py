"""Compares the service with direct requests to the provider, the litellm proxy and Portkey: latency, throughput, memory.

The routes alternate in rounds of one second. A ratio is the median of the ratios of each round. A time is compared by its
minimum, since other load on the machine can only make it longer; its median is reported too.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from bench.gateways import KEY, LITELLM_ROUTE, start_gateways
from bench.report import Part, Table, Target, progress, time_of, times
from bench.service_load import LoadResult, load, open_idle_streams
from bench.service_processes import Route, rss, run_provider, run_service, wait_until_idle

CLIENTS = (1, 16, 64)
IDLE = 500
ROUNDS = 9
SECONDS = 1.0


Rounds = dict[tuple[bool, int, str], list[LoadResult]]
"""(is streamed, number of clients, name of the route) → the result of each round."""


def measure(*, quick: bool) -> Part:
    part = Part()
    rounds = 3 if quick else ROUNDS
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minutebook-bench-")))
        routes = list(_start_routes(stack, folder, part, quick=quick))
        for route in routes:  # loads what is loaded on first use
            run_load(route, 4, stream=route.can_stream)
        results: Rounds = {}
        for stream in (True, False):
            for clients in CLIENTS:
                progress(f"service: {clients} clients, {'streamed' if stream else 'whole'}, {rounds} rounds")
                for route in _usable(routes, stream=stream) * rounds:
                    results.setdefault((stream, clients, route.name), []).append(
                        run_load(route, clients, stream=stream)
                    )
        for stream in (True, False):
            part.tables.append(_table(_usable(routes, stream=stream), results, stream=stream))
        part.tables.append(_measure_memory(_usable(routes, stream=True), IDLE // 5 if quick else IDLE, part))
    _add_targets(part, routes, results)
    part.figures["requests"] = {
        f"{name}, {'streamed' if stream else 'whole'}, {clients}": {
            "per_second": [result.per_second for result in rounds_results],
            "first": [result.first_token for result in rounds_results],
        }
        for (stream, clients, name), rounds_results in results.items()
    }
    return part


def _usable(routes: list[Route], *, stream: bool) -> list[Route]:
    """The routes that can be measured with streamed or whole answers."""
    return [route for route in routes if route.can_stream or not stream]


def run_load(route: Route, clients: int, *, stream: bool, body: bytes | None = None) -> LoadResult:
    """Send requests for a second, and wait until the server is idle again."""
    result = load(
        route.port,
        clients=clients,
        seconds=SECONDS,
        stream=stream,
        key=route.key,
        named=route.named,
        headers=route.headers,
        body=body,
    )
    wait_until_idle(route.pid)
    return result


def _start_routes(stack: ExitStack, folder: Path, part: Part, *, quick: bool) -> Iterator[Route]:
    provider = stack.enter_context(run_provider())
    yield Route("the provider itself", *provider)
    upstream = f"http://127.0.0.1:{provider[0]}/v1"
    ours = stack.enter_context(run_service(f"sqlite:///{folder / 'service.db'}", upstream))
    yield Route("minutebook, recorded", *ours, named=True)
    yield Route("minutebook, passed through", *ours)
    if quick:
        return
    yield from start_gateways(stack, folder, part, upstream)


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
        before = rss(route.pid)
        growth = asyncio.run(_memory_with_streams(route, streams)) - before
        part.figures.setdefault("idle", {})[route.name] = growth / streams
        table.rows.append([route.name, f"{growth / 1e6:,.1f} MB", f"{growth / streams / 1e3:,.0f} kB"])
    return table


async def _memory_with_streams(route: Route, streams: int) -> int:
    model = "bench-idle" if route.key == KEY else "idle"
    writers = await open_idle_streams(
        route.port, streams, key=route.key, named=route.named, headers=route.headers, model=model
    )
    await asyncio.sleep(0.5)
    memory = rss(route.pid)
    for writer in writers:
        writer.close()
    return memory


def _add_targets(part: Part, routes: list[Route], results: Rounds) -> None:
    direct, ours = results[True, 1, "the provider itself"], results[True, 1, "minutebook, recorded"]
    added = sorted(our.first_token - their.first_token for our, their in zip(ours, direct, strict=True))
    measured = f"{time_of(max(added[0], 1e-6))} minimum, {time_of(max(median(added), 1e-6))} median"
    what = "at most 5 ms added to the first token, 1 client, recorded"
    part.targets.append(Target(what, measured, added[0] <= 0.005))
    if LITELLM_ROUTE not in {route.name for route in routes}:
        return
    for stream in (True, False):
        for clients in CLIENTS:
            pairs = zip(
                results[stream, clients, "minutebook, recorded"], results[stream, clients, LITELLM_ROUTE], strict=True
            )
            ratio = median(our.per_second / their.per_second for our, their in pairs)
            what = f"at least 3 times litellm's requests per second, {clients} clients, {'streamed' if stream else 'whole'}"
            part.targets.append(Target(what, times(ratio), ratio >= 3))
