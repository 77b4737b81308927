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
"""The types that are not schemas."""
POLICIES: Final = ("compaction",)

_MAX_TEMPERATURE: Final = 2
_MAX_SECONDS: Final = 7 * 24 * 3600
_SECONDS_PER_UNIT: Final = {"seconds": 1, "minutes": 60, "hours": 3600}


def seconds_of(duration: t.Duration) -> float:
    return float(duration.amount.value * _SECONDS_PER_UNIT[duration.unit])


def check_definition(node: t.Definition, scope: Scope) -> None:
    match node:
        case t.ModelShort():
            _check_short_model(node, scope)
        case t.ModelLong():
            _check_long_model(node, scope)
        case t.SchemaDef():
            _check_schema(node, scope)
        case t.ToolDef():
            _check_tool(node, scope)
        case t.RetryDef():
            check_whole_number(node.times, scope, "the number of retries", maximum=100)
            if node.first_wait is not None:
                check_duration(node.first_wait, scope)
        case t.TimeoutDef():
            check_duration(node.duration, scope)
        case t.PromptDef():
            _check_prompt(node, scope)
        case t.PolicyDef():
            _check_policy(node, scope)


def check_whole_number(number: t.Number, scope: Scope, name: str, *, maximum: float = math.inf) -> None:
    if not isinstance(number.value, int) or not 1 <= number.value <= maximum:
        valid = f"from 1 to {maximum:,}" if maximum < math.inf else "of 1 or more"
        scope.collector.add("bad-number", number.at, f"{name} is {number.value}; expected a whole number {valid}")


def check_duration(duration: t.Duration, scope: Scope) -> None:
    if not 0 < seconds_of(duration) <= _MAX_SECONDS:
        message = f"the duration is {duration.amount.value} {duration.unit}; expected more than 0 and at most 7 days"
        scope.collector.add("bad-number", duration.amount.at, message)


def check_duplicates(lines: Iterable[t.Property], scope: Scope) -> None:
    first_lines: dict[str, t.Property] = {}
    for line in lines:
        if line.key in first_lines:
            message = f"{line.key!r} is already set on line {first_lines[line.key].at.line}"
            scope.collector.add("duplicate", line.at, message)
        first_lines.setdefault(line.key, line)


def _check_short_model(node: t.ModelShort, scope: Scope) -> None:
    provider, slash, name = node.target.value.partition("/")
    if not (slash and provider.strip()):
        message = f"{node.target.value!r} has no provider; write provider/name, such as openai/gpt-4.1"
        scope.collector.add("no-provider", node.target.at, message)
    elif not name.strip():
        scope.collector.add("no-name", node.target.at, f"{node.target.value!r} has no model name after the provider")


def _check_long_model(node: t.ModelLong, scope: Scope) -> None:
    check_duplicates(node.properties, scope)
    by_key = {line.key: line for line in node.properties}
    for key in ("provider", "name"):
        value = by_key[key].value if key in by_key else None
        if value is None or (isinstance(value, t.Text) and not value.value.strip()):
            at = node.name.at if value is None else by_key[key].at
            example = "provider: anthropic" if key == "provider" else "name: claude-sonnet-4.5"
            scope.collector.add(f"no-{key}", at, f"model {node.name.text!r} has no {key}; add `{example}`")
    for line in node.properties:
        if not isinstance(line.value, t.Number):
            continue
        if line.key != "temperature":
            check_whole_number(line.value, scope, line.key)
        elif not 0 <= line.value.value <= _MAX_TEMPERATURE:
            message = f"temperature is {line.value.value}; expected a number from 0 to {_MAX_TEMPERATURE}"
            scope.collector.add("bad-number", line.value.at, message)


def _check_schema(node: t.SchemaDef, scope: Scope) -> None:
    first_fields: dict[str, t.SchemaField] = {}
    for field in node.fields:
        name = field.name.text
        if name in first_fields:
            message = f"field {name!r} is already defined on line {first_fields[name].at.line}"
            scope.collector.add("duplicate", field.name.at, message)
        first_fields.setdefault(name, field)
        if iskeyword(name) or name.startswith("_"):
            message = f"a field cannot be named {name!r}: it is a Python keyword or starts with _"
            scope.collector.add("reserved", field.name.at, message)
        if field.description is not None and not field.description.value.strip():
            scope.collector.add("empty-text", field.description.at, "this description is empty; remove it")
        _check_type(field.type, scope)
    if node.name.text in SCALARS or node.name.text == "list" or iskeyword(node.name.text):
        message = f"a schema cannot be named {node.name.text!r}: it is a type or a Python keyword"
        scope.collector.add("reserved", node.name.at, message)


def _check_type(node: t.TypeExpression, scope: Scope) -> None:
    match node:
        case t.NamedType():
            if node.name.text in scope.tables["schema"]:
                scope.find("schema", node.name)
            elif node.name.text not in SCALARS:
                scope.add_unknown("schema", node.name, [*SCALARS, *scope.tables["schema"]], "type or schema")
        case t.ListType() | t.OptionalType():
            _check_type(node.item, scope)
        case t.ChoiceType():
            earlier_options: set[str] = set()
            for option in node.options:
                if option.value in earlier_options:
                    scope.collector.add("duplicate", option.at, f"{option.value!r} is already one of the choices")
                earlier_options.add(option.value)


def _check_tool(node: t.ToolDef, scope: Scope) -> None:
    match node.origin:
        case t.McpUrl(url):
            if not _is_url(url.value):
                message = f"{url.value!r} is not an http or https URL; use `mcp command` to start a program"
                scope.collector.add("bad-url", url.at, message)
        case t.McpCommand(command):
            if (problem := _command_problem(command.value)) is not None:
                scope.collector.add("bad-command", command.at, problem)
        case t.Builtin(name):
            if name.text not in scope.known.builtins:
                scope.add_unknown("builtin", name, scope.known.builtins, "builtin tool")
    allowed = {t.McpUrl: {"bearer", "basic", "header"}, t.McpCommand: {"env"}}.get(type(node.origin), set())
    earlier_keys: set[tuple[str, str]] = set()
    for clause in node.clauses:
        key = ("auth", "") if clause.key is None else (clause.kind, clause.key.value.lower())
        if clause.kind not in allowed:
            supported = f"it supports {', '.join(sorted(allowed))}" if allowed else "it supports no `with` clause"
            scope.collector.add("bad-clause", clause.at, f"this tool does not support {clause.kind!r}; {supported}")
        elif key in earlier_keys:
            scope.collector.add("duplicate", clause.at, f"this tool already has {clause.kind!r}")
        elif clause.key is not None and not clause.key.value.strip():
            scope.collector.add("empty-text", clause.key.at, f"this {clause.kind} has no name")
        earlier_keys.add(key)
        if not clause.secret.from_environment:
            message = "this secret is in plain text; write ${env:NAME} to read it from the environment"
            scope.collector.add("secret-in-file", clause.secret.at, message)


def _check_prompt(node: t.PromptDef, scope: Scope) -> None:
    earlier_kinds: set[str] = set()
    for modifier in node.modifiers:
        if modifier.kind in earlier_kinds:
            keyword = "using model" if modifier.kind == "model" else "expecting"
            scope.collector.add("duplicate", modifier.name.at, f"{keyword!r} is already set")
        earlier_kinds.add(modifier.kind)
        scope.find("model" if modifier.kind == "model" else "schema", modifier.name)
    if not node.text.value.strip():
        scope.collector.add("empty-prompt", node.text.at, f"prompt {node.name.text!r} has no text")
    for name in placeholders(node.text.value):
        if not (name.isidentifier() and name.isascii()):
            message = f"${{{name}}} is not a variable; write $${{…}} for plain text"
            scope.collector.add("unknown-variable", position_of(name, node, scope), message)


def position_of(placeholder: str, prompt: t.PromptDef, scope: Scope) -> t.Position:
    """The position of a placeholder in the prompt's text, or of the prompt's name if the placeholder is not found."""
    text = f"${{{placeholder}}}"
    for number, line in enumerate(scope.collector.lines[max(0, prompt.text.at.line - 1) :], prompt.text.at.line):
        column = line.find(text)
        while column > 0 and line[column - 1] == "$":
            column = line.find(text, column + 1)
        if column >= 0:
            return t.Position(number, column + 1, len(text))
    return prompt.name.at


def _check_policy(node: t.PolicyDef, scope: Scope) -> None:
    if node.name.text not in POLICIES:
        scope.add_unknown("policy", node.name, POLICIES)
    check_duplicates(node.properties, scope)
    shares: dict[str, float] = {}
    for line in node.properties:
        match line.key, line.value:
            case "strategy", t.Name() as name:
                check_strategy(name, scope)
            case "model", t.Name() as name:
                scope.find("model", name)
            case ("trigger" | "target") as key, t.Number() as number:
                shares[key] = number.value
                if not 0 < number.value <= 1:
                    message = (
                        f"{key} is {number.value}; expected a share of the window above 0 and up to 1, such as 0.8"
                    )
                    scope.collector.add("bad-number", number.at, message)
            case key, t.Number() as number:
                check_whole_number(number, scope, key)
    trigger, target = shares.get("trigger", 0.8), shares.get("target", 0.7)
    if shares and target >= trigger:
        message = f"the target ({target}) must be below the trigger ({trigger}), or every call would compact again"
        scope.collector.add("conflict", node.name.at, message)


def check_strategy(name: t.Name, scope: Scope) -> None:
    """Check the name of a history strategy, or of a flow with one parameter, the text to summarize."""
    if name.text in scope.known.histories or name.text == NO_STRATEGY:
        return
    flow = scope.tables["flow"].get(name.text)
    if flow is None:
        flows = [flow_name for flow_name, node in scope.tables["flow"].items() if len(node.parameters) == 1]
        scope.add_unknown("strategy", name, [*scope.known.histories, NO_STRATEGY, *flows], "history strategy")
    elif len(flow.parameters) != 1:
        message = f"flow {name.text!r} has {len(flow.parameters)} parameters; a flow for `history` must have one"
        scope.collector.add("arguments", name.at, message)


def _command_problem(text: str) -> str | None:
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
