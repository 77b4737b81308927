"""The CPU of one call of `OpenAIAdapter` beside that of the official client with the same messages."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import coding_session
from minutebook import OpenAIAdapter, view_of
from minutebook.agent import ModelRequest
from minutebook.testing import LoopbackProvider, ScriptedModel, say

LENGTHS = (100, 800, 3_000)


def measure(*, quick: bool) -> Part:
    part = Part()
    calls = 2 if quick else 5
    table = Table(
        f"Provider adapter: CPU of one call in the caller's thread, mean of {calls} calls",
        ["", *(f"{length:,} messages" for length in LENGTHS)],
    )
    seconds_of = {length: asyncio.run(_measure_calls(length, calls)) for length in LENGTHS}
    for name in ("OpenAIAdapter", "openai client"):
        table.rows.append([name, *(time_of(seconds[name]) for seconds in seconds_of.values())])
    ratios = {length: seconds["openai client"] / seconds["OpenAIAdapter"] for length, seconds in seconds_of.items()}
    table.rows.append(["client / adapter", *(times(ratio) for ratio in ratios.values())])
    part.tables.append(table)
    part.targets.append(
        Target("at 800 messages at most a fifth of the client's CPU", times(ratios[800]), ratios[800] >= 5)
    )
    part.figures["seconds"] = {str(length): seconds for length, seconds in seconds_of.items()}
    return part


async def _measure_calls(length: int, calls: int) -> dict[str, float]:
    progress(f"adapter: {length:,} messages")
    messages: list[Any] = view_of(coding_session(length)).messages  # with a result for every call
    with LoopbackProvider(ScriptedModel(otherwise=say("Done."))) as provider:
        async with OpenAIAdapter("gpt-4o", base_url=provider.base_url, api_key="k") as adapter:
            request = ModelRequest(tuple(messages))
            client: Any = adapter.client()
            return {
                "OpenAIAdapter": await _cpu(lambda: adapter.ask(request), calls),
                "openai client": await _cpu(
                    lambda: client.chat.completions.create(model="gpt-4o", messages=messages), calls
                ),
            }


async def _cpu(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    """The CPU seconds of this thread per call."""
    await call()
    started = time.thread_time()
    for _ in range(calls):
        await call()
    return (time.thread_time() - started) / calls
