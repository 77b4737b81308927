"""A database that goes away and comes back, under a service that may do without it."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from minutebook.store.postgres.store import PostgresStore
from minutebook.testing import ScriptedModel, say, slow
from tests.servers import Postgres, require_postgres
from tests.service.talking import WHOLE, Gate, Thread, talking, text_in
from tests.store.redis.servers import attempts

PATIENCE_SECONDS = 30
OPTIONAL = "database: {optional: true}\nserver: {lease_seconds: 3}\nsystem_prompt: You answer.\n"


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL of our own, which may be killed."""
    require_postgres()
    made = Postgres.make()  # what it has acknowledged must survive being killed
    yield made
    made.remove()


@pytest.fixture
def store(server):
    return PostgresStore(server.url(), timeout_seconds=1)


def until_recorded(thread, text):
    """Ask as often as it takes, as clients do; an answer that is not recorded says so."""
    for _ in attempts(PATIENCE_SECONDS):
        answer = thread.ask(text)
        if answer.status_code == 409:  # a lease that could not be given back runs out by itself
            Event().wait(int(answer.headers["retry-after-ms"]) / 1_000)
            continue
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-history"] == answer.json()["history"]
        if answer.json()["history"] == "recorded":
            return
    raise AssertionError("it did not come back")


def test_the_service_answers_without_its_database_and_records_again_afterwards(server, store, tmp_path):
    with talking(store=store, config=OPTIONAL, folder=tmp_path) as here:
        thread = here.thread()
        before = thread.ask("One")
        server.kill()
        try:
            streamed = thread.hear("Two")
            whole = thread.ask("Three")
            made = thread.http.post("/threads")
            draft = Thread(thread.http, made.json())
            drafted = draft.ask("Four")
        finally:
            server.start()
        until_recorded(thread, "Five")
        until_recorded(draft, "Six")
        rows, drafts = thread.messages(limit=100), draft.messages()
        sent = here.sent()

    assert before.json()["history"] == "recorded"
    assert streamed[0].data["notice"] == "unrecorded"
    assert text_in(streamed) == streamed[-1].data["text"] == "Yes."
    assert streamed[-1].data["history"] == whole.json()["history"] == drafted.json()["history"] == "unrecorded"
    assert whole.headers["x-history"] == made.headers["x-history"] == "unrecorded"
    assert made.status_code == 201
    assert [row["text"] for row in rows if row["role"] == "user"] == ["One", "Five"]
    assert [row["text"] for row in drafts][-2:] == ["Six", "Yes."]
    assert [message["content"] for message in sent[1]] == ["You answer.", "Two"]


def test_an_answer_that_cannot_be_stored_is_still_sent(server, store, tmp_path):
    gate = Gate()
    model = ScriptedModel(slow(1) + say("Not stored."), otherwise="Stored.")
    with talking(model, store=store, config=OPTIONAL, folder=tmp_path, wait=gate.wait) as here:
        thread = here.thread()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(thread.hear, "Hello")
            assert gate.reached.wait(20)
            server.kill()
            try:
                gate.open()
                events = answer.result()
            finally:
                server.start()
        until_recorded(thread, "Again")
        rows = thread.messages()

    assert events[0].data["notice"] == "recorded"
    assert (events[-1].data["text"], events[-1].data["history"]) == ("Not stored.", "unrecorded")
    assert [row["text"] for row in rows if row["role"] == "user"] == ["Hello", "Again"]


def test_a_required_database_that_is_unavailable_is_an_error(server, store):
    with talking(store=store) as here:
        thread = here.thread()
        server.kill()
        try:
            answers = [thread.ask("Hello"), thread.http.post("/threads"), thread.http.get(thread.path, headers=WHOLE)]
        finally:
            server.start()

    assert [answer.status_code for answer in answers] == [503] * 3
    assert {answer.json()["error"]["code"] for answer in answers} == {"store_unavailable"}
    assert not here.provider.requests
