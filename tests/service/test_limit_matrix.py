"""Every documented limit on every endpoint: a request at the limit is accepted, one above it is refused."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from minutebook import MemoryStore
from minutebook.testing import ScriptedModel, cut, say
from tests.service.endpoints import BODIES, operations
from tests.service.serving import served
from tests.service.test_callers import OPEN
from tests.service.test_tenants import bearer, keys_for

LIMITS = {
    "body_bytes": 4_000,
    "header_bytes": 2_000,
    "json_depth": 9,
    "json_values": 60,
    "items_per_call": 3,
    "item_bytes": 500,
    "items_per_conversation": 4,
    "metadata_keys": 2,
    "metadata_key_characters": 5,
    "metadata_value_characters": 7,
}
CONFIG = f"limits: {json.dumps(LIMITS)}\nserver: {{missing_session_id: generate}}\n"
HEADERS = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    with served(config=CONFIG, folder=tmp_path_factory.mktemp("limits")) as here:
        yield here


def code_of(answer):
    error = answer.json().get("error") if answer.status_code >= 400 else None
    return (error or {}).get("code")


def at_path(path):
    return re.sub(r"{\w+}", "none", path)


def body_of(name, path, *, above):
    """A body of an endpoint at a limit, or above it."""
    limit = LIMITS[name] + above
    if name == "body_bytes":
        return json.dumps(BODIES.get(path, {})).encode().ljust(limit)
    if name == "json_depth":
        return b'{"x":' + b"[" * (limit - 1) + b"]" * (limit - 1) + b"}"
    return json.dumps({"x": [1] * (limit - 1)}).encode()


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [("body_bytes", 413, "body_too_large"), ("json_depth", 400, "too_deep"), ("json_values", 400, "too_many_values")],
)
def test_the_limits_of_a_body_hold_on_every_route(here, name, status, code):
    http, problems = here.http(headers=HEADERS), []
    for method, path in operations(http.get("/openapi.json").json()):
        if method in {"get", "delete"} or path in OPEN:
            continue
        allowed, refused = (
            http.request(method.upper(), at_path(path), content=body_of(name, path, above=above)) for above in (0, 1)
        )
        if code_of(allowed) == code or (refused.status_code, code_of(refused)) != (status, code):
            problems.append((method, path, code_of(allowed), refused.status_code, code_of(refused)))
    assert problems == []


def test_the_limit_of_the_headers_holds_on_every_route(here):
    http, problems = here.http(headers=HEADERS), []
    for method, path in operations(http.get("/openapi.json").json()):
        codes = []
        for above in (0, 1):
            request = http.build_request(method.upper(), at_path(path), content=b"{}", headers={"x-pad": ""})
            size = sum(len(key) + len(value) for key, value in request.headers.raw)
            request.headers["x-pad"] = "x" * (LIMITS["header_bytes"] + above - size)
            codes.append(code_of(http.send(request)))
        if codes[0] == "headers_too_large" or codes[1] != "headers_too_large":
            problems.append((method, path, codes))
    assert problems == []


def test_the_limit_of_requests_holds_on_every_route():
    store = MemoryStore()
    with served(store=store) as here, here.http() as http:
        routes = [route for route in operations(http.get("/openapi.json").json()) if route[1] not in OPEN]
        options = {"tenant": "acme", "scopes": ("admin", "metrics"), "requests_per_minute": 1}
        keys = keys_for(store, **{f"{method} {path}": options for method, path in routes})
        problems = []
        for method, path in routes:
            headers = bearer(keys[f"{method} {path}"]) | HEADERS
            codes = [code_of(http.request(method.upper(), at_path(path), headers=headers)) for _ in range(2)]
            if codes[0] == "rate_limit_exceeded" or codes[1] != "rate_limit_exceeded":
                problems.append((method, path, codes))
    assert problems == []


def message(text):
    return {"type": "message", "role": "user", "content": text}


def history_headers(name):
    return {"x-conversation-id": name or uuid4().hex, "x-history-resend": "new"}


def chat(http, texts, name=None):
    body = {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}
    return http.post("/v1/chat/completions", json=body, headers=history_headers(name))


def respond(http, texts, name=None):
    body = {"model": "m", "input": [message(text) for text in texts]}
    return http.post("/v1/responses", json=body, headers=history_headers(name))


def create(http, texts, **fields):
    return http.post("/v1/conversations", json={"items": [message(text) for text in texts], **fields})


def add_items(http, texts, name=None):
    name = name or create(http, []).json()["id"]
    return http.post(f"/v1/conversations/{name}/items", json={"items": [message(text) for text in texts]})


def ask(http, texts, name=None):
    name = name or http.post("/threads", json={}).json()["id"]
    return http.post(f"/threads/{name}/messages", json={"model": "m", "text": texts[-1]}, headers=HEADERS)


@pytest.mark.parametrize(
    ("send", "item"),
    [
        (chat, {"role": "user", "content": ""}),
        (respond, message("")),
        (create, message("")),
        (add_items, message("")),
        (ask, {"role": "user", "content": ""}),
    ],
)
def test_the_size_of_an_item_is_limited(here, send, item):
    space = LIMITS["item_bytes"] - len(json.dumps(item, separators=(",", ":")))
    answers = [send(here.http(), ["x" * (space + above)]) for above in (0, 1)]
    assert [answer.status_code for answer in answers] in ([200, 413], [201, 413])


@pytest.mark.parametrize("send", [create, add_items])
def test_the_error_for_a_large_item_names_its_field(here, send):
    answer = send(here.http(), ["a", "x" * LIMITS["item_bytes"]])
    assert answer.json()["error"]["param"] == "items[1]"


@pytest.mark.parametrize("send", [create, add_items])
def test_the_number_of_items_of_a_call_is_limited(here, send):
    answers = [send(here.http(), ["Hi"] * count) for count in (3, 4)]
    assert [code_of(answer) for answer in answers] == [None, "too_many_items"]


@pytest.mark.parametrize("send", [chat, respond])
def test_the_number_of_messages_of_a_new_conversation_is_limited(here, send):
    answers = [send(here.http(), ["Hi"] * count, f"new-{send.__name__}-{count}") for count in (3, 4)]
    assert [code_of(answer) for answer in answers] == [None, "conversation_full"]


@pytest.mark.parametrize("send", [chat, respond, add_items, ask])
def test_the_number_of_messages_of_a_conversation_is_limited(here, send):
    http = here.http()
    if send is ask:
        name = http.post("/threads", json={}).json()["id"]
        texts = [["1"], ["2"], ["3"]]  # each with an answer
    elif send is add_items:
        name = create(http, []).json()["id"]
        texts = [["1", "2"], ["3", "4"], ["5"]]
    else:
        name, texts = f"full-{send.__name__}", [["1"], ["2"], ["3"]]
    answers = [send(http, each, name) for each in texts]
    assert answers[1].status_code == 200, answers[1].text
    assert "conversation_full" not in answers[1].text
    assert "conversation_full" in answers[2].text


def test_the_number_of_messages_of_a_created_conversation_is_limited(tmp_path):
    config = "limits: {items_per_call: 20, items_per_conversation: 2}"
    with served(config=config, folder=tmp_path) as here:
        answers = [create(here.http(), ["Hi"] * count) for count in (2, 3)]
    assert [code_of(answer) for answer in answers] == [None, "conversation_full"]


def update(http, metadata):
    return http.post(f"/v1/conversations/{create(http, []).json()['id']}", json={"metadata": metadata})


SENDERS_OF_METADATA = {
    "create": lambda http, metadata: create(http, [], metadata=metadata),
    "update": update,
    "respond": lambda http, metadata: http.post("/v1/responses", json={"input": "Hi", "metadata": metadata}),
    "threads": lambda http, metadata: http.post("/threads", json={"metadata": metadata}),
}


@pytest.mark.parametrize("sender", SENDERS_OF_METADATA)
@pytest.mark.parametrize(
    ("allowed", "refused"),
    [
        ({"a": "", "b": ""}, {"a": "", "b": "", "c": ""}),
        ({"k" * 5: ""}, {"k" * 6: ""}),
        ({"a": "v" * 7}, {"a": "v" * 8}),
    ],
    ids=["keys", "key_characters", "value_characters"],
)
def test_metadata_is_limited(here, sender, allowed, refused):
    answers = [SENDERS_OF_METADATA[sender](here.http(), metadata) for metadata in (allowed, refused)]
    assert [code_of(answer) for answer in answers] == [None, "invalid_metadata"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_parallel_requests_exceed_a_quota_by_at_most_one(path, stream):
    """Every request reserves more than the quota, so at most one at a time is accepted."""
    store = MemoryStore()
    name = "max_tokens" if path.endswith("completions") else "max_output_tokens"
    body = {"model": "gpt-4o", "stream": stream, name: 1_000}
    body |= {"messages": [{"role": "user", "content": "Hi"}]} if name == "max_tokens" else {"input": "Hi"}
    with served(store=store) as here, ThreadPoolExecutor(8) as pool:
        key = keys_for(store, phone={"tenant": "acme", "tokens_per_day": 100})["phone"]

        def send(_number):
            with here.http(headers=bearer(key)) as http:
                return http.post(path, json=body)

        answers = list(pool.map(send, range(16)))
        with here.http(headers=bearer(key)) as http:
            used = http.get("/v1/limits").json()["tokens_used_today"]

    accepted = [answer for answer in answers if answer.status_code == 200]
    refused = {code_of(answer) for answer in answers if answer.status_code != 200}
    assert accepted
    assert refused
    assert refused <= {"tokens_per_day_reserved", "tokens_per_day_exceeded"}
    assert used <= 100 + used / len(accepted)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/threads/{thread}/messages"])
def test_an_answer_that_breaks_off_counts_the_tokens_that_were_sent_and_received(path):
    store = MemoryStore()
    text = "many words of an answer " * 20
    body = {"model": "gpt-4o", "stream": True}
    body |= {"messages": [{"role": "user", "content": "Hi"}]} if "chat" in path else {"input": "Hi"}
    body = {"text": "Hi", "model": "gpt-4o"} if "threads" in path else body
    with served(ScriptedModel(otherwise=say(text) + cut(after_chunks=10)), store=store) as here:
        key = keys_for(store, phone={"tenant": "acme", "tokens_per_day": 1_000_000})["phone"]
        with here.http(headers=bearer(key)) as http:
            path = path.format(thread=http.post("/threads", json={}).json()["id"])
            answer = http.post(path, json=body, headers={"x-conversation-id": "c"})
            used = http.get("/v1/limits").json()["tokens_used_today"]
    assert "error" in answer.text
    assert 10 <= used < 1_000
