import pytest

from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.diagnostics import WARNINGS
from tests.dsl.good import AGENT, MODEL, agent, flow, tool
from tests.dsl.test_bad import marked

ODD = {
    "a model": ("unused", f"{AGENT}model «fast = openai/o3\n"),
    "a prompt": ("unused", f"{AGENT}prompt «q:\n    x\n"),
    "a tool": ("unused", f"{AGENT}tool «t = builtin clock\n"),
    "a schema": ("unused", f"{AGENT}schema «S:\n    a: int\n"),
    "a retry": ("unused", f"{AGENT}retry «r = 1 time\n"),
    "a timeout": ("unused", f"{AGENT}timeout «t = 1 hour\n"),
    "a variable": ("unused", flow("«$x = 1")),
    "a parameter": ("unused", flow("return", head="flow main «$z:")),
    "a loop's variable": ("unused", flow("for «$x in [1]:", "    run agent a")),
    "a secret": ("secret-in-file", tool('mcp "https://x.org" with auth bearer «"hunter2"')),
    "a tool from elsewhere": ("external-tool", agent("tools «mcp.read_file")),
    "a helper without a description": ("no-description", agent("use «b", more="agent b:\n    instruction p\n")),
    "a flow called like a strategy": ("shadowed", f"{AGENT}flow «summarize $x:\n    return $x\n"),
    "a program of models": ("nothing-to-run", f"«{MODEL}"),
}


@pytest.mark.parametrize("name", ODD)
def test_it_compiles_with_a_warning_that_stands_where_it_is(name):
    text, place = marked(ODD[name][1])

    (warning,) = compile_agents(text).warnings

    assert (warning.code, warning.line, warning.column) == (ODD[name][0], *place)
    assert warning.severity.value == "warning"
    assert f": warning[{warning.code}]: " in str(warning)


def test_every_warning_is_among_them():
    assert {code for code, _ in ODD.values()} == WARNINGS
