"""Writes a syntax tree as text in the canonical form: four spaces of indentation, one space between words.

The text parses to an equal tree. Comments are kept, and so is one empty line between statements. Definitions are separated
by an empty line, except one-line definitions of the same kind that had none between them.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Final

from minutebook.dsl import syntax as t

_INDENT: Final = "    "
_MODEL_NAME: Final = re.compile(r"[A-Za-z0-9][\w.:/@-]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_PRECEDENCE: Final = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">=", "contains"), 4),
    **dict.fromkeys(("+", "-"), 5),
    **dict.fromkeys(("*", "/"), 6),
}
"""How tightly an operator binds. A sign and an atom (a variable or a list) bind more tightly than all of them."""
_SIGN, _ATOM = 7, 8


def format_agents(program: t.Program) -> str:
    """The program in its canonical form."""
    parts = [] if program.version is None else [program.version]
    lines: list[str] = []
    previous: t.Version | t.Definition | None = None
    for node in [*parts, *program.definitions]:
        if previous is not None and _is_separated(previous, node):
            lines.append("")
        lines += _definition(node)
        previous = node
    if program.below:
        lines += [""] if lines else []
        lines += program.below
    return "".join(f"{line}\n" for line in lines)


def _is_separated(previous: t.Version | t.Definition, node: t.Version | t.Definition) -> bool:
    """Whether an empty line separates two definitions.

    One-line definitions of the same kind stay together if there was no empty line between them.
    """
    is_same_kind = type(previous) is type(node) and not isinstance(previous, (t.Block, t.PromptDef))
    return not is_same_kind or node.trivia.blank


def _definition(node: t.Version | t.Definition) -> Iterator[str]:
    match node:
        case t.Version():
            yield from _line(node, f"streetrace v{node.number}")
        case t.ModelShort():
            yield from _line(node, f"model {node.name.text} = {_model_word(node.target.value)}")
        case t.ModelLong():
            yield from _block(node, f"model {node.name.text}:", map(_model_property, node.properties))
        case t.SchemaDef():
            yield from _block(node, f"schema {node.name.text}:", map(_field, node.fields))
        case t.ToolDef():
            clauses = "".join(f" with {_clause(clause)}" for clause in node.clauses)
            yield from _line(node, f"tool {node.name.text} = {_origin(node.origin)}{clauses}")
        case t.RetryDef():
            yield from _line(node, f"retry {node.name.text} = {_retry(node)}")
        case t.TimeoutDef():
            yield from _line(node, f"timeout {node.name.text} = {_duration(node.duration)}")
        case t.PromptDef():
            yield from _prompt(node)
        case t.PolicyDef():
            lines = (_line(line, f"{line.key}: {_value(line.value)}") for line in node.properties)
            yield from _block(node, f"policy {node.name.text}:", lines)
        case t.AgentDef():
            name = f" {node.name.text}" if node.name else ""
            lines = (_line(line, f"{line.key} {_value(line.value)}") for line in node.properties)
            yield from _block(node, f"agent{name}:", lines)
        case t.FlowDef():
            parameters = "".join(f" ${name.text}" for name in node.parameters)
            yield from _block(node, f"flow {node.name.text}{parameters}:", _statements(node.body))


def _line(node: t.Line, code: str) -> Iterator[str]:
    yield from node.trivia.above
    yield f"{code}  {node.trivia.trailing}" if node.trivia.trailing else code


def _block(node: t.Block, head: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    yield from _line(node, head)
    yield from _indented(line for item in items for line in item)
    yield from _indented(node.below)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{_INDENT}{line}" if line else "" for line in lines)


def _model_property(node: t.Property) -> Iterator[str]:
    value = _model_word(node.value.value) if isinstance(node.value, t.Text) else _value(node.value)
    return _line(node, f"{node.key}: {value}")


def _model_word(value: str) -> str:
    return value if _MODEL_NAME.fullmatch(value) else quoted(value)


def _value(value: t.Value) -> str:
    match value:
        case t.Name():
            return value.text
        case t.Text():
            return quoted(value.value)
        case t.Number():
            return _number(value.value)
        case t.Flag():
            return "true" if value.value else "false"
        case t.Duration():
            return _duration(value)
        case t.Names():
            return ", ".join(name.text for name in value.items)


def _field(node: t.SchemaField) -> Iterator[str]:
    description = f" {quoted(node.description.value)}" if node.description else ""
    return _line(node, f"{node.name.text}: {_type(node.type)}{description}")


def _type(node: t.TypeExpression) -> str:
    match node:
        case t.NamedType():
            return node.name.text
        case t.ListType():
            return f"list[{_type(node.item)}]"
        case t.OptionalType():
            return f"{_type(node.item)}?"
        case t.ChoiceType():
            return " | ".join(quoted(option.value) for option in node.options)


def _origin(origin: t.Origin) -> str:
    match origin:
        case t.McpUrl():
            return f"mcp {quoted(origin.url.value)}"
        case t.McpCommand():
            return f"mcp command {quoted(origin.command.value)}"
        case t.Builtin():
            return f"builtin {origin.name.text}"
        case t.Python():
            return f"python {origin.target.text}"


def _clause(clause: t.With) -> str:
    secret = f"${{env:{clause.secret.value}}}" if clause.secret.from_environment else quoted(clause.secret.value)
    if clause.key is None:
        return f"auth {clause.kind} {secret}"
    return f"{clause.kind} {quoted(clause.key.value)} {secret}"


def _retry(node: t.RetryDef) -> str:
    times = f"{_number(node.times.value)} {'time' if node.times.value == 1 else 'times'}"
    first_wait = f" from {_duration(node.first_wait)}" if node.first_wait else ""
    return f"{times}, {node.backoff} backoff{first_wait}" if node.backoff else times


def _duration(node: t.Duration) -> str:
    unit = node.unit.removesuffix("s") if node.amount.value == 1 else node.unit
    return f"{_number(node.amount.value)} {unit}"


def _prompt(node: t.PromptDef) -> Iterator[str]:
    modifiers = "".join(map(_modifier, node.modifiers))
    head = f"prompt {node.name.text}{modifiers}:"
    text = node.text.value
    if _fits_block(text):
        yield from _line(node, head)
        yield from _indented(text.split("\n"))
    else:
        yield from _line(node, f"{head} {quoted(text)}")


def _modifier(modifier: t.Modifier) -> str:
    name = modifier.name.text
    if modifier.kind == "expecting":
        return f" expecting {name}"
    return f" using model {name if _NAME.fullmatch(name) else quoted(name)}"


def _fits_block(text: str) -> bool:
    """Whether the text is the same after it is written as indented lines and parsed again."""
    lines = text.split("\n")
    if not lines[0].strip(" \t") or not lines[-1].strip(" \t"):
        return False
    if any(line and not line.strip(" \t") for line in lines):
        return False
    if not any(line and line[0] not in " \t" for line in lines):
        return False
    return all(character.isprintable() or character in "\n\t" for character in text)


def _statements(body: Sequence[t.Statement]) -> Iterator[Iterable[str]]:
    for index, statement in enumerate(body):
        first_line = statement.branches[0] if isinstance(statement, t.If) else statement
        if index and first_line.trivia.blank:
            yield [""]
        yield _statement(statement)


def _statement(node: t.Statement) -> Iterator[str]:
    match node:
        case t.Assign():
            yield from _line(node, f"${node.target.text} = {_right_side(node.value)}")
        case t.Perform():
            yield from _line(node, _action(node.action))
        case t.If():
            for index, branch in enumerate(node.branches):
                keyword = "elif" if index else "if"
                head = "else" if branch.condition is None else f"{keyword} {_expression(branch.condition)}"
                yield from _block(branch, f"{head}:", _statements(branch.body))
        case t.For():
            head = f"for ${node.variable.text} in {_expression(node.items)}:"
            yield from _block(node, head, _statements(node.body))
        case t.Parallel():
            yield from _block(node, "parallel:", _statements(node.body))
        case t.Return():
            yield from _line(node, "return" if node.value is None else f"return {_right_side(node.value)}")


def _right_side(value: t.Expression | t.Action) -> str:
    return _action(value) if isinstance(value, t.Action) else _expression(value)


def _action(node: t.Action) -> str:
    verb = "call llm" if node.kind == "llm" else f"run {node.kind}"
    arguments = ", ".join(map(_expression, node.arguments))
    return f"{verb} {node.name.text} {arguments}".rstrip()


def _expression(node: t.Expression, min_level: int = 0) -> str:
    """The expression, in brackets if it binds less tightly than `min_level`."""
    text, level = _text_and_level(node)
    return text if level >= min_level else f"({text})"


def _text_and_level(node: t.Expression) -> tuple[str, int]:
    """The expression without brackets, and how tightly it binds."""
    match node:
        case t.LiteralValue():
            # `1.a` would start as a number, so a number with a member needs brackets.
            return _literal(node.value), _SIGN if type(node.value) in {int, float} else _ATOM
        case t.Variable():
            return f"${node.name}", _ATOM
        case t.ListOf():
            return f"[{', '.join(map(_expression, node.items))}]", _ATOM
        case t.Member():
            return f"{_expression(node.of, _ATOM)}.{node.name.text}", _ATOM
        case t.Index():
            return f"{_expression(node.of, _ATOM)}[{_expression(node.index)}]", _ATOM
        case t.Unary(operator="not"):
            return f"not {_expression(node.operand, _PRECEDENCE['not'])}", _PRECEDENCE["not"]
        case t.Unary():
            return f"-{_expression(node.operand, _SIGN)}", _SIGN
        case t.Binary():
            level = _PRECEDENCE[node.operator]
            left_level = level + 1 if level == _PRECEDENCE["=="] else level  # comparisons do not chain
            left, right = _expression(node.left, left_level), _expression(node.right, level + 1)
            return f"{left} {node.operator} {right}", level


def _literal(value: str | float | bool | None) -> str:
    if isinstance(value, str):
        return quoted(value)
    if value is None:
        return "null"
    return ("true" if value else "false") if isinstance(value, bool) else _number(value)


def _number(value: float) -> str:
    """The number without an exponent, which the language does not have."""
    return format(Decimal(repr(value)), "f")


def quoted(text: str) -> str:
    """A text in quotes, with escape sequences for unprintable characters."""
    return f'"{"".join(map(_escaped_character, text))}"'


def _escaped_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[index : index + 2].hex()}" for index in range(0, len(units), 2))
