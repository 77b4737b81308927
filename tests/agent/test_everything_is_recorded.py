"""The record has all messages in order, whatever the model, its tools, the network and the caller do."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry, ConversationRunner, Session, SlidingWindowManager, TokenBudgetManager
from minutebook.record import is_valid
from minutebook.testing import LoopbackProvider, ScriptedModel, call, cut, fail, say, slow
from tests.agent.parts import ADAPTERS, adapter_for, assert_coherent, prompt_of, recorded, run_and_cancel

CALLS = st.lists(
    st.tuples(st.sampled_from(["read", "fetch", "explode", "unknown"]), st.text("abc", min_size=1, max_size=3)),
    min_size=1,
    max_size=4,
)
FAILURES = st.lists(st.sampled_from([fail(429), fail(500), fail(529), cut()]), max_size=2)
TURN = st.tuples(FAILURES, st.text("xyz ", max_size=8), CALLS)


def results_of(calls):
    answers = {
        "read": "The content of {}.",
        "fetch": "What {} says.",
        "explode": "The tool failed: RuntimeError: cannot touch {}",
        "unknown": "Unknown tool 'unknown'. Available tools: read, fetch, explode.",
    }
    return [answers[name].format(path) for name, path in calls]


def script_and_record(turns):
    """The script of these turns, and the record of a complete run."""
    steps, expected = [], [("user", "## 1. Task\n\nLook into it.")]
    for failures, text, calls in turns:
        answer = say(text) if text else slow()
        for name, path in calls:
            answer += call(name, path=path)
        steps += [*failures, answer]
        expected.append(("assistant", text, [(name, json.dumps({"path": path})) for name, path in calls]))
        expected += [("tool", result) for result in results_of(calls)]
    return [*steps, say("Done.")], [*expected, ("assistant", "Done.", [])]


def role_text_and_calls(message):
    if message["role"] != "assistant":
        return message["role"], message["content"]
    calls = [
        (tool_call["function"]["name"], json.dumps(json.loads(tool_call["function"]["arguments"])))
        for tool_call in message.get("tool_calls", [])
    ]
    return "assistant", message["content"] or "", calls


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
@given(turns=st.lists(TURN, max_size=5), streaming=st.booleans(), window=st.integers(0, 6))
def test_the_record_has_all_messages(kind, turns, streaming, window):
    steps, expected = script_and_record(turns)
    session = Session()

    with LoopbackProvider(ScriptedModel(*steps)) as provider:
        asyncio.run(run(provider, kind, session, streaming=streaming, window=window))

    assert [role_text_and_calls(message) for message in recorded(session)] == expected
    assert_coherent(session)
    assert not [request.problem for request in provider.requests if request.status == 400]


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
@given(turns=st.lists(TURN, max_size=4), streaming=st.booleans(), iterations=st.integers(1, 300))
def test_wherever_a_run_is_cancelled_the_record_has_all_messages_until_then(kind, turns, streaming, iterations):
    steps, expected = script_and_record(turns)
    session = Session()

    with LoopbackProvider(ScriptedModel(*steps)) as provider:
        run_and_cancel(iterations, run(provider, kind, session, streaming=streaming, window=6))

    assert_coherent(session)
    for message, complete in zip(recorded(session), expected, strict=False):
        if message.get("interrupted"):
            assert complete[1].startswith(message["content"])
        elif "interrupted" not in str(message["content"]):
            assert role_text_and_calls(message) == complete


async def run(provider, kind, session, *, streaming, window):
    async with adapter_for(provider, kind) as adapter:
        runner = ConversationRunner(
            adapter=adapter, prompt=prompt_of(), session=session, history_manager=SlidingWindowManager(window)
        )
        await runner.run(streaming=streaming)


@pytest.mark.parametrize("manager", [SlidingWindowManager(6), TokenBudgetManager(900)], ids=["window", "budget"])
@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_sixty_calls_with_parallel_tools_in_a_small_window_make_no_invalid_request(kind, manager):
    steps = [
        say(f"Step {n}. ") + call("read", path=f"{n}.py") + call("fetch", path=f"{n}") + call("explode", path=f"{n}")
        for n in range(59)
    ]
    session = Session()

    with LoopbackProvider(ScriptedModel(*steps, say("Done."))) as provider, adapter_for(provider, kind) as adapter:
        response = adapter.evaluate_sync(prompt_of(), session=session, request="Go.", history_manager=manager)

    assert provider.problems == []
    assert len(provider.requests) == response.calls == 60
    assert len(session.query(ConversationEntry).all()) == 2 + 59 * 4 + 1
    assert [message["content"] for message in recorded(session) if message["role"] == "assistant"][:-1] == [
        f"Step {n}. " for n in range(59)
    ]
    assert_coherent(session)
    assert is_valid(response.view.curated, provider=adapter.provider)
    assert len(response.view.messages) < 40
