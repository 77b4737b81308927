"""What a provider would refuse in a list of messages, before it is asked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from minutebook.errors import InvalidSetting
from minutebook.record.finding import REJECTED_BY, Finding, FindingKind, Severity
from minutebook.record.message import (
    NO_ID,
    ROLES,
    SYSTEM_ROLES,
    Message,
    Provider,
    call_ids,
    is_system,
    is_user,
    require_message,
)
from minutebook.record.pairing import survey


def check(messages: Sequence[Message], *, provider: Provider = "openai") -> list[Finding]:
    """Everything that is wrong with a conversation, in the order of the messages.

    A finding is an error where that provider would answer 400, and a warning where only another one would.

    Raises:
        InvalidMessage: something in the list does not have the shape of a message.
    """
    rejected = rejected_by(provider)
    for index, message in enumerate(messages):
        require_message(message, index)
    found = survey(messages).findings + bad_arguments(messages) + _first_role(messages)
    found = [f if f.kind in rejected else replace(f, severity=Severity.WARNING) for f in found]
    return sorted(found, key=lambda finding: finding.index)


def is_valid(messages: Sequence[Message], *, provider: Provider = "openai") -> bool:
    """Whether the provider would accept these messages."""
    return not any(finding.severity is Severity.ERROR for finding in check(messages, provider=provider))


def rejected_by(provider: Provider) -> frozenset[FindingKind]:
    """The kinds of finding that make this provider refuse a request.

    Raises:
        InvalidSetting: there is no such provider.
    """
    try:
        return REJECTED_BY[provider]
    except (KeyError, TypeError):
        raise InvalidSetting("provider", provider, f"one of {', '.join(REJECTED_BY)}") from None


def bad_arguments(messages: Sequence[Message]) -> list[Finding]:
    """Calls whose arguments are not a JSON object; no arguments at all is one."""
    return [
        Finding(FindingKind.BAD_ARGUMENTS, index, call.get("id"))
        for index, message in enumerate(messages)
        for call in calls_of(message)
        if not is_object(arguments_of(call))
    ]


def calls_of(message: Message) -> list[Mapping[str, Any]]:
    """The function calls of an assistant message; a call in another shape (a custom tool's) has free-form input."""
    calls = message.get("tool_calls") if message.get("role") == "assistant" else None
    return [call for call in calls or () if isinstance(call.get("function"), Mapping)]


def arguments_of(call: Mapping[str, Any]) -> Any:
    return call["function"].get("arguments")


def is_object(arguments: Any) -> bool:
    """Whether a call's arguments are a JSON object, as text or already read."""
    if arguments is None or arguments == "":
        return True
    if not isinstance(arguments, str):
        return isinstance(arguments, Mapping)
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _first_role(messages: Sequence[Message]) -> list[Finding]:
    for index, message in enumerate(messages):
        if not is_system(message):
            return [] if is_user(message) else [Finding(FindingKind.WRONG_FIRST_ROLE, index)]
    return [Finding(FindingKind.EMPTY_VIEW, 0)]


def is_clean(messages: Sequence[Message]) -> bool:
    """Whether calls and results, ids and roles are in order whoever the provider is: `check`, in one quick pass.

    False means only that `check` should look.
    """
    waiting: set[str] = set()
    used: set[str] = set()
    in_front = True
    for message in messages:
        role = message.get("role")
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.discard(call_id)
            continue
        if waiting or (in_front and role != "user" and role not in SYSTEM_ROLES) or role not in ROLES:
            return False
        in_front = in_front and role != "user"
        if "tool_calls" in message or "function_call" in message:
            ids = call_ids(message)
            waiting.update(ids)
            if len(waiting) != len(ids) or NO_ID in waiting or not used.isdisjoint(waiting) or role != "assistant":
                return False
            used |= waiting
    return not (waiting or in_front)
