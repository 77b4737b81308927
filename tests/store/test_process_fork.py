"""A process that forks with an open store: parent and child both go on, and nothing that is acknowledged is lost."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading

import pytest

from minutebook import Conversation
from minutebook.store.process_fork import ForkAware
from tests.store.backends import BACKENDS, each_backend

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
LARGE = "word " * 60_000
"""Too long for an append in the thread of an event loop."""


def fork(function, *arguments):
    child = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    child.start()
    return child


def exit_code(child):
    child.join(60)
    if child.exitcode is None:
        child.kill()
    return child.exitcode


def texts(store, conversation):
    return [message["content"] for message in Conversation(conversation, store=store)]


def append_and_view(store):
    chat = Conversation("child", store=store)
    chat.append("short")
    chat.append(LARGE)
    chat.compact()  # in the background thread
    chat.view()


@pytest.mark.parametrize("backend", each_backend("postgres", "redis", "sqlite"))
def test_a_child_uses_an_inherited_store_and_the_parent_goes_on(backend, tmp_path):
    if backend.endswith("memory"):
        pytest.skip("a child has its own copy of the memory")
    store = BACKENDS[backend](tmp_path)
    chat = Conversation("parent", store=store)
    chat.append("before")
    chat.compact()  # in the background thread

    exit_codes = [exit_code(fork(append_and_view, store)) for _ in range(2)]
    chat.append("after", LARGE)
    chat.compact()

    assert exit_codes == [0, 0]
    assert texts(store, "child") == ["short", LARGE] * 2
    assert texts(store, "parent") == ["before", "after", LARGE]
    asyncio.run(store.close())


def append_after_close(path, store, has_opened, is_closed):
    chat = Conversation("child", store=store or path)
    chat.append("before the parent closes the file")
    has_opened.set()
    assert is_closed.wait(60)
    chat.append("after")


@pytest.mark.parametrize("inherits_store", [False, True])
def test_a_child_keeps_its_commits_when_the_parent_closes_the_file(inherits_store, tmp_path):
    context, path = multiprocessing.get_context("fork"), tmp_path / "chat.db"
    has_opened, is_closed = context.Event(), context.Event()
    store = BACKENDS["sqlite"](tmp_path)
    Conversation("parent", store=store).append("hello")

    child = fork(append_after_close, path, store if inherits_store else None, has_opened, is_closed)
    assert has_opened.wait(60)
    asyncio.run(store.close())
    is_closed.set()

    assert exit_code(child) == 0
    assert texts(BACKENDS["sqlite"](tmp_path), "child") == ["before the parent closes the file", "after"]


def test_threads_that_read_and_write_go_on_while_their_process_forks(tmp_path):
    store = BACKENDS["sqlite"](tmp_path)
    ends = threading.Event()
    counts = {}

    def work(name):
        chat = Conversation(name, store=store)
        while not ends.is_set():
            counts[name] = chat.append("short", LARGE) + 1
            len(Conversation(name, store=store))

    threads = [threading.Thread(target=work, args=(f"thread {number}",)) for number in range(2)]
    for thread in threads:
        thread.start()
    exit_codes = [exit_code(fork(append_and_view, store)) for _ in range(4)]
    ends.set()
    for thread in threads:
        thread.join(60)

    assert exit_codes == [0] * 4
    assert {name: len(texts(store, name)) for name in counts} == counts
    asyncio.run(store.close())


def test_an_object_that_cannot_prepare_for_a_fork_does_not_stop_the_others(tmp_path, monkeypatch):
    class RaisesOnce(ForkAware):
        def before_fork(self):
            if interrupts:
                raise interrupts.pop()

    printed, interrupts = [], [KeyboardInterrupt()]
    monkeypatch.setattr(sys, "unraisablehook", lambda error: printed.append(error.exc_type))
    store, _raises = BACKENDS["sqlite"](tmp_path), RaisesOnce()
    Conversation("parent", store=store).append("before")

    code = exit_code(fork(append_and_view, store))

    assert (code, printed) == (0, [KeyboardInterrupt])
    assert texts(store, "parent") == ["before"]
    asyncio.run(store.close())


def test_objects_that_threads_create_during_forks_do_not_disturb_these(tmp_path, monkeypatch):
    printed, ends = [], threading.Event()
    monkeypatch.setattr(sys, "unraisablehook", lambda error: printed.append(str(error.exc_value)))
    store = BACKENDS["sqlite"](tmp_path)
    Conversation("parent", store=store).append("before")

    def create():
        while not ends.is_set():
            ForkAware()

    threads = [threading.Thread(target=create) for _ in range(3)]
    for thread in threads:
        thread.start()
    exit_codes = [exit_code(fork(append_and_view, store)) for _ in range(3)]
    ends.set()
    for thread in threads:
        thread.join(60)

    assert (exit_codes, printed) == ([0] * 3, [])
    asyncio.run(store.close())


def test_a_child_uses_a_conversation_that_another_thread_was_using(tmp_path):
    store, ends = BACKENDS["sqlite"](tmp_path), threading.Event()
    chat = Conversation("shared", store=store)
    chat.append("before")

    def work():
        while not ends.wait(0.001):
            chat.append("parent")

    thread = threading.Thread(target=work)
    thread.start()
    exit_codes = [exit_code(fork(chat.append, "child")) for _ in range(4)]
    ends.set()
    thread.join(60)

    assert exit_codes == [0] * 4
    assert texts(store, "shared").count("child") == 4
    asyncio.run(store.close())


AT_EXIT = """
import atexit, sys
from minutebook import Conversation
atexit.register(lambda: chat.append("at the exit"))
chat = Conversation("a", store=sys.argv[1])
chat.append("before")
"""


def test_a_function_that_runs_at_the_exit_of_a_program_appends(tmp_path):
    path = str(tmp_path / "chat.db")

    done = subprocess.run([sys.executable, "-c", AT_EXIT, path], capture_output=True, text=True, timeout=60, check=True)

    assert done.stderr == ""
    assert texts(path, "a") == ["before", "at the exit"]
