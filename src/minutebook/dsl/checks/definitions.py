"""Checks of models, schemas, tools, prompts and policies."""

import math
import shlex
from collections.abc import Iterable
from keyword import iskeyword
from typing import Final
from urllib.parse import urlsplit

from minutebook.dsl import syntax as t
from minutebook.dsl.checks.scope import NO_STRATEGY, Scope
from minutebook.dsl.spec import placeholders

SCALARS: Final = ("string", "int", "float", "bool")
"""The types that are no schemas."""
POLICIES: Final = ("compaction",)

_HOTTEST: Final = 2
_LONGEST_SECONDS: Final = 7 * 24 * 3600
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600}


def seconds(duration: t.Duration) -> float:
    return float(duration.amount.value * _SECONDS[duration.unit])


def check_definition(node: t.Definition, scope: Scope) -> None:
    match node:
        case t.ModelShort():
            _check_short(node, scope)
        case t.ModelLong():
            _check_long(node, scope)
        case t.SchemaDef():
            _check_schema(node, scope)
        case t.ToolDef():
            _check_tool(node, scope)
        case t.RetryDef():
            whole(node.times, scope, "a retry policy's times", most=100)
            if node.first is not None:
                check_duration(node.first, scope)
        case t.TimeoutDef():
            check_duration(node.duration, scope)
        case t.PromptDef():
            _check_prompt(node, scope)
        case t.PolicyDef():
            _check_policy(node, scope)


def whole(number: t.Number, scope: Scope, what: str, *, most: float = math.inf) -> None:
    """A whole number from 1 on."""
    if not isinstance(number.value, int) or not 1 <= number.value <= most:
        upto = f" to {most:,}" if most < math.inf else " or more"
        scope.findings.add("bad-number", number.at, f"{what} is {number.value}; give a whole number from 1{upto}")


def check_duration(duration: t.Duration, scope: Scope) -> None:
    if not 0 < seconds(duration) <= _LONGEST_SECONDS:
        message = f"{duration.amount.value} {duration.unit} is no time to wait; give more than 0 and at most 7 days"
        scope.findings.add("bad-number", duration.amount.at, message)


def check_once(lines: Iterable[t.Property], scope: Scope) -> None:
    first: dict[str, t.Property] = {}
    for each in lines:
        if each.key in first:
            message = f"{each.key!r} is given on line {first[each.key].at.line} already"
            scope.findings.add("duplicate", each.at, message)
        first.setdefault(each.key, each)


def _check_short(node: t.ModelShort, scope: Scope) -> None:
    provider, slash, name = node.target.value.partition("/")
    if not (slash and provider.strip()):
        message = f"{node.target.value!r} names no provider; write provider/name, such as openai/gpt-4.1"
        scope.findings.add("no-provider", node.target.at, message)
    elif not name.strip():
        scope.findings.add("no-name", node.target.at, f"{node.target.value!r} names no model of {provider}")


def _check_long(node: t.ModelLong, scope: Scope) -> None:
    check_once(node.properties, scope)
    given = {each.key: each for each in node.properties}
    for key in ("provider", "name"):
        value = given[key].value if key in given else None
        if value is None or (isinstance(value, t.Text) and not value.value.strip()):
            at = node.name.at if value is None else given[key].at
            example = "provider: anthropic" if key == "provider" else "name: claude-sonnet-4.5"
            scope.findings.add(f"no-{key}", at, f"model {node.name.text!r} has no {key}; add `{example}`")
    for each in node.properties:
        if not isinstance(each.value, t.Number):
            continue
        if each.key != "temperature":
            whole(each.value, scope, each.key)
        elif not 0 <= each.value.value <= _HOTTEST:
            message = f"temperature is {each.value.value}; give a number from 0 to {_HOTTEST}"
            scope.findings.add("bad-number", each.value.at, message)


def _check_schema(node: t.SchemaDef, scope: Scope) -> None:
    seen: dict[str, t.SchemaField] = {}
    for each in node.fields:
        name = each.name.text
        if name in seen:
            message = f"field {name!r} is there on line {seen[name].at.line} already"
            scope.findings.add("duplicate", each.name.at, message)
        seen.setdefault(name, each)
        if iskeyword(name) or name.startswith("_"):
            message = f"a field cannot be called {name!r}: it is a word of Python or begins with _"
            scope.findings.add("reserved", each.name.at, message)
        if each.description is not None and not each.description.value.strip():
            scope.findings.add("empty-text", each.description.at, "this description says nothing; leave it out")
        _check_type(each.type, scope)
    if node.name.text in SCALARS or node.name.text == "list" or iskeyword(node.name.text):
        message = f"a schema cannot be called {node.name.text!r}: that is a type or a word of Python"
        scope.findings.add("reserved", node.name.at, message)


def _check_type(node: t.TypeExpression, scope: Scope) -> None:
    match node:
        case t.NamedType():
            if node.name.text in scope.tables["schema"]:
                scope.find("schema", node.name)
            elif node.name.text not in SCALARS:
                scope.unknown("schema", node.name, [*SCALARS, *scope.tables["schema"]], "type or schema")
        case t.ListType() | t.OptionalType():
            _check_type(node.item, scope)
        case t.ChoiceType():
            seen: set[str] = set()
            for option in node.options:
                if option.value in seen:
                    scope.findings.add("duplicate", option.at, f"{option.value!r} is a choice already")
                seen.add(option.value)


def _check_tool(node: t.ToolDef, scope: Scope) -> None:
    match node.origin:
        case t.McpUrl(url):
            if not _is_url(url.value):
                message = f"{url.value!r} is no http or https URL; a program is started with `mcp command`"
                scope.findings.add("bad-url", url.at, message)
        case t.McpCommand(command):
            if (problem := _bad_command(command.value)) is not None:
                scope.findings.add("bad-command", command.at, problem)
        case t.Builtin(name):
            if name.text not in scope.known.builtins:
                scope.unknown("builtin", name, scope.known.builtins, "builtin tool")
    allowed = {t.McpUrl: {"bearer", "basic", "header"}, t.McpCommand: {"env"}}.get(type(node.origin), set())
    seen: set[tuple[str, str]] = set()
    for clause in node.clauses:
        key = ("auth", "") if clause.key is None else (clause.kind, clause.key.value.lower())
        if clause.kind not in allowed:
            advice = f"it takes {', '.join(sorted(allowed))}" if allowed else "it takes no `with`"
            scope.findings.add("bad-clause", clause.at, f"{clause.kind!r} means nothing to this tool: {advice}")
        elif key in seen:
            scope.findings.add("duplicate", clause.at, f"this tool has {clause.kind!r} already")
        elif clause.key is not None and not clause.key.value.strip():
            scope.findings.add("empty-text", clause.key.at, f"this {clause.kind} has no name")
        seen.add(key)
        if not clause.secret.from_environment:
            message = "this secret can be read by whoever reads the file; write ${env:NAME}"
            scope.findings.add("secret-in-file", clause.secret.at, message)


def _check_prompt(node: t.PromptDef, scope: Scope) -> None:
    seen: set[str] = set()
    for each in node.modifiers:
        if each.kind in seen:
            what = "using model" if each.kind == "model" else "expecting"
            scope.findings.add("duplicate", each.name.at, f"{what!r} is given already")
        seen.add(each.kind)
        scope.find("model" if each.kind == "model" else "schema", each.name)
    if not node.text.value.strip():
        scope.findings.add("empty-prompt", node.text.at, f"prompt {node.name.text!r} has no text")
    for name in placeholders(node.text.value):
        if not (name.isidentifier() and name.isascii()):
            message = f"${{{name}}} names no variable; write $${{…}} for a text that only looks like a place for one"
            scope.findings.add("unknown-variable", place_of(name, node, scope), message)


def place_of(placeholder: str, prompt: t.PromptDef, scope: Scope) -> t.Position:
    """Where a placeholder stands, as its text does; the prompt's name where it cannot be told."""
    looked_for = f"${{{placeholder}}}"
    for number, line in enumerate(scope.findings.lines[max(0, prompt.text.at.line - 1) :], prompt.text.at.line):
        column = line.find(looked_for)
        while column > 0 and line[column - 1] == "$":
            column = line.find(looked_for, column + 1)
        if column >= 0:
            return t.Position(number, column + 1, len(looked_for))
    return prompt.name.at


def _check_policy(node: t.PolicyDef, scope: Scope) -> None:
    if node.name.text not in POLICIES:
        scope.unknown("policy", node.name, POLICIES)
    check_once(node.properties, scope)
    shares: dict[str, float] = {}
    for each in node.properties:
        match each.key, each.value:
            case "strategy", t.Name() as name:
                check_strategy(name, scope)
            case "model", t.Name() as name:
                scope.find("model", name)
            case ("trigger" | "target") as key, t.Number() as number:
                shares[key] = number.value
                if not 0 < number.value <= 1:
                    message = f"{key} is {number.value}; give a share of the window above 0 and up to 1, such as 0.8"
                    scope.findings.add("bad-number", number.at, message)
            case key, t.Number() as number:
                whole(number, scope, key)
    trigger, target = shares.get("trigger", 0.8), shares.get("target", 0.7)
    if shares and target >= trigger:
        message = f"the target ({target}) must be below the trigger ({trigger}), or every call would compact again"
        scope.findings.add("conflict", node.name.at, message)


def check_strategy(name: t.Name, scope: Scope) -> None:
    """A strategy, or a flow with one parameter, which is given what is to be shortened."""
    if name.text in scope.known.strategies or name.text == NO_STRATEGY:
        return
    flow = scope.tables["flow"].get(name.text)
    if flow is None:
        flows = [each for each, node in scope.tables["flow"].items() if len(node.parameters) == 1]
        scope.unknown("strategy", name, [*scope.known.strategies, NO_STRATEGY, *flows], "history strategy")
    elif len(flow.parameters) != 1:
        message = f"flow {name.text!r} has {len(flow.parameters)} parameters; one that shortens a history has one"
        scope.findings.add("arguments", name.at, message)


def _bad_command(text: str) -> str | None:
    try:
        return None if shlex.split(text) else "this command is empty"
    except ValueError as error:
        return f"this command cannot be split into words: {error}"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
