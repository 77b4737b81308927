"""From text to a syntax tree."""

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from minutebook.dsl.diagnostics import Diagnostic, Findings
from minutebook.dsl.syntax import Position, Program
from minutebook.errors import MissingExtra, ProgramInvalid

if TYPE_CHECKING:
    from lark import Lark, Tree

    from minutebook.dsl.syntax_errors import Explainer

DEEPEST: Final = 150
"""How deeply a program may be nested, in rules of the grammar; a chain of `+` is as deep as it is long."""

_MOST_ERRORS: Final = 20


def parse_agents(text: str, *, source: str = "<text>") -> Program:
    """The syntax tree of a program; `source` is what messages call it.

    Raises:
        ProgramInvalid: the text is not a program; `diagnostics` say where and why, one for each broken definition.
        MissingExtra: the package lark is not installed.
    """
    program, diagnostics = parse_with_diagnostics(text, source=source)
    if program is None:
        raise ProgramInvalid(source, diagnostics)
    return program


def parse_with_diagnostics(text: str, *, source: str = "<text>") -> tuple[Program | None, tuple[Diagnostic, ...]]:
    """The tree, or what is wrong; never both."""
    try:
        from lark.exceptions import UnexpectedInput

        from minutebook.dsl.indentation import Misaligned
        from minutebook.dsl.tree_builder import built
    except ModuleNotFoundError as error:
        raise MissingExtra("lark", "dsl") from error

    clean = text.removeprefix("\N{BYTE ORDER MARK}").replace("\r\n", "\n").replace("\r", "\n")
    findings = Findings(source, clean)
    rest = f"{clean}\n"
    while len(findings.found) < _MOST_ERRORS:
        try:
            root = _parser()[0].parse(rest)
        except (UnexpectedInput, Misaligned) as error:
            line = _parser()[1].add(error, findings)
            rest = _beyond_definition(rest, line)
        else:
            if not findings.found and _shallow(root, findings):
                program = built(root, findings, source, clean)
                if not findings.found:
                    return program, ()
            break
    return None, findings.in_order()


@cache
def _parser() -> "tuple[Lark, Explainer]":
    """Made once: making it takes longer than parsing a page."""
    from lark import Lark

    from minutebook.dsl.indentation import Layout
    from minutebook.dsl.syntax_errors import Explainer

    grammar = files("minutebook.dsl").joinpath("grammar.lark").read_text(encoding="utf-8")
    parser = Lark(grammar, parser="lalr", lexer="contextual", postlex=Layout(), propagate_positions=True)
    return parser, Explainer(parser)


def _beyond_definition(text: str, line: int) -> str:
    """The text with all lines left empty up to the end of the definition around a line.

    So that what else is wrong can be found too: what stands before was read already, and is not read again.
    """
    from minutebook.dsl.syntax_errors import DEFINITIONS

    lines = text.split("\n")
    start = min(line, len(lines)) - 1
    while start > 0 and (not lines[start].strip() or lines[start][0] in " \t#"):
        start -= 1
    end = max(start + 1, line)
    while end < len(lines) and not lines[end].startswith(DEFINITIONS):
        end += 1
    return "\n" * end + "\n".join(lines[end:])


def _shallow(root: "Tree[Any]", findings: Findings) -> bool:
    """Whether everything that walks the tree can do so without running out of stack."""
    level: list[Any] = [root]
    for _ in range(DEEPEST):
        level = [child for node in level for child in getattr(node, "children", ())]
        if not level:
            return True
    deepest = next((node for node in level if hasattr(node, "meta") and not node.meta.empty), None)
    place = deepest.meta if deepest is not None else level[0]
    at = Position(place.line or 1, place.column or 1)
    findings.add("too-deep", at, "this is nested too deeply; use variables or a flow of its own for a part of it")
    return False
