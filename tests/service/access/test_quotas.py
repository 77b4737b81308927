"""Daily token quotas on every endpoint, recorded or not, with and without usage, with failures."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import MemoryStore
from minutebook.testing import ScriptedModel, fail, say, slow
from tests.service.serving import served
from tests.service.talking import Gate
from tests.service.test_tenants import bearer, keys_for

TEXT = "word " * 50


def chat(stream, headers=None):
    body = {"model": "m", "messages": [{"role": "user", "content": TEXT}], "stream": stream, "max_tokens": 10}
    return lambda http: http.post("/v1/chat/completions", json=body, headers=headers or {})


def response(stream, **fields):
    body = {"model": "m", "input": TEXT, "stream": stream, "max_output_tokens": 10, **fields}
    return lambda http: http.post("/v1/responses", json=body)


def message(stream):
    def send(http):
        path = f"/threads/{http.post('/threads', json={}).json()['id']}/messages"
        headers = {"accept": "text/event-stream" if stream else "application/json"}
        return http.post(path, json={"text": TEXT, "model": "m", "options": {"max_tokens": 10}}, headers=headers)

    return send


def requests(stream):
    return {
        "chat without a conversation": chat(stream),
        "chat, recorded": chat(stream, {"x-conversation-id": "c"}),
        "chat, history off": chat(stream, {"x-conversation-id": "c", "x-history": "off"}),
        "chat, auxiliary": chat(stream, {"x-conversation-id": "c", "x-task": "title"}),
        "responses": response(stream),
        "responses, unstored": response(stream, store=False),
        "threads": message(stream),
    }


class WithoutUsage:
    """A middleware that removes the provider's usage from what the service receives."""

    def __init__(self, upstream):
        self._upstream = upstream

    def __getattr__(self, name):
        return getattr(self._upstream, name)

    async def complete(self, body, **options):
        return {**await self._upstream.complete(body, **options), "usage": None}

    def stream(self, body, **options):
        if isinstance(body, bytes):
            body = json.loads(body)
        return self._upstream.stream({key: value for key, value in body.items() if key != "stream_options"}, **options)


@pytest.fixture
def limited():
    """A service, and a client whose key has a daily limit of 500 tokens."""

    def start(model, **options):
        store = MemoryStore()
        token = keys_for(store, owner={"tenant": "acme", "tokens_per_day": 500})["owner"]
        return served(model, store=store, **options), bearer(token)

    return start


def used(http):
    return http.get("/v1/limits").json()["tokens_used_today"]


@pytest.mark.parametrize("with_usage", [True, False], ids=["usage", "no usage"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", requests(False))
def test_at_most_one_request_exceeds_the_limit(limited, name, stream, with_usage):
    running, headers = limited(ScriptedModel(otherwise="Yes, it is."))
    with running as here, here.http(headers=headers) as http:
        if not with_usage:
            here.service.upstream = WithoutUsage(here.service.upstream)
        statuses = []
        while len(statuses) < 20 and 429 not in statuses:
            statuses.append(requests(stream)[name](http).status_code)
        total = used(http)
        calls = len(here.provider.requests)

    assert statuses[-1] == 429, (statuses, total)
    assert set(statuses[:-1]) == {200}
    assert 500 <= total <= 500 + total / calls + 20


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", requests(False))
def test_a_request_that_the_provider_refuses_is_not_charged(limited, name, stream):
    running, headers = limited(ScriptedModel(otherwise=fail(400, "No.", retryable=False)))
    with running as here, here.http(headers=headers) as http:
        for _ in range(5):
            requests(stream)[name](http)
        assert len(here.provider.requests) == 5
        assert used(http) == 0


def test_an_answer_that_breaks_off_is_charged_for_what_was_received(limited):
    running, headers = limited(ScriptedModel(otherwise=say("One two three four. ") + fail(500, "oops")))
    with running as here, here.http(headers=headers) as http:
        chat(True)(http)
        assert 50 < used(http) < 100


@pytest.mark.parametrize("fields", [{"model": "unknown"}, {"model": "gpt-4o", "max_tokens": 100, "n": 5}])
@pytest.mark.parametrize("headers", [{}, {"x-conversation-id": "c"}], ids=["passed through", "recorded"])
def test_a_request_in_progress_reserves_the_longest_answer_of_its_model(limited, fields, headers):
    gate = Gate()
    running, key = limited(ScriptedModel(slow(1) + "Yes.", otherwise="Yes."), wait=gate.wait)
    body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
    with running as here, here.http(headers=key) as http, ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.post, "/v1/chat/completions", json=body, headers=headers)
        assert gate.reached.wait(20)
        second = http.post("/v1/chat/completions", json=body)
        gate.open()

        assert (second.status_code, second.json()["error"]["code"]) == (429, "tokens_per_day_reserved")
        assert first.result().status_code == 200
