import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.agent import RetryPolicy
from minutebook.errors import InvalidSetting, ProviderFailed, RetriesExhausted


class Clock:
    """Time passes only while somebody sleeps."""

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


def asked(*outcomes):
    left = list(outcomes)

    async def ask():
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return ask


def test_waits_within_twice_as_much_each_time_up_to_the_most():
    clock = Clock()
    policy = clock.policy(draw=lambda: 1.0, first_wait_seconds=1, max_wait_seconds=5, attempts=6)

    assert asyncio.run(policy.call(asked(*[busy()] * 5, "answer"))) == "answer"
    assert clock.waits == [1, 2, 4, 5, 5]


@given(st.floats(0, 1), st.floats(0, 50))
def test_never_waits_less_than_the_provider_asks_for(drawn, wanted):
    clock = Clock()

    asyncio.run(clock.policy(draw=lambda: drawn).call(asked(busy(wanted), "answer")))

    assert clock.waits[0] >= wanted


def test_gives_up_at_once_when_the_wait_would_be_too_long():
    clock = Clock()

    with pytest.raises(RetriesExhausted, match="1 attempts"):
        asyncio.run(clock.policy(total_seconds=60).call(asked(busy(61))))

    assert clock.waits == []


@given(st.lists(st.floats(0, 30), max_size=8), st.floats(0, 1))
def test_never_sleeps_beyond_its_total(wanted, drawn):
    clock = Clock()

    try:
        asyncio.run(clock.policy(total_seconds=40, draw=lambda: drawn).call(asked(*map(busy, wanted), "answer")))
    except RetriesExhausted as given_up:
        assert given_up.waited_seconds == clock.now

    assert clock.now <= 40


def test_what_no_retry_mends_is_raised_at_once():
    clock = Clock()
    wrong = ProviderFailed("openai", 401, "who are you?")

    with pytest.raises(ProviderFailed) as caught:
        asyncio.run(clock.policy().call(asked(wrong)))

    assert caught.value is wrong


def test_whoever_wants_to_know_is_told_of_each_retry():
    told = []

    asyncio.run(Clock().policy().call(asked(busy(), busy(), "answer"), on_retry=told.append))

    assert [failure.status for failure in told] == [429, 429]


@pytest.mark.parametrize(
    "wrong", [{"attempts": 0}, {"first_wait_seconds": -1}, {"max_wait_seconds": -1}, {"total_seconds": -1}], ids=str
)
def test_settings_that_cannot_be_meant(wrong):
    with pytest.raises(InvalidSetting):
        RetryPolicy(**wrong)
