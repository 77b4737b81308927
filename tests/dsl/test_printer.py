import pytest
from hypothesis import given

from minutebook.dsl.formatter import format_agents
from minutebook.dsl.parser import parse_agents
from tests.dsl.trees import programs

pytestmark = pytest.mark.fuzz


@given(programs)
def test_what_is_printed_parses_to_the_same_tree_comments_and_all(program):
    assert parse_agents(format_agents(program)) == program


@given(programs)
def test_what_is_printed_twice_is_printed_the_same(program):
    printed = format_agents(parse_agents(format_agents(program)))

    assert format_agents(parse_agents(printed)) == printed


def test_the_one_form_of_a_program():
    messy = (
        "# Reviews code.\n\n\nstreetrace v1\nmodel   main:   # the model\n  name : claude-sonnet\n  provider:anthropic\n"
        'model fast=openai/o3\nmodel slow = "openai/o4"\nprompt p using model "fast" : "Be brief."\n# the agent\nagent a:\n'
        "\ttools:mcp.x,mcp.y\n\n\n\t# how to keep it short\n\thistory : summarize   # or truncate\n\tinstruction: p\n\t# that is all\n"
        "flow f $x:\n  $y=(1+2)*3\n\n\n\n  if ((not $x)):\n    return $y\n  # otherwise\n  else:\n    return -$x.a[ 0 ]\n# the end"
    )

    assert format_agents(parse_agents(messy)) == (
        "# Reviews code.\n\nstreetrace v1\n\n"
        "model main:  # the model\n    name: claude-sonnet\n    provider: anthropic\n\n"
        "model fast = openai/o3\nmodel slow = openai/o4\n\n"
        "prompt p using model fast:\n    Be brief.\n\n"
        "# the agent\nagent a:\n    tools mcp.x, mcp.y\n    # how to keep it short\n    history summarize  # or truncate\n"
        "    instruction p\n    # that is all\n\n"
        "flow f $x:\n    $y = (1 + 2) * 3\n\n    if not $x:\n        return $y\n    # otherwise\n    else:\n"
        "        return -$x.a[0]\n\n# the end\n"
    )
