"""An answer on a terminal, word by word."""

import io
import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from minutebook import PromptResponse, Transcript, view_of
from minutebook.agent import AnswerRestarted, RunFinished, TextDelta, ThinkingDelta, Usage
from minutebook.cli.chat.display import AnswerPrinter, safe_text

WIDTH = 20


def spoken(*events, width=WIDTH):
    out = io.StringIO()
    printer = AnswerPrinter(Console(file=out, width=width, force_terminal=False))
    for event in events:
        printer.on_event(event)
    printer.end()
    return out.getvalue()


def finished(text):
    response = PromptResponse("chat", text, text, UUID(int=1), Usage(), 1, "stop", None, Transcript(), view_of([]))
    return RunFinished(response)


@given(pieces=st.lists(st.text(st.sampled_from("abc 日\n\t\x1b")), max_size=20))
def test_the_pieces_do_not_matter(pieces):
    assert spoken(*map(TextDelta, pieces)) == spoken(TextDelta("".join(pieces)))


@given(st.text())
def test_every_word_is_said_in_its_order(text):
    assert spoken(TextDelta(text)).split() == safe_text(text).split()


@given(st.lists(st.sampled_from(["a", "word", "日本語", "\n"]), max_size=30).map(" ".join))
def test_lines_break_between_words(text):
    for line in spoken(TextDelta(text)).splitlines():
        assert cell_len(line) <= WIDTH


def test_a_word_longer_than_a_line_is_left_to_the_terminal_to_break():
    address = "https://example.org/" + "a" * 15

    assert spoken(TextDelta(f"see {address} and more words")) == f"see\n{address} and\nmore words\n"


@given(st.lists(st.lists(st.sampled_from(["a", "bb", "  indented", "ccc"]), max_size=3).map(" ".join), max_size=5))
def test_lines_that_fit_are_left_as_they_are(lines):
    text = "\n".join(lines)

    assert spoken(TextDelta(text), width=100).rstrip("\n") == text.rstrip("\n")


@given(st.text(st.characters()))
def test_nothing_that_is_said_commands_the_terminal(text):
    said = spoken(TextDelta(text))

    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", said)


def test_a_word_is_shown_when_it_is_whole():
    out = io.StringIO()
    printer = AnswerPrinter(Console(file=out, width=WIDTH, force_terminal=False))

    printer.on_event(TextDelta("Hel"))
    assert out.getvalue() == ""
    printer.on_event(TextDelta("lo "))
    assert out.getvalue() == "Hello"
    printer.on_event(TextDelta("you"))
    printer.end()
    assert out.getvalue() == "Hello you\n"


def test_an_answer_that_starts_again_is_told_apart():
    events = TextDelta("one two"), AnswerRestarted("it broke off."), TextDelta("one two three"), finished("…")

    assert spoken(*events, width=100) == "one two\nit broke off; retrying\none two three\n"


def test_thoughts_have_lines_of_their_own():
    assert spoken(ThinkingDelta("hm "), TextDelta("yes"), finished("yes")) == "hm\nyes\n"


@pytest.mark.parametrize(
    ("text", "said"), [("I will not.", "I will not.\n"), ("", "(empty answer)\n")], ids=["text", "none"]
)
def test_an_answer_that_came_without_words_is_shown_at_the_end(text, said):
    assert spoken(finished(text)) == said
