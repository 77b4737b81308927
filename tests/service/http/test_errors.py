"""Error responses never quote the request."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from minutebook.compaction.registry import strategy_named
from minutebook.errors import InvalidMessage, ProviderFailed, UnknownName
from minutebook.service.http.errors import failure_of
from minutebook.wire import provider_message_to_entry


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


def test_the_error_for_an_unknown_strategy_does_not_quote_its_name():
    with pytest.raises(UnknownName) as caught:
        strategy_named("sumarize")
    failure = failure_of(caught.value)

    assert (failure.status, failure.code, failure.param) == (400, "unknown_strategy", "strategy")
    assert failure.message == "Unknown strategy."


def test_the_providers_retry_after_reaches_the_client():
    error = ProviderFailed("upstream", 429, "slow down", retryable=True, retry_after_seconds=7.0)

    assert dict(failure_of(error).headers) == {"retry-after": "8"}
