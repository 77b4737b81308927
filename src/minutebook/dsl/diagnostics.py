"""Diagnostics of a program: a code, a position, a message, a suggestion, and the line with a caret below it."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from minutebook.dsl.syntax import Position
from minutebook.record.finding import Severity

CODES: Final = {
    "syntax": "the text is not a program of the language",
    "indentation": "the indentation of a line matches no block",
    "unclosed-text": "a text in quotes does not end",
    "bad-escape": "an unknown escape sequence in a text",
    "bad-number": "an invalid number: zero, negative, broken, or out of range",
    "too-deep": "an expression or a block is nested too deeply",
    "unknown-version": "the version line names a version that is not supported",
    "duplicate": "a name is defined twice, or a property set twice",
    "unknown-model": "no model of that name",
    "unknown-tool": "no tool of that name",
    "unknown-prompt": "no prompt of that name",
    "unknown-agent": "no agent of that name",
    "unknown-schema": "neither a schema nor a type has that name",
    "unknown-flow": "no flow of that name",
    "unknown-retry": "no retry policy of that name",
    "unknown-timeout": "no timeout policy of that name",
    "unknown-strategy": "neither a history strategy nor a flow with one parameter has that name",
    "unknown-builtin": "no builtin tool of that name",
    "unknown-policy": "no policy of that name",
    "unknown-variable": "a variable that is never set",
    "maybe-unset": "a variable that is not set on every path",
    "reserved": "a reserved name",
    "no-provider": "a model without a provider",
    "no-name": "a model without a name",
    "no-model": "an agent or prompt without a model",
    "no-instruction": "an agent without an instruction",
    "empty-prompt": "a prompt without a text",
    "empty-text": "an empty text",
    "conflict": "two settings that contradict each other",
    "circle": "agents, flows or schemas that refer to themselves",
    "unreachable": "a statement after return",
    "arguments": "too many or too few arguments",
    "parallel": "a statement that cannot run in parallel",
    "bad-url": "an address that is not an http or https URL",
    "bad-command": "a command that is empty or has an unclosed quote",
    "bad-clause": "a `with` clause that the tool does not support",
    "name-clash": "two tools of an agent have the same name",
    "no-effect": "a setting that is not used",
    "secret-in-file": "a secret in plain text",
    "external-tool": "a tool that the program does not define and that must be supplied at run time",
    "no-description": "an agent that other agents call has no description",
    "unused": "a definition or variable that nothing uses",
    "shadowed": "a flow that has the name of a strategy",
    "nothing-to-run": "a program without an agent or a flow",
}
"""Code → description."""

WARNINGS: Final = frozenset(
    {"secret-in-file", "external-tool", "no-description", "unused", "shadowed", "nothing-to-run"}
)
"""The codes of warnings. All others are errors."""


_MAX_EXCERPT_CHARACTERS: Final = 200
"""Maximum characters of a line that are shown."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """An error or a warning about a program."""

    code: str
    message: str
    line: int
    """Counted from 1; 0 if the program was not parsed from text."""
    column: int
    """Counted from 1, in characters. A tab is one character, and so is a wide character such as 語."""
    width: int = 1
    source: str = "<text>"
    excerpt: str = ""
    """The line with the problem."""
    suggestion: str | None = None
    """What the author probably meant."""

    @property
    def severity(self) -> Severity:
        """A program with errors does not compile; one with warnings does."""
        return Severity.WARNING if self.code in WARNINGS else Severity.ERROR

    def __str__(self) -> str:
        """`file:line:column: error[code]: message`, the line, and carets below the problem."""
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        first_line = (
            f"{self.source}:{self.line}:{self.column}: {self.severity.value}[{self.code}]: {self.message}{hint}"
        )
        if not self.line:
            return first_line
        number = str(self.line)
        # Of a very long line, only the part around the problem is shown.
        start = (
            max(0, self.column - 1 - _MAX_EXCERPT_CHARACTERS // 2) if len(self.excerpt) > _MAX_EXCERPT_CHARACTERS else 0
        )
        excerpt = self.excerpt[start : start + _MAX_EXCERPT_CHARACTERS]
        problem_start = self.column - 1 - start
        text_before, problem_text = excerpt[:problem_start], excerpt[problem_start:][: self.width]
        padding = "".join("\t" if character == "\t" else " " * _width(character) for character in text_before)
        carets = "^" * max(1, sum(map(_width, problem_text)))
        return f"{first_line}\n {number} | {_printable(excerpt)}\n {' ' * len(number)} | {padding}{carets}"

    def as_json(self) -> dict[str, Any]:
        """The diagnostic as JSON data."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "message": self.message,
            "suggestion": self.suggestion,
            "file": self.source,
            "line": self.line,
            "column": self.column,
            "width": self.width,
        }


class DiagnosticCollector:
    """Collects the diagnostics of one program."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.lines = text.split("\n")
        self.diagnostics: list[Diagnostic] = []

    def add(self, code: str, at: Position, message: str, suggestion: str | None = None) -> None:
        assert code in CODES
        excerpt = self.lines[at.line - 1] if 0 < at.line <= len(self.lines) else ""
        width = max(1, min(at.width, len(excerpt) - at.column + 1))
        self.diagnostics.append(
            Diagnostic(code, message, at.line, at.column, width, self.source, excerpt, suggestion=suggestion)
        )

    def in_order(self) -> tuple[Diagnostic, ...]:
        """The diagnostics without duplicates, in the order of the text."""
        return tuple(
            sorted(dict.fromkeys(self.diagnostics), key=lambda diagnostic: (diagnostic.line, diagnostic.column))
        )


def errors_in(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The diagnostics that are errors."""
    return tuple(diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR)


def _width(character: str) -> int:
    """The width of a character in columns of a terminal."""
    if unicodedata.combining(character) or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _printable(line: str) -> str:
    return "".join(
        character if character == "\t" or character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in line
    )
