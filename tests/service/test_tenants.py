import asyncio

import pytest

from minutebook import Fold, MemoryStore
from minutebook.service.access.api_keys import ApiKeys
from tests.service.endpoints import asked, names_in, operations
from tests.service.serving import served

WORD = "plumbago"
"""Said in one tenant's conversations and nowhere else."""


def keys_for(store, **tenants):
    """A key for each, that may do everything there."""

    async def made():
        keys = ApiKeys(store)
        return {
            name: (await keys.create(name, **{"scopes": ["admin"], "requests_per_minute": 100_000, **options})).token
            for name, options in tenants.items()
        }

    return asyncio.run(made())


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def made_by(http, store):
    """A conversation with everything that has an id, and the ids."""
    ids = {"recipient": "alice"}
    conversation = http.put("/v1/recipients/alice/conversation", json={}).json()["id"]
    for _ in range(4):
        answer = http.post(
            "/v1/responses", json={"model": "m", "input": f"{WORD} " * 300, "conversation": conversation}
        )
        assert answer.status_code == 200, answer.text
    ids |= {"conversation_id": conversation, "thread_id": conversation}
    ids |= {"response_id": answer.json()["id"], "run_id": answer.json()["id"]}
    ids["item_id"] = http.get(f"/v1/conversations/{conversation}/items").json()["data"][0]["id"]
    ids["request"] = http.get(f"/v1/conversations/{conversation}/requests").json()["data"][0]["id"]
    fold = Fold("fold_1", 0, 4, ({"role": "system", "content": f"They said {WORD}."},), "turns")
    ids["compaction_id"] = asyncio.run(store.for_tenant("acme").add_fold(conversation, fold)).fold.id
    return ids


def seen_by(http, ids):
    """All that the owner sees of it."""
    paths = ("", "/items", "/requests", "/compactions", "/turns")
    return [http.get(f"/v1/conversations/{ids['conversation_id']}{path}").text for path in paths]


FOREIGN = {
    "another tenant": {"tenant": "other"},
    "another recipient of the same tenant": {"tenant": "acme", "recipient": "bob"},
}


@pytest.mark.parametrize("options", FOREIGN.values(), ids=FOREIGN)
def test_no_endpoint_finds_objects_of_another_tenant(options):
    store = MemoryStore()
    tokens = keys_for(store, owner={"tenant": "acme"}, stranger=options)
    with (
        served(store=store) as running,
        running.http(headers=bearer(tokens["owner"])) as owner,
        running.http(headers=bearer(tokens["stranger"])) as stranger,
    ):
        ids = made_by(owner, store)
        before = seen_by(owner, ids)
        document = owner.get("/openapi.json").json()
        with_ids = [one for one in operations(document) if set(names_in(one[1])) - {"recipient", "model_id"}]
        found = {one: asked(stranger, *one, ids) for one in with_ids}

        assert {one: answer.status_code for one, answer in found.items() if answer.status_code != 404} == {}
        assert all(set(answer.json()) == {"error"} for answer in found.values())
        assert len(found) >= 15
        assert seen_by(owner, ids) == before
        mine = {
            one: asked(owner, *one, ids).status_code for one in with_ids if one[0] == "get" and "run_id" not in one[1]
        }
        assert {one: status for one, status in mine.items() if status != 200} == {}


@pytest.mark.parametrize("options", FOREIGN.values(), ids=FOREIGN)
def test_no_list_or_write_reaches_objects_of_another_tenant(options):
    store = MemoryStore()
    tokens = keys_for(store, owner={"tenant": "acme"}, stranger=options)
    with (
        served(store=store) as running,
        running.http(headers=bearer(tokens["owner"])) as owner,
        running.http(headers=bearer(tokens["stranger"])) as stranger,
    ):
        ids = made_by(owner, store)
        before = seen_by(owner, ids)
        document = owner.get("/openapi.json").json()
        others = [one for one in operations(document) if not set(names_in(one[1])) - {"recipient"}]
        answers = [asked(stranger, *one, ids) for one in others]

        signs = [WORD, *(ids[name] for name in ("response_id", "item_id", "request"))]
        assert not [answer.url for answer in answers if any(sign in answer.text for sign in signs)]
        assert not [answer.url for answer in answers if answer.status_code >= 500]
        assert seen_by(owner, ids) == before


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/responses", {"input": "hello", "conversation": "{conversation_id}"}),
        ("/v1/responses", {"input": "hello", "previous_response_id": "{response_id}"}),
        ("/v1/responses/input_tokens", {"input": "hello", "previous_response_id": "{response_id}"}),
    ],
    ids=["conversation", "previous response", "tokens"],
)
@pytest.mark.parametrize("options", FOREIGN.values(), ids=FOREIGN)
def test_a_body_cannot_refer_to_objects_of_another_tenant(path, more, options):
    store = MemoryStore()
    tokens = keys_for(store, owner={"tenant": "acme"}, stranger=options)
    with (
        served(store=store) as running,
        running.http(headers=bearer(tokens["owner"])) as owner,
        running.http(headers=bearer(tokens["stranger"])) as stranger,
    ):
        ids = made_by(owner, store)
        before = seen_by(owner, ids)
        answer = stranger.post(path, json={"model": "m", **{name: text.format(**ids) for name, text in more.items()}})

        assert answer.status_code == 404
        assert seen_by(owner, ids) == before


def test_every_endpoint_except_health_checks_requires_a_key():
    store = MemoryStore()
    keys_for(store, owner={"tenant": "acme"})
    with served(store=store) as running, running.http() as anybody:
        document = anybody.get("/openapi.json").json()
        ids = dict.fromkeys({name for _, path in operations(document) for name in names_in(path)}, "x")
        answers = {one: asked(anybody, *one, ids).status_code for one in operations(document)}

    open_to_all = {one for one, status in answers.items() if status != 401}
    assert open_to_all <= {("get", "/healthz"), ("get", "/readyz"), ("get", "/metrics")}
