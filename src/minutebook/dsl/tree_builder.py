"""Converts lark's parse tree to the syntax tree, which contains no objects of lark."""

import re
from dataclasses import replace
from textwrap import dedent
from typing import Any, Final, cast

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


class _Builder:
    """Builds the nodes. Each rule of the grammar has a method with its name."""

    def __init__(self, comments: Comments, collector: DiagnosticCollector) -> None:
        self.comments, self.collector = comments, collector

    def node(self, child: Any) -> Any:
        return getattr(self, child.data)(child.meta, *(part for part in child.children if not _is_token(part, "NL")))

    def nodes(self, children: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(self.node(child) for child in children)

    def line(self, meta: Any) -> dict[str, Any]:
        return {"trivia": self.comments.of(meta.line), "at": t.Position(meta.line, meta.column)}

    def block(self, meta: Any) -> dict[str, Any]:
        return {**self.line(meta), "below": self.comments.below(meta.line)}

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
        return t.Version(int(number[1:][:MAX_DIGITS]), **{**self.line(meta), "at": _position(number)})

    def model_word(self, _meta: Any, word: Token) -> t.Text:
        return self.text(word)

    def model_short(self, meta: Any, name: Token, target: Node) -> t.ModelShort:
        return t.ModelShort(_name(name), self.node(target), **self.line(meta))

    def model_long(self, meta: Any, name: Token, *properties: Node) -> t.ModelLong:
        return t.ModelLong(_name(name), self.nodes(properties), **self.block(meta))

    def model_property(self, meta: Any, key: Token, value: Any) -> t.Property:
        return t.Property(str(key), self.any_value(value), **self.property_line(key, meta))

    policy_property = agent_property = model_property

    def property_line(self, key: Token, meta: Any) -> dict[str, Any]:
        return {**self.line(meta), "at": _position(key)}

    def any_value(self, value: Any) -> t.Value:
        if isinstance(value, Tree):
            return cast("t.Value", self.node(value))
        if value.type == "STRING":
            return self.text(value)
        return t.Flag(value == "true", at=_position(value)) if value.type == "BOOL" else _name(value)

    def names(self, _meta: Any, *names: Token) -> t.Names:
        return t.Names(tuple(map(_name, names)))

    tool_names = names

    def schema(self, meta: Any, name: Token, *fields: Node) -> t.SchemaDef:
        return t.SchemaDef(_name(name), self.nodes(fields), **self.block(meta))

    def schema_field(self, meta: Any, name: Token, kind: Node, *description: Token) -> t.SchemaField:
        text = self.text(description[0]) if description else None
        return t.SchemaField(_name(name), self.node(kind), text, **self.line(meta))

    def named_type(self, _meta: Any, name: Token) -> t.NamedType:
        return t.NamedType(_name(name))

    def list_type(self, _meta: Any, item: Node) -> t.ListType:
        return t.ListType(self.node(item))

    def optional_type(self, _meta: Any, item: Node) -> t.OptionalType:
        return t.OptionalType(self.node(item))

    def choice_type(self, _meta: Any, *options: Token) -> t.ChoiceType:
        return t.ChoiceType(tuple(map(self.text, options)))

    def tool(self, meta: Any, name: Token, origin: Node, *clauses: Node) -> t.ToolDef:
        return t.ToolDef(_name(name), self.node(origin), self.nodes(clauses), **self.line(meta))

    def mcp_url(self, _meta: Any, url: Token) -> t.McpUrl:
        return t.McpUrl(self.text(url))

    def mcp_command(self, _meta: Any, command: Token) -> t.McpCommand:
        return t.McpCommand(self.text(command))

    def builtin(self, _meta: Any, name: Token) -> t.Builtin:
        return t.Builtin(_name(name))

    def python(self, _meta: Any, target: Token) -> t.Python:
        return t.Python(_name(target))

    def with_clause(self, _meta: Any, kind: Token, *key_and_secret: Any) -> t.With:
        key = self.text(key_and_secret[0]) if len(key_and_secret) > 1 else None
        return t.With(cast("Any", str(kind)), key, self.node(key_and_secret[-1]), at=_position(kind))

    def secret(self, _meta: Any, token: Token) -> t.SecretText:
        if token.type == "STRING":
            return t.SecretText(self.text(token).value, from_environment=False, at=_position(token))
        return t.SecretText(token[len("${env:") : -1], from_environment=True, at=_position(token))

    def retry(self, meta: Any, name: Token, times: Node, *options: Any) -> t.RetryDef:
        backoff = cast("t.Backoff", str(options[0])) if options else None
        first_wait = self.node(options[1]) if len(options) > 1 else None
        return t.RetryDef(_name(name), self.node(times), backoff, first_wait, **self.line(meta))

    def timeout(self, meta: Any, name: Token, duration: Node) -> t.TimeoutDef:
        return t.TimeoutDef(_name(name), self.node(duration), **self.line(meta))

    def policy(self, meta: Any, name: Token, *properties: Node) -> t.PolicyDef:
        return t.PolicyDef(_name(name), self.nodes(properties), **self.block(meta))

    def prompt(self, meta: Any, name: Token, *parts: Any) -> t.PromptDef:
        *modifiers, body = parts
        node = t.PromptDef(_name(name), self.prompt_text(body), self.nodes(tuple(modifiers)), **self.line(meta))
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
        return t.AgentDef(name, self.nodes(parts[1:] if has_name else parts), **self.block(meta))

    def flow(self, meta: Any, name: Token, *parts: Any) -> t.FlowDef:
        parameters = tuple(_variable(part) for part in parts if isinstance(part, Token))
        body = self.nodes(tuple(part for part in parts if isinstance(part, Tree)))
        return t.FlowDef(_name(name), parameters, body, **self.block(meta))

    def assign(self, meta: Any, target: Token, value: Node) -> t.Assign:
        return t.Assign(_variable(target), self.node(value), **self.line(meta))

    def perform(self, meta: Any, action: Node) -> t.Perform:
        return t.Perform(self.node(action), **self.line(meta))

    def if_else(self, _meta: Any, *branches: Node) -> t.If:
        return t.If(self.nodes(branches))

    def if_branch(self, meta: Any, condition: Node, *body: Node) -> t.Branch:
        return t.Branch(self.node(condition), self.nodes(body), **self.block(meta))

    elif_branch = if_branch

    def else_branch(self, meta: Any, *body: Node) -> t.Branch:
        return t.Branch(None, self.nodes(body), **self.block(meta))

    def for_in(self, meta: Any, variable: Token, items: Node, *body: Node) -> t.For:
        return t.For(_variable(variable), self.node(items), self.nodes(body), **self.block(meta))

    def parallel(self, meta: Any, *body: Node) -> t.Parallel:
        return t.Parallel(self.nodes(body), **self.block(meta))

    def return_value(self, meta: Any, *value: Node) -> t.Return:
        return t.Return(self.node(value[0]) if value else None, **self.line(meta))

    def run_agent(self, meta: Any, name: Token, *arguments: Node) -> t.Action:
        return t.Action("agent", _name(name), self.nodes(arguments), at=t.Position(meta.line, meta.column))

    def run_flow(self, meta: Any, name: Token, *arguments: Node) -> t.Action:
        return t.Action("flow", _name(name), self.nodes(arguments), at=t.Position(meta.line, meta.column))

    def call_llm(self, meta: Any, name: Token, *arguments: Node) -> t.Action:
        return t.Action("llm", _name(name), self.nodes(arguments), at=t.Position(meta.line, meta.column))

    def comparison(self, _meta: Any, left: Node, operator: Token, right: Node) -> t.Binary:
        return t.Binary(cast("t.BinaryOperator", str(operator)), self.node(left), self.node(right))

    disjunction = conjunction = sum = product = comparison

    def negation(self, _meta: Any, operator: Token, operand: Node) -> t.Unary:
        return t.Unary(cast("t.UnaryOperator", str(operator)), self.node(operand))

    negative = negation

    def member(self, _meta: Any, of: Node, name: Token) -> t.Member:
        return t.Member(self.node(of), _name(name))

    def index(self, _meta: Any, of: Node, index: Node) -> t.Index:
        return t.Index(self.node(of), self.node(index))

    def variable(self, _meta: Any, token: Token) -> t.Variable:
        return t.Variable(token[1:], at=_position(token))

    def list(self, _meta: Any, *items: Node) -> t.ListOf:
        return t.ListOf(self.nodes(items))

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
