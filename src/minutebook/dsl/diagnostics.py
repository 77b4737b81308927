"""What is wrong with a program, and where: a code, a position, the line with a caret under it, and what to write."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from minutebook.dsl.syntax import Position
from minutebook.record.finding import Severity

CODES: Final = {
    "syntax": "the text is not a program of the language",
    "indentation": "a line is indented as no block is",
    "unclosed-text": "a text in quotes does not end",
    "bad-escape": "a backslash in a text with a letter that means nothing",
    "bad-number": "a number that cannot be meant: zero, negative, broken, or out of range",
    "too-deep": "an expression or a block is nested too deeply",
    "unknown-version": "the version line names a version that this is not",
    "duplicate": "a name is defined twice, or a property given twice",
    "unknown-model": "no model of that name",
    "unknown-tool": "no tool of that name",
    "unknown-prompt": "no prompt of that name",
    "unknown-agent": "no agent of that name",
    "unknown-schema": "no schema of that name, and no type",
    "unknown-flow": "no flow of that name",
    "unknown-retry": "no retry policy of that name",
    "unknown-timeout": "no timeout policy of that name",
    "unknown-strategy": "no history strategy of that name, and no flow with one parameter",
    "unknown-builtin": "no builtin tool of that name",
    "unknown-policy": "a policy for something that has none",
    "unknown-variable": "a variable that nothing has set",
    "maybe-unset": "a variable that is set on some ways to this place and not on others",
    "reserved": "a name that the language keeps for itself",
    "no-provider": "a model without a provider",
    "no-name": "a model without a name",
    "no-model": "an agent or prompt for which no model can be told",
    "no-instruction": "an agent without an instruction",
    "empty-prompt": "a prompt without a text",
    "empty-text": "a text that must say something says nothing",
    "conflict": "two things are said that cannot both be",
    "circle": "agents, flows or schemas that lead back to themselves",
    "unreachable": "a statement after return",
    "arguments": "too many or too few values for what is called",
    "parallel": "a statement that cannot run beside others",
    "bad-url": "an address that is no http or https URL",
    "bad-command": "a command that is empty or has a quote too few",
    "bad-clause": "a `with` clause that the tool cannot use",
    "name-clash": "two tools of one agent go by one name",
    "no-effect": "a setting that nothing in the program follows",
    "secret-in-file": "a secret is written out",
    "external-tool": "a tool that the program does not define, and whoever runs it must bring",
    "no-description": "an agent that others call does not say what it is for",
    "unused": "a definition or variable that nothing uses",
    "shadowed": "a flow that has the name of a strategy",
    "nothing-to-run": "a program without an agent or a flow",
}
"""Code → what it means."""

WARNINGS: Final = frozenset(
    {"secret-in-file", "external-tool", "no-description", "unused", "shadowed", "nothing-to-run"}
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong, or that may not be meant."""

    code: str
    message: str
    line: int
    """From 1; 0 where the program was not parsed from a text."""
    column: int
    """From 1, in characters: a tab is one, and so is 語."""
    width: int = 1
    source: str = "<text>"
    excerpt: str = ""
    """The line it is about."""
    suggestion: str | None = None
    """What was probably meant."""

    @property
    def severity(self) -> Severity:
        """An error stops the program from being compiled; a warning does not."""
        return Severity.WARNING if self.code in WARNINGS else Severity.ERROR

    def __str__(self) -> str:
        """`file:line:column: error[code]: message`, the line, and a caret under the place."""
        hint = f"; did you mean {self.suggestion!r}?" if self.suggestion else ""
        head = f"{self.source}:{self.line}:{self.column}: {self.severity.value}[{self.code}]: {self.message}{hint}"
        if not self.line:
            return head
        number = str(self.line)
        before = self.excerpt[: self.column - 1]
        marked = self.excerpt[self.column - 1 :][: self.width]
        pad = "".join("\t" if letter == "\t" else " " * _columns(letter) for letter in before)
        carets = "^" * max(1, sum(map(_columns, marked)))
        return f"{head}\n {number} | {_shown(self.excerpt)}\n {' ' * len(number)} | {pad}{carets}"

    def as_json(self) -> dict[str, Any]:
        """Its facts, for other programs."""
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


class Findings:
    """Collects what is wrong with one text."""

    def __init__(self, source: str, text: str) -> None:
        self.source = source
        self.lines = text.split("\n")
        self.found: list[Diagnostic] = []

    def add(self, code: str, at: Position, message: str, suggestion: str | None = None) -> None:
        assert code in CODES
        excerpt = self.lines[at.line - 1] if 0 < at.line <= len(self.lines) else ""
        width = max(1, min(at.width, len(excerpt) - at.column + 1))
        self.found.append(
            Diagnostic(code, message, at.line, at.column, width, self.source, excerpt, suggestion=suggestion)
        )

    def in_order(self) -> tuple[Diagnostic, ...]:
        """As they stand in the text, each once."""
        return tuple(sorted(dict.fromkeys(self.found), key=lambda each: (each.line, each.column)))


def errors_in(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Those that stop the program from being compiled."""
    return tuple(each for each in diagnostics if each.severity is Severity.ERROR)


def _columns(letter: str) -> int:
    """How many columns of a terminal a character takes."""
    if unicodedata.combining(letter) or unicodedata.category(letter) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _shown(line: str) -> str:
    return "".join(letter if letter == "\t" or letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
