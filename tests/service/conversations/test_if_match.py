"""`If-Match` on every route that changes a conversation."""

import pytest

from tests.service.serving import served

CHANGES = {
    "chat": ("POST", "/v1/chat/completions", {"model": "m", "messages": [{"role": "user", "content": "next"}]}),
    "response": ("POST", "/v1/responses", {"model": "m", "input": "next", "conversation": "c"}),
    "response by header": ("POST", "/v1/responses", {"model": "m", "input": "next"}),
    "message": ("POST", "/threads/{conversation}/messages", {"text": "next"}),
    "items": ("POST", "/v1/conversations/{conversation}/items", {"items": [{"role": "user", "content": "next"}]}),
    "metadata": ("POST", "/v1/conversations/{conversation}", {"metadata": {}}),
    "fork": ("POST", "/v1/conversations/{conversation}/fork", {}),
    "compaction": ("POST", "/v1/conversations/{conversation}/compact", {"keep_turns": 1}),
    "rewind": ("POST", "/v1/conversations/{conversation}/rewind", {"from_item": "{item}"}),
    "clear": ("POST", "/v1/conversations/{conversation}/clear", None),
    "response deletion": ("DELETE", "/v1/responses/{response}", None),
    "erasure": ("POST", "/v1/conversations/{conversation}/erase", {}),
    "deletion": ("DELETE", "/v1/conversations/{conversation}", None),
}
HERE = {"x-conversation-id": "c", "accept": "application/json"}


@pytest.fixture(scope="module")
def here():
    with served() as here:
        yield here


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_another_version_is_refused(here, name):
    method, path, body = CHANGES[name]
    conversation = f"c-{name.replace(' ', '-')}"
    headers = {**HERE, "x-conversation-id": conversation}
    first = here.http().post("/v1/responses", json={"model": "m", "input": "first"}, headers=headers)
    path = path.format(conversation=conversation, response=first.json()["id"])
    body = body and {**body, **({"conversation": conversation} if "conversation" in body else {})}
    if name == "rewind":
        items = here.http().get(f"/v1/conversations/{conversation}/items?order=asc").json()["data"]
        body = {"from_item": items[0]["id"]}
    version = here.http().get(f"/v1/conversations/{conversation}").headers["etag"]

    def change(etag):
        content = {} if body is None else {"json": body}
        return here.http().request(method, path, headers={**headers, "if-match": etag}, **content)

    stale = change('"99"')
    assert (stale.status_code, stale.json()["error"]["code"]) == (412, "version_conflict")
    assert here.http().get(f"/v1/conversations/{conversation}").headers["etag"] == version
    assert change("none").status_code == 400
    current = change(version)
    assert current.status_code == 200, current.text


def test_a_response_that_continues_another_version_is_refused(here):
    first = here.http().post("/v1/responses", json={"model": "m", "input": "first"})
    version = here.http().get(f"/v1/conversations/{first.headers['x-conversation-id']}").headers["etag"]
    body = {"model": "m", "input": "next", "previous_response_id": first.json()["id"]}

    def change(etag, **fields):
        return here.http().post("/v1/responses", json={**body, **fields}, headers={"if-match": etag}).status_code

    assert change('"99"') == 412
    assert change('"99"', previous_response_id=None) == 412
    assert change(version) == 200


def test_a_model_is_retrieved_by_its_id(here):
    models = here.http().get("/v1/models").json()["data"]
    model = here.http().get(f"/v1/models/{models[0]['id']}")
    assert (model.status_code, model.json()) == (200, models[0])
    assert here.http().get("/v1/models/no/such-model").status_code == 404
    for other_path in ("%2e%2e", "%2E", "", "%2e%2e/health", "a/%2e%2e/%2e%2e"):
        assert here.http().get(f"/v1/models/{other_path}").status_code == 404
