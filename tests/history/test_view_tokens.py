"""The tokens of a view are those that the provider counts, in every protocol."""

import pytest
from hypothesis import given

from minutebook import Transcript, counter_for, view_of
from minutebook.testing.provider.usage import CacheRules, PromptMeter
from minutebook.wire.read import read
from tests.history.test_every_protocol import with_known_keys
from tests.protocols import anthropic_conversations, responses_conversations
from tests.strategies import conversations
from tests.transcripts import needs_corpus, real

COUNTERS = {
    "chat": counter_for("gpt-4o"),
    "responses": counter_for("gpt-4o"),
    "anthropic": counter_for("claude-sonnet-4-5"),
}


def counts(messages, protocol):
    """The tokens of the view, the tokens of its request by the loopback provider's count, and the number of messages."""
    counter, provider = COUNTERS[protocol], "anthropic" if protocol == "anthropic" else "openai"
    view = view_of(Transcript(read(messages), counter=counter, broken="mark"), provider=provider)
    body = {"chat": view.openai, "responses": view.responses, "anthropic": view.anthropic}[protocol]()
    counted = PromptMeter(counter, CacheRules()).measure(body, cache_key="", uses_cache_marks=False).tokens
    return view.tokens, counted, len(view.curated)


def assert_counts(messages, protocol):
    tokens, counted, messages_sent = counts(messages, protocol)

    assert counted * 0.97 - 4 * messages_sent <= tokens <= counted * 1.05 + 8 * messages_sent


@pytest.mark.fuzz
@given(anthropic_conversations())
def test_the_tokens_of_anthropic_conversations(messages):
    assert_counts(messages, "anthropic")


@pytest.mark.fuzz
@given(responses_conversations())
def test_the_tokens_of_responses_conversations(items):
    assert_counts(items, "responses")


@pytest.mark.fuzz
@given(conversations(user_first=True))
def test_the_tokens_of_chat_conversations(chat):
    messages = list(map(with_known_keys, chat))
    assert_counts(messages, "chat")
    for protocol in ("responses", "anthropic"):  # blank texts are not sent there, so the view may have more
        tokens, counted, messages_sent = counts(messages, protocol)
        assert counted * 0.97 - 4 * messages_sent <= tokens


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize(("name", "key"), [("raw_anthropic", "messages"), ("raw_responses", "items")])
def test_the_tokens_of_real_conversations(name, key):
    protocol = name.removeprefix("raw_")
    for conversation in real(name):
        assert_counts(conversation[key], protocol)
