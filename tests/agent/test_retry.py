import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.agent import RetryPolicy
from minutebook.errors import InvalidSetting, ProviderFailed, RetriesExhausted


class Clock:
    """A clock that only advances during `sleep`."""

    def __init__(self):
        self.now = 0.0
        self.waits = []

    async def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds

    def policy(self, **options):
        return RetryPolicy(clock=lambda: self.now, sleep=self.sleep, **options)


def busy(retry_after=None):
    return ProviderFailed("openai", 429, "busy", retry_after, retryable=True)


def sender(*outcomes):
    remaining = list(outcomes)

    async def send():
        outcome = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return send


def test_the_longest_wait_doubles_up_to_the_maximum():
    clock = Clock()
    policy = clock.policy(draw=lambda: 1.0, first_wait_seconds=1, max_wait_seconds=5, attempts=6)

    assert asyncio.run(policy.call(sender(*[busy()] * 5, "answer"))) == "answer"
    assert clock.waits == [1, 2, 4, 5, 5]


@given(st.floats(0, 1), st.floats(0, 50))
def test_never_waits_less_than_retry_after(drawn, retry_after):
    clock = Clock()

    asyncio.run(clock.policy(draw=lambda: drawn).call(sender(busy(retry_after), "answer")))

    assert clock.waits[0] >= retry_after


def test_fails_immediately_when_the_wait_would_exceed_the_total():
    clock = Clock()

    with pytest.raises(RetriesExhausted, match="1 attempts"):
        asyncio.run(clock.policy(total_seconds=60).call(sender(busy(61))))

    assert clock.waits == []


@given(st.lists(st.floats(0, 30), max_size=8), st.floats(0, 1))
def test_never_sleeps_beyond_its_total(retry_after, drawn):
    clock = Clock()

    try:
        asyncio.run(clock.policy(total_seconds=40, draw=lambda: drawn).call(sender(*map(busy, retry_after), "answer")))
    except RetriesExhausted as exhausted:
        assert exhausted.waited_seconds == clock.now

    assert clock.now <= 40


def test_an_error_that_is_not_retryable_is_raised_immediately():
    clock = Clock()
    failure = ProviderFailed("openai", 401, "invalid key")

    with pytest.raises(ProviderFailed) as caught:
        asyncio.run(clock.policy().call(sender(failure)))

    assert caught.value is failure


def test_on_retry_is_called_for_each_retry():
    failures = []

    asyncio.run(Clock().policy().call(sender(busy(), busy(), "answer"), on_retry=failures.append))

    assert [failure.status for failure in failures] == [429, 429]


@pytest.mark.parametrize(
    "settings", [{"attempts": 0}, {"first_wait_seconds": -1}, {"max_wait_seconds": -1}, {"total_seconds": -1}], ids=str
)
def test_invalid_settings_are_refused(settings):
    with pytest.raises(InvalidSetting):
        RetryPolicy(**settings)
