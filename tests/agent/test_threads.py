"""Parallel runs that share a manager and a bus do not affect each other."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import (
    ComposedManager,
    ConversationEntry,
    InProcessEventBus,
    Session,
    SlidingWindowManager,
    ToolResultTruncator,
)
from minutebook.agent.messages import ModelReply
from tests.agent.parts import InProcessAdapter, prompt_of


def replies(name):
    def reply_with_call(number):
        tool_call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "fetch", "arguments": f'{{"path": "{name}/{number}"}}'},
        }
        return ModelReply({"role": "assistant", "content": f"{name} {number}", "tool_calls": [tool_call]})

    return [
        *(reply_with_call(number) for number in range(6)),
        ModelReply({"role": "assistant", "content": f"{name} is done"}),
    ]


@pytest.mark.parametrize("runs", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_runs_over_one_manager_and_one_bus_do_not_mix(runs):
    manager = ComposedManager((ToolResultTruncator(20), SlidingWindowManager(4)))
    bus, prompt = InProcessEventBus(), prompt_of()
    threads = set()

    def run(number):
        threads.add(threading.get_ident())
        name = f"run {number}"
        with Session(bus=bus) as session:
            adapter = InProcessAdapter(*replies(name))
            options = {"session": session, "request": f"You are {name}.", "history_manager": manager}
            if number % 2:  # half of them in a separate event loop, half in the shared one
                response = asyncio.run(adapter.evaluate(prompt, **options))
            else:
                response = adapter.evaluate_sync(prompt, **options)
            messages = [entry.content for entry in session.query(ConversationEntry).all()]
        return (
            name,
            response.text,
            messages,
            [message["content"] for request in adapter.requests for message in request.messages],
        )

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(run, range(runs)))

    assert len(threads) > 1
    assert bus.subscriber_count() == 0
    for name, text, messages, sent in results:
        assert text == f"{name} is done"
        assert len(messages) == 2 + 12 + 1
        others = [line for line in [*messages, *sent] if line and "run " in line and name not in line]
        assert others == []
