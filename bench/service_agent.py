"""CPU time and throughput of the service and other gateways with requests of a coding agent: 200 messages, 20 tools, 250 KB.

`new` stores each request as a new conversation; `resent` continues one conversation whose client resends its history.
Each figure has its own service: SQLite updates its search index after 20,000 entries, which would add 20 s per 1,000
requests to one figure of a short run. Over a long run it adds 4 s to each figure of recorded requests.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.gateways import LITELLM_ROUTE, start_gateways
from bench.report import Part, Table, Target, progress, times
from bench.service import CLIENTS, run_load
from bench.service_load import CHAT_PATH, post, read_answer
from bench.service_processes import Route, cpu_seconds, run_provider, run_service, wait_until_idle

REQUESTS = 60
MESSAGES = 200
RECORDED_SECONDS, PASSED_SECONDS = 8.0, 2.5
"""Maximum CPU seconds per 1,000 requests."""
RECORDED = "recorded, new"
LOAD_ROUNDS = 3


def agent_messages(count: int = MESSAGES) -> list[dict[str, Any]]:
    """A coding session: a system prompt, a task, then calls with results of about 2,000 characters."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a coding agent. Work in small steps. " * 40},
        {"role": "user", "content": "Fix the failing test in the parser module, then explain the change. " * 4},
    ]
    for number in range((count - 2) // 2):
        function = {"name": f"tool_{number % 20}", "arguments": json.dumps({"path": f"src/module_{number}.py"})}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": f"I read file {number} next.", "tool_calls": [call]})
        lines = "".join(f"{line:4} def function_{number}_{line}(value): return value + {line}\n" for line in range(40))
        messages.append({"role": "tool", "tool_call_id": f"call_{number}", "content": lines[:2_050]})
    return messages


def agent_tools() -> list[dict[str, Any]]:
    """Twenty function definitions."""
    properties = {
        f"argument_{number}": {"type": "string", "description": "A path, a pattern or a line. " * 3}
        for number in range(6)
    }
    parameters = {"type": "object", "properties": properties, "required": ["argument_0"]}
    return [
        {
            "type": "function",
            "function": {"name": f"tool_{number}", "description": "Reads a file. " * 8, "parameters": parameters},
        }
        for number in range(20)
    ]


def chat_body(messages: list[dict[str, Any]], *, stream: bool) -> bytes:
    body = {"model": "bench", "messages": messages, "tools": agent_tools(), "stream": stream}
    return json.dumps(body).encode()


def response_body(messages: list[dict[str, Any]], *, stream: bool) -> bytes:
    """The same request for `/v1/responses`."""
    items: list[dict[str, Any]] = []
    for message in messages[1:]:
        if message["role"] == "tool":
            call_id, output = message["tool_call_id"], message["content"]
            items.append({"type": "function_call_output", "call_id": call_id, "output": output})
            continue
        items.append({"role": message["role"], "content": message["content"]})
        items += [
            {"type": "function_call", "call_id": call["id"], **call["function"]}
            for call in message.get("tool_calls", ())
        ]
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in agent_tools()]
    instructions = messages[0]["content"]
    body = {"model": "bench", "instructions": instructions, "input": items, "tools": tools, "stream": stream}
    return json.dumps(body).encode()


def measure(*, quick: bool) -> Part:
    part = Part()
    requests = 20 if quick else REQUESTS
    size = len(chat_body(agent_messages(), stream=False))
    table = Table(f"CPU seconds per 1,000 agent requests of {size / 1e3:,.0f} KB", ["", "whole", "streamed"])
    part.tables.append(table)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="minutebook-bench-")))
        provider = stack.enter_context(run_provider())
        url = f"http://127.0.0.1:{provider[0]}/v1"
        for name, limit in (
            ("chat, passed through", PASSED_SECONDS),
            ("chat, recorded, new", RECORDED_SECONDS),
            ("chat, recorded, resent", RECORDED_SECONDS),
            ("responses, recorded, new", RECORDED_SECONDS),
        ):
            cells = []
            for stream in (False, True):
                database = f"sqlite:///{folder / f'{len(part.targets)}-{stream}.db'}"
                with run_service(database, url) as service:
                    cells.append(_cpu_per_thousand(Route(name, *service), requests, stream=stream))
            table.rows.append([name, *(f"{cell:.1f}" for cell in cells)])
            part.figures[name] = cells
            what = f"at most {limit} CPU s per 1,000 requests: {name}"
            part.targets.append(Target(what, f"{max(cells):.1f} s", max(cells) <= limit))
        if not quick:
            gateways = list(start_gateways(stack, folder, part, url))
            for route in gateways:
                streamed = (False, True) if route.can_stream else (False,)
                cells = [_cpu_per_thousand(route, requests, stream=stream) for stream in streamed]
                texts = [f"{cell:.1f}" for cell in cells]
                table.rows.append([f"chat, {route.name}", *texts, *([] if route.can_stream else ["fails"])])
                part.figures[route.name] = cells
            ours = stack.enter_context(run_service(f"sqlite:///{folder / 'load.db'}", url))
            _measure_load(part, [Route(RECORDED, *ours, named=True), Route("passed through", *ours), *gateways])
    return part


def _measure_load(part: Part, routes: list[Route]) -> None:
    """Requests per second of concurrent clients. Each recorded request is a new conversation."""
    per_second: dict[tuple[str, int], list[float]] = {}
    body = chat_body(agent_messages(), stream=False)
    for clients in CLIENTS:
        progress(f"service: agent requests, {clients} clients")
        for route in routes * LOAD_ROUNDS:
            result = run_load(route, clients, stream=False, body=body)
            per_second.setdefault((route.name, clients), []).append(result.per_second)
    table = Table("Agent requests per second, whole", ["", *(f"{clients} clients" for clients in CLIENTS)])
    for route in routes:
        cells = [median(per_second[route.name, clients]) for clients in CLIENTS]
        table.rows.append([route.name, *(f"{cell:,.0f}" for cell in cells)])
        part.figures[f"{route.name}, per second"] = cells
    part.tables.append(table)
    if LITELLM_ROUTE not in {route.name for route in routes}:
        return
    for clients in CLIENTS:
        pairs = zip(per_second[RECORDED, clients], per_second[LITELLM_ROUTE, clients], strict=True)
        ratio = median(ours / theirs for ours, theirs in pairs)
        what = f"at least 3 times litellm's agent requests per second, {clients} clients"
        part.targets.append(Target(what, times(ratio), ratio >= 3))


def _cpu_per_thousand(route: Route, requests: int, *, stream: bool) -> float:
    progress(f"service: agent requests, {route.name}, {'streamed' if stream else 'whole'}")
    asyncio.run(_send(route, _requests(route.name, 5, stream=stream)))
    wait_until_idle(route.pid)
    before = cpu_seconds(route.pid)
    asyncio.run(_send(route, _requests(route.name, requests, stream=stream)))
    wait_until_idle(route.pid)
    return (cpu_seconds(route.pid) - before) / requests * 1_000


def _requests(name: str, count: int, *, stream: bool) -> Iterator[tuple[str, bytes, dict[str, str]]]:
    """Path, body and headers of each request."""
    messages, start = agent_messages(), time.time_ns()
    for number in range(count):
        if name.startswith("responses"):
            yield "/v1/responses", response_body(messages, stream=stream), {}
            continue
        headers: dict[str, str] = {}
        if "recorded" in name:
            headers["x-conversation-id"] = f"agent-{start}" if "resent" in name else f"agent-{start}-{number}"
        yield CHAT_PATH, chat_body(messages, stream=stream), headers
        if "resent" in name:
            answer = "".join(f"word{word} " for word in range(20))
            messages = [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": "Continue."}]


async def _send(route: Route, requests: Iterator[tuple[str, bytes, dict[str, str]]]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", route.port)
    try:
        for path, body, headers in requests:
            writer.write(post(route.port, path, body, key=route.key, headers={**route.headers, **headers}))
            await writer.drain()
            await read_answer(reader)
    finally:
        writer.close()
