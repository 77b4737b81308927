import pytest

from minutebook.dsl.checks.program import check_agents
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import errors_in
from minutebook.dsl.formatter import format_agents
from minutebook.dsl.parser import parse_agents
from minutebook.dsl.spec import WorkflowSpec
from tests.dsl.good import GOOD


def test_there_are_more_than_a_hundred_of_them():
    assert len(GOOD) >= 100
    assert len(set(GOOD.values())) == len(GOOD)


@pytest.mark.parametrize("name", GOOD)
def test_it_compiles_without_a_word_or_only_says_that_there_is_nothing_to_run(name):
    program = parse_agents(GOOD[name])

    assert {each.code for each in check_agents(program)} <= {"nothing-to-run"}, check_agents(program)
    assert isinstance(compile_agents(program), WorkflowSpec)


@pytest.mark.parametrize("name", GOOD)
def test_what_is_printed_means_the_same_and_is_printed_the_same(name):
    program = parse_agents(GOOD[name])

    printed = format_agents(program)

    assert parse_agents(printed) == program
    assert format_agents(parse_agents(printed)) == printed
    assert compile_agents(printed) == compile_agents(program)
    assert not errors_in(check_agents(parse_agents(printed)))


@pytest.mark.parametrize("name", GOOD)
def test_no_comment_is_lost(name):
    comments = [line.partition("#")[2] for line in GOOD[name].splitlines() if "#" in line]

    printed = format_agents(parse_agents(GOOD[name]))

    assert [line.partition("#")[2] for line in printed.splitlines() if "#" in line] == [c.rstrip() for c in comments]
