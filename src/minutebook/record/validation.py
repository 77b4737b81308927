"""Check messages against the rules of a provider, without sending a request."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from minutebook.errors import InvalidSetting, require_type
from minutebook.record.finding import REJECTED_BY, Finding, FindingKind, Severity
from minutebook.record.message import (
    MISSING_ID,
    ROLES,
    SYSTEM_ROLES,
    Message,
    Provider,
    call_ids,
    is_system,
    is_user,
    require_message,
)
from minutebook.record.pairing import call_pairs
from minutebook.record.parts import with_known_parts
from minutebook.record.shapes import has_valid_names, shape_problems


def check(messages: Sequence[Message], *, provider: Provider = "openai") -> list[Finding]:
    """All problems of a conversation, in the order of the messages.

    A finding is an error if the provider would respond with 400, and a warning if only other providers would.

    Raises:
        InvalidMessage: an item of the list is not a message.
    """
    rejected_by_provider = rejected_kinds(provider)
    require_type("messages", messages, Sequence, "a list of messages")
    for index, message in enumerate(messages):
        require_message(message, index)
    findings = [
        *call_pairs(messages).findings,
        *_single_message_problems(messages, provider),
        *_bad_arguments(messages),
        *_wrong_first_role(messages),
    ]
    findings = [
        finding if finding.kind in rejected_by_provider else replace(finding, severity=Severity.WARNING)
        for finding in findings
    ]
    return sorted(findings, key=lambda finding: finding.index)


def is_valid(messages: Sequence[Message], *, provider: Provider = "openai") -> bool:
    """Whether the provider would accept these messages."""
    return not any(finding.severity is Severity.ERROR for finding in check(messages, provider=provider))


def rejected_kinds(provider: Provider) -> frozenset[FindingKind]:
    """The kinds of findings for which this provider rejects a request.

    Raises:
        InvalidSetting: the provider is unknown.
    """
    try:
        return REJECTED_BY[provider]
    except (KeyError, TypeError):
        raise InvalidSetting("provider", provider, f"one of {', '.join(REJECTED_BY)}") from None


def _single_message_problems(messages: Sequence[Message], provider: Provider) -> Iterator[Finding]:
    for index, message in enumerate(messages):
        kinds = shape_problems(message)
        for kind in kinds:
            yield Finding(kind, index)
        if not has_valid_names(message, provider):
            yield Finding(FindingKind.BAD_NAME, index)
        if FindingKind.BAD_CONTENT not in kinds and with_known_parts(message, provider) is not message:
            yield Finding(FindingKind.BAD_PART, index)


def _bad_arguments(messages: Sequence[Message]) -> list[Finding]:
    """The calls whose arguments are not a JSON object. Empty arguments are accepted."""
    return [
        Finding(FindingKind.BAD_ARGUMENTS, index, call_id if isinstance(call_id := call.get("id"), str) else None)
        for index, message in enumerate(messages)
        for call in _function_calls(message)
        if not is_json_object(arguments_of(call))
    ]


def _function_calls(message: Message) -> list[Mapping[str, Any]]:
    """The function calls of an assistant message, without calls of custom tools, whose input is free-form text."""
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call for call in calls or () if isinstance(call.get("function"), Mapping)]


def arguments_of(call: Mapping[str, Any]) -> Any:
    """The arguments of a function call, usually JSON text. None if they are missing."""
    return call["function"].get("arguments")


def is_json_object(arguments: Any) -> bool:
    """Whether a call's arguments are a JSON object, as text or already parsed, or empty."""
    if arguments is None or arguments == "":
        return True
    if not isinstance(arguments, str):
        return isinstance(arguments, Mapping)
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _wrong_first_role(messages: Sequence[Message]) -> list[Finding]:
    """One finding if the first message that is no system message is not the user's, or if there is none."""
    for index, message in enumerate(messages):
        if not is_system(message):
            return [] if is_user(message) else [Finding(FindingKind.WRONG_FIRST_ROLE, index)]
    return [Finding(FindingKind.EMPTY_VIEW, 0)]


class QuickCheck:
    """Whether every provider certainly accepts the calls, results, ids and roles. Much faster than `check`.

    If messages are those of the previous call with others appended, only the appended ones are read: a view that grows
    is not read again at every request.
    """

    __slots__ = ("_checked", "_has_user_message", "_used_ids")

    def __init__(self) -> None:
        self._start_again()

    def _start_again(self) -> None:
        self._checked: list[Message] = []
        """The messages of the previous call, if they passed."""
        self._has_user_message = False
        self._used_ids: set[str] = set()

    def passes(self, messages: Sequence[Message]) -> bool:
        """Whether the messages pass. If not, call `check`: they may still be valid.

        The content of messages is not checked here, because a transcript checks that when a message is appended.
        """
        if messages[: len(self._checked)] != self._checked:
            self._start_again()
        added = messages[len(self._checked) :]
        if self._accepts(added):
            self._checked += added
            return True
        self._start_again()
        return False

    def _accepts(self, added: Sequence[Message]) -> bool:
        open_ids: set[str] = set()
        for message in added:
            role = message.get("role")
            if role == "tool":
                call_id = message.get("tool_call_id")
                if not isinstance(call_id, str) or call_id not in open_ids:
                    return False
                open_ids.discard(call_id)
                continue
            if open_ids or role not in ROLES:
                return False
            self._has_user_message = self._has_user_message or role == "user"
            if not self._has_user_message and role not in SYSTEM_ROLES:
                return False
            if "tool_calls" in message or "function_call" in message:
                ids = call_ids(message)
                open_ids.update(ids)
                has_unique_ids = len(open_ids) == len(ids) and self._used_ids.isdisjoint(open_ids)
                if role != "assistant" or MISSING_ID in open_ids or not has_unique_ids:
                    return False
                self._used_ids |= open_ids
        return self._has_user_message and not open_ids
