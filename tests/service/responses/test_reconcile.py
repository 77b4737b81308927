"""Responses of a conversation that a header names: the client resends its items, as in chat completions."""

import pytest

from minutebook.testing import ScriptedModel
from tests.service.serving import served

HERE = {"x-conversation-id": "c"}


def user(text):
    return {"role": "user", "content": text}


@pytest.fixture
def here():
    with served(ScriptedModel("One.", "Two.", "Three.", "Four.")) as here:
        yield here


def ask(here, items, headers=HERE, **fields):
    """Send the items; return the response and the output items."""
    body = {"model": "m", "input": items, **fields}
    response = here.http().post("/v1/responses", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response, response.json()["output"]


def sent_texts(here):
    return [(message["role"], message["content"]) for message in here.provider.requests[-1].messages]


def test_resent_items_are_not_recorded_twice(here):
    first, output = ask(here, [user("one")])
    second, _ = ask(here, [user("one"), *output, user("two")])

    assert first.headers["x-conversation-id"] == second.headers["x-conversation-id"] == "c"
    assert second.headers["x-history-reconcile"] == "appended"
    items = here.http().get("/v1/conversations/c/items", params={"order": "asc"}).json()["data"]
    assert [item["content"][0]["text"] for item in items] == ["one", "One.", "two", "Two."]


def test_an_edited_item_forks_the_conversation(here):
    _, output = ask(here, [user("one")])
    response, _ = ask(here, [user("ONE"), *output, user("two")])

    assert response.headers["x-history-reconcile"] == "forked"
    assert sent_texts(here) == [("user", "ONE"), ("assistant", "One."), ("user", "two")]


def test_instructions_and_leading_messages_are_the_clients(here):
    _, output = ask(here, [{"role": "developer", "content": "Be brief."}, user("one")], instructions="A")
    ask(here, [{"role": "developer", "content": "Be long."}, user("one"), *output, user("two")], instructions="B")

    assert sent_texts(here)[:2] == [("system", "B"), ("developer", "Be long.")]


def test_a_new_message_alone_continues_the_conversation(here):
    ask(here, "one")
    response, _ = ask(here, "two")

    assert response.headers["x-history-reconcile"] == "partial"
    assert sent_texts(here) == [("user", "one"), ("assistant", "One."), ("user", "two")]


def test_system_messages_alone_replace_the_history(here):
    ask(here, [{"role": "system", "content": "Be brief."}, user("one")])
    response, _ = ask(here, [{"role": "system", "content": "Be long."}])

    assert response.headers["x-history-reconcile"] == "forked"
    assert sent_texts(here) == [("system", "Be long.")]


@pytest.mark.parametrize("resend", ["all", "new", "auto"])
def test_a_client_without_input_never_empties_the_conversation(here, resend):
    ask(here, "one")
    headers = {**HERE, "x-history-resend": resend}
    refused = here.http().post("/v1/responses", json={"model": "m", "input": []}, headers=headers)
    response, _ = ask(here, "two", {**HERE, "x-history-resend": "new"})

    assert refused.status_code == 200 or refused.json()["error"]["code"] == "missing_input"
    assert "x-conversation-branch" not in response.headers
    assert sent_texts(here)[:2] == [("user", "one"), ("assistant", "One.")]


@pytest.mark.parametrize("fields", [{"store": False}, {}])
def test_a_new_conversation_needs_input(here, fields):
    response = here.http().post("/v1/responses", json={"model": "m", "instructions": "Be brief.", **fields})

    assert (response.status_code, response.json()["error"]["code"]) == (400, "missing_input")
    assert here.provider.requests == []


def test_chat_completions_and_responses_share_the_conversation(here):
    body = {"model": "m", "messages": [user("one")]}
    answer = here.http().post("/v1/chat/completions", json=body, headers=HERE).json()["choices"][0]["message"]
    items = [user("one"), {"role": "assistant", "content": answer["content"]}, user("two")]
    response, _ = ask(here, items)

    assert response.headers["x-history-reconcile"] == "appended"


def test_an_unstored_response_is_not_part_of_the_conversation(here):
    response, _ = ask(here, "one", store=False)

    assert response.headers["x-history"] == "off"
    assert here.http().get("/v1/conversations/c").status_code == 404
