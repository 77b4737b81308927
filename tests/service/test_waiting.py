"""Clients that wait: for the first event, for another answer, and not at all."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook.service.app import build_service, create_app, run_service
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.runs import MAX_UNREAD_BYTES, OPEN_SECONDS, Run
from minutebook.testing import LoopbackProvider, ScriptedModel, fail, say, slow
from tests.service.serving import served
from tests.service.talking import Gate

REQUESTS = {
    "chat": ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}),
    "responses": ("/v1/responses", {"model": "m", "input": "Hi", "stream": True}),
    "threads": ("/threads/{thread}/messages", {"model": "m", "text": "Hi"}),
}
HERE = {"x-conversation-id": "c"}


@pytest.fixture(params=REQUESTS)
def endpoint(request):
    return REQUESTS[request.param]


def sent_to(here, endpoint):
    path, body = endpoint
    if "{thread}" in path:
        path = path.format(thread=here.http().post("/threads", json={}).json()["id"])
    return path, body


@pytest.mark.parametrize("answer", [say("Hello."), fail(400, "No.")], ids=["answered", "failed"])
def test_a_stream_starts_before_the_providers_first_event(endpoint, answer):
    gate = Gate()
    with served(ScriptedModel(slow(1) + answer), wait=gate.wait) as here:
        path, body = sent_to(here, endpoint)
        with here.http().stream("POST", path, json=body, headers=HERE) as response:
            lines = response.iter_lines()
            assert next(lines) == ": ping" or path.startswith("/threads")  # these begin with a notice
            gate.open()
            rest = "\n".join(lines)

    assert response.headers.get("x-conversation-id") == (None if path.startswith("/threads") else "c")
    data = [json.loads(line[6:]) for line in rest.splitlines() if line.startswith("data: {")]
    assert response.status_code == 200
    assert ("Hello." in rest) == (answer == say("Hello."))
    has_error = any(each.get("error") or each.get("type") == "error" for each in data)
    assert has_error == (answer != say("Hello."))


def test_a_streamed_message_that_waits_too_long_gets_an_error_that_clients_retry(endpoint, tmp_path):
    gate = Gate()
    config = f"server: {{wait_seconds: {OPEN_SECONDS * 1.5}}}"
    model = ScriptedModel(slow(1) + say("First."), "Second.")
    with served(model, config=config, folder=tmp_path, wait=gate.wait) as here, ThreadPoolExecutor(1) as pool:
        path, body = sent_to(here, endpoint)
        first = pool.submit(here.http().post, path, json=body, headers=HERE)
        assert gate.reached.wait(20)
        headers = {**HERE, "x-history-resend": "new", "accept": "text/event-stream"}
        second = here.http().post(path, json=body, headers=headers)
        gate.open()
        first.result()

    assert (second.status_code, second.json()["error"]["code"]) == (409, "conversation_locked")
    assert second.headers["retry-after-ms"]


def test_a_second_message_waits_for_the_first(endpoint):
    gate = Gate()
    with (
        served(ScriptedModel(slow(1) + say("First."), "Second."), wait=gate.wait) as here,
        ThreadPoolExecutor(2) as pool,
    ):
        path, body = sent_to(here, endpoint)
        first = pool.submit(here.http().post, path, json=body, headers=HERE)
        assert gate.reached.wait(20)
        second = pool.submit(here.http().post, path, json=body, headers={**HERE, "x-history-resend": "new"})
        gate.open()

        assert "First." in first.result().text
        assert "Second." in second.result().text


@pytest.mark.parametrize("on_disconnect", ["cancel", "continue"])
def test_a_new_message_takes_over_a_run_that_ends_with_its_client(endpoint, on_disconnect, tmp_path):
    gate = Gate()
    config = f"server: {{on_disconnect: {on_disconnect}, wait_seconds: {20 if on_disconnect == 'cancel' else 0}}}"
    model = ScriptedModel(slow(1) + say("First."), "Second.")
    with served(model, config=config, folder=tmp_path, wait=gate.wait) as here:
        path, body = sent_to(here, endpoint)
        with here.http().stream("POST", path, json=body, headers=HERE) as response:
            next(response.iter_lines())
            assert gate.reached.wait(20)
        second = here.http().post(path, json=body, headers={**HERE, "x-history-resend": "new"})
        gate.open()

    if on_disconnect == "cancel":
        assert second.status_code == 200
        assert "Second." in second.text
    else:
        assert second.status_code == 409
        assert second.headers["retry-after-ms"]


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_an_unrecorded_answer_stops_with_its_client(name):
    gate = Gate()
    path, body = REQUESTS[name]
    with served(ScriptedModel(slow(1) + say("Hello.")), wait=gate.wait) as here:
        extra = {"store": False} if name == "responses" else {}
        with here.http().stream("POST", path, json={**body, **extra}) as response:
            lines = response.iter_lines()
            assert next(lines) == ": ping"
            assert here.service.runs.active == 1
        while here.service.runs.active:
            here.http().get("/healthz")
        gate.open()


@pytest.mark.parametrize("name", ["chat", "responses"])
def test_an_unrecorded_answer_waits_for_a_client_that_does_not_read(name, monkeypatch):
    path, body = REQUESTS[name]
    content = json.dumps({**body, **({"store": False} if name == "responses" else {})}).encode()
    text = f"{'x' * 10_000} " * 200
    received = 0

    async def main(app):
        nonlocal received
        is_waiting, is_reading, wait_for_reader = asyncio.Event(), asyncio.Event(), Run.wait_for_reader
        requests = asyncio.Queue()
        requests.put_nowait({"type": "http.request", "body": content, "more_body": False})

        async def observe(run):
            if sum(map(len, run.events)) > MAX_UNREAD_BYTES:
                is_waiting.set()
            await wait_for_reader(run)

        async def send(message):
            nonlocal received
            received += len(message.get("body", b""))
            if message.get("body"):
                await is_reading.wait()

        monkeypatch.setattr(Run, "wait_for_reader", observe)
        headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
        scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "headers": headers}
        answer = asyncio.create_task(app({**scope, "query_string": b"", "root_path": ""}, requests.get, send))
        async with asyncio.timeout(60):
            await is_waiting.wait()
        behind = received
        is_reading.set()
        await answer
        return behind

    with LoopbackProvider(ScriptedModel(text)) as provider:
        variables = {"MINUTEBOOK_DB": "memory:", "MINUTEBOOK_UPSTREAM_URL": provider.base_url}
        service = build_service(ConfigHolder(None, environment=variables))

        async def run():
            async with run_service(service):
                return await main(create_app(service))

        behind = asyncio.run(run())
    assert behind < MAX_UNREAD_BYTES
    assert received > len(text)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/threads/{thread}/messages"])
def test_an_unknown_value_of_on_disconnect_is_refused(path):
    bodies = {"/v1/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}}
    bodies |= {"/v1/responses": {"model": "m", "input": "Hi"}, "/threads/{thread}/messages": {"text": "Hi"}}
    with served() as here, here.http() as http:
        url = path.format(thread=http.post("/threads", json={}).json()["id"])
        refused = http.post(url, params={"on_disconnect": "cancle"}, json=bodies[path])
        accepted = http.post(url, params={"on_disconnect": "continue"}, json=bodies[path])

        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "on_disconnect")
        assert accepted.status_code == 200
        assert len(here.provider.requests) == 1
