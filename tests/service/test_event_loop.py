"""Large requests do their work in threads: the event loop is free for other requests."""

import asyncio
import json
import time

import pytest

from minutebook.testing import ScriptedModel, overflow
from tests.service.serving import served

MESSAGES = 6_000
SHORT_STEPS = 0.2
"""Share of the CPU time of a request that the longest step may take, if it takes more than 100 ms. A busy machine is slower."""
TEXT = "The quick brown fox jumps over the lazy dog. " * 6_000


@pytest.fixture
def steps(monkeypatch):
    """The CPU time of each step of the event loop, in its thread."""
    seconds, run = [], asyncio.Handle._run

    def measure(handle):
        started = time.thread_time()
        run(handle)
        seconds.append(time.thread_time() - started)

    monkeypatch.setattr(asyncio.Handle, "_run", measure)
    return seconds


def short_messages():
    return [{"role": ("user", "assistant")[number % 2], "content": f"Message {number}."} for number in range(MESSAGES)]


def long_messages():
    return [{"role": ("user", "assistant")[number % 2], "content": f"{number} {TEXT}"} for number in range(8)]


def tools(count, text):
    parameters = {"type": "object", "properties": {}}
    return [{"type": "function", "name": f"t{n}", "description": text, "parameters": parameters} for n in range(count)]


def parts(count):
    return [{"type": "text", "text": f"{number}"} for number in range(count)]


REQUESTS = {
    "thread, long text": ("/threads/{thread}/messages", lambda: {"text": TEXT * 4}),
    "thread, many parts": ("/threads/{thread}/messages", lambda: {"content": parts(29_000)}),
    "chat, many messages": ("/v1/chat/completions", lambda: {"messages": short_messages()}),
    "chat, long messages": ("/v1/chat/completions", lambda: {"messages": long_messages()}),
    "responses, many items": ("/v1/responses", lambda: {"input": short_messages()}),
    "responses, long tools": ("/v1/responses", lambda: {"input": "Hi", "tools": tools(30, TEXT)}),
    "compaction": ("/v1/responses/compact", lambda: {"input": short_messages()}),
    "token count": ("/v1/responses/input_tokens", lambda: {"input": "Hi", "tools": tools(30, TEXT)}),
}


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_large_request_does_not_block_the_event_loop(request_name, steps, tmp_path):
    path, body_of = REQUESTS[request_name]
    body = json.dumps({"model": "gpt-4o", **body_of()}).encode()
    config = "limits: {item_bytes: 4194304}"
    headers = {"content-type": "application/json", "x-conversation-id": "c"}
    with served(db=f"sqlite:///{tmp_path / 'chat.db'}", config=config, folder=tmp_path) as here:
        thread = here.http().post("/threads").json()["id"]  # also builds FastAPI's routes, which takes 80 ms
        path = path.format(thread=thread)
        steps.clear()
        started = time.process_time()
        answer = here.http().post(path, content=body, headers=headers)
        seconds = time.process_time() - started
    longest = max(steps)
    print(f"longest step {longest * 1e3:.0f} ms of {seconds * 1e3:.0f} ms of CPU time")  # noqa: T201 - shown with -rP
    assert answer.status_code in {200, 400}, answer.text
    assert longest < max(0.1, SHORT_STEPS * seconds)


def test_the_shorter_view_after_an_overflow_does_not_block_the_event_loop(steps, tmp_path):
    model = ScriptedModel(overflow(200_000, 10_000), otherwise="Yes.")
    body = json.dumps({"model": "gpt-4o", "messages": [*short_messages(), {"role": "user", "content": "?"}]}).encode()
    headers = {"content-type": "application/json", "x-conversation-id": "c"}
    with served(model, db=f"sqlite:///{tmp_path / 'chat.db'}") as here:
        steps.clear()
        started = time.process_time()
        answer = here.http().post("/v1/chat/completions", content=body, headers=headers)
        seconds = time.process_time() - started
        first, second = (len(request.messages) for request in here.provider.requests)
    longest = max(steps)
    print(f"longest step {longest * 1e3:.0f} ms of {seconds * 1e3:.0f} ms of CPU time")  # noqa: T201 - shown with -rP
    assert answer.status_code == 200, answer.text
    assert second < first
    assert longest < max(0.1, SHORT_STEPS * seconds)
