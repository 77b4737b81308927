"""Conversations of every protocol, cut by every manager, are valid for the strict provider of every protocol."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import CannotFit, Transcript, view_of
from minutebook.testing.provider.anthropic import messages_problem
from minutebook.testing.provider.openai import chat_problem
from minutebook.testing.provider.responses import responses_problem
from minutebook.wire.read import read
from tests.every import MANAGERS
from tests.protocols import anthropic_conversations, conversations_with_neighbours, has_blocks, responses_conversations
from tests.strategies import conversations, foreign_conversations

PROTOCOLS = ("chat", "responses", "anthropic")
PROVIDERS = st.sampled_from(["openai", "anthropic"])


def view_problems(messages, provider, protocols):
    """Manager and protocol → why the strict provider of the protocol would reject the manager's view."""
    found, record = {}, Transcript(read(messages))
    for name, manager in MANAGERS.items():
        try:
            view = view_of(record, manager, provider=provider)
        except CannotFit:
            continue
        problems = {
            "chat": chat_problem({"model": "m", **view.openai()}),
            "responses": responses_problem({"model": "m", **view.responses()}),
            "anthropic": messages_problem({"model": "m", "max_tokens": 9, **view.anthropic()}),
        }
        found |= {(name, protocol): problems[protocol].message for protocol in protocols if problems[protocol]}
    return found


@pytest.mark.fuzz
@given(st.one_of(anthropic_conversations(max_turns=12), conversations_with_neighbours()))
def test_cut_anthropic_conversations_are_valid(messages):
    # Without any other block, cache marks look like those of a chat server that accepts them, and are sent to it.
    protocols = ("anthropic", "responses", "chat") if has_blocks(messages) else ("anthropic", "responses")

    assert view_problems(messages, "anthropic", protocols) == {}


@pytest.mark.fuzz
@given(responses_conversations(max_turns=12), PROVIDERS)
def test_cut_responses_conversations_are_valid(items, provider):
    assert view_problems(items, provider, PROTOCOLS) == {}


@pytest.mark.fuzz
@given(conversations(user_first=True), PROVIDERS)
def test_cut_chat_conversations_are_valid(chat, provider):
    messages = [*map(with_known_keys, chat), {"role": "user", "content": "Go on."}]

    assert view_problems(messages, provider, PROTOCOLS) == {}


def with_known_keys(message):
    """The message without the unknown keys that the strategy adds on purpose. They are sent unchanged in chat views."""
    return {key: value for key, value in message.items() if key not in {"x", "cache_control"}}


@pytest.mark.fuzz
@given(foreign_conversations(), PROVIDERS)
def test_cut_conversations_with_parts_and_calls_of_one_api_are_valid_in_all(messages, provider):
    assert view_problems(messages, provider, PROTOCOLS) == {}
