"""Messages for the parser's errors: what was found, what was expected, and a suggestion."""

import re
from collections.abc import Iterable
from typing import Final

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from minutebook.dsl.diagnostics import DiagnosticCollector
from minutebook.dsl.indentation import MisalignedLine
from minutebook.dsl.syntax import Position
from minutebook.errors import closest

DEFINITIONS: Final = ("model", "schema", "tool", "retry", "timeout", "prompt", "agent", "policy", "flow")
"""The keywords of definitions."""

_DESCRIPTIONS: Final = {
    "NAME": "a name",
    "VARIABLE": "a variable such as $answer",
    "MODEL_NAME": "a model's name such as claude-sonnet-4.5",
    "TOOL_NAME": "a tool's name",
    "PYTHON_NAME": "a function such as package.module:function",
    "VERSION": "'v1'",
    "NUMBER": "a number",
    "STRING": 'a text in "quotes"',
    "LONG_STRING": 'a text in """quotes"""',
    "ENV_VALUE": "${env:NAME}",
    "TEXT": "the prompt's text in indented lines below",
    "NL": "the end of the line",
    "COMPARE": "a comparison such as ==",
    "UNIT": "'seconds', 'minutes' or 'hours'",
    "BACKOFF": "'exponential', 'linear' or 'fixed'",
    "BOOL": "'true' or 'false'",
    "_INDENT": "an indented block below",
    "_DEDENT": "",
    "$END": "the end of the file",
}
"""Terminal of the grammar → its description in messages."""
_VALUE_TERMINALS: Final = frozenset({"VARIABLE", "STRING", "NUMBER", "BOOL", "NULL", "LSQB", "LPAR"})
_OPERATOR_TERMINALS: Final = frozenset({"COMPARE", "PLUS", "STAR", "SLASH", "OR", "AND", "CONTAINS", "DOT", "LSQB"})
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|\$?\w+|[=!<>]=|.", re.DOTALL)
_ALTERNATIVES: Final = re.compile(r"\(\?:([a-z|?]+)\)\\b|([a-z_]+)\\b.*")
"""The pattern of a terminal that is one of several keywords, or a single keyword."""
_FOREIGN_WORDS: Final = {
    "elseif": "elif",
    "elsif": "elif",
    "do": ":",
    "then": ":",
    "True": "true",
    "False": "false",
    "None": "null",
    "=": "==",
    "&&": "and",
    "||": "or",
    "!": "not",
}
"""Words of other languages → the word of this one."""


class Explainer:
    """Converts lark's errors to diagnostics, with the keywords of the grammar."""

    def __init__(self, parser: Lark) -> None:
        self.words: dict[str, tuple[str, ...]] = {}
        for terminal in parser.terminals:
            pattern = terminal.pattern
            match = _ALTERNATIVES.fullmatch(pattern.value) if pattern.type == "re" else None
            if match:
                choices = (match[1] or match[2]).split("|")
                self.words[terminal.name] = tuple(choice.replace("s?", "s") for choice in choices)
            elif pattern.type == "str":
                self.words[terminal.name] = (pattern.value,)
        self.words["COMPARE"] = ("==", "!=", "<", ">", "<=", ">=")

    def report(self, error: UnexpectedInput | MisalignedLine, collector: DiagnosticCollector) -> int:
        """Add a diagnostic for the error, and return a line of the definition that has it.

        If a block is missing, the error is on the next line of code, which may be the next definition. So the line above the
        missing block is returned.
        """
        if isinstance(error, MisalignedLine):
            at = Position(error.line, error.column)
            collector.add(
                "indentation", at, "this line is indented less than its block and more than the enclosing one"
            )
            return error.line
        at, found_word = _error_position(error, collector.lines)
        expected = _expected_terminals(error)
        if isinstance(error, UnexpectedToken) and error.token.type == "_INDENT":
            collector.add("indentation", at, "this line is indented, but the line above does not open a block")
        elif found_word.startswith('"') and isinstance(error, UnexpectedCharacters) and "STRING" in expected:
            collector.add("unclosed-text", at, "this text has no closing quote")
        elif expected == {"_INDENT"}:
            collector.add(
                "syntax", at, f"expected an indented block below the line above, found {_found_text(found_word)}"
            )
            return _previous_code_line(collector.lines, at.line) if found_word else at.line
        else:
            rest_of_line = collector.lines[at.line - 1][at.column - 1 :] if at.line <= len(collector.lines) else ""
            words_before = collector.lines[at.line - 1][: at.column - 1].split() if rest_of_line else []
            is_else_if = [*words_before, found_word] == ["else", "if"]
            suggestion = "elif" if is_else_if else self._suggestion(found_word, rest_of_line, expected)
            collector.add(
                "syntax", at, f"expected {self._expected_text(expected)}, found {_found_text(found_word)}", suggestion
            )
        return at.line

    def _suggestion(self, found_word: str, rest_of_line: str, expected: frozenset[str]) -> str | None:
        expected_words = [word for name in expected for word in self.words.get(name, ()) if word.isidentifier()]
        for foreign, replacement in _FOREIGN_WORDS.items():
            is_expected = any(replacement in self.words.get(name, ()) for name in expected)
            if is_expected and re.match(rf"{re.escape(foreign)}(?!\w)", rest_of_line):
                return replacement
        if not found_word.isidentifier():
            return None
        return found_word.lower() if found_word.lower() in expected_words else closest(found_word, expected_words)

    def _expected_text(self, expected: frozenset[str]) -> str:
        names = set(expected)
        parts: list[str] = []
        if {f"_{word.upper()}" for word in DEFINITIONS} <= names:
            return f"a definition ({', '.join(DEFINITIONS)})"
        if names >= _VALUE_TERMINALS:
            parts.append("a value")
            names -= _VALUE_TERMINALS | {"MINUS", "NOT"}
        if len(names & _OPERATOR_TERMINALS) > 2:
            parts.append("an operator")
            names -= _OPERATOR_TERMINALS | {"MINUS"}
        descriptions = {_DESCRIPTIONS.get(name) or _either_text(map(repr, self.words.get(name, ()))) for name in names}
        return (
            _either_text([*parts, *sorted(descriptions - {""}, key=lambda words: (words[0] == "'", words))])
            or "nothing more"
        )


def _error_position(error: UnexpectedInput, lines: list[str]) -> tuple[Position, str]:
    """The position of an error and the word there, which is empty at the end of a line or of the file."""
    line, column = max(1, error.line), max(1, error.column)
    is_at_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    if is_at_end or line > len(lines):
        last_line = max((number for number, code in enumerate(lines, 1) if code.strip()), default=1)
        return Position(last_line, len(lines[last_line - 1]) + 1), ""
    text = lines[line - 1]
    word = _WORD.match(text[column - 1 :])
    found_word = word[0] if word else ""
    if isinstance(error, UnexpectedToken) and (error.token.type == "NL" or found_word == "#"):
        found_word = ""
    if isinstance(error, UnexpectedToken) and error.token.type == "_DEDENT" and not found_word:
        column = len(text) + 1
    return Position(line, column, max(1, len(found_word))), found_word


def _previous_code_line(lines: list[str], line: int) -> int:
    """The number of the last line of code before this line, without comments and empty lines."""
    while line > 1:
        line -= 1
        words = lines[line - 1].strip()
        if words and not words.startswith("#"):
            break
    return line


def _expected_terminals(error: UnexpectedInput) -> frozenset[str]:
    if isinstance(error, UnexpectedToken):
        return frozenset(error.accepts or error.expected)
    if isinstance(error, UnexpectedCharacters):
        # The lexer accepts the end of a line everywhere, the parser does not: mention it only if nothing else is allowed.
        return frozenset(error.allowed or ()) - {"NL"} or frozenset({"NL"})
    return frozenset()


def _found_text(found_word: str) -> str:
    if not found_word:
        return "the end of the line"
    return repr(found_word) if found_word.isprintable() else f"the character U+{ord(found_word[0]):04X}"


def _either_text(words: Iterable[str]) -> str:
    *first, last = [*words] or [""]
    return f"{', '.join(first)} or {last}" if first else last
