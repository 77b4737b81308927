"""What Anthropic refuses in a messages request.

Written from the provider's documented rules and not from `minutebook.check`, so that the two can disagree.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from minutebook.testing.provider_blocks import blocks_of, content_problem
from minutebook.testing.provider_seal import is_untouched
from minutebook.testing.script import Failure

ROLES: Final = ("user", "assistant", "system")
CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def messages_problem(body: Mapping[str, Any], *, max_tokens_needed: bool = True) -> Failure | None:
    """The first thing that Anthropic would answer 400 to."""
    said = _request_problem(body, max_tokens_needed=max_tokens_needed)
    if said is None:
        messages = body["messages"]
        said = (
            _row_problem(messages)
            or _pairing_problem(messages)
            or _thinking_problem(messages)
            or _end_problem(messages)
        )
    return Failure(400, said) if said else None


def _request_problem(body: Mapping[str, Any], *, max_tokens_needed: bool) -> str | None:
    if not isinstance(body.get("model"), str):
        return "model: field required"
    if max_tokens_needed and not (isinstance(body.get("max_tokens"), int) and body["max_tokens"] >= 0):
        return "max_tokens: field required, a number that is not negative"
    messages = body.get("messages")
    if not isinstance(messages, list):
        return "messages: field required, a list"
    if not messages:
        return "messages: at least one message is required"
    names = [tool.get("name") for tool in body.get("tools") or () if isinstance(tool, Mapping)]
    if len(set(names)) < len(names):
        return "tools: tool names must be unique"
    return None


def _row_problem(messages: list[Any]) -> str | None:
    """Each message by itself, and the roles of its neighbours."""
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"messages.{index}: must be an object"
        role = message.get("role")
        if role not in ROLES:
            return f"messages.{index}.role: must be one of {', '.join(ROLES)}, not {role!r}"
        if role == "system" and index == 0:
            return "messages.0: use the top-level 'system' parameter for the system prompt"
        if role == "system" and messages[index - 1]["role"] == "assistant":
            return f"messages.{index}: a system message must follow a user message"
        if problem := content_problem(message, f"messages.{index}"):
            return problem
    return None if messages[0]["role"] == "user" else 'messages: first message must use the "user" role'


def _pairing_problem(messages: list[Mapping[str, Any]]) -> str | None:
    """Every call has its result in the very next message, at its front, and nothing else has one."""
    used: set[str] = set()
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if missing := [call_id for call_id in waiting if call_id not in results]:
            return _unanswered(index - 1, missing)
        for place, block in enumerate(blocks):
            where = f"messages.{index}.content.{place}"
            if block["type"] == "tool_result":
                if block["tool_use_id"] not in waiting:
                    return f"{where}: unexpected `tool_use_id` in a `tool_result` block: {block['tool_use_id']}. The message before has no such `tool_use`"
                if results.count(block["tool_use_id"]) > 1:
                    return f"{where}: more than one `tool_result` for {block['tool_use_id']}"
                if any(before["type"] != "tool_result" for before in blocks[:place]):
                    return f"{where}: `tool_result` blocks must come before any other content; see {_unanswered(index - 1, waiting)}"
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        for call_id in waiting:
            if not CALL_ID.fullmatch(call_id):
                return f"messages.{index}: a `tool_use` id may hold letters, digits, _ and - only: {call_id!r}"
            if call_id in used:
                return f"messages.{index}: `tool_use` ids must be unique: {call_id}"
            used.add(call_id)
    return _unanswered(len(messages) - 1, waiting) if waiting else None


def _unanswered(index: int, ids: list[str]) -> str:
    return f"messages.{index}: `tool_use` without `tool_result` blocks immediately after: {', '.join(ids)}"


def _thinking_problem(messages: list[Mapping[str, Any]]) -> str | None:
    for index, message in enumerate(messages):
        blocks = blocks_of(message)
        for place, block in enumerate(blocks):
            if block["type"] == "thinking" and not is_untouched(block["thinking"], block["signature"]):
                return f"messages.{index}.content.{place}: invalid `signature` in `thinking` block; it must come back unchanged"
        if blocks and blocks[-1]["type"] == "thinking":
            return f"messages.{index}: the final block of an assistant message cannot be `thinking`"
    return None


def _end_problem(messages: list[Mapping[str, Any]]) -> str | None:
    if messages[-1]["role"] == "assistant":
        return "this model does not support assistant message prefill; the conversation must end with a user message"
    return None
