"""Requests that come twice after something went wrong: a server died, or was slow and lost its turn; or the client left."""

import asyncio
import gc
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest

from minutebook.errors import LeaseLost
from minutebook.store.memory import MemoryStore
from minutebook.store.types import NewDocument
from minutebook.testing import LoopbackProvider, ScriptedModel, say, slow
from tests.service.responses.test_responses import MODEL
from tests.service.responses.test_resume import events_of
from tests.service.serving import served
from tests.service.talking import WHOLE, Apart, Gate, db, talking  # noqa: F401 - db is a fixture


def asked(stream):
    return {"model": MODEL, "input": "Hello", "stream": stream}, {"idempotency-key": f"key-{stream}"}


def told(answer, *, stream):
    """What a response says, however it came."""
    assert answer.status_code == 200, answer.text
    made = events_of(answer.text)[-1]["response"] if stream else answer.json()
    return made["status"], made["output"][0]["content"][0]["text"] if made["output"] else None


def test_a_retry_repeats_a_response_of_a_dead_server(db):  # noqa: F811 - the fixture
    waiting, gate = threading.Semaphore(0), threading.Event()

    def wait(_seconds):
        waiting.release()
        gate.wait(20)

    model = ScriptedModel(*[slow(1) + say("Never stored.")] * 2, otherwise="Stored.")
    with LoopbackProvider(model, wait=wait) as provider, ThreadPoolExecutor(2) as pool:
        killed = Apart(db, provider.base_url)
        try:
            for stream in (False, True):
                body, headers = asked(stream)
                pool.submit(httpx2.post, f"{killed.url}/v1/responses", json=body, headers=headers, trust_env=False)
                assert waiting.acquire(timeout=20)
        finally:
            killed.kill()
            gate.set()
        with served(provider=provider, db=db) as here:
            http = here.http()
            answers = {}
            for stream in (False, True):  # the dead server's leases stand still
                body, headers = asked(stream)
                answers[stream] = http.post("/v1/responses", json=body, headers=headers)
            records = [
                http.get(f"/v1/conversations/{answer.headers['x-conversation-id']}/items").json()["data"]
                for answer in answers.values()
            ]

    assert [told(answer, stream=stream) for stream, answer in answers.items()] == [("completed", "Stored.")] * 2
    assert [[item["role"] for item in record] for record in records] == [["assistant", "user"]] * 2


async def overtaken(store, conversation):
    """As if a slow server had said last that it tries, and then found that another one had answered."""
    idempotency_key, *_ = (await store.documents(conversation, "reply", newest_first=True)).items
    known = await store.document("run", idempotency_key.body["run"])
    body = {key: value for key, value in known.body.items() if key != "answer"} | {"status": "failed"}
    await store.put_document(conversation, NewDocument("run", "slow", body))
    slower = NewDocument(
        "reply", idempotency_key.id, {**idempotency_key.body, "run": "slow"}, idempotency_key.expires_at, replace=True
    )
    await store.put_document(conversation, slower)


def test_a_retry_finds_the_response_that_another_server_stored():
    body, headers = asked(stream=False)
    with served(ScriptedModel("Once.", "Twice.")) as here:
        http = here.http()
        conversation = http.post("/v1/conversations").json()["id"]
        first = http.post("/v1/responses", json={**body, "conversation": conversation}, headers=headers)
        asyncio.run(overtaken(here.service.store, conversation))

        again = http.post("/v1/responses", json={**body, "conversation": conversation}, headers=headers)

        assert again.json() == first.json()
        assert len(http.get(f"/v1/conversations/{conversation}/items").json()["data"]) == 2


def test_a_retry_finds_the_thread_answer_that_another_server_stored():
    headers = {"idempotency-key": "k1"}
    with talking(ScriptedModel("Once.", "Twice.")) as here:
        thread = here.thread()
        first = thread.ask("Hello", headers=headers)
        asyncio.run(overtaken(here.service.store, thread.id))

        again = thread.ask("Hello", headers=headers)

        assert again.json() == first.json()
        assert [row["text"] for row in thread.messages()] == ["Hello", "Once."]


class Overtaken(MemoryStore):
    """A store in which an answer comes too late, and its server hears of that twice: on storing it and from its lease."""

    def for_tenant(self, _tenant):
        return self

    async def append(self, conversation, entries, **options):
        if entries and entries[0].role == "assistant":
            raise LeaseLost(conversation, "somebody", 1)
        return await super().append(conversation, entries, **options)

    async def put_document(self, conversation, document):
        if document.kind == "run" and document.body["status"] == "failed":
            for task in asyncio.all_tasks():
                if task.get_name() == document.id:
                    task.cancel()
            await asyncio.sleep(0)
        return await super().put_document(conversation, document)


def test_a_stream_that_lost_its_lease_ends_with_an_error():
    body, headers = asked(stream=True)
    with served(ScriptedModel("Late."), store=Overtaken()) as here:
        events = events_of(here.http().post("/v1/responses", json=body, headers=headers).text)

    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]


class Slow(MemoryStore):
    """A store in which the lease is lost while an answer is being stored, so that it is stopped and refused."""

    def for_tenant(self, _tenant):
        return self

    async def append(self, conversation, entries, **options):
        if entries and entries[0].role == "assistant":
            for task in asyncio.all_tasks():
                if task.get_name() == options["lease"].holder:
                    task.cancel()
            await asyncio.sleep(0)
            raise LeaseLost(conversation, "somebody", 1)
        return await super().append(conversation, entries, **options)


def test_a_background_response_whose_server_lost_its_lease_has_failed():
    body, headers = {"model": MODEL, "input": "Hello", "background": True}, {}
    gate = Gate()
    with served(ScriptedModel(slow(1) + "Late."), wait=gate.wait) as here:
        response = here.http().post("/v1/responses", json=body, headers=headers).json()
        assert gate.reached.wait(20)
        run = here.service.runs.get(response["id"], "default")
        run.task.get_loop().call_soon_threadsafe(run.task.cancel)  # as the renewal of a lost lease does
        while not run.done:
            here.http().get("/healthz")
        gate.open()
        response = here.http().get(f"/v1/responses/{response['id']}").json()

    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")


def test_cancelling_a_thread_answer_while_it_is_stored_leaves_no_error(caplog):
    def hear():
        with talking(ScriptedModel("Late."), store=Slow()) as here:
            return here.thread().hear("Hello")

    events = hear()
    gc.collect()  # a task that failed says so when it goes and nobody has asked

    assert events[-1].data["error"]["code"] == "run_cancelled"
    assert "never retrieved" not in caplog.text


@contextmanager
def asking_by_hand(url, path, body):
    """A request whose connection is closed at the end of the block, which no client of ours does in the middle of one."""
    content = json.dumps(body).encode()
    where = urlsplit(url)
    head = f"POST {path} HTTP/1.1\r\nhost: {where.netloc}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((where.hostname, where.port)) as line:
        line.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_cancels_a_response_on_request(stream):
    gate, body = Gate(), {**asked(stream)[0]}
    with served(ScriptedModel(slow(1) + say("Too late."), "Next."), wait=gate.wait) as here:
        http = here.http()
        body["conversation"] = http.post("/v1/conversations").json()["id"]
        with asking_by_hand(here.url, "/v1/responses?on_disconnect=cancel", body):
            assert gate.reached.wait(20)
        next_one = here.client(max_retries=20).responses.create(**body | {"input": "Go on", "stream": False})
        gate.open()
        items = http.get(f"/v1/conversations/{body['conversation']}/items").json()["data"]

    assert next_one.output_text == "Next."
    assert [item["role"] for item in items] == ["assistant", "user", "user"]
