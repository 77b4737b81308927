"""Problems of a conversation, and which of them each provider rejects."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from minutebook.record.message import Provider


class FindingKind(StrEnum):
    """The kind of a problem."""

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
    BAD_CONTENT = "bad_content"
    BAD_PART = "bad_part"
    BAD_CALLS = "bad_calls"
    BAD_NAME = "bad_name"
    BAD_TEXT = "bad_text"
    WRONG_FIRST_ROLE = "wrong_first_role"
    EMPTY_VIEW = "empty_view"


DESCRIPTIONS: Final = {
    FindingKind.ORPHAN_RESULT: "a tool result answers no call",
    FindingKind.DANGLING_CALL: "a tool call has no result",
    FindingKind.DUPLICATE_RESULT: "a tool call is answered twice",
    FindingKind.INTERLEAVED: "a tool result does not directly follow its call",
    FindingKind.DUPLICATE_ID: "two calls of one message have the same id",
    FindingKind.REUSED_ID: "a call has the id of an earlier call",
    FindingKind.MISSING_ID: "a call or a result has no id",
    FindingKind.MISPLACED_CALLS: "a message that is not the assistant's has tool calls",
    FindingKind.UNKNOWN_ROLE: "no provider accepts this role",
    FindingKind.BAD_ARGUMENTS: "a call's arguments are not a JSON object",
    FindingKind.BAD_CONTENT: "the content is missing, empty, or neither text nor a list of parts",
    FindingKind.BAD_PART: "the provider cannot read a part of the content",
    FindingKind.BAD_CALLS: "tool_calls is empty, or a call has no function with a name and arguments as text",
    FindingKind.BAD_NAME: "the provider does not accept the name of a tool or of the message's author",
    FindingKind.BAD_TEXT: "a text has a lone surrogate, which UTF-8 cannot encode",
    FindingKind.WRONG_FIRST_ROLE: "the first message after the system messages is not the user's",
    FindingKind.EMPTY_VIEW: "there are only system messages",
}


REJECTED_BY: Final[dict[Provider, frozenset[FindingKind]]] = {
    "openai": frozenset(FindingKind) - {FindingKind.REUSED_ID, FindingKind.BAD_ARGUMENTS, FindingKind.WRONG_FIRST_ROLE},
    "anthropic": frozenset(FindingKind),
    "gemini": frozenset(FindingKind) - {FindingKind.REUSED_ID, FindingKind.DUPLICATE_ID, FindingKind.MISSING_ID},
}
"""The problems for which a provider rejects a request. OpenAI passes arguments on as text, needs unique ids only within
one exchange, and accepts any role first. Anthropic requires unique ids, arguments that are an object, and the user's
message first. Gemini has no ids and pairs by order."""

SHAPE_KINDS: Final = frozenset({FindingKind.BAD_CONTENT, FindingKind.BAD_CALLS, FindingKind.BAD_TEXT})
"""Problems within one message that every provider rejects (`shapes.shape_problems`)."""


class Severity(StrEnum):
    """ERROR if the selected provider rejects the request, WARNING if only other providers do."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one message."""

    kind: FindingKind
    index: int
    """Index of the message. For a dangling call this is the assistant message with the call."""
    call_id: str | None = None
    severity: Severity = Severity.ERROR

    def __str__(self) -> str:
        call = f" ({self.call_id!r})" if self.call_id else ""
        return f"message {self.index}: {DESCRIPTIONS[self.kind]}{call}"


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """The findings for which the selected provider rejects the request."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]
