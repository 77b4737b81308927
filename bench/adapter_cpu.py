"""The CPU of one call of an adapter beside that of the official client with the same messages."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import coding_session
from minutebook import AnthropicAdapter, OpenAIAdapter, view_of
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
    for adapter, client in (("OpenAIAdapter", "openai client"), ("AnthropicAdapter", "anthropic client")):
        for name in (adapter, client):
            table.rows.append([name, *(time_of(seconds[name]) for seconds in seconds_of.values())])
        ratios = {length: seconds[client] / seconds[adapter] for length, seconds in seconds_of.items()}
        table.rows.append([f"{client} / adapter", *(times(ratio) for ratio in ratios.values())])
        if adapter == "OpenAIAdapter":
            title = "at 800 messages at most a fifth of the openai client's CPU"
            part.targets.append(Target(title, times(ratios[800]), ratios[800] >= 5))
    part.tables.append(table)
    part.figures["seconds"] = {str(length): seconds for length, seconds in seconds_of.items()}
    return part


async def _measure_calls(length: int, calls: int) -> dict[str, float]:
    progress(f"adapter: {length:,} messages")
    view = view_of(coding_session(length))  # with a result for every call
    request, sent = ModelRequest(tuple(view.curated)), view.messages
    with LoopbackProvider(ScriptedModel(otherwise=say("Done."))) as provider:
        async with (
            OpenAIAdapter("gpt-4o", base_url=provider.base_url, api_key="k") as openai,
            AnthropicAdapter(
                "claude-sonnet-4-5", base_url=provider.anthropic_url, api_key="k", cache=False
            ) as anthropic,
        ):
            chat: Any = openai.client().chat.completions
            messages: Any = anthropic.client().messages
            return {
                "OpenAIAdapter": await _cpu(lambda: openai.ask(request), calls),
                "openai client": await _cpu(lambda: chat.create(model="gpt-4o", messages=sent), calls),
                "AnthropicAdapter": await _cpu(lambda: anthropic.ask(request), calls),
                "anthropic client": await _cpu(
                    lambda: messages.create(model="claude-sonnet-4-5", max_tokens=8192, **view.anthropic()), calls
                ),
            }


async def _cpu(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    """The CPU seconds of this thread per call."""
    await call()
    started = time.thread_time()
    for _ in range(calls):
        await call()
    return (time.thread_time() - started) / calls
