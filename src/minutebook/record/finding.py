"""What can be wrong with a conversation, and which provider minds."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from minutebook.record.message import Provider


class FindingKind(StrEnum):
    """The ways in which a conversation can be broken."""

    ORPHAN_RESULT = "orphan_result"
    DANGLING_CALL = "dangling_call"
    DUPLICATE_RESULT = "duplicate_result"
    INTERLEAVED = "interleaved"
    DUPLICATE_ID = "duplicate_id"
    REUSED_ID = "reused_id"
    MISSING_ID = "missing_id"
    MISPLACED_CALLS = "misplaced_calls"
    UNKNOWN_ROLE = "unknown_role"
    BAD_ARGUMENTS = "bad_arguments"
    WRONG_FIRST_ROLE = "wrong_first_role"
    EMPTY_VIEW = "empty_view"


MEANING: Final = {
    FindingKind.ORPHAN_RESULT: "a tool result answers no call",
    FindingKind.DANGLING_CALL: "a tool call has no result",
    FindingKind.DUPLICATE_RESULT: "a tool call is answered twice",
    FindingKind.INTERLEAVED: "a tool result does not directly follow its call",
    FindingKind.DUPLICATE_ID: "two calls of one message have the same id",
    FindingKind.REUSED_ID: "a call has the id of an earlier call",
    FindingKind.MISSING_ID: "a call or a result has no id",
    FindingKind.MISPLACED_CALLS: "tool calls stand on a message that is not the assistant's",
    FindingKind.UNKNOWN_ROLE: "the role is none that providers accept",
    FindingKind.BAD_ARGUMENTS: "a call's arguments are not a JSON object",
    FindingKind.WRONG_FIRST_ROLE: "the first message after the system messages is not the user's",
    FindingKind.EMPTY_VIEW: "there is nothing but system messages",
}

_EVERYONE: Final = frozenset(FindingKind) - {
    FindingKind.REUSED_ID,
    FindingKind.BAD_ARGUMENTS,
    FindingKind.WRONG_FIRST_ROLE,
}

REJECTED_BY: Final[dict[Provider, frozenset[FindingKind]]] = {
    "openai": _EVERYONE,
    "anthropic": frozenset(FindingKind),
    "gemini": frozenset(FindingKind) - {FindingKind.REUSED_ID, FindingKind.DUPLICATE_ID, FindingKind.MISSING_ID},
}
"""What makes a provider refuse the request. OpenAI passes arguments through as text and reads ids only within one
exchange; Anthropic wants ids unique, arguments as an object and the user first; Gemini pairs by order and has no ids."""


class Severity(StrEnum):
    """Whether the provider would refuse the request."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one message."""

    kind: FindingKind
    index: int
    """The message, counted from 0. For a dangling call it is the assistant message that makes the call."""
    call_id: str | None = None
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        which = f" ({self.call_id!r})" if self.call_id else ""
        return f"message {self.index}: {MEANING[self.kind]}{which}"


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings that make the provider refuse the request."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]
