"""Settings of `policy compaction` that nothing in the program would follow."""

from collections.abc import Iterator
from typing import Final

from minutebook.dsl import tree as t
from minutebook.dsl.diagnostic import errors_in
from minutebook.dsl.scope import NO_STRATEGY, Scope, names_in, properties

_ALL: Final = frozenset({"trigger", "target", "keep_turns", "keep_files", "model", "share"})
TAKES: Final = {
    "summarize": _ALL,
    "hybrid": _ALL,
    "truncate": frozenset({"trigger", "target", "keep_turns"}),
    "turns": frozenset({"trigger", "keep_turns", "model", "share"}),
}
"""Strategy → the settings that it follows; one that somebody registers may follow any."""
FLOW: Final = _ALL - {"model"}
"""What a flow that shortens follows: its prompts say themselves which model writes."""


def check_effect(program: t.Program, scope: Scope) -> None:
    """Add an error for each setting that has no effect, where there is nothing else to mend first."""
    policy: t.PolicyDef | None = scope.tables["policy"].get("compaction")
    if policy is None or errors_in(scope.findings.found):
        return
    agents = [properties(node) for node in program.definitions if isinstance(node, t.AgentDef)]
    default = properties(policy).get("strategy")
    histories = [(given, given.get("history", default)) for given in agents]
    kept = [(given, name.text) for given, name in histories if name is not None and name.text != NO_STRATEGY]
    for each in policy.properties:
        if each.key == "strategy" or each.value == t.Flag(value=False):
            continue
        takers = [given for given, name in kept if each.key in _taken(name, scope)]
        if each.key == "share":
            takers = [given for given in takers if any(_helpers(given))]
        if not takers:
            scope.findings.add("no-effect", each.at, _why(each.key, [name for _, name in kept]))


def _taken(strategy: str, scope: Scope) -> frozenset[str]:
    if strategy in TAKES:
        return TAKES[strategy]
    return _ALL if strategy in scope.known.strategies else FLOW


def _helpers(given: dict[str, t.Names]) -> Iterator[t.Name]:
    yield from (*names_in(given.get("delegate")), *names_in(given.get("use")))


def _why(key: str, strategies: list[str]) -> str:
    if not strategies:
        return f"no agent's history is kept short, so {key!r} has no effect; give the policy a strategy"
    if key == "share":
        return "no agent that calls others has a summary to share, so 'share' has no effect"
    return f"{key!r} means nothing to {' and '.join(sorted(set(strategies)))}, so it has no effect"
