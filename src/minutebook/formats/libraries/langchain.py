"""Messages of LangChain, as `messages_to_dict` or `dumpd` write them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, list_places, read_each
from minutebook.formats.messages import assistant, call, result, system, user
from minutebook.formats.requests.chat import fact_fields, facts_of, messages_of
from minutebook.formats.source import Source
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


def is_message(value: Any) -> bool:
    if has_keys(value, "lc", "kwargs", "id"):
        return isinstance(value["id"], list) and str(value["id"][-1]).removesuffix("Chunk") in _CLASSES
    return has_keys(value, "type", "data") and value["type"] in _TYPES and isinstance(value["data"], Mapping)


def matches(value: Any) -> bool:
    messages = value if isinstance(value, list) else messages_of(value)
    return is_message(value) or (bool(messages) and all(map(is_message, messages or ())))


def read(source: Source) -> Iterator[SourceConversation]:
    if is_message(next(iter(source.sample()), None)):
        items = []
        for value in source.values():
            if is_message(value.data):
                items.append(_item(value.data, value.place))
            else:
                source.skip(value.place, "is not a LangChain message")
        yield SourceConversation(items=items)
    else:
        yield from read_each(source, matches, _conversation)


def _conversation(value: Any, place: str) -> SourceConversation:
    messages = value if isinstance(value, list) else messages_of(value) or []
    items = [
        _item(message, message_place) for message, message_place in zip(messages, list_places(place), strict=False)
    ]
    return SourceConversation(items=items, **(facts_of(value) if isinstance(value, Mapping) else {}))


def _item(value: Mapping[str, Any], place: str) -> SourceMessage:
    if "lc" in value:
        kind, data = _CLASSES[str(value["id"][-1]).removesuffix("Chunk")], value["kwargs"]
    else:
        kind, data = str(value["type"]).removesuffix("MessageChunk").lower(), value["data"]
    metadata = data.get("response_metadata") or {}
    model = metadata.get("model_name") or metadata.get("model")
    return SourceMessage(_message(kind, data), place, None, model, data.get("usage_metadata"))


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
