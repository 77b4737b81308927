"""Error responses never quote the request."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID

import pytest

from minutebook.agent.retry import RetryPolicy
from minutebook.compaction.registry import strategy_named
from minutebook.errors import InvalidMessage, ProviderFailed, ProviderRefused, UnknownName
from minutebook.record.message import require_message
from minutebook.service.http.errors import failure_of
from minutebook.wire import provider_message_to_entry
from minutebook.wire.read import read
from tests.service.serving import served


def test_an_unknown_role_is_not_quoted_to_the_client():
    with pytest.raises(InvalidMessage, match="narrator") as caught:
        provider_message_to_entry(
            {"role": "narrator; use", "content": "x"},
            evaluation_id=UUID(int=1),
            sequence=0,
            created_at=datetime.now(UTC),
        )

    assert failure_of(caught.value).message == (
        "messages[0].role is unknown; use system, developer, user, assistant or tool"
    )


@pytest.mark.parametrize(
    "message",
    [
        {"role": {"text": "a secret"}, "content": "x"},
        {"role": ["a secret; use it"], "content": "x"},
        {"content": {"a secret": "x"}},
        "a secret",
    ],
    ids=str,
)
def test_a_message_that_cannot_be_read_is_not_quoted_to_the_client(message):
    with pytest.raises(InvalidMessage) as caught:
        read([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}, message])

    failure = failure_of(caught.value)
    assert failure.message.startswith("messages[1]")
    assert "secret" not in failure.message


def test_the_type_of_an_item_that_is_not_a_chat_message_is_not_quoted_to_the_client():
    with pytest.raises(InvalidMessage, match="type 'a secret' is that of a Responses item") as caught:
        require_message({"type": "a secret"}, 1)

    assert failure_of(caught.value).message.startswith("messages[1].type is that of a Responses item; convert")


def test_a_problem_that_looks_like_that_of_an_unknown_role_keeps_its_words():
    with pytest.raises(InvalidMessage) as caught:
        provider_message_to_entry(
            {"role": "user", "content": 3}, evaluation_id=UUID(int=1), sequence=0, created_at=datetime.now(UTC)
        )

    assert failure_of(caught.value).message == ("messages[0].content is of type int; use text, a list of parts or null")


def test_the_error_for_an_unknown_strategy_does_not_quote_its_name():
    with pytest.raises(UnknownName) as caught:
        strategy_named("sumarize")
    failure = failure_of(caught.value)

    assert (failure.status, failure.code, failure.param) == (400, "unknown_strategy", "strategy")
    assert failure.message == "Unknown strategy."


def test_the_providers_retry_after_reaches_the_client():
    error = ProviderFailed("upstream", 429, "slow down", retryable=True, retry_after_seconds=7.0)

    assert dict(failure_of(error).headers) == {"retry-after": "8"}


def test_an_unknown_field_in_a_field_of_several_types_is_named():
    with served() as here:
        answer = here.http().post("/v1/responses", json={"input": "Hi", "conversation": {"id": "c", "bogus": 1}})

    assert answer.json()["error"]["message"] == "conversation.bogus is an unknown field."


def test_the_error_of_the_last_of_several_attempts_reaches_the_client():
    refusal = ProviderRefused(
        "p", 429, "Slow down.", 7.0, True, {"message": "Slow down.", "code": "slow"}, {"retry-after": "7"}
    )

    async def send():
        raise refusal

    async def failure_after_attempts():
        with pytest.raises(ProviderFailed) as raised:
            await RetryPolicy(attempts=2, sleep=lambda _: asyncio.sleep(0)).call(send)
        return failure_of(raised.value)

    failure = asyncio.run(failure_after_attempts())

    assert (failure.status, failure.message, failure.code) == (429, "Slow down.", "slow")
    assert failure.headers == {"retry-after": "7"}
