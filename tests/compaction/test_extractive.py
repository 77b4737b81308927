"""The summarizer that needs no model."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.summarizer import SummaryRequest, require_summary, summary_message, words_of
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
    said = summary(TRIP, max_tokens=110)

    assert said.startswith("User: I want to book a flight from Oslo to Lisbon on May 20.")
    for fact in ("TP761", "QX7-114", "allergic to nuts", "Not before 11"):
        assert fact in said
    for nothing in ("Hi there", "Hello", "You're welcome", "Anything else"):
        assert nothing not in said


def test_tells_who_said_it_in_the_order_in_which_it_was_said():
    lines = summary([user("Mend src/app.py please.", name="maria"), assistant("I mended it in 3 lines.")]).splitlines()

    assert lines == ["User (maria): Mend src/app.py please.", "Assistant: I mended it in 3 lines."]


def test_a_summary_that_is_carried_on_keeps_its_best_lines_word_for_word():
    first = summary(TRIP, max_tokens=110)
    later = [user(f"And what about museum {n} in Lisbon?") for n in range(1, 9)]

    again = summary(later, previous=first, max_tokens=150)

    assert again.splitlines()[0] == first.splitlines()[0]
    assert "QX7-114" in again
    assert "museum 8" in again


def test_reads_another_summarizers_prose_too():
    said = summary([user("Now test it on Windows 11.")], previous="The user wants a parser for RFC 8259. It is done.")

    assert "Earlier: The user wants a parser for RFC 8259." in said
    assert "Windows 11" in said


def test_a_summary_among_the_messages_is_read_in_its_place():
    said = summary([summary_message("User: The deadline is 2026-03-01."), user("What is left to do for release 4?")])

    assert said.splitlines()[0] == "User: The deadline is 2026-03-01."


def test_what_holds_no_word_is_told_by_its_tools():
    calls = [{"id": n, "type": "function", "function": {"name": "read", "arguments": "{}"}} for n in "ab"]

    said = summary([{"role": "assistant", "content": None, "tool_calls": calls}, user("")])

    assert said == "Nothing was said in words. Tools used: read ×2."  # noqa: RUF001 - times


def test_does_not_repeat_what_was_said_again_and_again():
    said = summary([user("Is order 4711 there?")] * 30)

    assert said.count("4711") == 1


@given(conversations(user_first=True), st.integers(12, 300))
def test_is_within_its_bound_and_may_be_used_whatever_was_said(chat, most):
    request = SummaryRequest(chat, None, most, COUNTER)

    said = asyncio.run(ExtractiveSummarizer().summarize(request))

    assert COUNTER.count(said) <= most
    if any(word.isalnum() for message in chat if message["role"] == "user" for word in words_of(message)):
        assert require_summary(said, request) == said.strip()
    assert asyncio.run(ExtractiveSummarizer().summarize(request)) == said


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_sums_up_real_conversations_within_its_bound(name):
    for one, _ in zip(real(name), range(4), strict=False):
        request = SummaryRequest(one["messages"], None, 400, COUNTER)

        said = asyncio.run(ExtractiveSummarizer().summarize(request))

        assert require_summary(said, request) == said
