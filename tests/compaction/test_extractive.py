"""The summarizer that needs no model."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.summarizer import SummaryRequest, readable_text, require_summary, summary_message
from minutebook.tokens import EstimatedCounter
from tests.strategies import conversations
from tests.transcripts import FILES, needs_corpus, real

COUNTER = EstimatedCounter()


def summary(messages, previous=None, max_tokens=200, counter=COUNTER):
    return asyncio.run(ExtractiveSummarizer().summarize(SummaryRequest(messages, previous, max_tokens, counter)))


def user(text, **more):
    return {"role": "user", "content": text, **more}


def assistant(text):
    return {"role": "assistant", "content": text}


TRIP = [
    user("Hi there!"),
    assistant("Hello! How can I help you today?"),
    user("I want to book a flight from Oslo to Lisbon on May 20. I am allergic to nuts."),
    assistant("Sure! Flights that day are TP761 at 14:05 for $152 and D83 at 06:10 for $99. Which one do you prefer?"),
    user("Not before 11, so TP761. My booking code is QX7-114."),
    assistant("Thank you! I booked TP761 under QX7-114 and asked for a meal without nuts. Anything else?"),
    user("Thanks!"),
    assistant("You're welcome! Have a great day!"),
]


def test_keeps_the_first_request_the_decision_and_the_facts_and_leaves_out_the_greetings():
    text = summary(TRIP, max_tokens=110)

    assert text.startswith("User: I want to book a flight from Oslo to Lisbon on May 20.")
    for fact in ("TP761", "QX7-114", "allergic to nuts", "Not before 11"):
        assert fact in text
    for greeting in ("Hi there", "Hello", "You're welcome", "Anything else"):
        assert greeting not in text


def test_lines_have_their_speakers_and_the_order_of_the_conversation():
    lines = summary([user("Fix src/app.py please.", name="maria"), assistant("I fixed it in 3 lines.")]).splitlines()

    assert lines == ["User (maria): Fix src/app.py please.", "Assistant: I fixed it in 3 lines."]


def test_the_best_lines_of_a_previous_summary_are_kept_word_for_word():
    first = summary(TRIP, max_tokens=110)
    later = [user(f"And what about museum {n} in Lisbon?") for n in range(1, 9)]

    again = summary(later, previous=first, max_tokens=150)

    assert again.splitlines()[0] == first.splitlines()[0]
    assert "QX7-114" in again
    assert "museum 8" in again


def test_reads_the_prose_of_another_summarizer():
    text = summary([user("Now test it on Windows 11.")], previous="The user wants a parser for RFC 8259. It is done.")

    assert "Earlier: The user wants a parser for RFC 8259." in text
    assert "Windows 11" in text


def test_a_summary_among_the_messages_is_read_in_its_place():
    text = summary([summary_message("User: The deadline is 2026-03-01."), user("What is left to do for release 4?")])

    assert text.splitlines()[0] == "User: The deadline is 2026-03-01."


def test_messages_without_text_are_summarized_by_their_tools():
    calls = [{"id": n, "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in "ab"]

    text = summary([{"role": "assistant", "content": None, "tool_calls": calls}, user("")])

    assert text == "No text messages. Tools used: read ×2."  # noqa: RUF001 - times


def test_does_not_repeat_a_repeated_sentence():
    text = summary([user("Is order 4711 there?")] * 30)

    assert text.count("4711") == 1


@given(conversations(user_first=True), st.integers(12, 300))
def test_is_usable_and_within_its_bound(chat, max_tokens):
    request = SummaryRequest(chat, None, max_tokens, COUNTER)

    text = asyncio.run(ExtractiveSummarizer().summarize(request))

    assert COUNTER.count(text) <= max_tokens
    if any(word.isalnum() for message in chat if message["role"] == "user" for word in readable_text(message)):
        assert require_summary(text, request) == text.strip()
    assert asyncio.run(ExtractiveSummarizer().summarize(request)) == text


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_summarizes_real_conversations_within_its_bound(name):
    for conversation, _ in zip(real(name), range(4), strict=False):
        request = SummaryRequest(conversation["messages"], None, 400, COUNTER)

        text = asyncio.run(ExtractiveSummarizer().summarize(request))

        assert require_summary(text, request) == text
