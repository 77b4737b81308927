"""A model's message, made fit for the record: servers that are not OpenAI's forget ids and give one twice."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4


def sound(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with an id of its own for every call, and a name and arguments that are text.

    Everything else is as the model said it.
    """
    calls = message.get("tool_calls")
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    taken: set[str] = set()
    mended = []
    for call in calls:
        call_id = call.get("id")
        if not isinstance(call_id, str) or not call_id or call_id in taken:
            call_id = f"call_{uuid4().hex[:24]}"
        taken.add(call_id)
        mended.append(_whole(call, call_id))
    return {**message, "tool_calls": mended}


def _whole(call: Mapping[str, Any], call_id: str) -> dict[str, Any]:
    if isinstance(call.get("custom"), Mapping):
        return {**call, "id": call_id}
    function = call.get("function") or {}
    function = {**function, "name": function.get("name") or "", "arguments": function.get("arguments") or ""}
    return {**call, "id": call_id, "type": "function", "function": function}
