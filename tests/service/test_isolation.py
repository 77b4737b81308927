"""Idempotency keys, ids in any script, limits of items, and databases that are unavailable or full."""

import pytest

from minutebook import MemoryStore
from minutebook.errors import StoreFull
from minutebook.testing import ScriptedModel
from tests.service.serving import served

KEY = {"idempotency-key": "k"}


def chat(http, text="Hi", *, headers=None, **fields):
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **fields}
    return http.post("/v1/chat/completions", json=body, headers=headers or {})


def respond(http, text="Hi", *, headers=None, **fields):
    return http.post("/v1/responses", json={"model": "m", "input": text, **fields}, headers=headers or {})


@pytest.mark.parametrize("send", [chat, respond])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"x-conversation-id": "a"}, {"x-conversation-id": "b"}),
        ({"x-conversation-id": "a", "x-recipient-id": "ann"}, {"x-conversation-id": "b", "x-recipient-id": "bob"}),
    ],
    ids=["conversations", "recipients"],
)
def test_an_idempotency_key_applies_to_one_conversation_and_recipient(send, first, second):
    with served(ScriptedModel("One.", "Two.")) as here, here.http() as http:
        answers = [send(http, headers=KEY | headers) for headers in (first, second, first)]

    assert ["One." in answer.text for answer in answers] == [True, False, True]
    assert answers[2].headers["idempotent-replayed"] == "true"


def test_an_idempotency_key_applies_to_one_endpoint():
    with served(ScriptedModel("One.", "Two.")) as here, here.http() as http:
        first = chat(http, headers=KEY | {"x-conversation-id": "a"})
        second = respond(http, headers=KEY | {"x-conversation-id": "a", "x-history-resend": "new"})

    assert "One." in first.text
    assert "Two." in second.text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["日本", "Zoë", "🎈 party"])
def test_a_conversation_id_may_be_in_any_script(name, stream):
    with served() as here, here.http() as http:
        first = chat(http, conversation=name, stream=stream)
        second = chat(http, "Again", conversation=name, stream=stream)

    assert (first.status_code, second.status_code) == (200, 200)
    assert second.headers["x-history-reconcile"] == "partial"
    assert second.headers["x-conversation-id"].isascii()


LIMITS = "limits: {item_bytes: 1000, items_per_conversation: 4}\n"
OVERHEAD = len('{"role":"user","content":""}')


@pytest.mark.parametrize("send", [chat, respond])
def test_the_size_of_an_item_is_limited(send, tmp_path):
    with served(config=LIMITS, folder=tmp_path) as here, here.http() as http:
        statuses = [
            send(http, "x" * (1000 - OVERHEAD + more), headers={"x-conversation-id": f"c{more}"}).status_code
            for more in (0, 1)
        ]
    assert statuses == [200, 413]


@pytest.mark.parametrize("send", [chat, respond])
def test_the_number_of_items_of_a_conversation_is_limited(send, tmp_path):
    with served(config=LIMITS, folder=tmp_path) as here, here.http() as http:
        headers = {"x-conversation-id": "c", "x-history-resend": "new"}
        answers = [send(http, f"number {number}", headers=headers) for number in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 400]
    assert answers[-1].json()["error"]["code"] == "conversation_full"


def test_an_optional_database_that_is_unavailable_at_the_start_is_not_needed(tmp_path):
    config = "database: {optional: true}\n"
    with (
        served(db="postgresql://127.0.0.1:1/none", config=config, folder=tmp_path) as here,
        here.http(headers={"x-conversation-id": "c"}) as http,
    ):
        answers = [chat(http), http.get("/readyz"), respond(http)]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert answers[0].headers["x-history"] == "unrecorded"
    assert answers[1].json()["status"] == "unrecorded"


@pytest.mark.parametrize(
    "headers",
    [
        {"x-forwarded-for": "203.0.113.7"},
        {"forwarded": "for=203.0.113.7"},
        {"x-real-ip": "203.0.113.7"},
        {"cf-connecting-ip": "203.0.113.7"},
        {"x-forwarded-server": "proxy"},
        {"host": "chat.example.com"},
        {"origin": "https://chat.example.com"},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_without_its_keys_an_optional_database_admits_only_this_machine(headers, tmp_path):
    config = "database: {optional: true}\n"
    with (
        served(db="postgresql://127.0.0.1:1/none", config=config, folder=tmp_path) as here,
        here.http(headers={"x-conversation-id": "c"}) as http,
    ):
        token = {"authorization": "Bearer mb_0123456789ab_" + "x" * 43}
        local = [chat(http), chat(http, headers=token)]
        remote = [chat(http, headers=headers), respond(http, headers=headers), chat(http, headers=headers | token)]

    assert [answer.status_code for answer in local] == [200, 200]
    assert [answer.status_code for answer in remote] == [503, 503, 503]


class FullStore(MemoryStore):
    """A store on a full disk: it can be read, but not written."""

    async def append(self, *_, **__):
        raise StoreFull("memory:", "disk full")

    async def acquire_lease(self, *_, **__):
        raise StoreFull("memory:", "disk full")


def test_a_full_disk_is_reported_as_one():
    with served(store=FullStore()) as here, here.http() as http:
        answer, ready = chat(http, headers={"x-conversation-id": "c"}), http.get("/readyz")

    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_full")
    assert (ready.status_code, ready.json()) == (503, {"status": "unready", "database": "StoreFull"})
