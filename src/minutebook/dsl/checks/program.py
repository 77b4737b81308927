"""The checks of a whole program that was parsed without errors."""

from collections.abc import Collection

from minutebook.dsl import syntax as t
from minutebook.dsl.checks.agents import check_agent, check_cycles, check_unused_settings
from minutebook.dsl.checks.definitions import check_definition
from minutebook.dsl.checks.flows import check_flow
from minutebook.dsl.checks.scope import DEFAULT, NO_STRATEGY, STRATEGIES, KnownNames, Scope
from minutebook.dsl.diagnostics import Diagnostic, DiagnosticCollector

VERSION = 1
"""The supported version of the language."""


def check_agents(
    program: t.Program, *, strategies: Collection[str] = STRATEGIES, externals: Collection[str] = ()
) -> tuple[Diagnostic, ...]:
    """Check a program, and return its errors and warnings in the order of the text.

    `strategies` are the names that `history` may use, `externals` the prefixes of tool names (`mcp` for `mcp.read_file`)
    that are supplied at run time.
    """
    return check_program(program, KnownNames(strategies, externals)).collector.in_order()


def check_program(program: t.Program, known: KnownNames) -> Scope:
    """Run all checks of a program, and return its definitions with the diagnostics."""
    scope = Scope(DiagnosticCollector(program.source, program.text), known)
    if program.version is not None and program.version.number != VERSION:
        message = f"version {program.version.number} is not supported; the supported version is {VERSION}"
        scope.collector.add("unknown-version", program.version.at, message, f"v{VERSION}")
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
    check_cycles(program, scope)
    check_unused_settings(program, scope)
    _check_unused(program, scope)
    _check_shadowed(scope)
    return scope


def _check_unused(program: t.Program, scope: Scope) -> None:
    """Add a warning for each unused definition, or only one if the program has nothing to run.

    Agents and flows can be run by name, so they are never unused.
    """
    if not scope.tables["agent"] and not scope.tables["flow"] and scope.unnamed_agent is None:
        at = program.definitions[0].at if program.definitions else t.Position(1, 1)
        scope.collector.add("nothing-to-run", at, "the program defines no agent and no flow")
        return
    for kind in ("model", "schema", "tool", "retry", "timeout", "prompt"):
        for name, node in scope.tables[kind].items():
            is_default_policy = kind in {"retry", "timeout"} and name == DEFAULT
            if (kind, name) not in scope.used_definitions and not is_default_policy:
                scope.collector.add("unused", node.name.at, f"nothing uses {kind} {name!r}")


def _check_shadowed(scope: Scope) -> None:
    """Add a warning for each flow with the name of a history strategy."""
    for name, node in scope.tables["flow"].items():
        if name in scope.known.histories or name == NO_STRATEGY:
            message = f"`history {name}` refers to the strategy, not to this flow; rename the flow"
            scope.collector.add("shadowed", node.name.at, message)
