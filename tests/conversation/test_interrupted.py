"""A process that is killed between a tool call and its results does not stop the conversation."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore, check, open_store
from minutebook.agent import ModelReply
from minutebook.conversation import AsyncConversation, Conversation, ConversationHistory
from minutebook.conversation.handle.thread_loop import run_in_this_thread
from minutebook.errors import BrokenConversation
from minutebook.record import Transcript
from tests.agent.parts import InProcessAdapter
from tests.store.backends import BACKENDS, each_backend


def call(*ids):
    calls = [{"id": id_, "type": "function", "function": {"name": "find", "arguments": "{}"}} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id, content="found"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def is_interrupted(message):
    return message["role"] == "tool" and "interrupted" in message["content"] and message["is_error"]


APPENDS = {
    "Conversation": """
        from minutebook import Conversation
        chat = Conversation("ada", store={database!r})
        chat.append("Find my order.")
        chat.append(CALL)
    """,
    "ConversationHistory": """
        import asyncio
        from minutebook import ConversationHistory, open_store
        async def main():
            history = ConversationHistory(open_store({database!r}), "ada")
            await history.add_message({{"role": "user", "content": "Find my order."}})
            await history.add_message(CALL)
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """,
}


@pytest.fixture(params=APPENDS)
def database(request, tmp_path):
    """A database that a process was killed on, after it had appended a call and before it appended the result."""
    database = str(tmp_path / "chat.db")
    head = f"import os, signal\nCALL = {call('call_1', 'call_2')!r}\n"
    script = head + dedent(APPENDS[request.param]).format(database=database) + "\nos.kill(os.getpid(), signal.SIGKILL)"
    killed = subprocess.run([sys.executable, "-c", script], check=False)

    assert killed.returncode == -signal.SIGKILL
    return database


@pytest.fixture
def warnings_of_conversation(caplog):
    caplog.set_level(logging.WARNING, "minutebook.conversation")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "minutebook.conversation"]


@pytest.mark.skipif(os.name == "nt", reason="kills a process")
def test_a_conversation_continues_after_a_crash_between_a_call_and_its_results(database, warnings_of_conversation):
    with Conversation("ada", store=database) as chat:
        chat.append("Hello?")
        chat.append({"role": "assistant", "content": "Here I am."})
        roles = [message["role"] for message in chat]

        assert roles == ["user", "assistant", "tool", "tool", "user", "assistant"]
        assert is_interrupted(chat[2])
        assert is_interrupted(chat[3])
        assert not check(chat.view().messages)
    with Conversation("ada", store=database) as chat:
        assert [message["role"] for message in chat] == roles
    (warning,) = warnings_of_conversation()
    assert "call_1, call_2" in warning


@pytest.mark.skipif(os.name == "nt", reason="kills a process")
def test_a_history_continues_after_a_crash_between_a_call_and_its_results(database, warnings_of_conversation):
    async def scenario():
        async with open_store(database) as store:
            history = ConversationHistory(store, "ada")
            for _ in range(2):  # the second is a retry
                await history.add_turn([{"role": "user", "content": "Hello?"}], idempotency_key="k")
            await history.add_message({"role": "assistant", "content": "Here I am."})
            return await history.get_history()

    messages = asyncio.run(scenario())

    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert "interrupted" in messages[2]["content"]
    assert not check(messages)
    assert len(warnings_of_conversation()) == 1


@pytest.mark.skipif(os.name == "nt", reason="kills a process")
@pytest.mark.parametrize("request_text", ["Hello?", None])
def test_a_run_continues_after_a_crash_between_a_call_and_its_results(database, request_text):
    with Conversation("ada", store=database) as chat:
        response = chat.run(InProcessAdapter(ModelReply({"role": "assistant", "content": "Here I am."})), request_text)

        assert response.text == "Here I am."
        assert list(map(is_interrupted, chat[2:4])) == [True, True]
        assert chat[-1]["content"] == "Here I am."


def test_a_call_that_this_handle_waits_for_is_not_interrupted():
    chat = Conversation("a")
    chat.append("Find it.", call("call_1", "call_2"))
    with pytest.raises(BrokenConversation):
        chat.append("Hello?")
    chat.append(result("call_1"))
    with pytest.raises(BrokenConversation):
        chat.append("Hello?")
    chat.append(result("call_2"))
    chat.append("Hello?")

    assert len(chat) == 5


def test_the_results_of_another_handles_calls_are_accepted():
    store = MemoryStore()
    Conversation("a", store=store).append("Find it.", call("call_1", "call_2"))
    chat = Conversation("a", store=store)
    chat.append(result("call_1"), result("call_2"))

    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool"]


def test_messages_that_are_broken_themselves_change_nothing(warnings_of_conversation):
    store = MemoryStore()
    Conversation("a", store=store).append("Find it.", call("call_1"))
    chat = Conversation("a", store=store)
    for broken in ([result("unknown")], ["Hello?", result("unknown")]):
        with pytest.raises(BrokenConversation):
            chat.append(*broken)

    assert len(Conversation("a", store=store)) == 2
    assert not warnings_of_conversation()


@pytest.mark.fuzz
@given(st.data())
def test_after_any_crash_the_next_message_is_accepted_and_the_record_is_valid(data):
    """A process is killed after any append of an exchange with several results. The next process appends anything."""
    ids = [f"call_{number}" for number in range(data.draw(st.integers(1, 3)))]
    exchange = [{"role": "user", "content": "Find it."}, call(*ids), *map(result, ids)]
    kinds = st.sampled_from([append_to_conversation, append_to_history])
    store = MemoryStore()
    stored = exchange[: data.draw(st.integers(0, len(exchange)))]
    run_in_this_thread(data.draw(kinds)(store, stored))
    rest = exchange[len(stored) :]
    next_messages = data.draw(st.sampled_from([[{"role": "user", "content": "Hello?"}], rest or exchange[:1]]))
    run_in_this_thread(data.draw(kinds)(store, next_messages))
    record = run_in_this_thread(store.load("ada")).messages

    assert record[: len(stored)] == stored
    assert record[len(record) - len(next_messages) :] == next_messages
    assert not Transcript(record, broken="mark").findings
    assert sum(map(is_interrupted_result, record)) == (len(record) - len(stored) - len(next_messages))


def is_interrupted_result(message):
    return message["role"] == "tool" and "is_error" in message


async def append_to_conversation(store, messages):
    chat = AsyncConversation("ada", store=store)
    for message in messages:
        await chat.append(message)


async def append_to_history(store, messages):
    history = ConversationHistory(store, "ada")
    for message in messages:
        await history.add_message(message)


@pytest.mark.parametrize("backend", each_backend("redis", "sqlite"))
def test_every_store_accepts_the_interrupted_results(backend, tmp_path):
    async def scenario():
        async with BACKENDS[backend](tmp_path) as store:
            for append in (append_to_conversation, append_to_history):
                await append(store, [{"role": "user", "content": "Find it."}, call(f"of {append.__name__}")])
                await append_to_history(store, [{"role": "user", "content": "Hello?"}])
            return (await store.load("ada")).messages

    assert [message["role"] for message in asyncio.run(scenario())] == ["user", "assistant", "tool", "user"] * 2


@pytest.mark.parametrize("method", ["add_message", "add_turn"])
def test_a_result_as_the_first_message_answers_no_call(method):
    history = ConversationHistory(MemoryStore(), "user:1")
    result = {"role": "tool", "tool_call_id": "c", "content": "found"}

    with pytest.raises(BrokenConversation, match="message 0: a tool result answers no call"):
        asyncio.run(getattr(history, method)(result if method == "add_message" else [result]))
