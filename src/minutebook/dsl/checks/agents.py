"""Checks of agents.

Agents, flows and schemas that lead back to themselves, and so would never end.

Settings of `policy compaction` that nothing in the program would follow.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from minutebook.agent.toolbox import BUILTINS
from minutebook.dsl import syntax as t
from minutebook.dsl.checks.definitions import check_duration, check_once, check_strategy, place_of
from minutebook.dsl.checks.flows import actions_in
from minutebook.dsl.checks.scope import NO_STRATEGY, Scope, modifier, names_in, properties
from minutebook.dsl.diagnostics import errors_in
from minutebook.dsl.spec import INPUT, placeholders


def check_agent(node: t.AgentDef, scope: Scope) -> None:
    check_once(node.properties, scope)
    given = properties(node)
    instruction = _prompt(given.get("instruction"), scope)
    if "instruction" not in given:
        at, who = (node.name.at, repr(node.name.text)) if node.name else (node.at, "without a name")
        scope.findings.add("no-instruction", at, f"agent {who} has no instruction; add `instruction NAME` of a prompt")
    prompt = _prompt(given.get("prompt"), scope)
    _check_model(node, given, instruction, prompt, scope)
    _check_answer(given, instruction, prompt, scope)
    _check_tools(given, scope)
    _check_helpers(node, given, scope)
    if "retry" in given:
        scope.find("retry", given["retry"])
    match given.get("timeout"):
        case t.Name() as name:
            scope.find("timeout", name)
        case t.Duration() as duration:
            check_duration(duration, scope)
    if "history" in given:
        check_strategy(given["history"], scope)
    if "description" in given and not given["description"].value.strip():
        scope.findings.add("empty-text", given["description"].at, "this description says nothing")


def _prompt(name: t.Name | None, scope: Scope) -> t.PromptDef | None:
    """The prompt that an agent names; nobody gives it values other than the input."""
    if name is None:
        return None
    prompt: t.PromptDef | None = scope.find("prompt", name)
    for each in placeholders(prompt.text.value) if prompt else ():
        if each != INPUT and each.isidentifier():
            assert prompt is not None
            message = f"an agent's prompt is given ${{{INPUT}}} and nothing else, so ${{{each}}} stays empty"
            scope.findings.add("unknown-variable", place_of(each, prompt, scope), message)
    return prompt


def _check_model(
    node: t.AgentDef,
    given: dict[str, Any],
    instruction: t.PromptDef | None,
    prompt: t.PromptDef | None,
    scope: Scope,
) -> None:
    model = scope.model_of(instruction)
    if model is None and ("instruction" not in given or instruction is not None):
        models = ", ".join(scope.tables["model"]) or "none"
        message = (
            f"no model for this agent: its instruction names none, none is called 'main', and there is not exactly one "
            f"(there are: {models}); write `using model NAME` at the instruction"
        )
        scope.findings.add("no-model", node.name.at if node.name else node.at, message)
    other = modifier(prompt, "model")
    if other is not None and model is not None and other.text != model:
        message = (
            f"this prompt is for model {other.text!r}, and the agent runs on {model!r}, which its instruction decides"
        )
        scope.findings.add("conflict", given["prompt"].at, message)


def _check_answer(
    given: dict[str, Any], instruction: t.PromptDef | None, prompt: t.PromptDef | None, scope: Scope
) -> None:
    if "produces" in given:
        scope.find("schema", given["produces"])
    said = [given.get("produces"), modifier(instruction, "expecting"), modifier(prompt, "expecting")]
    names = list(dict.fromkeys(name.text for name in said if name is not None))
    if len(names) > 1:
        at = (given.get("produces") or given.get("prompt") or given["instruction"]).at
        message = f"the agent's answer cannot be {' and '.join(map(repr, names))} at once"
        scope.findings.add("conflict", at, message)


def _check_tools(given: dict[str, Any], scope: Scope) -> None:
    offered: dict[str, str] = {}
    for name in names_in(given.get("tools")):
        tools = _tools_of(name, scope)
        for tool in tools:
            if offered.setdefault(tool, name.text) != name.text:
                message = f"the agent has a tool {tool!r} already, from {offered[tool]!r}"
                scope.findings.add("name-clash", name.at, message)
    _check_repeats(names_in(given.get("tools")), scope)
    for name in (*names_in(given.get("delegate")), *names_in(given.get("use"))):
        if name.text in offered:
            message = f"the agent has a tool {name.text!r}, and an agent that it calls has the same name"
            scope.findings.add("name-clash", name.at, message)


def _tools_of(name: t.Name, scope: Scope) -> tuple[str, ...]:
    """The names under which a model sees what an agent lists; none where only the server knows them."""
    head, dot, tail = name.text.partition(".")
    tool: t.ToolDef | None = scope.tables["tool"].get(head)
    if tool is None and dot:
        if head not in scope.known.externals:
            message = f"the program defines no tool {head!r}, so whoever runs it must bring {name.text!r}"
            scope.findings.add("external-tool", name.at, message)
        return (tail,)
    if tool is None:
        scope.unknown("tool", name, scope.tables["tool"])
        return ()
    scope.used.add(("tool", head))
    match tool.origin:
        case t.Python():
            if dot:
                message = f"{head!r} is one function, so it has no {tail!r}"
                scope.findings.add("unknown-tool", name.at, message, head)
            return (head,)
        case t.Builtin(builtin):
            names = BUILTINS.get(builtin.text, (tail,) if dot else ())
            if dot and tail not in names:
                scope.unknown("tool", t.Name(tail, at=name.at), names, f"tool of {head!r} called")
                return ()
            return (tail,) if dot else names
    return (tail,) if dot else ()


def _check_helpers(node: t.AgentDef, given: dict[str, Any], scope: Scope) -> None:
    delegates, uses = names_in(given.get("delegate")), names_in(given.get("use"))
    for name in (*delegates, *uses):
        helper: t.AgentDef | None = scope.find("agent", name)
        if helper is not None and helper is not node and "description" not in properties(helper):
            message = f"agent {name.text!r} has no description, by which another would know when to call it"
            scope.findings.add("no-description", name.at, message)
    for names in (delegates, uses):
        _check_repeats(names, scope)
    for name in uses:
        if name.text in {each.text for each in delegates}:
            message = f"agent {name.text!r} is delegated to already; an agent either hands over or asks"
            scope.findings.add("conflict", name.at, message)


def _check_repeats(names: tuple[t.Name, ...], scope: Scope) -> None:
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            scope.findings.add("duplicate", name.at, f"{name.text!r} is in this list already")
        seen.add(name.text)


Place: TypeAlias = tuple[str, str]
"""A kind and a name."""
Ways: TypeAlias = Mapping[Place, Sequence[tuple[Place, t.Position]]]


def check_circles(program: t.Program, scope: Scope) -> None:
    ways: dict[Place, list[tuple[Place, t.Position]]] = {}
    for node in program.definitions:
        match node:
            case t.AgentDef():
                ways.setdefault(("agent", node.name.text if node.name else ""), list(_from_agent(node, scope)))
            case t.FlowDef():
                calls = ((action.kind, action.name) for action in actions_in(node.body) if action.kind != "llm")
                ways.setdefault(("flow", node.name.text), [((kind, name.text), name.at) for kind, name in calls])
            case t.SchemaDef():
                names = (name for field in node.fields for name in _names_in(field.type))
                ways.setdefault(("schema", node.name.text), [(("schema", name.text), name.at) for name in names])
    done: set[Place] = set()
    for start in ways:
        _follow(start, ways, done, scope)


def _from_agent(node: t.AgentDef, scope: Scope) -> Iterator[tuple[Place, t.Position]]:
    given = properties(node)
    for name in (*names_in(given.get("delegate")), *names_in(given.get("use"))):
        yield ("agent", name.text), name.at
    history = given.get("history")
    if history is not None and history.text in scope.tables["flow"] and history.text not in scope.known.strategies:
        yield ("flow", history.text), history.at


def _follow(start: Place, ways: Ways, done: set[Place], scope: Scope) -> None:
    """Depth first, without recursion: a chain may be as long as the program."""
    path: list[Place] = []
    todo: list[tuple[Place, t.Position] | None] = [(start, t.NOWHERE)]
    while todo:
        step = todo.pop()
        if step is None:
            done.add(path.pop())
            continue
        place, at = step
        if place in path:
            circle = [*path[path.index(place) :], place]
            shown = " → ".join(name or "the agent without a name" for _, name in circle)
            scope.findings.add("circle", at, f"this leads back to where it came from: {shown}")
        elif place not in done and place in ways:
            path.append(place)
            todo.append(None)
            todo.extend(reversed(ways[place]))


def _names_in(node: t.TypeExpression) -> Iterator[t.Name]:
    match node:
        case t.NamedType():
            yield node.name
        case t.ListType() | t.OptionalType():
            yield from _names_in(node.item)


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
