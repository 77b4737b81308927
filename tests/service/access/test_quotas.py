"""Daily token quotas on every endpoint, recorded or not, with and without usage, with failures."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from minutebook import MemoryStore
from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.testing import ScriptedModel, call, fail, refuse, say, slow, uses
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


TOOLS = "tools: [{python: 'tests.service.talking_tools:add'}]\n"
STEP = call("add", a=1, b=2) + uses(prompt=100, completion=20)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_agent_run_ends_when_the_limit_is_reached_between_two_model_calls(limited, stream, tmp_path):
    running, key = limited(ScriptedModel(otherwise=STEP), config=TOOLS, folder=tmp_path)
    headers = {"accept": "text/event-stream" if stream else "application/json", "idempotency-key": "k"}
    with running as here, here.http(headers=key) as http:
        thread = http.post("/threads", json={}).json()["id"]
        path, body = f"/threads/{thread}/messages", {"text": "Hi", "model": "gpt-4o", "options": {"max_tokens": 20}}
        answer = http.post(path, json=body, headers=headers)
        calls, tokens = len(here.provider.requests), used(http)
        record = http.get(f"/v1/conversations/{thread}/items?limit=100&order=asc").json()["data"]
        again = http.post(path, json=body, headers=headers)

    assert (calls, tokens) == (5, 600)
    assert len([item for item in record if item["type"] == "function_call_output"]) == calls
    assert (again.status_code, again.json()["error"]["code"]) == (429, "tokens_per_day_exceeded")
    if stream:
        error = json.loads(answer.text.rpartition("data: ")[2])["error"]
        assert answer.status_code == 200
    else:
        error = {**answer.json()["error"], "retry_after": int(answer.headers["retry-after"])}
        assert answer.status_code == 429
    assert error["code"] == "tokens_per_day_exceeded"
    assert 0 < error["retry_after"] <= 86_400


def test_parallel_agent_runs_exceed_the_limit_by_at_most_one_model_call(limited, tmp_path):
    running, key = limited(ScriptedModel(otherwise=STEP), config=TOOLS, folder=tmp_path)
    body = {"text": "Hi", "model": "gpt-4o", "options": {"max_tokens": 20}}

    def run(here):
        with here.http(headers={**key, "accept": "application/json"}) as http:
            thread = http.post("/threads", json={}).json()["id"]
            return http.post(f"/threads/{thread}/messages", json=body).status_code

    with running as here, ThreadPoolExecutor(6) as pool, here.http(headers=key) as http:
        statuses = [future.result() for future in [pool.submit(run, here) for _ in range(6)]]
        assert 500 <= used(http) <= 500 + 120
        assert used(http) == 120 * len(here.provider.requests)
    assert set(statuses) == {429}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_refusal_is_counted_if_the_provider_reports_no_usage(limited, stream):
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    running, key = limited(ScriptedModel(otherwise=refuse("No, never. " * 20)))
    with running as here, here.http(headers=key) as http:
        here.service.upstream = WithoutUsage(here.service.upstream)
        http.post("/v1/chat/completions", json=body)
        assert 60 < used(http) < 120


def test_every_choice_is_counted_if_the_provider_reports_no_usage():
    completion = CompletionAccumulator()
    completion.add_completion({"choices": [{"message": {"content": text}} for text in ("one", "two")]})
    assert [message["content"] for message in completion.messages] == ["one", "two"]
    assert completion.has_started


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
