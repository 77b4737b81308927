"""A run is killed at every turn of the event loop: the record is whole each time, and the next run goes on."""

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
from minutebook.store.per_loop import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, call, cut, fail, say
from tests.agent.parts import (
    FETCH,
    READ,
    InProcess,
    Path,
    adapter_for,
    assert_coherent,
    cancelled_after,
    prompt_of,
    recorded,
)


def reply(content=None, *calls):
    made = [
        {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": f'{{"path": "{path}"}}'}}
        for number, (name, path) in enumerate(calls)
    ]
    return ModelReply({"role": "assistant", "content": content, **({"tool_calls": made} if made else {})})


def replies():
    return [
        reply("Let me see", ("fetch", "a"), ("read", "b"), ("fetch", "c")),
        reply(None, ("fetch", "d")),
        reply("It is all fine now"),
    ]


def killed_everywhere(make):
    """Each record of a run that was killed one turn later than the one before, until one comes to its end."""
    for beats in range(1, 500):
        session, work = make()
        done = cancelled_after(beats, work)
        yield session, done
        if done:
            return
    raise AssertionError("it never came to its end")


def is_cut_of(record, whole):
    """Whether a record is the beginning of another, but for what says that it was interrupted."""
    for one, other in zip(record, whole, strict=False):
        if "interrupted" in str(one.get("content")) or one.get("interrupted"):
            continue
        if one != other:
            return False
    return len(record) <= len(whole)


@pytest.mark.parametrize("streaming", [False, True], ids=["whole", "streaming"])
def test_wherever_it_is_killed_the_record_is_whole_and_the_next_run_goes_on(streaming):
    conversation = None

    def make():
        nonlocal conversation
        session, conversation = Session(), Transcript()
        runner = ConversationRunner(
            adapter=InProcess(*replies()), prompt=prompt_of(), session=session, conversation=conversation, request="Go."
        )
        return session, runner.run(streaming=streaming)

    runs = []
    for session, _ in killed_everywhere(make):
        assert_coherent(session)
        said = recorded(session)
        assert list(conversation) == said
        runs.append(said)
        again = InProcess(reply("Yes."))
        asyncio.run(again.evaluate(prompt_of(), session=session, conversation=conversation, request="Are you there?"))
        assert recorded(session)[-1]["content"] == "Yes."
        assert_coherent(session)

    assert len(runs) > 15
    assert all(is_cut_of(run, runs[-1]) for run in runs)
    assert any(message.get("interrupted") for run in runs for message in run) == streaming


def test_results_that_were_there_already_are_kept_when_the_others_are_interrupted():
    async def forever(params, *, context):
        await asyncio.Event().wait()

    stuck = Tool[Path, None](name="stuck", description="Never ends.", handler=forever)
    session = Session()
    adapter = InProcess(reply(None, ("stuck", "a"), ("fetch", "b"), ("read", "c")))

    cancelled_after(2000, adapter.evaluate(prompt_of(tools=[stuck, FETCH, READ]), session=session))

    results = [message["content"] for message in recorded(session) if message["role"] == "tool"]
    assert "interrupted" in results[0]
    assert results[1:] == ["What b says.", "The content of c."]


def test_killed_at_every_turn_against_a_real_server_with_failures():
    async def stream(provider, session):
        async with adapter_for(provider) as adapter:
            async for _ in adapter.stream(prompt_of(), session=session, history_manager=SlidingWindowManager(2)):
                pass

    for beats in [*range(1, 40), *range(40, 400, 9)]:
        session = Session()
        model = ScriptedModel(
            fail(429),
            call("read", path="a") + call("fetch", path="b"),
            say("One two three.") + cut(after_chunks=3),
            say("Done."),
        )
        with LoopbackProvider(model) as provider:
            cancelled_after(beats, stream(provider, session))
        assert_coherent(session)


def test_killed_while_sections_are_being_opened():
    guide = MarkdownSection(
        title="Guide", key="guide", template="Tabs.", summary="How.", visibility=SectionVisibility.SUMMARY, tools=[READ]
    )
    opened = ModelReply(
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

    def make():
        session = Session()
        runner = ConversationRunner(
            adapter=InProcess(opened, reply("Done.")), prompt=prompt_of(guide), session=session, max_expansions=1
        )
        return session, runner.run()

    for session, _ in killed_everywhere(make):
        assert_coherent(session)


def test_interrupting_a_wait_cancels_the_run_and_waits_until_it_has_settled():
    session, started = Session(), threading.Event()

    async def forever(params, *, context):
        started.set()
        await asyncio.Event().wait()

    stuck = Tool[Path, None](name="stuck", description="Never ends.", handler=forever)
    adapter = InProcess(reply(None, ("stuck", "a")))
    work = adapter.evaluate(prompt_of(tools=[stuck]), session=session)

    with interrupted_when(started), pytest.raises(KeyboardInterrupt):
        run_sync(work)

    assert [message["role"] for message in recorded(session)] == ["user", "assistant", "tool"]


def test_a_wait_sees_the_context_of_whoever_waits():
    name = ContextVar("name", default="nobody")
    name.set("caller")

    async def seen():
        return name.get()

    assert run_sync(seen()) == "caller"


@contextmanager
def interrupted_when(started):
    """Send this process what Ctrl-C sends, once that has happened; also where it was begun so that it would not hear it."""

    def send():
        started.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=send, daemon=True).start()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
