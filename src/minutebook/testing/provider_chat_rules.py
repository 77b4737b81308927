"""What OpenAI refuses in a chat completions request.

The shapes come first, because only messages that have them can be checked for what belongs together; that part is
`minutebook.check`. A key nobody knows is let through, and so is a conversation of system messages alone.
"""

from collections.abc import Mapping
from typing import Any, Final

from minutebook.record.check import check
from minutebook.record.finding import Finding, FindingKind, errors
from minutebook.record.message import ROLES
from minutebook.testing.script import Failure

PART_TYPES: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
SENTENCES: Final = {
    FindingKind.ORPHAN_RESULT: "messages with role 'tool' must answer a message with 'tool_calls' before them",
    FindingKind.DANGLING_CALL: "an assistant message with 'tool_calls' needs a tool message for each 'tool_call_id'; without one:",
    FindingKind.DUPLICATE_RESULT: "duplicate value for 'tool_call_id':",
    FindingKind.INTERLEAVED: "messages with role 'tool' must directly follow the message whose 'tool_calls' they answer",
    FindingKind.DUPLICATE_ID: "duplicate 'id' among the 'tool_calls' of one message:",
    FindingKind.MISSING_ID: "missing required parameter: the id of a tool call or of its result",
    FindingKind.MISPLACED_CALLS: "'tool_calls' are only allowed on messages with role 'assistant'",
    FindingKind.UNKNOWN_ROLE: "the role is none of the supported values",
}


def chat_problem(body: Mapping[str, Any]) -> Failure | None:
    """The first thing that OpenAI would answer 400 to."""
    if not isinstance(body.get("model"), str):
        return _wrong("you must provide a model parameter", "model", "missing_required_parameter")
    messages = body.get("messages")
    if not isinstance(messages, list):
        return _wrong("'messages' must be an array", "messages", "invalid_type")
    if not messages:
        return _wrong("'messages' is an empty array; it needs at least one message", "messages", "empty_array")
    for index, message in enumerate(messages):
        if problem := _message_problem(message, f"messages[{index}]"):
            return problem
    found = [one for one in errors(check(messages)) if one.kind is not FindingKind.EMPTY_VIEW]
    return _told(found[0]) if found else None


def _message_problem(message: Any, path: str) -> Failure | None:
    if not isinstance(message, Mapping):
        return _wrong(f"'{path}' must be an object", path, "invalid_type")
    role = message.get("role")
    if role not in ROLES:
        return _wrong(f"'{role}' is none of {sorted(ROLES)}", f"{path}.role", "invalid_value")
    if "tool_calls" in message and (problem := _calls_problem(message["tool_calls"], f"{path}.tool_calls")):
        return problem
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        return _wrong(f"'{path}.tool_call_id' is required", f"{path}.tool_call_id", "missing_required_parameter")
    return _content_problem(message, f"{path}.content")


def _content_problem(message: Mapping[str, Any], path: str) -> Failure | None:
    content = message.get("content")
    if content is None:
        says_otherwise = any(message.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))
        if message["role"] == "function" or (message["role"] == "assistant" and says_otherwise):
            return None
        return _wrong(f"'{path}' must be a string, not null", path, "invalid_type")
    if isinstance(content, str):
        return None
    if not isinstance(content, list):
        return _wrong(f"'{path}' must be a string or an array of parts", path, "invalid_type")
    if not content:
        return _wrong(f"'{path}' is an empty array", path, "empty_array")
    for place, part in enumerate(content):
        where = f"{path}[{place}]"
        if not isinstance(part, Mapping):
            return _wrong(f"'{where}' must be an object", where, "invalid_type")
        if part.get("type") not in PART_TYPES:
            return _wrong(f"'{part.get('type')}' is none of {sorted(PART_TYPES)}", f"{where}.type", "invalid_value")
    return None


def _calls_problem(calls: Any, path: str) -> Failure | None:
    if calls is None:
        return None
    if not isinstance(calls, list):
        return _wrong(f"'{path}' must be an array", path, "invalid_type")
    if not calls:
        return _wrong(f"'{path}' is an empty array; leave it out instead", path, "empty_array")
    for place, call in enumerate(calls):
        where = f"{path}[{place}]"
        if not isinstance(call, Mapping):
            return _wrong(f"'{where}' must be an object", where, "invalid_type")
        if call.get("type") == "custom":
            continue
        function = call.get("function")
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            return _wrong(f"'{where}.function.name' is required", f"{where}.function", "missing_required_parameter")
        if not isinstance(function.get("arguments"), str):
            return _wrong(f"'{where}.function.arguments' must be a string", f"{where}.function", "invalid_type")
    return None


def _told(finding: Finding) -> Failure:
    which = f" {finding.call_id}" if finding.call_id else ""
    return _wrong(f"{SENTENCES[finding.kind]}{which}", f"messages.[{finding.index}].role", None)


def _wrong(message: str, param: str, code: str | None) -> Failure:
    return Failure(400, f"Invalid parameter: {message}", code=code, param=param)
