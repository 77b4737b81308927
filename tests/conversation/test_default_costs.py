"""The defaults of the service never cost more than sending the full history (guarantee 13)."""

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ModelInfo, Transcript
from minutebook.conversation.policy import policy_named
from minutebook.history import CacheLedger, PassthroughManager
from minutebook.service.config.schema import ServiceConfig
from minutebook.testing import coding_session

CONFIG = ServiceConfig()
MODEL = ModelInfo("large", max_input_tokens=120_000)
SMALL_MODEL = ModelInfo("small", max_input_tokens=8_000)
TEXT = "the order left the port on Monday and should be at your door by Friday if customs release it in time"


def sentence(rng, length):
    return " ".join(rng.choice(TEXT.split()) for _ in range(max(3, int(length * rng.lognormvariate(0, 0.5)))))


def chat(turns, *, result_words=0, seed=0):
    """A support chat of this many turns. With `result_words` every turn has one tool call."""
    rng = random.Random(seed)
    messages = [{"role": "system", "content": sentence(rng, 60)}]
    for number in range(turns):
        messages.append({"role": "user", "content": sentence(rng, 25)})
        if result_words:
            function = {"name": "find_order", "arguments": f'{{"order": {number}}}'}
            calls = [{"id": f"call_{number}", "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            result = {"role": "tool", "tool_call_id": f"call_{number}", "content": sentence(rng, result_words)}
            messages.append(result)
        messages.append({"role": "assistant", "content": sentence(rng, 60)})
    return messages


SESSIONS = {
    "plain chat, 30 turns": chat(30),
    "plain chat, 60 turns": chat(60),
    "tool chat, 30 turns": chat(30, result_words=60),
    "tool chat, 60 turns": chat(60, result_words=60),
    "tool chat with long results": chat(30, result_words=800),
    "coding, 8 turns": coding_session(seed=1, turns=8),
    "coding, 30 turns": coding_session(seed=2, turns=30),
}


def replayed(messages, manager):
    """The requests of a session: one before each message of the assistant."""
    record, ledger = Transcript(), CacheLedger()
    for message in messages:
        if message["role"] == "assistant":
            view = manager.curate(record)
            ledger.send(list(view), [record.counter.message(sent) for sent in view])
        record.append(message)
    return ledger


@cache
def full_cost(session):
    return replayed(SESSIONS[session], PassthroughManager()).cost


@pytest.mark.parametrize("model", [MODEL, SMALL_MODEL], ids=lambda model: model.name)
@pytest.mark.parametrize("name", [CONFIG.conversation.policy, CONFIG.conversation.threads_policy])
@pytest.mark.parametrize("session", SESSIONS)
def test_a_default_costs_at_most_as_much_as_the_full_history(session, name, model):
    manager = policy_named(name, CONFIG, model=model).manager

    assert replayed(SESSIONS[session], manager).cost <= full_cost(session)


def test_the_default_of_completions_changes_nothing_that_fits():
    for session, messages in SESSIONS.items():
        if sum(map(Transcript().counter.message, messages)) <= MODEL.room():
            manager = policy_named(CONFIG.conversation.policy, CONFIG, model=MODEL).manager
            assert list(manager.curate(messages)) == messages, session


@pytest.mark.parametrize("name", [CONFIG.conversation.policy, CONFIG.conversation.threads_policy])
def test_every_view_of_a_default_is_within_the_window(name):
    record = Transcript()
    for message in SESSIONS["coding, 8 turns"]:
        record.append(message)
        if message["role"] in {"user", "tool"}:
            view = policy_named(name, CONFIG, model=SMALL_MODEL).manager.curate(record)
            assert sum(map(record.counter.message, view)) <= 8_000


def test_retention_moves_its_boundary_rarely():
    manager = policy_named("retention", CONFIG, model=MODEL).manager
    ledger = replayed(SESSIONS["plain chat, 60 turns"], manager)

    assert (ledger.requests, ledger.busts) == (60, 7)


RESULT_WORDS = {"plain": 0, "short results": 60, "long results": 800}


@pytest.mark.parametrize("result_words", RESULT_WORDS.values(), ids=RESULT_WORDS)
@pytest.mark.parametrize("turns", [4, 8, 11, 12, 13, 14, 15, 20, 30, 40])
def test_retention_costs_more_only_where_a_chat_ends_right_after_its_first_step(turns, result_words):
    assert retention_ratio(turns, result_words, seed=turns) <= (1.1 if turns in {12, 13, 14} else 1.0 + 1e-9)


@pytest.mark.fuzz
@given(turns=st.integers(2, 80), result_words=st.sampled_from([0, 30, 200]), seed=st.integers(0, 10_000))
def test_so_it_is_for_any_chat(turns, result_words, seed):
    assert retention_ratio(turns, result_words, seed) <= (1.1 if turns in {12, 13, 14} else 1.0 + 1e-9)


def retention_ratio(turns, result_words, seed):
    """The cost of a chat with retention, as a multiple of that of its full history."""
    messages = chat(turns, result_words=result_words, seed=seed)
    manager = policy_named("retention", CONFIG, model=MODEL).manager
    return replayed(messages, manager).cost / replayed(messages, PassthroughManager()).cost
