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
from minutebook.formats.messages import assistant, call, media, media_data, result, system, user
from minutebook.formats.requests.chat import fact_fields, facts_of, messages_of, without_messages
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test, skip_unknown_role
from minutebook.record.message import (
    FUNCTION_ID_PREFIX,
    Message,
    call_arguments,
    call_ids,
    call_names,
    result_id,
    role_of,
)
from minutebook.wire.anthropic import argument_object

_TYPES: Final = frozenset({"human", "ai", "system", "tool", "function", "chat", "AIMessageChunk", "HumanMessageChunk"})
_CLASSES: Final = {
    "HumanMessage": "human",
    "AIMessage": "ai",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
}


_CALL_PARTS: Final = frozenset({"tool_use", "tool_call", "function_call"})
"""Types of parts that are also in `tool_calls`."""


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
    if not isinstance(value, Mapping):
        return SourceConversation(items=items)
    return SourceConversation(items=items, **facts_of(value), data=without_messages(value))


def _items(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
    kind, data = _kind_and_data(value)
    metadata = data.get("response_metadata") or {}
    model = metadata.get("model_name") or metadata.get("model")
    if not kind:
        skip_unknown_role(source, place, data["role"])
        return
    for index in range(len(data.get("invalid_tool_calls") or ())):
        source.skip(f"{place}, invalid_tool_calls[{index}]", "is a call whose arguments could not be parsed")
    yield SourceMessage(_message(kind, data), place, None, model, _usage(data.get("usage_metadata")), value)


def _kind_and_data(value: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The kind of a message and its fields. The kind is empty if the role of a chat message is unknown."""
    if "lc" in value:
        kind, data = _CLASSES[str(value["id"][-1]).removesuffix("Chunk")], value["kwargs"]
    else:
        kind, data = str(value["type"]).removesuffix("MessageChunk").lower(), value["data"]
    if kind == "chat":
        kind = {"assistant": "ai", "user": "human", "system": "system"}.get(data["role"], "")
    return kind, data


def _usage(counts: Any) -> dict[str, Any] | None:
    """The usage, with the details also under the names of the Responses API."""
    if not isinstance(counts, Mapping):
        return None
    input_details, output_details = counts.get("input_token_details") or {}, counts.get("output_token_details") or {}
    return {
        **counts,
        "input_tokens_details": {
            "cached_tokens": input_details.get("cache_read"),
            "cache_write_tokens": input_details.get("cache_creation"),
        },
        "output_tokens_details": {"reasoning_tokens": output_details.get("reasoning")},
    }


def _message(kind: str, data: Mapping[str, Any]) -> Message:
    content, reasoning_texts = data.get("content"), list[str]()
    if isinstance(content, list):
        parts = [part if isinstance(part, Mapping) else {"type": "text", "text": part} for part in content]
        reasoning_texts = [text for part in parts if (text := _reasoning(part))]
        # calls are also in `tool_calls`
        content = [_part(part) for part in parts if part.get("type") not in _CALL_PARTS and not _reasoning(part)]
    if kind == "system":
        return {**system(""), "content": content}
    if kind in {"tool", "function"}:
        call_id = data.get("tool_call_id") if kind == "tool" else f"{FUNCTION_ID_PREFIX}{data.get('name')}"
        return result(call_id, content, is_error=data.get("status") == "error")
    if kind != "ai":
        return {**user(content), "name": data["name"]} if isinstance(data.get("name"), str) else user(content)
    calls = [
        call(tool_call.get("id"), tool_call.get("name"), tool_call.get("args"))
        for tool_call in data.get("tool_calls") or ()
    ]
    other_fields = data.get("additional_kwargs") or {}
    if not calls:
        calls = list(other_fields.get("tool_calls") or ())
    if not calls and (function := other_fields.get("function_call")):
        calls = [call(f"{FUNCTION_ID_PREFIX}{function.get('name')}", function.get("name"), function.get("arguments"))]
    reasoning = other_fields.get("reasoning_content") or "\n".join(reasoning_texts)
    return {**assistant(None, calls, reasoning=reasoning), "content": content or (None if calls else "")}


def _reasoning(part: Mapping[str, Any]) -> str:
    """The text of a part with the model's reasoning; empty for other parts."""
    if part.get("type") not in {"thinking", "reasoning"}:
        return ""
    summary = "\n".join(str(summary_part.get("text") or "") for summary_part in part.get("summary") or ())
    return str(part.get("thinking") or part.get("reasoning") or summary)


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part as a part of a chat message. Images and files have several forms."""
    original = part.get("source")
    source: Mapping[str, Any] = original if isinstance(original, Mapping) else part
    data, url = source.get("base64", source.get("data")), source.get("url")
    if part.get("type") not in {"image", "file", "document"} or not (data or url):
        return dict(part)
    media_type = str(source.get("mime_type", source.get("media_type", part["type"] + "/")))
    name = part.get("filename", part.get("title"))
    return (media_data(media_type, str(data), name) if data else media(media_type, str(url), name)) or dict(part)


def write(conversation: SourceConversation) -> Any:
    messages = []
    is_own = conversation.format == FORMAT.name
    for item in conversation.items:
        message = item.message
        if is_own and item.original is not None and _message(*_kind_and_data(item.original)) == message:
            messages.append(item.original)
            continue
        role, content = role_of(message), message.get("content") or ""
        kind = {"assistant": "ai", "user": "human", "tool": "tool", "function": "tool"}.get(role, "system")
        data: dict[str, Any] = {"content": content, "type": kind}
        if name := message.get("name"):
            data["name"] = name
        calls = zip(call_ids(message), call_names(message), map(argument_object, call_arguments(message)), strict=True)
        if tool_calls := [{"name": name, "args": args, "id": id_, "type": "tool_call"} for id_, name, args in calls]:
            data["tool_calls"] = tool_calls
        if kind == "tool":
            data |= {
                "tool_call_id": result_id(message),
                "status": "error" if message.get("is_error") else "success",
            }
        messages.append({"type": kind, "data": data})
    return {**(conversation.data or fact_fields(conversation)), "messages": messages}


FORMAT: Final = Format(
    name="langchain",
    title="LangChain messages (messages_to_dict or dumpd, JSON or JSONL)",
    matches=matches,
    read=read,
    write=write,
)
