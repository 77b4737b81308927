"""The syntax tree of a program, with positions and comments.

Every line of code is a node with its comments, so that the formatter loses none. Positions are not compared: two trees
are equal if they are formatted to the same text.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the text: line and column count from 1, in characters."""

    line: int
    column: int
    width: int = 1


NOWHERE = Position(0, 0, 0)


@dataclass(frozen=True, slots=True)
class SyntaxNode:
    """A part of a program with its position."""

    at: Position = field(default=NOWHERE, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Trivia:
    """The comments of one line of code."""

    above: tuple[str, ...] = ()
    """The comment lines before the code, each from its `#` on; "" is an empty line between or after them."""
    trailing: str = ""
    """The comment after the code, on the same line."""
    blank: bool = field(default=False, compare=False)
    """Whether there is an empty line before the comments and the code."""


NO_TRIVIA = Trivia()


@dataclass(frozen=True, slots=True)
class Name(SyntaxNode):
    """A name in a definition or a reference."""

    text: str


@dataclass(frozen=True, slots=True)
class Text(SyntaxNode):
    """A text in quotes, or the text of a prompt."""

    value: str


@dataclass(frozen=True, slots=True)
class Number(SyntaxNode):
    value: int | float


@dataclass(frozen=True, slots=True)
class Flag(SyntaxNode):
    value: bool


Unit: TypeAlias = Literal["seconds", "minutes", "hours"]


@dataclass(frozen=True, slots=True)
class Duration:
    amount: Number
    unit: Unit


@dataclass(frozen=True, slots=True)
class Names:
    items: tuple[Name, ...]


Value: TypeAlias = Name | Text | Number | Flag | Duration | Names


@dataclass(frozen=True, slots=True)
class Line(SyntaxNode):
    """A node that is a line of code."""

    trivia: Trivia = field(default=NO_TRIVIA, kw_only=True)


@dataclass(frozen=True, slots=True)
class Block(Line):
    """A line with an indented block below it."""

    below: tuple[str, ...] = field(default=(), kw_only=True)
    """The comments after the last line of the block."""


@dataclass(frozen=True, slots=True)
class Version(Line):
    number: int


@dataclass(frozen=True, slots=True)
class Property(Line):
    """`key: value` of a model or a policy, `key value` of an agent."""

    key: str
    value: Value


@dataclass(frozen=True, slots=True)
class ModelShort(Line):
    """`model main = anthropic/claude-sonnet`."""

    name: Name
    target: Text


@dataclass(frozen=True, slots=True)
class ModelLong(Block):
    name: Name
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class NamedType:
    """`string`, `int`, `float`, `bool`, or a schema."""

    name: Name


@dataclass(frozen=True, slots=True)
class ListType:
    item: "TypeExpression"


@dataclass(frozen=True, slots=True)
class OptionalType:
    item: "TypeExpression"


@dataclass(frozen=True, slots=True)
class ChoiceType:
    """One of several texts."""

    options: tuple[Text, ...]


TypeExpression: TypeAlias = NamedType | ListType | OptionalType | ChoiceType


@dataclass(frozen=True, slots=True)
class SchemaField(Line):
    name: Name
    type: TypeExpression
    description: Text | None = None


@dataclass(frozen=True, slots=True)
class SchemaDef(Block):
    name: Name
    fields: tuple[SchemaField, ...]


@dataclass(frozen=True, slots=True)
class McpUrl:
    url: Text


@dataclass(frozen=True, slots=True)
class McpCommand:
    command: Text


@dataclass(frozen=True, slots=True)
class Builtin:
    name: Name


@dataclass(frozen=True, slots=True)
class Python:
    target: Name
    """`module:function`."""


Origin: TypeAlias = McpUrl | McpCommand | Builtin | Python


@dataclass(frozen=True, slots=True)
class SecretText(SyntaxNode):
    """A secret in plain text, or the name of the environment variable that contains it."""

    value: str
    from_environment: bool

    def __repr__(self) -> str:
        return f"SecretText(${{env:{self.value}}})" if self.from_environment else "SecretText(…)"


@dataclass(frozen=True, slots=True)
class With(SyntaxNode):
    """`with auth bearer …`, `with header "name" …`, `with env "NAME" …`."""

    kind: Literal["bearer", "basic", "header", "env"]
    key: Text | None
    secret: SecretText


@dataclass(frozen=True, slots=True)
class ToolDef(Line):
    name: Name
    origin: Origin
    clauses: tuple[With, ...] = ()


Backoff: TypeAlias = Literal["exponential", "linear", "fixed"]


@dataclass(frozen=True, slots=True)
class RetryDef(Line):
    name: Name
    times: Number
    backoff: Backoff | None = None
    first_wait: Duration | None = None


@dataclass(frozen=True, slots=True)
class TimeoutDef(Line):
    name: Name
    duration: Duration


@dataclass(frozen=True, slots=True)
class Modifier:
    """`using model NAME` or `expecting NAME` of a prompt."""

    kind: Literal["model", "expecting"]
    name: Name


@dataclass(frozen=True, slots=True)
class PromptDef(Line):
    name: Name
    text: Text
    modifiers: tuple[Modifier, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentDef(Block):
    name: Name | None
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class PolicyDef(Block):
    name: Name
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class LiteralValue(SyntaxNode):
    """A literal: a text, a number, true, false or null."""

    value: str | int | float | bool | None

    def __eq__(self, other: object) -> bool:
        # In Python True equals 1, but in the language it does not.
        if not isinstance(other, LiteralValue):
            return NotImplemented
        return type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


@dataclass(frozen=True, slots=True)
class Variable(SyntaxNode):
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """`$review.score`."""

    of: "Expression"
    name: Name


@dataclass(frozen=True, slots=True)
class Index:
    """`$files[0]`."""

    of: "Expression"
    index: "Expression"


@dataclass(frozen=True, slots=True)
class ListOf:
    items: tuple["Expression", ...]


UnaryOperator: TypeAlias = Literal["not", "-"]
BinaryOperator: TypeAlias = Literal["or", "and", "==", "!=", "<", ">", "<=", ">=", "contains", "+", "-", "*", "/"]


@dataclass(frozen=True, slots=True)
class Unary:
    operator: UnaryOperator
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Binary:
    operator: BinaryOperator
    left: "Expression"
    right: "Expression"


Expression: TypeAlias = LiteralValue | Variable | Member | Index | ListOf | Unary | Binary


@dataclass(frozen=True, slots=True)
class Action(SyntaxNode):
    """`run agent …`, `run flow …`, `call llm …`."""

    kind: Literal["agent", "flow", "llm"]
    name: Name
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Assign(Line):
    target: Name
    """Without the `$`."""
    value: Expression | Action


@dataclass(frozen=True, slots=True)
class Perform(Line):
    """A call whose result is not used."""

    action: Action


@dataclass(frozen=True, slots=True)
class Branch(Block):
    """`if …:`, `elif …:` or, without a condition, `else:`."""

    condition: Expression | None
    body: tuple["Statement", ...]


@dataclass(frozen=True, slots=True)
class If:
    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class For(Block):
    variable: Name
    items: Expression
    body: tuple["Statement", ...]


@dataclass(frozen=True, slots=True)
class Parallel(Block):
    body: tuple["Statement", ...]


@dataclass(frozen=True, slots=True)
class Return(Line):
    value: Expression | Action | None = None


Statement: TypeAlias = Assign | Perform | If | For | Parallel | Return


@dataclass(frozen=True, slots=True)
class FlowDef(Block):
    name: Name
    parameters: tuple[Name, ...]
    body: tuple[Statement, ...]


Definition: TypeAlias = (
    ModelShort | ModelLong | SchemaDef | ToolDef | RetryDef | TimeoutDef | PromptDef | AgentDef | PolicyDef | FlowDef
)


@dataclass(frozen=True, slots=True)
class Program:
    """The program of one file. Definitions are in the order of the text."""

    version: Version | None = None
    definitions: tuple[Definition, ...] = ()
    below: tuple[str, ...] = ()
    """The comments at the end."""
    source: str = field(default="<text>", compare=False, kw_only=True)
    """The name of the file in messages."""
    text: str = field(default="", compare=False, repr=False, kw_only=True)
    """The text it was parsed from. Messages quote its lines."""
