"""`Conversation` in several threads, in a forked process and under Ctrl-C; the lock of a handle."""

import asyncio
import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import MemoryStore, check, open_store
from minutebook.conversation import Conversation
from minutebook.conversation.handle.lock import TaskLock
from minutebook.conversation.handle.thread_loop import run_in_this_thread
from minutebook.record.finding import errors
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.agent.parts import adapter_for
from tests.servers import require_postgres, shared
from tests.store.backends import BACKENDS, each_backend


def contents(messages):
    return [message["content"] for message in messages]


@pytest.mark.parametrize("backend", each_backend("redis", "sqlite"))
def test_threads_may_share_one_handle(backend, tmp_path):
    store = BACKENDS[backend](tmp_path)
    chat = Conversation("a", store=store, max_tokens=10_000)

    def append_and_view(number):
        chat.append(f"message {number}")
        return chat.view().number

    with ThreadPoolExecutor(8) as threads:
        numbers = list(threads.map(append_and_view, range(40)))

    assert sorted(contents(chat)) == sorted(f"message {number}" for number in range(40))
    assert sorted(numbers) == list(range(1, 41))
    assert contents(Conversation("a", store=store)) == contents(chat)
    run_in_this_thread(store.close())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux lists them")  # noqa: PTH112
def test_threads_that_end_leave_no_file_open(tmp_path):
    with Conversation("a", store=tmp_path / "chat.db") as chat:
        open_files = []
        for number in range(20):
            thread = threading.Thread(target=lambda: (chat.append("hello"), chat.view()))
            thread.start()
            thread.join()
            if number in {1, 19}:
                open_files.append(len(os.listdir("/proc/self/fd")))  # noqa: PTH208

    assert (
        open_files[1] < open_files[0] + 18
    )  # threads between the two counts; other parts of the process may open a file


class InterruptedStore(MemoryStore):
    """A store during whose append the user presses Ctrl-C."""

    is_interrupted = False

    async def append(self, *args, **settings):
        if self.is_interrupted:
            self.is_interrupted = False
            signal.raise_signal(signal.SIGINT)
        version = await super().append(*args, **settings)
        await asyncio.sleep(0)
        return version


@pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="only the main thread gets signals"
)
def test_ctrl_c_is_raised_after_the_append_and_the_handle_stays_usable():
    store = InterruptedStore()
    chat = Conversation("a", store=store)
    chat.append("before")
    store.is_interrupted = True

    with pytest.raises(KeyboardInterrupt):
        chat.append("stored, but not acknowledged")
    chat.append("after")

    assert contents(chat) == ["before", "stored, but not acknowledged", "after"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def exit_tool(error):
    def leave() -> str:
        """Leave."""
        raise error

    async def leave_later() -> str:
        """Leave."""
        raise error

    return leave, leave_later


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error_class", [SystemExit, StopIteration, asyncio.CancelledError])
def test_a_tool_that_raises_what_a_task_or_future_treats_specially_has_failed(error_class, is_async):
    leave = exit_tool(error_class(3))[is_async]
    model = ScriptedModel(call(leave.__name__), say("Then not."), say("Hello."))
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        chat = Conversation("a")

        assert chat.run(adapter, "Go.", tools=[leave]).text == "Then not."
        shown = "RuntimeError: " if error_class is StopIteration else f"{error_class.__name__}: 3"
        assert contents(chat)[2].startswith(f"The tool failed: {shown}")
        assert chat.run(adapter, "Hello?").text == "Hello."


@pytest.mark.parametrize("is_async", [False, True])
def test_a_keyboard_interrupt_in_a_tool_ends_the_run_and_the_handle_stays_usable(is_async):
    leave = exit_tool(KeyboardInterrupt())[is_async]
    model = ScriptedModel(call(leave.__name__), say("Hello."))
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        chat = Conversation("a")

        with pytest.raises(KeyboardInterrupt):
            chat.run(adapter, "Go.", tools=[leave])
        assert chat.run(adapter, "Hello?").text == "Hello."
        assert errors(check(list(chat))) == []


def test_an_exit_in_the_background_thread_is_raised_in_the_thread_of_the_caller():
    async def leave():
        sys.exit(3)

    async def answer():
        return 1

    with pytest.raises(SystemExit):
        run_sync(leave())
    assert run_sync(answer()) == 1


def test_an_exception_of_the_programs_own_signal_handler_ends_the_call():
    class Stop(Exception):
        pass

    def stop(_number, _frame):
        raise Stop

    store = InterruptedStore()
    chat = Conversation("a", store=store)
    chat.append("before")
    store.is_interrupted = True
    previous = signal.signal(signal.SIGINT, stop)
    try:
        with pytest.raises(Stop):
            chat.append("not stored")
        chat.append("after")
    finally:
        signal.signal(signal.SIGINT, previous)

    assert contents(chat) == ["before", "after"]


def _use_in_child(database, results):
    chat = Conversation("child", store=database)
    chat.append("hello")
    results.put(len(chat))
    sys.exit(0)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_a_fork_has_its_own_loop_and_the_parents_loops_go_on(tmp_path):
    context = multiprocessing.get_context("fork")
    with Conversation("parent", store=tmp_path / "parent.db") as chat, ThreadPoolExecutor(1) as other_thread:
        chat.append("in the main thread")
        other_thread.submit(chat.append, "in another thread").result()
        results = context.Queue()
        child = context.Process(target=_use_in_child, args=(tmp_path / "child.db", results))
        child.start()
        child.join(20)
        chat.append("in the main thread again")
        other_thread.submit(chat.append, "in another thread again").result()
        run_in_this_thread(_wait_for_another_thread())

        assert (child.exitcode, results.get(timeout=5)) == (0, 1)
        assert len(chat) == 4


async def _wait_for_another_thread():
    """Ends only if another thread can wake the loop."""
    await asyncio.wait_for(asyncio.to_thread(int), 5)


def test_a_program_that_does_not_close_its_store_ends_without_a_message():
    require_postgres()
    code = "import sys; from minutebook import Conversation; chat = Conversation('a', store=sys.argv[1]); chat.append('hi')"

    done = subprocess.run([sys.executable, "-c", code, shared.empty()], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_coroutine_runs_in_the_thread_and_context_of_the_caller():
    name = ContextVar("name", default="unset")
    name.set("caller")

    async def read():
        return name.get(), threading.current_thread()

    assert run_in_this_thread(read()) == ("caller", threading.current_thread())


@pytest.mark.fuzz
@given(st.integers(1, 4), st.integers(1, 6), st.randoms(use_true_random=False))
def test_one_task_at_a_time_has_the_lock_and_none_waits_forever(thread_count, task_count, rng):
    lock, holders, most = TaskLock(), [], []
    seeds = [rng.random() for _ in range(thread_count)]

    async def hold(own_random):
        for _ in range(3):
            async with lock:
                holders.append(None)
                most.append(len(holders))
                try:
                    for _ in range(own_random.randrange(3)):
                        await asyncio.sleep(0)
                finally:
                    holders.pop()

    async def use_lock(seed):
        own_random = random.Random(seed)
        tasks = [asyncio.create_task(hold(own_random)) for _ in range(task_count)]
        for task in tasks[::2]:
            for _ in range(own_random.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait(tasks, timeout=20)
        assert all(task.done() for task in tasks)

    with ThreadPoolExecutor(thread_count) as threads:
        list(threads.map(lambda seed: asyncio.run(use_lock(seed)), seeds))

    assert set(most) <= {1}


def test_a_store_that_was_opened_in_one_thread_is_used_in_another(tmp_path):
    store = open_store(tmp_path / "chat.db")
    chats = []
    thread = threading.Thread(target=lambda: chats.append(Conversation("a", store=store)))
    thread.start()
    thread.join()
    chats[0].append("hello")

    assert contents(chats[0]) == ["hello"]
    chats[0].close()
    run_in_this_thread(store.close())


def test_handles_that_are_not_closed_leave_no_thread(tmp_path):
    before = len(started_threads())
    for number in range(20):
        Conversation(f"chat {number}", store=tmp_path / "chat.db").append("hello")
    gc.collect()
    wait_until(lambda: len(started_threads()) <= before + 1)  # the background thread may be new

    assert len(Conversation("chat 19", store=tmp_path / "chat.db")) == 1


def started_threads():
    """The threads of `threading`. It also lists those that `_thread` has started, as dummies, even after they have ended."""
    return [thread for thread in threading.enumerate() if not thread.name.startswith("Dummy")]


def wait_until(condition):
    for thread in started_threads():
        if condition():
            return
        if thread is not threading.current_thread() and "minutebook" not in thread.name:
            thread.join(5)
    assert condition(), [thread.name for thread in started_threads()]


def test_a_store_stays_open_for_as_long_as_a_fork_or_the_program_uses_it(tmp_path):
    fork = Conversation("a", store=tmp_path / "chat.db", system="Be brief.")
    fork.append("hello")
    fork = fork.fork("b")
    store = Conversation("c", store=tmp_path / "chat.db").store.for_tenant("other")
    gc.collect()
    fork.append("hello")

    assert len(fork) == 3
    assert run_in_this_thread(store.list()).items == ()
