"""Checks of agents, of cycles between definitions, and of settings of `policy compaction` that have no effect."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from minutebook.agent.toolbox import BUILTINS
from minutebook.dsl import syntax as t
from minutebook.dsl.checks.definitions import check_duplicates, check_duration, check_strategy, position_of
from minutebook.dsl.checks.flows import actions_in
from minutebook.dsl.checks.scope import NO_STRATEGY, Scope, modifier, names_in, properties
from minutebook.dsl.diagnostics import errors_in
from minutebook.dsl.spec import INPUT, placeholders
from minutebook.history.budget import PRESETS


def check_agent(node: t.AgentDef, scope: Scope) -> None:
    check_duplicates(node.properties, scope)
    by_key = properties(node)
    instruction = _find_prompt(by_key.get("instruction"), scope)
    if "instruction" not in by_key:
        at, name = (node.name.at, repr(node.name.text)) if node.name else (node.at, "without a name")
        scope.collector.add(
            "no-instruction", at, f"agent {name} has no instruction; add `instruction NAME` of a prompt"
        )
    prompt = _find_prompt(by_key.get("prompt"), scope)
    _check_model(node, by_key, instruction, prompt, scope)
    _check_answer(by_key, instruction, prompt, scope)
    _check_tools(by_key, scope)
    _check_helpers(node, by_key, scope)
    if "retry" in by_key:
        scope.find("retry", by_key["retry"])
    match by_key.get("timeout"):
        case t.Name() as policy:
            scope.find("timeout", policy)
        case t.Duration() as duration:
            check_duration(duration, scope)
    if "history" in by_key:
        check_strategy(by_key["history"], scope)
    if "description" in by_key and not by_key["description"].value.strip():
        scope.collector.add("empty-text", by_key["description"].at, "this description is empty")


def _find_prompt(name: t.Name | None, scope: Scope) -> t.PromptDef | None:
    """Find the prompt of an agent, and add an error for each placeholder other than the input."""
    if name is None:
        return None
    prompt: t.PromptDef | None = scope.find("prompt", name)
    for placeholder in placeholders(prompt.text.value) if prompt else ():
        if placeholder != INPUT and placeholder.isidentifier():
            assert prompt is not None
            message = f"an agent's prompt can only use ${{{INPUT}}}, so ${{{placeholder}}} has no value"
            scope.collector.add("unknown-variable", position_of(placeholder, prompt, scope), message)
    return prompt


def _check_model(
    node: t.AgentDef,
    by_key: dict[str, Any],
    instruction: t.PromptDef | None,
    prompt: t.PromptDef | None,
    scope: Scope,
) -> None:
    model = scope.model_of(instruction)
    if model is None and ("instruction" not in by_key or instruction is not None):
        models = ", ".join(scope.tables["model"]) or "none"
        message = (
            f"no model for this agent: its instruction has none, no model is named 'main', and there is not exactly one "
            f"(defined: {models}); write `using model NAME` at the instruction"
        )
        scope.collector.add("no-model", node.name.at if node.name else node.at, message)
    prompt_model = modifier(prompt, "model")
    if prompt_model is not None and model is not None and prompt_model.text != model:
        message = f"this prompt is for model {prompt_model.text!r}, but the agent runs on {model!r}, the model of its instruction"
        scope.collector.add("conflict", by_key["prompt"].at, message)


def _check_answer(
    by_key: dict[str, Any], instruction: t.PromptDef | None, prompt: t.PromptDef | None, scope: Scope
) -> None:
    if "produces" in by_key:
        scope.find("schema", by_key["produces"])
    schemas = [by_key.get("produces"), modifier(instruction, "expecting"), modifier(prompt, "expecting")]
    names = list(dict.fromkeys(name.text for name in schemas if name is not None))
    if len(names) > 1:
        at = (by_key.get("produces") or by_key.get("prompt") or by_key["instruction"]).at
        message = f"the agent's answer has several schemas: {' and '.join(map(repr, names))}"
        scope.collector.add("conflict", at, message)


def _check_tools(by_key: dict[str, Any], scope: Scope) -> None:
    sources: dict[str, str] = {}
    for name in names_in(by_key.get("tools")):
        for tool in _find_tools(name, scope):
            if sources.setdefault(tool, name.text) != name.text:
                message = f"the agent already has a tool {tool!r}, from {sources[tool]!r}"
                scope.collector.add("name-clash", name.at, message)
    _check_repeats(names_in(by_key.get("tools")), scope)
    for name in _helpers(by_key):
        if name.text in sources:
            message = f"the agent has a tool {name.text!r}, and an agent that it calls has the same name"
            scope.collector.add("name-clash", name.at, message)


def _find_tools(name: t.Name, scope: Scope) -> tuple[str, ...]:
    """The names of the tools that the model gets for an entry of `tools`; none if only the server knows them.

    The entry is `source` or `source.member`. Adds errors and warnings, and marks the source as used.
    """
    source, dot, member = name.text.partition(".")
    tool: t.ToolDef | None = scope.tables["tool"].get(source)
    if tool is None and dot:
        if source not in scope.known.externals:
            message = f"the program does not define tool {source!r}, so {name.text!r} must be supplied at run time"
            scope.collector.add("external-tool", name.at, message)
        return (member,)
    if tool is None:
        scope.add_unknown("tool", name, scope.tables["tool"])
        return ()
    scope.used_definitions.add(("tool", source))
    match tool.origin:
        case t.Python():
            if dot:
                message = f"{source!r} is one function, so it has no {member!r}"
                scope.collector.add("unknown-tool", name.at, message, source)
            return (source,)
        case t.Builtin(builtin):
            names = BUILTINS.get(builtin.text, (member,) if dot else ())
            if dot and member not in names:
                scope.add_unknown("tool", t.Name(member, at=name.at), names, f"tool of {source!r} called")
                return ()
            return (member,) if dot else names
    return (member,) if dot else ()


def _helpers(by_key: dict[str, Any]) -> tuple[t.Name, ...]:
    """The agents that an agent may call."""
    return (*names_in(by_key.get("delegate")), *names_in(by_key.get("use")))


def _check_helpers(node: t.AgentDef, by_key: dict[str, Any], scope: Scope) -> None:
    delegates, uses = names_in(by_key.get("delegate")), names_in(by_key.get("use"))
    for name in (*delegates, *uses):
        helper: t.AgentDef | None = scope.find("agent", name)
        if helper is not None and helper is not node and "description" not in properties(helper):
            message = (
                f"agent {name.text!r} has no description; the agents that call it need one to know when to call it"
            )
            scope.collector.add("no-description", name.at, message)
    for names in (delegates, uses):
        _check_repeats(names, scope)
    for name in uses:
        if name.text in {delegate.text for delegate in delegates}:
            message = f"agent {name.text!r} is already in `delegate`; list it in `delegate` or in `use`"
            scope.collector.add("conflict", name.at, message)


def _check_repeats(names: tuple[t.Name, ...], scope: Scope) -> None:
    earlier_names: set[str] = set()
    for name in names:
        if name.text in earlier_names:
            scope.collector.add("duplicate", name.at, f"{name.text!r} is already in this list")
        earlier_names.add(name.text)


DefinitionKey: TypeAlias = tuple[str, str]
"""The kind and the name of a definition."""
Reference: TypeAlias = tuple[DefinitionKey, t.Position]
"""A definition that another one refers to, and the position of the reference."""


def check_cycles(program: t.Program, scope: Scope) -> None:
    references: dict[DefinitionKey, list[Reference]] = {}
    for node in program.definitions:
        match node:
            case t.AgentDef():
                name = node.name.text if node.name else ""
                references.setdefault(("agent", name), list(_references_of_agent(node, scope)))
            case t.FlowDef():
                calls = ((action.kind, action.name) for action in actions_in(node.body) if action.kind != "llm")
                references.setdefault(("flow", node.name.text), [((kind, name.text), name.at) for kind, name in calls])
            case t.SchemaDef():
                names = (name for field in node.fields for name in _type_names_in(field.type))
                references.setdefault(("schema", node.name.text), [(("schema", name.text), name.at) for name in names])
    visited: set[DefinitionKey] = set()
    for start in references:
        _find_cycles(start, references, visited, scope)


def _references_of_agent(node: t.AgentDef, scope: Scope) -> Iterator[Reference]:
    by_key = properties(node)
    for name in _helpers(by_key):
        yield ("agent", name.text), name.at
    history = by_key.get("history")
    if history is not None and history.text in scope.tables["flow"] and history.text not in scope.known.strategies:
        yield ("flow", history.text), history.at


def _find_cycles(
    start: DefinitionKey,
    references: Mapping[DefinitionKey, Sequence[Reference]],
    visited: set[DefinitionKey],
    scope: Scope,
) -> None:
    """Add an error for each cycle that a definition leads to.

    The search is depth first, without recursion: a chain of references may be as long as the program.
    """
    path: list[DefinitionKey] = []
    stack: list[Reference | None] = [(start, t.NOWHERE)]  # None: all references of the last key are visited
    while stack:
        reference = stack.pop()
        if reference is None:
            visited.add(path.pop())
            continue
        key, at = reference
        if key in path:
            cycle = [*path[path.index(key) :], key]
            names = " → ".join(name or "the agent without a name" for _, name in cycle)
            scope.collector.add("circle", at, f"this reference is a cycle: {names}")
        elif key not in visited and key in references:
            path.append(key)
            stack.append(None)
            stack.extend(reversed(references[key]))


def _type_names_in(node: t.TypeExpression) -> Iterator[t.Name]:
    match node:
        case t.NamedType():
            yield node.name
        case t.ListType() | t.OptionalType():
            yield from _type_names_in(node.item)


_ALL_SETTINGS: Final = frozenset({"trigger", "target", "keep_turns", "keep_files", "model", "share"})
STRATEGY_SETTINGS: Final = {
    "summarize": _ALL_SETTINGS,
    "hybrid": _ALL_SETTINGS,
    "truncate": frozenset({"trigger", "target", "keep_turns"}),
    "turns": frozenset({"trigger", "keep_turns", "model", "share"}),
    **dict.fromkeys(PRESETS, frozenset({"trigger", "target"})),
}
"""Strategy → the settings that it uses; other registered strategies may use any."""
FLOW_SETTINGS: Final = _ALL_SETTINGS - {"model"}
"""The settings that a flow uses: the model is that of its prompts."""


def check_unused_settings(program: t.Program, scope: Scope) -> None:
    """Add an error for each setting that has no effect, unless the program has other errors."""
    policy: t.PolicyDef | None = scope.tables["policy"].get("compaction")
    if policy is None or errors_in(scope.collector.diagnostics):
        return
    agents = [properties(node) for node in program.definitions if isinstance(node, t.AgentDef)]
    default_strategy = properties(policy).get("strategy")
    histories = [(agent, agent.get("history", default_strategy)) for agent in agents]
    compacted_agents = [
        (agent, name.text) for agent, name in histories if name is not None and name.text != NO_STRATEGY
    ]
    for setting in policy.properties:
        if setting.key == "strategy" or setting.value == t.Flag(value=False):
            continue
        users = [agent for agent, strategy in compacted_agents if setting.key in _settings_of(strategy, scope)]
        if setting.key == "share":
            users = [agent for agent in users if _helpers(agent)]
        if not users:
            strategies = [strategy for _, strategy in compacted_agents]
            scope.collector.add("no-effect", setting.at, _no_effect_message(setting.key, strategies))


def _settings_of(strategy: str, scope: Scope) -> frozenset[str]:
    if strategy in STRATEGY_SETTINGS:
        return STRATEGY_SETTINGS[strategy]
    return _ALL_SETTINGS if strategy in scope.known.strategies else FLOW_SETTINGS


def _no_effect_message(key: str, strategies: list[str]) -> str:
    if not strategies:
        return f"{key!r} has no effect: no agent has a history strategy; add `strategy: NAME` to the policy"
    if key == "share":
        return "'share' has no effect: no agent that calls other agents has a summary to share"
    return f"{key!r} has no effect: it is not a setting of {' or '.join(sorted(set(strategies)))}"
