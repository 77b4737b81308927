"""Converts lark's parse tree to the syntax tree, which contains no objects of lark."""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partialmethod
from textwrap import dedent
from typing import Any, Final, Literal, cast

from lark import Token, Tree

from minutebook.dsl import syntax as t
from minutebook.dsl.comments import Comments, comments_in
from minutebook.dsl.diagnostics import DiagnosticCollector

Node = Tree[Token]

MAX_DIGITS: Final = 15
"""A number with more digits is not exact in JSON."""

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "n": "\n", "t": "\t", "r": "\r"}


def build_program(root: Node, collector: DiagnosticCollector, source: str, text: str) -> t.Program:
    """Build the syntax tree; errors inside a token are added to the collector."""
    leading = bool(root.children) and isinstance(root.children[0], Token)
    line_ends = root.scan_values(lambda value: _is_token(value, "NL"))
    builder = _Builder(comments_in(line_ends, leading=leading), collector)
    nodes = [builder.node(child) for child in root.children if isinstance(child, Tree)]
    version = nodes.pop(0) if nodes and isinstance(nodes[0], t.Version) else None
    return t.Program(version, tuple(nodes), builder.comments.below(0), source=source, text=text)


_NODE_CLASSES: Final[dict[str, Any]] = {
    "assign": t.Assign,
    "builtin": t.Builtin,
    "index": t.Index,
    "list_type": t.ListType,
    "mcp_command": t.McpCommand,
    "mcp_url": t.McpUrl,
    "member": t.Member,
    "model_short": t.ModelShort,
    "named_type": t.NamedType,
    "negation": t.Unary,
    "negative": t.Unary,
    "optional_type": t.OptionalType,
    "perform": t.Perform,
    "python": t.Python,
    "retry": t.RetryDef,
    "return_value": t.Return,
    "schema_field": t.SchemaField,
    "timeout": t.TimeoutDef,
}
"""Rule of the grammar → the class of its node, whose fields are the parts of the rule in their order."""
_SEQUENCE_CLASSES: Final[dict[str, tuple[Any, int]]] = {
    "choice_type": (t.ChoiceType, 0),
    "elif_branch": (t.Branch, 1),
    "for_in": (t.For, 2),
    "if_branch": (t.Branch, 1),
    "if_else": (t.If, 0),
    "list": (t.ListOf, 0),
    "model_long": (t.ModelLong, 1),
    "names": (t.Names, 0),
    "parallel": (t.Parallel, 0),
    "policy": (t.PolicyDef, 1),
    "schema": (t.SchemaDef, 1),
    "tool": (t.ToolDef, 2),
    "tool_names": (t.Names, 0),
}
"""The same for nodes whose last field has all the parts after the first ones, whose number is given."""


class _Builder:
    """Builds the nodes of the two tables. Every other rule of the grammar has a method with its name."""

    def __init__(self, comments: Comments, collector: DiagnosticCollector) -> None:
        self.comments, self.collector = comments, collector

    def node(self, child: Any) -> Any:
        parts = [part for part in child.children if not _is_token(part, "NL")]
        if child.data in _NODE_CLASSES:
            node_class = _NODE_CLASSES[child.data]
            return node_class(*self.values(parts), **self.line(node_class, child.meta))
        if child.data in _SEQUENCE_CLASSES:
            node_class, count = _SEQUENCE_CLASSES[child.data]
            values = (*self.values(parts[:count]), self.values(parts[count:]))
            return node_class(*values, **self.line(node_class, child.meta))
        return getattr(self, child.data)(child.meta, *parts)

    def values(self, parts: Iterable[Any]) -> tuple[Any, ...]:
        """The nodes of rules and the values of tokens."""
        return tuple(self.node(part) if isinstance(part, Tree) else self.token_value(part) for part in parts)

    def token_value(self, token: Token) -> t.Name | t.Text | t.Flag | str:
        match token.type:
            case "STRING":
                return self.text(token)
            case "NAME" | "TOOL_NAME" | "PYTHON_NAME":
                return _name(token)
            case "VARIABLE":
                return _variable(token)
            case "BOOL":
                return t.Flag(token == "true", at=_position(token))  # noqa: S105 - a word of the language
        return str(token)

    def line(self, node_class: type, meta: Any) -> dict[str, Any]:
        """The position and the comments of a node that is a line of code."""
        if not issubclass(node_class, t.Line):
            return {}
        fields = {"trivia": self.comments.of(meta.line), "at": t.Position(meta.line, meta.column)}
        return fields | ({"below": self.comments.below(meta.line)} if issubclass(node_class, t.Block) else {})

    def text(self, token: Token) -> t.Text:
        """The text of a string token, with its escape sequences replaced."""
        if token.type != "STRING":
            return t.Text(str(token), at=_position(token))

        def unescape(match: re.Match[str]) -> str:
            code = match[1]
            if code[0] == "u" and len(code) == 5:
                return chr(int(code[1:], 16))
            if code not in _ESCAPES:
                start = _position(token)
                at = t.Position(start.line, start.column + 1 + match.start(), 2)
                message = rf"unknown escape sequence '\{code}'; write \" \\ \n \t \r or \u and four digits"
                self.collector.add("bad-escape", at, message)
            return _ESCAPES.get(code, code)

        value = _ESCAPE.sub(unescape, token[1:-1])
        # A surrogate pair, which JSON uses for characters with more than four digits, is one character.
        joined = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return t.Text(joined, at=_position(token))

    def number_value(self, digits: Token, *, negative: bool = False) -> int | float:
        if len(digits) > MAX_DIGITS:
            message = f"this number has {len(digits)} digits; the maximum is {MAX_DIGITS}"
            self.collector.add("bad-number", _position(digits), message)
            return 0
        value = float(digits) if "." in digits else int(digits)
        return -value if negative else value

    def number(self, meta: Any, *parts: Token) -> t.Number:
        value = self.number_value(parts[-1], negative=len(parts) > 1)
        width = meta.end_column - meta.column
        return t.Number(value, at=t.Position(meta.line, meta.column, width))

    def duration(self, _meta: Any, amount: Node, unit: Token) -> t.Duration:
        return t.Duration(self.node(amount), cast("t.Unit", f"{unit.removesuffix('s')}s"))

    def version(self, meta: Any, number: Token) -> t.Version:
        return t.Version(int(number[1:][:MAX_DIGITS]), **{**self.line(t.Version, meta), "at": _position(number)})

    def model_word(self, _meta: Any, word: Token) -> t.Text:
        return self.text(word)

    def model_property(self, meta: Any, key: Token, value: Any) -> t.Property:
        return t.Property(str(key), *self.values([value]), **{**self.line(t.Property, meta), "at": _position(key)})

    policy_property = agent_property = model_property

    def with_clause(self, _meta: Any, kind: Token, *key_and_secret: Any) -> t.With:
        key = self.text(key_and_secret[0]) if len(key_and_secret) > 1 else None
        return t.With(cast("Any", str(kind)), key, self.node(key_and_secret[-1]), at=_position(kind))

    def secret(self, _meta: Any, token: Token) -> t.SecretText:
        if token.type == "STRING":
            return t.SecretText(self.text(token).value, from_environment=False, at=_position(token))
        return t.SecretText(token[len("${env:") : -1], from_environment=True, at=_position(token))

    def prompt(self, meta: Any, name: Token, *parts: Any) -> t.PromptDef:
        *modifiers, body = parts
        node = t.PromptDef(_name(name), self.prompt_text(body), self.values(modifiers), **self.line(t.PromptDef, meta))
        # A comment after the head, on the same line, is part of the token.
        if body.type == "TEXT" and body.startswith("#"):
            node = replace(node, trivia=replace(node.trivia, trailing=body.partition("\n")[0].rstrip()))
        return node

    def prompt_text(self, token: Token) -> t.Text:
        """The text of a prompt without its indentation and without empty lines at the start and the end."""
        if token.type == "STRING":
            return self.text(token)
        text = token[3:-3] if token.type == "LONG_STRING" else token.partition("\n")[2]
        lines = dedent(text).split("\n") if token.type == "TEXT" or text.startswith("\n") else text.split("\n")
        lines = [line if line.strip(" \t") else "" for line in lines]
        while lines and not lines[0]:
            lines.pop(0)
        while lines and not lines[-1]:
            lines.pop()
        return t.Text("\n".join(lines), at=_position(token))

    def modifier(self, _meta: Any, kind: Token, value: Token) -> t.Modifier:
        name = t.Name(self.text(value).value, at=_position(value)) if value.type == "STRING" else _name(value)
        return t.Modifier("model" if kind == "model" else "expecting", name)

    def agent(self, meta: Any, *parts: Any) -> t.AgentDef:
        has_name = bool(parts) and isinstance(parts[0], Token)
        name = _name(parts[0]) if has_name else None
        return t.AgentDef(name, self.values(parts[1:] if has_name else parts), **self.line(t.AgentDef, meta))

    def flow(self, meta: Any, name: Token, *parts: Any) -> t.FlowDef:
        parameters = tuple(_variable(part) for part in parts if isinstance(part, Token))
        body = self.values(part for part in parts if isinstance(part, Tree))
        return t.FlowDef(_name(name), parameters, body, **self.line(t.FlowDef, meta))

    def else_branch(self, meta: Any, *body: Node) -> t.Branch:
        return t.Branch(None, self.values(body), **self.line(t.Branch, meta))

    def action(self, kind: Literal["agent", "flow", "llm"], meta: Any, name: Token, *arguments: Node) -> t.Action:
        return t.Action(kind, _name(name), self.values(arguments), at=t.Position(meta.line, meta.column))

    run_agent = partialmethod(action, "agent")
    run_flow = partialmethod(action, "flow")
    call_llm = partialmethod(action, "llm")

    def comparison(self, _meta: Any, left: Node, operator: Token, right: Node) -> t.Binary:
        return t.Binary(cast("t.BinaryOperator", str(operator)), self.node(left), self.node(right))

    disjunction = conjunction = sum = product = comparison

    def variable(self, _meta: Any, token: Token) -> t.Variable:
        return t.Variable(token[1:], at=_position(token))

    def literal(self, _meta: Any, token: Token) -> t.LiteralValue:
        at = _position(token)
        match token.type:
            case "STRING":
                return t.LiteralValue(self.text(token).value, at=at)
            case "NUMBER":
                return t.LiteralValue(self.number_value(token), at=at)
            case "BOOL":
                return t.LiteralValue(token == "true", at=at)  # noqa: S105 - a word of the language
        return t.LiteralValue(None, at=at)


def _is_token(child: Any, kind: str) -> bool:
    return isinstance(child, Token) and child.type == kind


def _position(token: Token) -> t.Position:
    line, column = token.line or 0, token.column or 0
    width = len(token) if token.end_line == line else 3
    return t.Position(line, column, width)


def _name(token: Token) -> t.Name:
    return t.Name(str(token), at=_position(token))


def _variable(token: Token) -> t.Name:
    return t.Name(token[1:], at=_position(token))
