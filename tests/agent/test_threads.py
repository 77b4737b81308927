"""Many runs at once, over one manager, never hear each other."""

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
from tests.agent.parts import InProcess, prompt_of


def answers(name):
    def calling(number):
        made = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "fetch", "arguments": f'{{"path": "{name}/{number}"}}'},
        }
        return ModelReply({"role": "assistant", "content": f"{name} {number}", "tool_calls": [made]})

    return [*(calling(number) for number in range(6)), ModelReply({"role": "assistant", "content": f"{name} is done"})]


@pytest.mark.parametrize("runs", [150, pytest.param(1_000, marks=pytest.mark.slow)])
def test_runs_over_one_manager_and_one_bus_do_not_mix(runs):
    manager = ComposedManager((ToolResultTruncator(20), SlidingWindowManager(4)))
    bus, prompt = InProcessEventBus(), prompt_of()
    threads = set()

    def one(number):
        threads.add(threading.get_ident())
        name = f"run {number}"
        with Session(bus=bus) as session:
            adapter = InProcess(*answers(name))
            options = {"session": session, "request": f"You are {name}.", "history_manager": manager}
            if number % 2:  # half of them in an event loop of their own, half in the one that all share
                response = asyncio.run(adapter.evaluate(prompt, **options))
            else:
                response = adapter.evaluate_sync(prompt, **options)
            said = [entry.content for entry in session.query(ConversationEntry).all()]
        return (
            name,
            response.text,
            said,
            [message["content"] for request in adapter.requests for message in request.messages],
        )

    with ThreadPoolExecutor(16) as pool:
        results = list(pool.map(one, range(runs)))

    assert len(threads) > 1
    assert bus.subscriber_count() == 0
    for name, text, said, sent in results:
        assert text == f"{name} is done"
        assert len(said) == 2 + 12 + 1
        others = [line for line in [*said, *sent] if line and "run " in line and name not in line]
        assert others == []
