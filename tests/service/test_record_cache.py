"""Records that the service keeps between requests: providers receive the same with and without them."""

import pytest

from minutebook.service.state import counter_of
from tests.service.serving import served

HERE = {"x-conversation-id": "c"}
POLICIES = """
policies:
  small: {manager: [{name: token_budget, max_tokens: 400}], max_tokens: 400}
  folding: {strategy: truncate, keep_turns: 2, max_tokens: 400}
"""


def user(text):
    return {"role": "user", "content": text}


def ask(http, messages, policy):
    headers = {**HERE, "x-history-policy": policy}
    response = http.post("/v1/chat/completions", json={"model": "m", "messages": messages}, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]


def talk(here, policy):
    """A conversation whose client sends its newest message, then its history, then an edited history, and so on."""
    http, history = here.http(), [{"role": "system", "content": "Be brief."}]
    for number in range(12):
        question = user(f"Question {number}: " + "word " * 30)
        history.append(question)
        ask(http, [question] if number % 3 == 1 else history, policy)
        history.append({"role": "assistant", "content": "Yes."})
        if number == 6:
            history[3] = user("Edited.")
        if number == 9:
            assert http.post("/v1/conversations/c/compact", json={"keep_turns": 2}).status_code < 500
    return [request.messages for request in here.provider.requests]


@pytest.mark.parametrize("policy", ["passthrough", "sliding_window", "small", "folding", "retention"])
def test_the_provider_receives_the_same_with_a_cache_and_without(tmp_path, policy):
    received = []
    for cache_bytes in (0, 10_000_000):
        folder = tmp_path / str(cache_bytes)
        folder.mkdir()
        config = f"server: {{record_cache_bytes: {cache_bytes}}}\n{POLICIES}"
        with served(folder=folder, config=config) as here:
            received.append(talk(here, policy))
            assert bool(here.service.records.size) == bool(cache_bytes)

    assert received[0] == received[1]


def test_a_second_request_indexes_only_what_is_new():
    with served() as here:
        http = here.http()
        for number in range(3):
            ask(http, [user(f"Question {number}")], "sliding_window")
        record = here.service.records.take("default", "c")

    assert [message["content"] for message in record.messages] == ["Question 0", "Yes.", "Question 1", "Yes."]
    assert record.unindexed(counter_of("m")) == []


def test_an_erased_conversation_is_not_kept_in_memory():
    with served() as here:
        http = here.http()
        ask(http, [user("My secret.")], "sliding_window")
        ask(http, [user("Again.")], "sliding_window")
        assert here.service.records.size
        assert http.post("/v1/conversations/c/erase").status_code == 200

        assert here.service.records.size == 0


def test_a_request_that_fails_leaves_nothing_in_the_next_one():
    with served() as here:
        http = here.http()
        ask(http, [user("One.")], "passthrough")
        refused = {"model": "m", "messages": [user("Two.")], "tools": [{"type": "nothing"}]}
        http.post("/v1/chat/completions", json=refused, headers=HERE)
        stored = http.get("/v1/conversations/c/items").json()["data"]
        ask(http, [user("Three.")], "passthrough")

        texts = [message["content"] for message in here.provider.requests[-1].messages]
        assert texts[-1] == "Three."
        assert len(texts) == len(stored) + 1
