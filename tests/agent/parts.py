"""What the agent's tests share: tools, prompts, adapters against a real server, and what a session has recorded."""

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


async def at_once(seconds):
    """A sleep that nobody waits for, and at which others may still go on."""
    await asyncio.sleep(0)


PATIENT = RetryPolicy(sleep=at_once, draw=lambda: 0.0)

ADAPTERS = {"openai": (OpenAIAdapter, "base_url"), "anthropic": (AnthropicAdapter, "anthropic_url")}


def adapter_for(provider, kind="openai", **options):
    made, url = ADAPTERS[kind]
    options.setdefault("retry_policy", PATIENT)
    return made("gpt-4o", base_url=getattr(provider, url), api_key="any", **options)


@asynccontextmanager
async def open_adapter(provider, kind="openai", **options):
    async with adapter_for(provider, kind, **options) as adapter:
        yield adapter


def recorded(session):
    """The messages that the session has recorded, in order."""
    return [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]


def spoken(session):
    """Who said what, in short."""
    return [(message["role"], message["content"]) for message in recorded(session)]


def assert_coherent(session):
    """No call without its result, and each evaluation numbered from 0 without a gap."""
    assert not errors(check(list(recorded(session))))
    numbers = {}
    for entry in session.query(ConversationEntry).all():
        numbers.setdefault(entry.evaluation_id, []).append(entry.sequence)
    for sequence in numbers.values():
        assert sequence == list(range(len(sequence)))


class InProcess(ProviderAdapter):
    """A model without a network: it gives the replies it was told to, and waits a few times before each."""

    def __init__(self, *replies, steps=2, **options):
        super().__init__("gpt-4o", **{"retry_policy": PATIENT, **options})
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


def cancelled_after(beats, work):
    """Run a coroutine and cancel it after that many turns of the event loop; whether it came to its end before."""

    async def main():
        loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
        count = 0

        def beat():
            nonlocal count
            count += 1
            if count == beats:
                task.cancel()
            elif not task.done():
                loop.call_soon(beat)

        loop.call_soon(beat)
        try:
            await task
        except asyncio.CancelledError:
            return False
        return True

    return asyncio.run(main())
