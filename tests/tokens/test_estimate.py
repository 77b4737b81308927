"""The estimate: never a fifth too low, and not much too high."""

import random
from collections.abc import Iterator
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.tokens import EstimatedCounter, ExactCounter
from tests.tokens.corpus import conversations
from tests.tokens.samples import SAMPLES

O200K, CL100K = ExactCounter("o200k_base"), ExactCounter("cl100k_base")
AT_LEAST = 0.8

ASCII = [name for name, text in SAMPLES.items() if text.isascii()]


def pieces(text: str, size: int = 500) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text) - size, size)]


def test_the_samples_are_long_enough_to_judge_by() -> None:
    assert min(map(len, SAMPLES.values())) >= 4_000


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_class_is_never_a_fifth_too_low(kind: str) -> None:
    text = SAMPLES[kind]
    exact = max(O200K.count(text), CL100K.count(text))

    assert EstimatedCounter().count(text) >= AT_LEAST * exact


@pytest.mark.parametrize("kind", SAMPLES)
@pytest.mark.parametrize("size", [200, 500])
def test_a_message_of_a_class_is_never_a_fifth_too_low(kind: str, size: int) -> None:
    for piece in pieces(SAMPLES[kind], size):
        assert EstimatedCounter().count(piece) >= AT_LEAST * max(O200K.count(piece), CL100K.count(piece)), piece


@pytest.mark.parametrize("kind", SAMPLES)
def test_the_modern_estimate_is_never_a_fifth_below_o200k(kind: str) -> None:
    for piece in pieces(SAMPLES[kind]):
        assert EstimatedCounter(modern=True).count(piece) >= AT_LEAST * O200K.count(piece), piece


def test_english_is_at_most_a_third_too_high() -> None:
    for piece in pieces(SAMPLES["english"]):
        assert EstimatedCounter().count(piece) <= 1.34 * O200K.count(piece)


@pytest.mark.parametrize(("counter", "exact"), [(EstimatedCounter(), CL100K), (EstimatedCounter(modern=True), O200K)])
def test_the_error_over_all_classes_is_below_a_quarter(counter: EstimatedCounter, exact: ExactCounter) -> None:
    errors = [abs(counter.count(text) / exact.count(text) - 1) for text in SAMPLES.values()]

    assert mean(errors) < 0.25


def test_both_estimates_agree_on_ascii() -> None:
    for kind in ASCII:
        assert EstimatedCounter().count(SAMPLES[kind]) == EstimatedCounter(modern=True).count(SAMPLES[kind])


@given(st.text(alphabet=st.characters(codec=None), min_size=1))
def test_any_text_costs_something_and_no_more_than_its_characters_can(text: str) -> None:
    assert 1 <= EstimatedCounter().count(text) <= 4 * len(text)


def texts(name: str) -> Iterator[str]:
    for conversation in conversations(name):
        for message in conversation["messages"]:
            content: Any = message.get("content")
            if isinstance(content, str) and len(content) >= 200:
                yield content


@pytest.mark.parametrize(
    "name", ["multilingual", "customer_service", "coding_agents", "long_chat", "gemini", "terminal"]
)
def test_real_messages_are_hardly_ever_a_fifth_too_low(name: str) -> None:
    every = sorted(set(texts(name)))
    sample = random.Random(7).sample(every, min(600, len(every)))
    counter = EstimatedCounter()
    shares = [counter.count(text) / max(O200K.count(text), CL100K.count(text)) for text in sample]
    low = [share for share in shares if share < AT_LEAST]

    # What is left are listings of `ls -l`, and lines drawn with symbols of three tokens each.
    assert len(low) <= 2 + 0.01 * len(shares), sorted(low)
    assert mean(shares) == pytest.approx(1.15, abs=0.2)
