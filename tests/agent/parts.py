"""Shared by the agent's tests: tools, prompts, adapters for a real server, and the messages of a session."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass

from minutebook import (
    AnthropicAdapter,
    ConversationEntry,
    MarkdownSection,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Tool,
    ToolResult,
    check,
)
from minutebook.agent import ProviderAdapter, RetryPolicy, TextDelta
from minutebook.record.finding import errors
from minutebook.wire import entry_to_provider_message


@dataclass(frozen=True)
class Path:
    path: str


@dataclass(frozen=True)
class Verdict:
    good: bool
    reason: str


def read(params, *, context):
    return ToolResult.ok(f"The content of {params.path}.")


async def fetch(params, *, context):
    await asyncio.sleep(0)
    return ToolResult.ok(f"What {params.path} says.")


def explode(params, *, context):
    raise RuntimeError(f"cannot touch {params.path}")


READ = Tool[Path, None](name="read", description="Read a file.", handler=read)
FETCH = Tool[Path, None](name="fetch", description="Fetch a page.", handler=fetch)
EXPLODE = Tool[Path, None](name="explode", description="Fail.", handler=explode)
TOOLS = (READ, FETCH, EXPLODE)


def prompt_of(*sections, output=str, text="Look into it.", tools=TOOLS, name="worker"):
    sections = sections or (MarkdownSection(title="Task", key="task", template=text, tools=tools),)
    return Prompt(PromptTemplate[output](ns="tests", key=name, sections=sections))


async def no_sleep(seconds):
    """Replaces sleep: returns after one iteration of the event loop."""
    await asyncio.sleep(0)


INSTANT_RETRIES = RetryPolicy(sleep=no_sleep, draw=lambda: 0.0)

ADAPTERS = {"openai": (OpenAIAdapter, "base_url"), "anthropic": (AnthropicAdapter, "anthropic_url")}


def adapter_for(provider, kind="openai", **options):
    adapter_class, url = ADAPTERS[kind]
    options.setdefault("retry_policy", INSTANT_RETRIES)
    return adapter_class("gpt-4o", base_url=getattr(provider, url), api_key="any", **options)


@asynccontextmanager
async def open_adapter(provider, kind="openai", **options):
    async with adapter_for(provider, kind, **options) as adapter:
        yield adapter


def recorded(session):
    """The messages that the session has recorded, in order."""
    return [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]


def roles_and_texts(session):
    """Role and content of each recorded message."""
    return [(message["role"], message["content"]) for message in recorded(session)]


def assert_coherent(session):
    """No call without its result, and each evaluation numbered from 0 without a gap."""
    assert not errors(check(list(recorded(session))))
    numbers = {}
    for entry in session.query(ConversationEntry).all():
        numbers.setdefault(entry.evaluation_id, []).append(entry.sequence)
    for sequence in numbers.values():
        assert sequence == list(range(len(sequence)))


class InProcessAdapter(ProviderAdapter):
    """A model without a network: returns the given replies, after `steps` iterations of the event loop each."""

    def __init__(self, *replies, steps=2, **options):
        super().__init__("gpt-4o", **{"retry_policy": INSTANT_RETRIES, **options})
        self.replies = list(replies)
        self.steps = steps
        self.requests = []

    async def ask(self, request, *, on_delta=None):
        self.requests.append(request)
        for _ in range(self.steps):
            await asyncio.sleep(0)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        for word in str(reply.message.get("content") or "").split(" "):
            if on_delta is not None and word:
                on_delta(TextDelta(word))
                await asyncio.sleep(0)
        return reply


def run_and_cancel(iterations, work):
    """Run a coroutine and cancel it after a number of event-loop iterations. Return whether it finished before that."""

    async def main():
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        count = 0

        def step():
            nonlocal count
            count += 1
            if count == iterations:
                task.cancel()
            elif not task.done():
                loop.call_soon(step)

        loop.call_soon(step)
        try:
            await task
        except asyncio.CancelledError:
            return False
        return True

    return asyncio.run(main())
