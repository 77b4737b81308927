"""Conversations and their items, through OpenAI's own client; what is ours, through plain HTTP."""

import asyncio
import json
from datetime import timedelta
from urllib.parse import quote

import openai
import pytest
from hypothesis import HealthCheck, assume, given, settings

from minutebook.conversation import remove_requests
from minutebook.store import open_store
from minutebook.testing import ScriptedModel, say
from minutebook.testing.contract.samples import text_entries
from tests.servers import require_postgres, shared
from tests.service.responses.test_responses import MODEL
from tests.service.serving import served
from tests.wire.test_responses import item_lists


def said(number=12, words="Well. " * 30):
    return [
        {"role": role, "content": f"{role} {at}: {words}"} for at in range(number) for role in ("user", "assistant")
    ]


@pytest.fixture(scope="module")
def here():
    with served() as service:
        yield service


@pytest.fixture
def http(here):
    return here.http()


@pytest.fixture
def client(here):
    return here.client()


def filled(client, items):
    conversation = client.conversations.create()
    for start in range(0, len(items), 20):
        client.conversations.items.create(conversation.id, items=items[start : start + 20])
    return conversation.id


def test_a_conversation_is_created_read_updated_and_deleted(client):
    made = client.conversations.create(metadata={"topic": "tea"}, items=[{"role": "user", "content": "Hi"}])

    found = client.conversations.retrieve(made.id)
    assert (found.metadata, found.version, found.turn_count, found.status) == ({"topic": "tea"}, 1, 1, "idle")
    assert client.conversations.update(made.id, metadata={"topic": "coffee"}).metadata == {"topic": "coffee"}
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_items_are_appended_atomically(client):
    conversation = client.conversations.create()
    with pytest.raises(openai.BadRequestError) as caught:
        client.conversations.items.create(
            conversation.id,
            items=[{"role": "user", "content": "a"}, {"type": "function_call_output", "call_id": "c", "output": "x"}],
        )

    assert caught.value.code == "broken_conversation"
    assert list(client.conversations.items.list(conversation.id)) == []


def test_a_request_has_at_most_twenty_items(client):
    conversation = client.conversations.create()
    with pytest.raises(openai.BadRequestError) as caught:
        client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "x"}] * 21)

    assert caught.value.code == "too_many_items"


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_contain_every_item_once_in_order(client, order, limit):
    calls = [{"type": "function_call", "call_id": f"c{at}", "name": "f", "arguments": "{}"} for at in range(3)]
    outputs = [{"type": "function_call_output", "call_id": f"c{at}", "output": "x"} for at in range(3)]
    name = filled(client, [{"role": "user", "content": "a"}, *calls, *outputs, {"role": "assistant", "content": "b"}])

    found = list(client.conversations.items.list(name, order=order, limit=limit))

    kinds = ["message", *["function_call"] * 3, *["function_call_output"] * 3, "message"]
    assert [item.type for item in found] == (kinds if order == "asc" else kinds[::-1])
    assert len({item.id for item in found}) == 8
    for item in found:
        assert client.conversations.items.retrieve(item.id, conversation_id=name) == item


def test_an_unknown_cursor_is_a_404(client, http):
    name = client.conversations.create(items=[{"role": "user", "content": "a"}]).id

    for path in (f"/v1/conversations/{name}/items", f"/v1/conversations/{name}/requests", "/v1/conversations"):
        answer = http.get(path, params={"after": "nobody"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "cursor_not_found")


def test_single_items_cannot_be_deleted(client):
    made = client.conversations.create(items=[{"role": "user", "content": "a"}])
    item = client.conversations.items.list(made.id).data[0]

    with pytest.raises(openai.APIStatusError) as caught:
        client.conversations.items.delete(item.id, conversation_id=made.id)

    assert (caught.value.status_code, caught.value.code) == (405, "items_are_kept")


def test_item_ids_of_the_client_are_stored_and_unique(client):
    made = client.conversations.create(items=[{"role": "user", "content": "a", "id": "msg_mine"}])

    assert client.conversations.items.retrieve("msg_mine", conversation_id=made.id).content[0].text == "a"
    with pytest.raises(openai.BadRequestError) as caught:
        client.conversations.items.create(made.id, items=[{"role": "user", "content": "b", "id": "msg_mine"}])
    assert caught.value.code == "duplicate_item"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(item_lists())
def test_items_of_every_type_are_returned_unchanged(http, items):
    for place, item in enumerate(items):
        item["id"] = f"item_{place}"
        if item.get("role") and isinstance(item.get("content"), str):
            item["content"] = []
    raw = json.dumps({"items": items[:20]})
    assume("Infinity" not in raw)
    answer = http.post("/v1/conversations", content=raw.encode(), headers={"content-type": "application/json"})
    if answer.status_code == 400:
        assert answer.json()["error"]["code"] == "broken_conversation"  # cut off within an exchange
        return

    name = answer.json()["id"]
    found = http.get(f"/v1/conversations/{name}/items", params={"order": "asc", "limit": 100}).json()["data"]

    for given_item, item in zip(items[:20], found, strict=True):
        known = {key: item[key] for key in given_item if key != "status" or given_item["status"] is not None}
        assert json.dumps({**known, "type": item["type"]}, sort_keys=True) == json.dumps(
            {**{key: value for key, value in given_item.items() if key in known}, "type": item["type"]}, sort_keys=True
        )


def test_versions_are_checked_on_every_write(client, http):
    made = client.conversations.create(items=[{"role": "user", "content": "a"}])
    stale = {"If-Match": '"0"'}
    path = f"/v1/conversations/{made.id}"

    etag = http.get(path).headers["etag"]
    assert etag == '"1"'
    assert http.get(f"{path}/items").headers["etag"] == etag
    body = {"items": [{"role": "user", "content": "b"}]}
    assert http.post(f"{path}/items", json=body, headers=stale).status_code == 412
    assert http.post(path, json={"metadata": {}}, headers=stale).status_code == 412
    assert http.delete(path, headers=stale).status_code == 412
    assert http.post(f"{path}/items", json={**body, "expected_version": 1}).status_code == 200
    assert http.post(f"{path}/items", json=body, headers={"If-Match": "seven"}).status_code == 400


def test_a_repeated_request_adds_nothing(client, http):
    name = client.conversations.create().id
    body = {"items": [{"role": "user", "content": "b"}]}
    first = http.post(f"/v1/conversations/{name}/items", json=body)
    again = http.post(f"/v1/conversations/{name}/items", json=body, headers={"x-stainless-retry-count": "1"})
    more = http.post(f"/v1/conversations/{name}/items", json=body)

    assert first.json() == again.json() != more.json()
    assert client.conversations.retrieve(name).item_count == 2
    key = {"Idempotency-Key": "new-1"}
    one, two = (http.post("/v1/conversations", json={}, headers=key).json()["id"] for _ in range(2))
    other = http.post("/v1/conversations", json={}).json()["id"]
    assert one == two != other


def test_conversations_are_listed_and_searched():
    with served() as here:
        http, client = here.http(), here.client()
        names = [
            http.post(
                "/v1/conversations", json={"recipient": who, "items": [{"role": "user", "content": words}]}
            ).json()["id"]
            for who, words in [("ada", "green tea"), ("bob", "black tea"), ("ada", "coffee")]
        ]

        def listed(**query):
            return [one["id"] for one in http.get("/v1/conversations", params=query).json()["data"]]

        assert listed() == names[::-1]
        assert listed(recipient="ada") == [names[2], names[0]]
        assert listed(q="tea") == [names[1], names[0]]
        assert listed(q="tea", recipient="ada") == [names[0]]
        assert listed(q='"green tea" OR coff*') == [names[2], names[0]]
        refused = http.get("/v1/conversations", params={"q": "tea AND coffee"})
        assert refused.status_code == 400
        assert "exact phrases" in refused.json()["error"]["message"]
        assert listed(status="closed") == []
        first = http.get("/v1/conversations", params={"limit": 2}).json()
        assert first["has_more"]
        assert listed(after=first["last_id"]) == listed(after=first["next"]) == [names[0]]
        assert len(client.get("/conversations", cast_to=object)["data"]) == 3


def test_a_turn_is_a_user_message_and_all_items_after_it(client, http):
    name = filled(client, said(3, "x"))

    turns = http.get(f"/v1/conversations/{name}/turns", params={"limit": 2}).json()

    assert [(one["number"], one["start"], one["stop"]) for one in turns["data"]] == [(0, 0, 2), (1, 2, 4)]
    assert turns["has_more"]
    assert http.get(f"/v1/conversations/{name}/turns", params={"after": 1}).json()["data"][0]["number"] == 2


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_request_shows_the_messages_sent_and_the_record(engine, tmp_path):
    if engine == "postgres":
        require_postgres()
    db = f"sqlite:///{tmp_path / 'a.db'}" if engine == "sqlite" else shared.empty()
    with served(ScriptedModel(otherwise=say("Well. " * 20)), db=db, max_context_tokens=600) as here:
        client, http = here.client(), here.http()
        name = client.conversations.create().id
        for number in range(15):
            client.responses.create(
                model=MODEL, input=f"Question {number}?", conversation=name, instructions=f"Be number {number}."
            )

        requests = http.get(f"/v1/conversations/{name}/requests", params={"limit": 100}).json()["data"]
        assert [one["number"] for one in requests] == list(range(15, 0, -1))
        accepted = [request for request in here.provider.requests if request.problem is None]
        for number, sent in enumerate(accepted, 1):
            told = http.get(f"/v1/conversations/{name}/requests/{number}").json()
            assert told["agrees"]
            assert told["sent"] == sent.messages
            assert told["tokens_after"] <= told["tokens_before"] or number == 1
            assert len(told["record"]) == 2 * number - 1
        last = http.get(f"/v1/conversations/{name}/requests/15").json()
        assert last["left_out"]
        assert http.get(f"/v1/conversations/{name}/requests/{last['id']}").json() == last
        assert http.get(f"/v1/conversations/{name}/requests/99").status_code == 404


def test_the_context_is_a_dry_run_of_the_next_view(client, http):
    name = filled(client, said())
    path = f"/v1/conversations/{name}/context"

    whole = http.get(path, params={"policy": "passthrough"}).json()
    fitted = http.get(path, params={"policy": "token_budget", "budget": 300}).json()
    folded = http.get(path, params={"policy": "truncate", "budget": 300, "model": "gpt-4o"}).json()

    assert len(whole["messages"]) == 24
    assert (whole["left_out"], whole["tokens_before"]) == ([], whole["tokens_after"])
    assert fitted["tokens_after"] <= 300 < whole["tokens_after"]
    assert all(stretch["reason"] for stretch in fitted["left_out"])
    assert folded["tokens_after"] <= 300
    assert http.get(f"/v1/conversations/{name}/compactions").json()["data"] == []
    assert http.get(path, params={"policy": "nobody"}).json()["error"]["code"] == "invalid_value"
    assert http.get(path, params={"budget": 1}).json()["error"]["code"] == "context_length_exceeded"


def test_a_compaction_is_created_read_and_reverted(client, http):
    name = filled(client, said())
    path = f"/v1/conversations/{name}"
    before = http.get(f"{path}/context", params={"policy": "passthrough"}).json()

    assert http.post(f"{path}/compact", json={"keep_turns": True}).status_code == 400
    made = http.post(f"{path}/compact", json={"keep_turns": 2}).json()
    after = http.get(f"{path}/context", params={"policy": "passthrough"}).json()

    assert made["tokens_after"] < made["tokens_before"]
    assert len(after["messages"]) == 5
    fold = made["compactions"][0]["id"]
    assert [one["id"] for one in http.get(f"{path}/compactions").json()["data"]] == [fold]
    assert http.get(f"{path}/compactions/{fold}").json()["reverted_at"] is None
    assert http.post(f"{path}/compactions/{fold}/revert").json()["reverted_at"]
    again = http.get(f"{path}/context", params={"policy": "passthrough"}).json()
    assert again["messages"] == before["messages"]
    assert http.post(f"{path}/compactions/none/revert").status_code == 404
    assert client.conversations.retrieve(name).item_count == 24


def test_a_fork_has_the_items_of_the_original(client, http):
    name = filled(client, said(3, "x"))
    client.conversations.update(name, metadata={"k": "v"})
    third = client.conversations.items.list(name, order="asc").data[2].id

    fork = http.post(f"/v1/conversations/{name}/fork", json={"at_item": third}).json()
    whole = http.post(f"/v1/conversations/{name}/fork").json()

    assert (fork["item_count"], fork["forked_from"], fork["metadata"]) == (3, name, {"k": "v"})
    assert whole["item_count"] == 6
    assert [item.id for item in client.conversations.items.list(fork["id"], order="asc")][-1] == third
    assert http.post(f"/v1/conversations/{name}/fork", json={"at_item": "none"}).status_code == 404


def test_a_fork_never_splits_an_exchange(client, http):
    items = [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"role": "assistant", "content": "y"},
    ]
    name = filled(client, [{"role": "user", "content": "a"}, *items])
    call = client.conversations.items.list(name, order="asc").data[1].id

    assert http.post(f"/v1/conversations/{name}/fork", json={"at_item": call}).json()["item_count"] == 3


def test_an_erasure_returns_a_receipt_and_removes_everything(client, http):
    raw = client.responses.with_raw_response.create(model=MODEL, input="my secret")
    name = raw.headers["x-conversation-id"]

    receipt = http.post(f"/v1/conversations/{name}/erase").json()

    assert (receipt["object"], receipt["conversations"], receipt["entries"]) == ("erasure", 1, 2)
    assert http.get(f"/v1/conversations/{name}").status_code == 404
    assert http.get(f"/v1/responses/{raw.parse().id}").status_code == 404
    assert (
        http.post(f"/v1/conversations/{name}/items", json={"items": [{"role": "user", "content": "x"}]}).status_code
        == 404
    )
    assert http.post(f"/v1/conversations/{name}/erase").status_code == 404


def test_the_conversations_of_a_recipient_are_exported_and_erased(http):
    first = http.put("/v1/recipients/ada/conversation").json()
    http.post(f"/v1/conversations/{first['id']}/items", json={"items": [{"role": "user", "content": "I am Ada"}]})

    assert http.put("/v1/recipients/ada/conversation").json()["id"] == first["id"] == "conversation:ada"
    lines = [json.loads(line) for line in http.get("/v1/recipients/ada/export").text.splitlines()]
    assert "I am Ada" in json.dumps(lines)
    assert http.post("/v1/recipients/ada/erase").json()["conversations"] == 1
    assert http.get("/v1/recipients/ada/export").status_code == 404
    new = http.put("/v1/recipients/ada/conversation")
    assert (new.status_code, new.json()["item_count"]) == (200, 0)


ODD = ["\x00", "a\x00b", "😀" * 40, "%2e%2e", "x" * 200, " ", "conv_\u2028"]


@pytest.mark.parametrize("name", ODD, ids=range(len(ODD)))
def test_unusual_ids_are_rejected_or_not_found(http, name):
    for path in (
        "/v1/conversations/{}",
        "/v1/conversations/{}/items",
        "/v1/responses/{}",
        "/v1/conversations/{}/requests/x",
    ):
        answer = http.get(path.format(quote(name, safe="")))
        assert answer.status_code in {400, 404}
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_any_unicode_text_is_stored(client, http):
    words = "nul \x00, half \ud83d, end"
    items = json.loads(json.dumps([{"role": "user", "content": words}]))
    name = client.conversations.create(metadata={"k\x00": "\x00"}).id

    raw = json.dumps({"items": items}).encode()
    kind = {"content-type": "application/json"}
    answer = http.post(f"/v1/conversations/{name}/items", content=raw, headers=kind)

    assert answer.status_code == 200
    assert answer.json()["data"][0]["content"][0]["text"] == words
    assert client.conversations.retrieve(name).metadata == {"k\x00": "\x00"}


def test_requests_keep_their_numbers_when_older_minutes_are_removed(tmp_path):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    with served(db=db) as here:
        http = here.http()
        for text in ("one", "two", "three"):
            body = {"model": "m", "conversation": "a", "messages": [{"role": "user", "content": text}]}
            assert http.post("/v1/chat/completions", json=body).status_code == 200
        third = http.get("/v1/conversations/a/requests/3").json()

        async def remove_first():
            async with open_store(db) as store:
                first = (await store.documents("a", "request", limit=1)).items[0]
                await remove_requests(store, first.created_at + timedelta(microseconds=1))

        asyncio.run(remove_first())

        assert http.get("/v1/conversations/a/requests/3").json() == third
        assert http.get("/v1/conversations/a/requests/1").status_code == 404
        assert [item["number"] for item in http.get("/v1/conversations/a/requests").json()["data"]] == [3, 2]
        assert http.post("/v1/chat/completions", json=body).status_code == 200
        assert [item["number"] for item in http.get("/v1/conversations/a/requests").json()["data"]] == [4, 3, 2]


def test_replicas_continue_the_numbers_of_each_other(tmp_path):
    db = f"sqlite:///{tmp_path / 'chat.db'}"
    with served(db=db) as first, served(db=db) as second:
        for number, replica in enumerate((first, second, first, first, second)):
            body = {"model": "m", "conversation": "a", "messages": [{"role": "user", "content": f"{number}"}]}
            assert replica.http().post("/v1/chat/completions", json=body).status_code == 200
        requests = first.http().get("/v1/conversations/a/requests").json()["data"]
        assert [item["number"] for item in requests] == [5, 4, 3, 2, 1]


def _ask(http, conversation, text):
    body = {"model": "m", "conversation": conversation, "messages": [{"role": "user", "content": text}]}
    assert http.post("/v1/chat/completions", json=body).status_code == 200


def _sent(here):
    return [message["content"] for message in here.provider.requests[-1].body["messages"]]


def test_a_rewound_conversation_continues_before_the_item_and_keeps_the_items():
    with served() as here:
        http = here.http()
        for text in ("one", "two"):
            _ask(http, "a", text)
        items = http.get("/v1/conversations/a/items?order=asc").json()["data"]

        rewound = http.post("/v1/conversations/a/rewind", json={"from_item": items[2]["id"]})
        _ask(http, "a", "three")

        assert rewound.status_code == 200
        assert rewound.headers["etag"] != '"2"'
        assert _sent(here) == ["one", "Yes.", "three"]
        assert len(http.get("/v1/conversations/a/items").json()["data"]) == 6
        assert http.post("/v1/conversations/a/rewind", json={"from_item": "msg_none"}).status_code == 404
        assert http.post("/v1/conversations/none/rewind", json={"from_item": "x"}).status_code == 404
        assert http.post("/v1/conversations/a/rewind", json={}).status_code == 400


def test_a_cleared_conversation_starts_again_behind_the_same_id():
    with served() as here:
        http = here.http()
        _ask(http, "a", "one")

        assert http.post("/v1/conversations/a/clear").status_code == 200
        _ask(http, "a", "two")

        assert _sent(here) == ["two"]
        assert len(http.get("/v1/conversations/a/items").json()["data"]) == 4
        audit = [entry.act for entry in asyncio.run(_audit(here))]
        assert audit == ["clear"]


async def _audit(here):
    return [entry async for entry in here.service.audit.entries()]


def test_a_blocked_recipient_gets_its_own_error():
    with served() as here:
        http = here.http()
        asyncio.run(_block(here.service.store))

        refused = http.post("/v1/conversations", json={"recipient": "alice"})

        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "recipient_blocked")


async def _block(store):
    await store.append("a", text_entries("1"), recipient="alice")
    await store.erase(recipient="alice", block=True)


@pytest.mark.parametrize("conversation", ["a/b", "a/b/items", "/", "a/", "ü/ö %2F?#"])
def test_an_id_with_a_slash_is_addressed_with_the_slash_encoded(conversation):
    path = quote(conversation, safe="")
    with served() as here, here.http() as http:
        _ask(http, conversation, "one")

        assert http.get(f"/v1/conversations/{path}").json()["id"] == conversation
        assert len(http.get(f"/v1/conversations/{path.replace('%2F', '%2f')}/items").json()["data"]) == 2
        assert len(http.get(f"/threads/{path}/messages").json()["data"]) == 2
        assert http.delete(f"/v1/conversations/{path}").json()["deleted"]
        assert http.get(f"/v1/conversations/{path}").status_code == 404


def test_a_recipient_with_a_slash_can_be_erased():
    with served() as here, here.http() as http:
        thread = http.post("/threads", json={"recipient": "team/alice"}).json()["id"]

        assert thread in http.get("/v1/recipients/team%2Falice/export").text
        assert http.post("/v1/recipients/team%2Falice/erase").status_code == 200
        assert http.get(f"/threads/{thread}").status_code == 404


@pytest.mark.parametrize("conversation", [".", ".."])
def test_an_id_that_clients_remove_from_paths_is_refused(conversation):
    with served() as here, here.http() as http:
        refused = http.post(
            "/v1/responses", json={"input": "Hi", "model": "m"}, headers={"x-conversation-id": conversation}
        )

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_conversation_id")
