"""Every error minutebook raises on purpose.

MinutebookError
├── InvalidSetting(ValueError)       an option that cannot be meant
├── InvalidMessage(ValueError)       a message that is not a message
│   └── UnknownRole                  its role is none we know
├── BrokenConversation(ValueError)   a message that does not fit the ones before it
├── RecordIsReadOnly(TypeError)      a manager tried to change the record
├── CannotFit(ValueError)            what must be sent is larger than the budget
├── PromiseBroken                    a manager's view breaks what every view promises
├── UnknownVocabulary(LookupError)   no tokenizer of that name
├── MissingExtra(ImportError)        an optional dependency is not installed
└── UnreadableInput(ValueError)      a file that holds no conversation

A constructor takes facts and keeps them as attributes; the message is built from them, once, here.
Facts are positional, so every error survives pickling.
"""

from collections.abc import Sequence
from typing import Any


class MinutebookError(Exception):
    """The root of every error raised on purpose."""

    def __str__(self) -> str:
        return self._message()

    def _message(self) -> str:
        return " ".join(map(str, self.args))


class InvalidSetting(MinutebookError, ValueError):
    """An option has a value that cannot be meant."""

    def __init__(self, name: str, value: Any, expected: str) -> None:
        super().__init__(name, value, expected)
        self.name, self.value, self.expected = name, value, expected

    def _message(self) -> str:
        return f"{self.name} is {self.value!r}; give {self.expected}"


class InvalidMessage(MinutebookError, ValueError):
    """A message lacks something that every message has, or has it in the wrong shape.

    `path` leads to the place (`tool_calls[0].function.name`), `index` to the message where that is known.
    """

    def __init__(self, path: str, problem: str, index: int | None = None) -> None:
        super().__init__(path, problem, index)
        self.path, self.problem, self.index = path, problem, index

    def _message(self) -> str:
        where = "message" if self.index is None else f"message {self.index}"
        return f"{where}: {self.path} {self.problem}"


class UnknownRole(InvalidMessage):
    """A message's role is none of those that providers accept."""

    def __init__(self, role: Any, index: int | None = None) -> None:
        super().__init__("role", f"is {role!r}; use system, developer, user, assistant or tool", index)
        self.args = (role, index)
        self.role = role


class BrokenConversation(MinutebookError, ValueError):
    """A message does not fit the ones before it, and the transcript was told not to keep such messages.

    Nothing was appended.
    """

    def __init__(self, findings: Sequence[Any]) -> None:
        super().__init__(tuple(findings))
        self.findings = tuple(findings)

    def _message(self) -> str:
        said = "; ".join(str(finding) for finding in self.findings)
        return f"{said}. Append what is missing first, repair the messages, or keep them with broken='mark'"


class RecordIsReadOnly(MinutebookError, TypeError):
    """A manager tried to change a message in place; the record is not its to change."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def _message(self) -> str:
        return f"{self.what} on a message of the record; return a changed copy instead: {{**message, 'content': …}}"


class CannotFit(MinutebookError, ValueError):
    """What must be in the view is larger than the budget; no cut can help.

    `irreducible` names the parts that may not go, each with its index in the record and its tokens.
    """

    def __init__(self, max_tokens: int, needed: int, irreducible: Sequence[tuple[str, int, int]]) -> None:
        super().__init__(max_tokens, needed, tuple(irreducible))
        self.max_tokens, self.needed, self.irreducible = max_tokens, needed, tuple(irreducible)

    def _message(self) -> str:
        largest = sorted(self.irreducible, key=lambda part: -part[2])[:4]
        parts = ", ".join(f"{name} (message {index}, {tokens:,} tokens)" for name, index, tokens in largest)
        return (
            f"the view needs {self.needed:,} tokens and may have {self.max_tokens:,}: {parts} must stay. "
            "Raise max_tokens, shorten these, or unpin what may go"
        )


class PromiseBroken(MinutebookError):
    """A manager returned a view that breaks what every view promises, and the guard is strict."""

    def __init__(self, breaches: Sequence[Any]) -> None:
        super().__init__(tuple(breaches))
        self.breaches = tuple(breaches)

    def _message(self) -> str:
        said = "; ".join(str(breach) for breach in self.breaches)
        return f"{said}. Mend the manager, or let the guard repair its views with strict=False"


class UnknownVocabulary(MinutebookError, LookupError):
    """There is no tokenizer vocabulary of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name, tuple(known))
        self.name, self.known = name, tuple(known)

    def _message(self) -> str:
        return f"no vocabulary {self.name!r}; choose one of {', '.join(self.known)}"


class MissingExtra(MinutebookError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(module, extra)
        self.module, self.extra = module, extra

    def _message(self) -> str:
        return f"{self.module} is not installed; pip install 'minutebook[{self.extra}]'"


class UnreadableInput(MinutebookError, ValueError):
    """A file or stream does not hold conversations in a form we read."""

    def __init__(self, source: str, problem: str, line: int | None = None) -> None:
        super().__init__(source, problem, line)
        self.source, self.problem, self.line = source, problem, line

    def _message(self) -> str:
        where = self.source if self.line is None else f"{self.source}:{self.line}"
        return f"{where}: {self.problem}"
