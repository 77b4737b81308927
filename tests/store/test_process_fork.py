"""A process that forks with an open store: parent and child both go on, and nothing that is acknowledged is lost."""

import asyncio
import multiprocessing
import os
import threading

import pytest

from minutebook import Conversation
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
    has_opened.wait(60)
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
