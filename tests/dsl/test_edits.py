"""Random edits of good programs: a program, or diagnostics with a position; never anything else."""

import os
import random

import pytest

from minutebook.dsl.checks.program import check_agents
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import CODES, errors_in
from minutebook.dsl.formatter import format_agents
from minutebook.dsl.parser import parse_agents, parse_with_diagnostics
from minutebook.errors import ProgramInvalid
from tests.dsl.good import GOOD

EDITS = max(600, int(os.environ.get("MINUTEBOOK_EXAMPLES", "10_000")))
SHARDS = 4
PIECES = [
    *'"#:=$.,()[]{}?|-+*/\\\n\t 0',
    "\r", "\x00", "\N{BYTE ORDER MARK}", "語", "🙂", "\ud800", "\u2028", "\x0c", '"""', "${", "${env:X}", "    ", "\n    ", "\n\n",
    "agent ", "model ", "return", "if $a:\n", "1e9", "-", "99999999999999999999", "history banana\n", "and", "not ", "run agent a\n",
]  # fmt: skip


def edited(text, draw):
    """The text with one to four random changes."""
    for _ in range(draw.randint(1, 4)):
        at, to = sorted(draw.choices(range(len(text) + 1), k=2))
        to = min(to, at + draw.choice([0, 1, 1, 3, 20]))
        lines = text.split("\n")
        match draw.randrange(6):
            case 0:
                text = text[:at] + text[to:]
            case 1 | 2:
                text = text[:at] + draw.choice(PIECES) + text[at:]
            case 3:
                text = text[:at] + text[to:] + text[at:to]
            case 4:
                draw.shuffle(lines)
                text = "\n".join(lines)
            case 5:
                line = draw.randrange(len(lines))
                lines[line] = draw.choice(["", " ", "\t", "    "]) + lines[line].lstrip()
                text = "\n".join(lines)
    return text


@pytest.mark.fuzz
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_random_edit_gives_a_program_or_a_diagnostic_with_a_position(shard):
    draw = random.Random(shard)
    programs = list(GOOD.values())
    for _ in range(EDITS // SHARDS):
        text = edited(draw.choice(programs) + draw.choice(["", *programs]), draw)

        program, found = parse_with_diagnostics(text)

        lines = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n").replace("\r", "\n").split("\n")
        if program is None:
            assert found, text
        else:
            found = check_agents(program)
            assert parse_agents(format_agents(program)) == program, text
            if not errors_in(found):
                compile_agents(program)
        for each in found:
            assert each.code in CODES
            assert 1 <= each.line <= len(lines), (text, each)
            assert 1 <= each.column <= len(lines[each.line - 1]) + 1, (text, each)
            assert each.excerpt == lines[each.line - 1]
            assert each.message in str(each)


@pytest.mark.parametrize(
    "text",
    [
        "flow f:\n    return " + "(" * 10_000 + "1" + ")" * 10_000,
        "flow f:\n    return " + "-" * 10_000 + "1",
        "flow f:\n    return " + " + ".join("1" * 5_000),
        "flow f:\n" + "".join(f"{'  ' * depth}if 1:\n" for depth in range(1, 400)) + "  " * 400 + "return\n",
        "schema S:\n    a: " + "list[" * 10_000 + "int" + "]" * 10_000,
        '"' * 100_001,
        "\n" * 100_000 + "x",
        "#" * 1_000_000,
        "prompt p:\n" + " \n" * 50_000,
        " " * 100_000 + "x",
        "model " * 20_000,
    ],
    ids=["brackets", "signs", "sums", "blocks", "lists", "quotes", "lines", "comment", "blanks", "spaces", "words"],
)
def test_what_is_huge_is_refused_in_words_and_not_by_running_out_of_stack(text):
    try:
        parse_agents(text)
    except ProgramInvalid as error:
        assert all(each.line >= 1 for each in error.diagnostics)
        assert len(error.diagnostics) <= 20
