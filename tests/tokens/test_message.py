"""What one message costs: the same rule whichever counter counts."""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.tokens import (
    CalibratedCounter,
    EstimatedCounter,
    ExactCounter,
    MessageCounter,
    ScaledCounter,
    TokenCounter,
    total,
)


class Letters(MessageCounter):
    """One token a character, so that a test can say what it expects; remembers what it was asked."""

    def __init__(self) -> None:
        super().__setattr__("seen", [])

    seen: list[str]

    @property
    def name(self) -> str:
        return "letters"

    def count(self, text: str) -> int:
        self.seen.append(text)
        return len(text)


def tokens(message: Mapping[str, Any]) -> int:
    return Letters().message(message)


def call(name: Any = "look", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KEYS = ["role", "content", "refusal", "tool_calls", "function_call", "name", "reasoning_content"]
PARTS = (
    st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "input_audio", "file", "video", "x"])}) | JSON
)
ODD_MESSAGES = st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(PARTS, max_size=3), max_size=5)


def test_a_text_message_costs_its_text_and_four() -> None:
    assert tokens({"role": "user", "content": "hello"}) == 4 + 5


@pytest.mark.parametrize("message", [{"role": "assistant"}, {"role": "assistant", "content": None}])
def test_no_content_costs_nothing(message: dict[str, Any]) -> None:
    assert tokens(message) == 4


def test_a_tool_call_costs_eight_its_name_and_its_arguments() -> None:
    message = {"role": "assistant", "content": "ok", "tool_calls": [call("look", '{"a":1}'), call("go", "{}")]}

    assert tokens(message) == 4 + 2 + (8 + 4 + 7) + (8 + 2 + 2)


def test_arguments_already_parsed_count_as_their_compact_json() -> None:
    arguments = {"city": "Évora", "days": [1, 2]}

    assert tokens({"tool_calls": [call("look", arguments)]}) == 4 + 8 + 4 + len('{"city":"Évora","days":[1,2]}')


def test_no_arguments_cost_nothing() -> None:
    assert tokens({"tool_calls": [call("look", None)]}) == 4 + 8 + 4


def test_a_custom_tool_call_counts_its_input() -> None:
    assert tokens({"tool_calls": [{"type": "custom", "custom": {"name": "sql", "input": "select"}}]}) == 4 + 8 + 3 + 6


def test_a_legacy_function_call_counts_like_one_tool_call() -> None:
    assert tokens({"function_call": {"name": "look", "arguments": "{}"}}) == tokens({"tool_calls": [call()]})


def test_parts_of_text_add_up() -> None:
    parts = [
        {"type": "text", "text": "one"},
        {"type": "input_text", "text": "two"},
        {"type": "output_text", "text": "three"},
        {"type": "refusal", "refusal": "no"},
        "bare",
    ]

    assert tokens({"content": parts}) == 4 + 3 + 3 + 5 + 2 + 4


def test_a_refusal_counts_as_content() -> None:
    assert tokens({"role": "assistant", "content": None, "refusal": "I won't"}) == 4 + 7


def test_only_content_and_calls_count() -> None:
    message = {
        "role": "tool",
        "content": "42",
        "tool_call_id": "call_1",
        "name": "look",
        "reasoning_content": "hmm" * 99,
    }

    assert tokens(message) == 4 + 2


def test_an_unknown_part_counts_as_its_json() -> None:
    part = {"type": "hologram", "depth": 3}

    assert tokens({"content": [part]}) == 4 + len(json.dumps(part, separators=(",", ":")))


def test_content_of_an_unexpected_type_counts_as_its_json() -> None:
    assert tokens({"content": 12345}) == 4 + 5
    assert tokens({"content": {"a": 1}}) == 4 + len('{"a":1}')


def test_read_only_messages_count_like_plain_ones() -> None:
    plain = {"content": [{"type": "text", "text": "hi"}], "tool_calls": [call("look", {"a": {"b": 1}})]}
    sealed = MappingProxyType(
        {
            "content": (MappingProxyType({"type": "text", "text": "hi"}),),
            "tool_calls": (
                MappingProxyType(
                    {"function": MappingProxyType({"name": "look", "arguments": MappingProxyType({"a": {"b": 1}})})}
                ),
            ),
        }
    )

    assert tokens(sealed) == tokens(plain)


def test_a_value_that_contains_itself_is_counted() -> None:
    arguments: dict[str, Any] = {}
    arguments["self"] = arguments

    assert tokens({"tool_calls": [call("look", arguments)]}) > 4 + 8 + 4


def test_a_deeply_nested_value_is_counted() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    assert tokens({"content": [{"type": "x", "deep": deep}]}) > 4


@given(ODD_MESSAGES)
def test_nothing_in_a_message_makes_counting_raise(message: dict[str, Any]) -> None:
    assert tokens(message) >= 4


@given(ODD_MESSAGES, st.sampled_from([Letters, EstimatedCounter]))
def test_counting_never_changes_the_message(message: dict[str, Any], make: Callable[[], TokenCounter]) -> None:
    before = json.dumps(message)

    make().message(message)

    assert json.dumps(message) == before


def test_total_is_the_sum_of_the_messages() -> None:
    messages = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "three"}]

    assert total(Letters(), messages) == 4 + 3 + 4 + 5
    assert total(Letters(), []) == 0


EVERY = [
    ExactCounter(),
    ExactCounter("cl100k_base"),
    EstimatedCounter(),
    EstimatedCounter(modern=True),
    ScaledCounter(ExactCounter(), 1.2),
    CalibratedCounter(ExactCounter(), 1.1, 300),
]


@pytest.mark.parametrize("counter", EVERY, ids=lambda counter: counter.name)
def test_every_counter_counts_nothing_in_an_empty_text(counter: TokenCounter) -> None:
    assert counter.count("") == 0


@pytest.mark.parametrize("counter", EVERY, ids=lambda counter: counter.name)
def test_every_counter_takes_half_a_surrogate_pair(counter: TokenCounter) -> None:
    assert counter.message({"role": "user", "content": "cut off \ud83d" + "x" * 100}) > 4


@pytest.mark.parametrize("counter", EVERY, ids=lambda counter: counter.name)
def test_a_counter_is_read_only(counter: TokenCounter) -> None:
    attribute = next(iter(type(counter).__slots__))  # type: ignore[attr-defined]

    with pytest.raises(AttributeError, match="is read-only"):
        setattr(counter, attribute, None)
