import pytest

from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import CODES, WARNINGS, errors_in
from minutebook.errors import ProgramInvalid
from tests.dsl.bad import BAD


def marked(text):
    """The text without its mark, and the line and column of the mark."""
    before, mark, after = text.partition("«")
    return before + after, (before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1) if mark else None


def errors_of(text):
    with pytest.raises(ProgramInvalid) as caught:
        compile_agents(text, source="bad.sr")
    return errors_in(caught.value.diagnostics), caught.value


def test_there_are_more_than_a_hundred_of_them_and_every_error_is_among_them():
    assert len(BAD) >= 100
    assert len({text for _, text in BAD.values()}) == len(BAD)
    assert {code for code, _ in BAD.values()} == set(CODES) - WARNINGS


@pytest.mark.parametrize("name", BAD)
def test_it_has_one_error_which_stands_where_it_is(name):
    code, (text, place) = BAD[name][0], marked(BAD[name][1])

    found, _ = errors_of(text)

    assert [each.code for each in found] == [code], found
    assert place is None or (found[0].line, found[0].column) == place, found[0]


@pytest.mark.parametrize("name", BAD)
def test_the_message_shows_the_line_and_a_caret_under_the_place(name):
    text, _ = marked(BAD[name][1])

    found, error = errors_of(text)

    shown = str(found[0]).splitlines()
    assert shown[0].startswith(f"bad.sr:{found[0].line}:{found[0].column}: error[{found[0].code}]: ")
    assert shown[2].strip(" |\t^") == ""
    assert "^" in shown[2]
    assert str(found[0]) in str(error)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("a misspelt definition", "agent"),
        ("a definition in capitals", "model"),
        ("a model property that is none", "temperature"),
        ("an agent property that is none", "history"),
        ("a statement that is none", "return"),
        ("a prompt with a misspelt word", "using"),
        ("retry with a misspelt backoff", "exponential"),
        ("else if", "elif"),
        ("if with do", ":"),
        ("True with a capital", "true"),
        ("one equals sign", "=="),
        ("an unknown model", "main"),
        ("an unknown type", "string"),
        ("an unknown builtin", "files"),
        ("an unknown tool of a builtin", "read_file"),
        ("a misspelt strategy", "summarize"),
        ("an unknown policy", "compaction"),
        ("another version", "v1"),
    ],
)
def test_it_says_what_was_probably_meant(name, suggestion):
    found, _ = errors_of(marked(BAD[name][1])[0])

    assert found[0].suggestion == suggestion
    assert str(found[0]).splitlines()[0].endswith(f"; did you mean {suggestion!r}?")


def test_an_unknown_strategy_that_is_like_none_gets_the_list_of_those_there_are():
    found, _ = errors_of(marked(BAD["an unknown strategy"][1])[0])

    names = "summarize, truncate, turns, hybrid, balanced, economy, quality, none"
    assert found[0].message == f"no history strategy 'banana'; choose one of {names}"


def test_one_error_for_each_broken_definition_is_reported_at_once():
    text = 'modle a = b/c\nagent x:\n    tolls y\n\n# fine\nmodel b = c/d\nflow f:\n    return (\nprompt p: "x\n'

    found, _ = errors_of(text)

    assert [(each.line, each.column, each.code) for each in found] == [
        (1, 1, "syntax"),
        (3, 5, "syntax"),
        (8, 13, "syntax"),
        (9, 11, "unclosed-text"),
    ]


def test_what_follows_from_an_error_is_no_other_error():
    text = "agent b:\n{    instruction p\nagent c:\n    tolls y\n"

    found, _ = errors_of(text)

    assert [(each.line, each.column) for each in found] == [(2, 1), (4, 5)]


def test_every_semantic_error_is_reported_at_once():
    found, _ = errors_of("agent a:\n    instruction p\n    history banana\n    tools x\n    retry y\n")

    assert {each.code for each in found} == {"unknown-prompt", "unknown-strategy", "unknown-tool", "unknown-retry"}


def test_a_caret_stands_under_wide_letters_and_behind_tabs():
    found, _ = errors_of('flow main:\n\treturn "語🙂e\N{COMBINING ACUTE ACCENT}" ;\n')

    assert str(found[0]).splitlines()[1:] == [
        ' 2 | \treturn "語🙂e\N{COMBINING ACUTE ACCENT}" ;',
        "   | \t               ^",
    ]
