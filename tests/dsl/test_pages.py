"""The reference page of the language, and the example agents."""

import re
from pathlib import Path

import pytest

from minutebook.agent.mcp import BuiltinTools, PythonFunction
from minutebook.dsl.checks.program import check_agents
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import CODES, WARNINGS
from minutebook.dsl.formatter import format_agents
from minutebook.dsl.parser import parse_agents
from minutebook.prompt.tools import tool

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sr\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = sorted((ROOT / "examples").glob("*.sr"))


@pytest.mark.parametrize("block", BLOCKS, ids=[block.split("\n", 1)[0][:24] for block in BLOCKS])
def test_every_block_of_the_page_can_be_read_alone(block):
    assert parse_agents(block).definitions or "streetrace v1" in block


def test_the_blocks_of_the_page_are_one_program():
    program = parse_agents("\n".join(BLOCKS))

    assert {each.code for each in check_agents(program)} <= {"unused"}
    assert compile_agents(program).entry.name == "main"


def test_the_page_explains_every_code_and_marks_the_warnings():
    listed = re.findall(r"^\| `([a-z-]+)`(\*?) \| (.*) \|$", PAGE[PAGE.index("| code |") :], re.MULTILINE)

    assert {code: meaning for code, _, meaning in listed} == CODES
    assert {code for code, star, _ in listed if star} == WARNINGS


def test_there_are_twelve_examples():
    assert len(EXAMPLES) == 12


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_right_and_in_its_one_form(path):
    text = path.read_text(encoding="utf-8")

    program = parse_agents(text, source=path.name)

    assert check_agents(program) == ()
    assert format_agents(program) == text
    assert compile_agents(program).entry is not None


def test_the_functions_of_the_examples_are_tools():
    import examples.tools

    named = {
        tool.origin.function
        for path in EXAMPLES
        for tool in compile_agents(path.read_text(encoding="utf-8")).tools
        if isinstance(tool.origin, PythonFunction)
    }

    assert {tool(getattr(examples.tools, name)).name for name in named} == named
    assert examples.tools.calculate("-(1 + 2) * 3 / 2") == -4.5


def test_the_examples_show_every_builtin():
    tools = [tool for path in EXAMPLES for tool in compile_agents(path.read_text(encoding="utf-8")).tools]

    assert {tool.origin.name for tool in tools if isinstance(tool.origin, BuiltinTools)} == {"files", "clock"}
