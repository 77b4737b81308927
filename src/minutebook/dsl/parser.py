"""Parses a program into a syntax tree."""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from minutebook.dsl.diagnostics import Diagnostic, DiagnosticCollector
from minutebook.dsl.syntax import Position, Program
from minutebook.errors import MissingExtra, ProgramInvalid

if TYPE_CHECKING:
    from lark import Lark, Tree

    from minutebook.dsl.syntax_errors import Explainer

MAX_DEPTH: Final = 150
"""The maximum depth of the syntax tree, in nodes. Each `+` of a sum adds a level."""

_MAX_ERRORS: Final = 20


def parse_agents(text: str, *, source: str = "<text>") -> Program:
    """Parse a program; `source` is its name in messages.

    Raises:
        ProgramInvalid: the text is not a program; `diagnostics` has an error for each invalid definition, up to a maximum.
        MissingExtra: the package lark is not installed.
    """
    program, diagnostics = parse_with_diagnostics(text, source=source)
    if program is None:
        raise ProgramInvalid(source, diagnostics)
    return program


def parse_with_diagnostics(text: str, *, source: str = "<text>") -> tuple[Program | None, tuple[Diagnostic, ...]]:
    """The syntax tree, or None and the errors."""
    try:
        from lark.exceptions import UnexpectedInput

        from minutebook.dsl.indentation import MisalignedLine
        from minutebook.dsl.tree_builder import build_program
    except ModuleNotFoundError as error:
        raise MissingExtra("lark", "dsl") from error

    normalized = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n").replace("\r", "\n")
    collector = DiagnosticCollector(source, normalized)
    remaining_text = f"{normalized}\n"
    parser, explainer = _parser_and_explainer()
    while len(collector.diagnostics) < _MAX_ERRORS:
        try:
            root = parser.parse(remaining_text)
        except (UnexpectedInput, MisalignedLine) as error:
            line = explainer.report(error, collector)
            remaining_text = _text_after_definition(remaining_text, line)
        else:
            if not collector.diagnostics and _check_depth(root, collector):
                program = build_program(root, collector, source, normalized)
                if not collector.diagnostics:
                    return program, ()
            break
    return None, collector.in_order()


@cache
def _parser_and_explainer() -> "tuple[Lark, Explainer]":
    """The parser and the explainer of its errors. Cached: creating the parser takes longer than parsing a page."""
    from lark import Lark

    from minutebook.dsl.indentation import IndentationTokens
    from minutebook.dsl.syntax_errors import Explainer

    grammar = files("minutebook.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")
    parser = Lark(grammar, parser="lalr", lexer="contextual", postlex=IndentationTokens(), propagate_positions=True)
    return parser, Explainer(parser)


def _text_after_definition(text: str, line: int) -> str:
    """The text with empty lines in place of everything up to the end of the definition that contains `line`."""
    from minutebook.dsl.syntax_errors import DEFINITIONS

    lines = text.split("\n")
    start = min(line, len(lines)) - 1
    while start > 0 and (not lines[start].strip() or lines[start][0] in " \t#"):
        start -= 1
    end = max(start + 1, line)
    while end < len(lines) and not lines[end].startswith(DEFINITIONS):
        end += 1
    return "\n" * end + "\n".join(lines[end:])


def _check_depth(root: "Tree[Any]", collector: DiagnosticCollector) -> bool:
    """Return whether recursive functions can visit the tree without a stack overflow; if not, add an error."""
    nodes: list[Any] = [root]  # all nodes of one depth
    for _ in range(MAX_DEPTH):
        nodes = [child for node in nodes for child in getattr(node, "children", ())]
        if not nodes:
            return True
    deepest = next((node for node in nodes if hasattr(node, "meta") and not node.meta.empty), None)
    lark_position = deepest.meta if deepest is not None else nodes[0]
    at = Position(lark_position.line or 1, lark_position.column or 1)
    collector.add("too-deep", at, "this is nested too deeply; move a part of it to a variable or to another flow")
    return False
