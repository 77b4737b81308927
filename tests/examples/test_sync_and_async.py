"""The tasks on every store, with `Conversation` and with `AsyncConversation`: both send and store the same bytes."""

import asyncio
import json
import re
from dataclasses import fields

import pytest

from examples.tasks.data import SCHEMAS, run, support_chat
from minutebook import AsyncConversation, Conversation, SummarizeStrategy
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.store.backends import BACKENDS, each_backend

openai = pytest.importorskip("openai")

UNIQUE_ID = re.compile(r"(?<=fold summarize)[\w-]+")
LINES = ("Where is my desk?", "When does it arrive?", "Thank you!")
CHAT = {"system": "Be brief.", "model": "gpt-4o"}


class Summarizer:
    async def summarize(self, request):
        return f"{len(request.messages)} messages about orders."


SUMMARIES = {
    "model": "gpt-4o",
    "max_tokens": 1_600,
    "summarizer": Summarizer(),
    "strategy": SummarizeStrategy(threshold=0.8, keep_turns=3, max_ledger_tokens=0),
}


def chat_sync(store, client):
    with Conversation("order-48213", store=store, **CHAT) as chat:
        for line in LINES:
            chat.append(line)
            chat.append(client.chat.completions.create(model="gpt-4o", messages=chat.view().messages))
        return list(chat), chat.requests(), []


async def chat_async(store, client):
    async with AsyncConversation("order-48213", store=store, **CHAT) as chat:
        for line in LINES:
            await chat.append(line)
            view = await chat.view()
            await chat.append(await client.chat.completions.create(model="gpt-4o", messages=view.messages))
        return list(chat), await chat.requests(), []


def stream_sync(store, client):
    with Conversation("order-48213", store=store, **CHAT) as chat:
        for line in LINES:
            chat.append(line)
            with client.chat.completions.stream(model="gpt-4o", **chat.view().openai()) as stream:
                deltas = [event.delta for event in stream if event.type == "content.delta"]
                chat.append(stream.get_final_completion())
        return list(chat), chat.requests(), deltas


async def stream_async(store, client):
    async with AsyncConversation("order-48213", store=store, **CHAT) as chat:
        for line in LINES:
            await chat.append(line)
            async with client.chat.completions.stream(model="gpt-4o", **(await chat.view()).openai()) as stream:
                deltas = [event.delta async for event in stream if event.type == "content.delta"]
                await chat.append(await stream.get_final_completion())
        return list(chat), await chat.requests(), deltas


def results(calls):
    return ({"role": "tool", "tool_call_id": each.id, "content": run(each)} for each in calls)


def tools_sync(store, client):
    chat = Conversation("agent", store=store, system="You fix code.", max_tokens=2_000)
    chat.append("Fix the build.")
    calls = True
    while calls:
        messages = chat.view(tools=SCHEMAS).messages
        reply = client.chat.completions.create(model="gpt-4o", tools=SCHEMAS, messages=messages)
        calls = reply.choices[0].message.tool_calls or []
        chat.append(reply, *results(calls))
    return list(chat), chat.requests(), [str(chat.why(5, request=20))]


async def tools_async(store, client):
    chat = AsyncConversation("agent", store=store, system="You fix code.", max_tokens=2_000)
    await chat.append("Fix the build.")
    calls = True
    while calls:
        messages = (await chat.view(tools=SCHEMAS)).messages
        reply = await client.chat.completions.create(model="gpt-4o", tools=SCHEMAS, messages=messages)
        calls = reply.choices[0].message.tool_calls or []
        await chat.append(reply, *results(calls))
    return list(chat), await chat.requests(), [str(await chat.why(5, request=20))]


def summaries_sync(store, client):
    chat = Conversation("order-48213", store=store, **SUMMARIES)
    views = []
    for message in support_chat(12)[1:]:
        chat.append(message)
        if message["role"] == "user":
            views.append(chat.view().messages)
    folds = chat.folds()
    chat.undo(folds[-1])
    rest = [chat.fit().messages, chat.folds(), str(chat.why(0, request=13))]
    return (
        list(chat),
        chat.requests(),
        [views, [(fold.start, fold.stop, fold.shown, fold.reason) for fold in folds], rest],
    )


async def summaries_async(store, client):
    chat = AsyncConversation("order-48213", store=store, **SUMMARIES)
    views = []
    for message in support_chat(12)[1:]:
        await chat.append(message)
        if message["role"] == "user":
            views.append((await chat.view()).messages)
    folds = await chat.folds()
    await chat.undo(folds[-1])
    rest = [(await chat.fit()).messages, await chat.folds(), str(await chat.why(0, request=13))]
    shown = [(fold.start, fold.stop, fold.shown, fold.reason) for fold in folds]
    return list(chat), await chat.requests(), [views, shown, rest]


STEPS = [call("read_file", path=f"part_{number}.py") for number in range(24)]
TASKS = {
    "3 chat": (chat_sync, chat_async, ("In Cologne.", "On Friday.", "You are welcome.")),
    "4 streamed chat": (stream_sync, stream_async, ("In Cologne.", "On Friday.", "You are welcome.")),
    "5 and 10 own tool loop": (tools_sync, tools_async, (*STEPS, say("The build is fixed."))),
    "7 and 10 summaries": (summaries_sync, summaries_async, ()),
}


def result_sync(task, store, steps):
    with (
        LoopbackProvider(ScriptedModel(*steps)) as provider,
        openai.OpenAI(base_url=provider.base_url, api_key="none") as client,
    ):
        state = as_bytes(*task(store, client), provider)
    asyncio.run(store.close())
    return state


async def result_async(task, store, steps):
    with LoopbackProvider(ScriptedModel(*steps)) as provider:
        async with openai.AsyncOpenAI(base_url=provider.base_url, api_key="none") as client, store:
            return as_bytes(*await task(store, client), provider)


def as_bytes(record, requests, rest, provider):
    """What was stored and sent as JSON, without the times and the ids of folds, which are unique."""
    assert provider.problems == []
    assert requests
    minutes = [
        {field.name: getattr(request, field.name) for field in fields(request) if field.name not in {"at", "folds"}}
        for request in requests
    ]
    text = json.dumps([record, minutes, rest, [request.body for request in provider.requests]], default=str)
    return UNIQUE_ID.sub("", text).encode()


@pytest.mark.parametrize("backend", each_backend("memory", "postgres", "redis", "sqlite"))
@pytest.mark.parametrize("task", TASKS)
def test_the_sync_and_the_async_variant_give_the_same_bytes(task, backend, tmp_path):
    in_sync, in_async, steps = TASKS[task]

    first = result_sync(in_sync, empty_store(backend, tmp_path / "sync"), steps)
    second = asyncio.run(result_async(in_async, empty_store(backend, tmp_path / "async"), steps))

    assert first == second


def empty_store(backend, folder):
    folder.mkdir()
    return BACKENDS[backend](folder)
