"""What a program says that cannot be meant, though it can be read."""

from collections.abc import Collection

from minutebook.dsl import syntax as t
from minutebook.dsl.checks.agents import check_agent, check_circles, check_effect
from minutebook.dsl.checks.definitions import check_definition
from minutebook.dsl.checks.flows import check_flow
from minutebook.dsl.checks.scope import DEFAULT, NO_STRATEGY, STRATEGIES, Known, Scope
from minutebook.dsl.diagnostics import Diagnostic, Findings

VERSION = 1
"""The version of the language that this is."""


def check_agents(
    program: t.Program, *, strategies: Collection[str] = STRATEGIES, externals: Collection[str] = ()
) -> tuple[Diagnostic, ...]:
    """Errors and warnings, in the order of the text.

    `strategies` are the names that `history` may give, `externals` the heads of dotted tool names (`mcp` for
    `mcp.read_file`) that whoever runs the program brings.
    """
    return scope_of(program, Known(strategies, externals)).findings.in_order()


def scope_of(program: t.Program, known: Known) -> Scope:
    """Everything the program defines, checked."""
    scope = Scope(Findings(program.source, program.text), known)
    if program.version is not None and program.version.number != VERSION:
        message = f"this is version {VERSION} of the language, and the program is for {program.version.number}"
        scope.findings.add("unknown-version", program.version.at, message, f"v{VERSION}")
    for node in program.definitions:
        scope.define(node)
    for node in program.definitions:
        match node:
            case t.AgentDef():
                check_agent(node, scope)
            case t.FlowDef():
                check_flow(node, scope)
            case _:
                check_definition(node, scope)
    check_circles(program, scope)
    check_effect(program, scope)
    _check_unused(program, scope)
    return scope


def _check_unused(program: t.Program, scope: Scope) -> None:
    """Agents and flows can be run by name, so they are never unused; whatever else nobody names is."""
    if not scope.tables["agent"] and not scope.tables["flow"] and scope.unnamed is None:
        at = program.definitions[0].at if program.definitions else t.Position(1, 1)
        scope.findings.add("nothing-to-run", at, "the program defines no agent and no flow")
        return
    for kind in ("model", "schema", "tool", "retry", "timeout", "prompt"):
        for name, node in scope.tables[kind].items():
            if (kind, name) not in scope.used and name != (DEFAULT if kind in {"retry", "timeout"} else None):
                scope.findings.add("unused", node.name.at, f"nothing uses {kind} {name!r}")
    for name, node in scope.tables["flow"].items():
        if name in scope.known.strategies or name == NO_STRATEGY:
            message = f"`history {name}` means the strategy, not this flow; give the flow another name"
            scope.findings.add("shadowed", node.name.at, message)
