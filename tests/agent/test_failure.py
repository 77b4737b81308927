from datetime import UTC, datetime

import pytest

from minutebook.agent.limits import Budget, Deadline
from minutebook.agent.retry import error_from_status, retry_after
from minutebook.errors import ContextOverflow, InvalidSetting

NOON = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("problem", "sizes"),
    [
        (
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9031 tokens.",
            (9031, 8192),
        ),
        ("prompt is too long: 215098 tokens > 200000 maximum", (215098, 200000)),
        ("request (9031 tokens) exceeds the available context size (8192 tokens), try increasing it", (9031, 8192)),
        ("input length and `max_tokens` exceed context limit: 198,000 + 8,192 > 200,000", (None, None)),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", (1200000, 1048576)),
        ("Your input exceeds the context window of this model. Please adjust your input and try again.", (None, None)),
    ],
    ids=["openai", "anthropic", "llama.cpp", "anthropic-output", "gemini", "responses"],
)
def test_recognizes_the_overflow_errors_of_providers(problem, sizes):
    failure = error_from_status("any", 400, problem)

    assert isinstance(failure, ContextOverflow)
    assert (failure.tokens, failure.maximum) == sizes


@pytest.mark.parametrize(
    "problem",
    ["Invalid value for 'temperature'", "messages with role 'tool' must follow", "max_tokens: field required"],
)
def test_other_bad_requests_are_not_overflows(problem):
    assert not isinstance(error_from_status("any", 400, problem), ContextOverflow)


@pytest.mark.parametrize(
    ("status", "code", "headers", "retryable"),
    [
        (429, None, {}, True),
        (500, None, {}, True),
        (529, None, {}, True),
        (408, None, {}, True),
        (400, None, {}, False),
        (401, None, {}, False),
        (429, "insufficient_quota", {}, False),
        (429, None, {"x-should-retry": "false"}, False),
        (400, None, {"x-should-retry": "true"}, True),
    ],
    ids=str,
)
def test_knows_which_failures_are_retryable(status, code, headers, retryable):
    assert error_from_status("any", status, "problem", code=code, headers=headers).retryable is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Thu, 01 Jan 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Thu, 01 Jan 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": f"Thu, 01 Jan {'9' * 30} 12:00:30 GMT"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-3"}, None),
    ],
    ids=str,
)
def test_reads_every_form_of_retry_after(headers, seconds):
    assert retry_after(headers, clock=lambda: NOON) == seconds


def test_a_deadline_uses_its_clock():
    assert Deadline.after(90, clock=lambda: NOON).remaining_seconds() == 90


def test_a_deadline_without_a_time_zone_is_refused():
    with pytest.raises(InvalidSetting, match="aware"):
        Deadline(datetime(2026, 1, 1))  # noqa: DTZ001 - tested here


@pytest.mark.parametrize("name", ["max_total_tokens", "max_input_tokens", "max_output_tokens"])
def test_a_budget_of_0_is_refused(name):
    with pytest.raises(InvalidSetting, match=name):
        Budget(**{name: 0})
