"""What tools a stretch of conversation used, as one list: for answers to clients, and for rows kept as text and tools."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

from minutebook.record.message import Message, call_ids, call_names, is_result, result_id, role_of, text_of

TRIMMED: Final = "[trimmed: {status}]"
"""What stands in place of a result that is no longer kept, and says how it ended."""
Status = Literal["ok", "error", "pending"]


class ToolUsed(TypedDict):
    """One use of a tool."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""
    status: Status
    """`pending` while there is no result."""
    result: str | None


def tools_used(messages: Sequence[Message]) -> list[ToolUsed]:
    """Every call in the messages with what became of it, in the order of the calls."""
    used: list[ToolUsed] = []
    waiting: dict[str, ToolUsed] = {}
    for message in messages:
        if is_result(message):
            call = waiting.pop(result_id(message), None)
            if call is not None:
                call["status"], call["result"] = status_of(message), text_of(message)
        elif role_of(message) == "assistant" and call_ids(message):
            waiting = {}  # a result answers the calls before it, whatever its id
            for call_id, name, arguments in zip(
                call_ids(message), call_names(message), _arguments(message), strict=True
            ):
                one = ToolUsed(id=call_id, name=name, arguments=arguments, status="pending", result=None)
                used.append(one)
                waiting[call_id] = one
    return used


def sanitised(used: Iterable[Mapping[str, Any]], *, expose_tool_details: bool = False) -> list[dict[str, Any]]:
    """What clients are told of the tools: names and status, and no more unless it is configured."""
    if expose_tool_details:
        return [dict(each) for each in used]
    return [{"name": each["name"], "status": each["status"]} for each in used]


def status_of(message: Message) -> Status:
    """How a tool's result ended, as far as the message says."""
    if message.get("is_error") is True or text_of(message) == TRIMMED.format(status="error"):
        return "error"
    return "ok"


def expanded(rows: Sequence[Message]) -> list[Message]:
    """Rows of dialogue (`text`, `tools_used`) as messages that a provider takes; messages stay as they are.

    A provider rejects keys that it does not know, so what a row says it used becomes the calls and results that there
    were: the calls, each with its result, and then the words.
    """
    messages: list[Message] = []
    for at, row in enumerate(rows):
        if "tools_used" not in row and "text" not in row:
            messages.append(row)
            continue
        used = [each for each in row.get("tools_used") or () if isinstance(each, Mapping)]
        left = {key: value for key, value in row.items() if key not in {"text", "tools_used"}}
        said: Message = {**left, "content": row["text"] if "text" in row else row.get("content")}
        if role_of(row) == "assistant" and used:
            messages += _exchange(used, at)
        messages.append(said)
    return messages


def _exchange(used: Sequence[Mapping[str, Any]], at: int) -> list[Message]:
    ids = [str(each["id"]) if each.get("id") else f"call_{at}_{number}" for number, each in enumerate(used)]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": str(each.get("name", "")), "arguments": _text(each.get("arguments"), "{}")},
        }
        for call_id, each in zip(ids, used, strict=True)
    ]
    results: list[Message] = [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": _text(each.get("result"), TRIMMED.format(status=each.get("status", "ok"))),
            **({"is_error": True} if each.get("status") == "error" else {}),
        }
        for call_id, each in zip(ids, used, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _text(value: Any, otherwise: str) -> str:
    if value is None:
        return otherwise
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _arguments(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    if calls:
        functions = [call.get("function") or call.get("custom") or {} for call in calls]
        return [str(each.get("arguments", each.get("input", ""))) for each in functions]
    old = message.get("function_call")
    return [str(old.get("arguments", ""))] if isinstance(old, Mapping) else []
