"""A run is cancelled at every iteration of the event loop: the record is valid each time, and the next run continues."""

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from contextvars import ContextVar

import pytest

from minutebook import ConversationRunner, MarkdownSection, Session, SlidingWindowManager, Tool, Transcript
from minutebook.agent import ModelReply
from minutebook.prompt import SectionVisibility
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, call, cut, fail, say
from tests.agent.parts import (
    FETCH,
    READ,
    InProcessAdapter,
    Path,
    adapter_for,
    assert_coherent,
    prompt_of,
    recorded,
    run_and_cancel,
)


def reply(content=None, *calls):
    tool_calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": f'{{"path": "{path}"}}'}}
        for number, (name, path) in enumerate(calls)
    ]
    return ModelReply({"role": "assistant", "content": content, **({"tool_calls": tool_calls} if tool_calls else {})})


def replies():
    return [
        reply("Let me see", ("fetch", "a"), ("read", "b"), ("fetch", "c")),
        reply(None, ("fetch", "d")),
        reply("It is all fine now"),
    ]


def runs_cancelled_at_every_iteration(start_run):
    """Start runs and cancel each one iteration later than the one before, until a run finishes."""
    for iterations in range(1, 500):
        session, work = start_run()
        done = run_and_cancel(iterations, work)
        yield session, done
        if done:
            return
    raise AssertionError("no run has finished")


def is_beginning_of(record, whole):
    """Whether a record is the beginning of another, except for messages marked as interrupted."""
    for message, complete in zip(record, whole, strict=False):
        if "interrupted" in str(message.get("content")) or message.get("interrupted"):
            continue
        if message != complete:
            return False
    return len(record) <= len(whole)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_wherever_it_is_cancelled_the_record_is_valid_and_the_next_run_continues(streaming):
    conversation = None

    def start_run():
        nonlocal conversation
        session, conversation = Session(), Transcript()
        runner = ConversationRunner(
            adapter=InProcessAdapter(*replies()),
            prompt=prompt_of(),
            session=session,
            conversation=conversation,
            request="Go.",
        )
        return session, runner.run(streaming=streaming)

    runs = []
    for session, _ in runs_cancelled_at_every_iteration(start_run):
        assert_coherent(session)
        messages = recorded(session)
        assert list(conversation) == messages
        runs.append(messages)
        adapter = InProcessAdapter(reply("Yes."))
        asyncio.run(adapter.evaluate(prompt_of(), session=session, conversation=conversation, request="Are you there?"))
        assert recorded(session)[-1]["content"] == "Yes."
        assert_coherent(session)

    assert len(runs) > 15
    assert all(is_beginning_of(run, runs[-1]) for run in runs)
    assert any(message.get("interrupted") for run in runs for message in run) == streaming


def test_finished_results_are_recorded_when_the_others_are_interrupted():
    async def forever(params, *, context):
        await asyncio.Event().wait()

    stuck = Tool[Path, None](name="stuck", description="Never ends.", handler=forever)
    session = Session()
    adapter = InProcessAdapter(reply(None, ("stuck", "a"), ("fetch", "b"), ("read", "c")))

    run_and_cancel(2000, adapter.evaluate(prompt_of(tools=[stuck, FETCH, READ]), session=session))

    results = [message["content"] for message in recorded(session) if message["role"] == "tool"]
    assert "interrupted" in results[0]
    assert results[1:] == ["What b says.", "The content of c."]


def test_cancelled_at_every_iteration_against_a_real_server_with_failures():
    async def stream(provider, session):
        async with adapter_for(provider) as adapter:
            async for _ in adapter.stream(prompt_of(), session=session, history_manager=SlidingWindowManager(2)):
                pass

    for iterations in [*range(1, 40), *range(40, 400, 9)]:
        session = Session()
        model = ScriptedModel(
            fail(429),
            call("read", path="a") + call("fetch", path="b"),
            say("One two three.") + cut(after_chunks=3),
            say("Done."),
        )
        with LoopbackProvider(model) as provider:
            run_and_cancel(iterations, stream(provider, session))
        assert_coherent(session)


def test_cancelled_while_sections_are_being_opened():
    guide = MarkdownSection(
        title="Guide", key="guide", template="Tabs.", summary="How.", visibility=SectionVisibility.SUMMARY, tools=[READ]
    )
    open_section = ModelReply(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "1",
                    "function": {"name": "open_sections", "arguments": '{"section_keys": ["guide"], "reason": "r"}'},
                }
            ],
        }
    )

    def start_run():
        session = Session()
        runner = ConversationRunner(
            adapter=InProcessAdapter(open_section, reply("Done.")),
            prompt=prompt_of(guide),
            session=session,
            max_expansions=1,
        )
        return session, runner.run()

    for session, _ in runs_cancelled_at_every_iteration(start_run):
        assert_coherent(session)


def test_interrupting_run_sync_cancels_the_run_and_waits_until_it_has_ended():
    session, started = Session(), threading.Event()

    async def forever(params, *, context):
        started.set()
        await asyncio.Event().wait()

    stuck = Tool[Path, None](name="stuck", description="Never ends.", handler=forever)
    adapter = InProcessAdapter(reply(None, ("stuck", "a")))
    work = adapter.evaluate(prompt_of(tools=[stuck]), session=session)

    with interrupt_when(started), pytest.raises(KeyboardInterrupt):
        run_sync(work)

    assert [message["role"] for message in recorded(session)] == ["user", "assistant", "tool"]


def test_run_sync_uses_the_context_of_the_caller():
    name = ContextVar("name", default="unset")
    name.set("caller")

    async def read_name():
        return name.get()

    assert run_sync(read_name()) == "caller"


@contextmanager
def interrupt_when(started):
    """Send SIGINT to this process once `started` is set, also if the process was started with SIGINT ignored."""

    def send():
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=send, daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
