"""Checks of agents."""

from typing import Any

from minutebook.dsl import tree as t
from minutebook.dsl.builtin import BUILTINS
from minutebook.dsl.definitions import check_duration, check_once, check_strategy, place_of
from minutebook.dsl.placeholder import INPUT, placeholders
from minutebook.dsl.scope import Scope, modifier, names_in, properties


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
