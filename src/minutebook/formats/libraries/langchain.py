"""Messages of LangChain, as `messages_to_dict` or `dumpd` write them."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    holds_messages,
    list_places,
    read_each,
    read_items,
)
from minutebook.formats.messages import assistant, call, result, system, user
from minutebook.formats.requests.chat import fact_fields, facts_of, messages_of
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test, skip_unknown_role
from minutebook.record.message import Message, role_of
from minutebook.wire.anthropic import to_anthropic

_TYPES: Final = frozenset({"human", "ai", "system", "tool", "function", "chat", "AIMessageChunk", "HumanMessageChunk"})
_CLASSES: Final = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}


@shape_test
def is_message(value: Any) -> bool:
    if has_keys(value, "lc", "kwargs", "id"):
        return isinstance(value["id"], list) and str(value["id"][-1]).removesuffix("Chunk") in _CLASSES
    return has_keys(value, "type", "data") and value["type"] in _TYPES and isinstance(value["data"], Mapping)


@shape_test
def matches(value: Any) -> bool:
    messages = value if isinstance(value, list) else messages_of(value)
    return is_message(value) or (bool(messages) and all(map(is_message, messages or ())))


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_message, matches):
        yield SourceConversation(items=read_items(source, source.values(), is_message, partial(_items, source)))
    else:
        yield from read_each(source, _is_conversation, partial(_conversation, source))


def _is_conversation(value: Any) -> bool:
    return matches(value) and not is_message(value)


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    messages = value if isinstance(value, list) else messages_of(value) or []
    items = read_items(source, map(Value, messages, list_places(place)), is_message, partial(_items, source))
    return SourceConversation(items=items, **(facts_of(value) if isinstance(value, Mapping) else {}))


def _items(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
    if "lc" in value:
        kind, data = _CLASSES[str(value["id"][-1]).removesuffix("Chunk")], value["kwargs"]
    else:
        kind, data = str(value["type"]).removesuffix("MessageChunk").lower(), value["data"]
    metadata = data.get("response_metadata") or {}
    model = metadata.get("model_name") or metadata.get("model")
    if kind == "chat":
        kind = {"assistant": "ai", "user": "human", "system": "system"}.get(data["role"], "")
    if not kind:
        skip_unknown_role(source, place, data["role"])
        return
    for index in range(len(data.get("invalid_tool_calls") or ())):
        source.skip(f"{place}, invalid_tool_calls[{index}]", "is a call whose arguments could not be parsed")
    yield SourceMessage(_message(kind, data), place, None, model, data.get("usage_metadata"))


def _message(kind: str, data: Mapping[str, Any]) -> Message:
    content = data.get("content")
    if isinstance(content, list):  # calls are also in `tool_calls`
        content = [part if isinstance(part, Mapping) else {"type": "text", "text": part} for part in content]
        content = [dict(part) for part in content if part.get("type") != "tool_use"]
    if kind == "system":
        return {**system(""), "content": content}
    if kind in {"tool", "function"}:
        call_id = data.get("tool_call_id") or f"function:{data.get('name')}"
        return result(call_id, content, is_error=data.get("status") == "error")
    if kind != "ai":
        return user(content)
    calls = [
        call(tool_call.get("id"), tool_call.get("name"), tool_call.get("args"))
        for tool_call in data.get("tool_calls") or ()
    ]
    if not calls:
        calls = list((data.get("additional_kwargs") or {}).get("tool_calls") or ())
    reasoning = (data.get("additional_kwargs") or {}).get("reasoning_content")
    return {**assistant(None, calls, reasoning=reasoning), "content": content or (None if calls else "")}


def write(conversation: SourceConversation) -> Any:
    messages = []
    for message in conversation.messages:
        role, content = role_of(message), message.get("content") or ""
        kind = {"assistant": "ai", "user": "human", "tool": "tool"}.get(role, "system")
        data: dict[str, Any] = {"content": content, "type": kind}
        if message.get("tool_calls"):
            blocks = to_anthropic([message]).messages[0]["content"]
            data["tool_calls"] = [
                {"name": block["name"], "args": block["input"], "id": block["id"], "type": "tool_call"}
                for block in blocks
                if block["type"] == "tool_use"
            ]
        if kind == "tool":
            data |= {
                "tool_call_id": message.get("tool_call_id"),
                "status": "error" if message.get("is_error") else "success",
            }
        messages.append({"type": kind, "data": data})
    return {**fact_fields(conversation), "messages": messages}


FORMAT: Final = Format(
    name="langchain",
    title="LangChain messages (messages_to_dict or dumpd, JSON or JSONL)",
    matches=matches,
    read=read,
    write=write,
)
