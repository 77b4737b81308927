"""Large requests do their work in threads: the event loop is free for other requests."""

import asyncio
import json
import time

import pytest

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


REQUESTS = {
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
    headers = {"content-type": "application/json", "x-conversation-id": "c"}
    with served(db=f"sqlite:///{tmp_path / 'chat.db'}") as here:
        steps.clear()
        started = time.process_time()
        answer = here.http().post(path, content=body, headers=headers)
        seconds = time.process_time() - started
    longest = max(steps)
    print(f"longest step {longest * 1e3:.0f} ms of {seconds * 1e3:.0f} ms of CPU time")  # noqa: T201 - shown with -rP
    assert answer.status_code in {200, 400}, answer.text
    assert longest < max(0.1, SHORT_STEPS * seconds)
