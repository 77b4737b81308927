"""Anthropic's Messages API: requests, lists of messages, responses and batches."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    holds_messages,
    items_of,
    list_places,
    read_each,
)
from minutebook.formats.requests.chat import fact_fields, facts_of, messages_of, read_message_stream, without_messages
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import leading_system_count, text_of
from minutebook.wire.read import read_input
from minutebook.wire.write import anthropic_arguments

_ROLES: Final = frozenset({"user", "assistant", "system"})
_CHAT_PARTS: Final = frozenset(
    {"image_url", "input_audio", "file", "refusal", "input_text", "output_text", "input_image"}
)
_EVIDENCE: Final = frozenset(
    {"system", "stop_sequences", "anthropic_version", "anthropic_beta", "mcp_servers", "context_management", "thinking"}
    | {"params", "input_schema", "stop_reason", "stop_sequence", "cache_control", "top_k", "output_config"}
)
_OWN_BLOCKS: Final = frozenset({"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "image", "document"})


@shape_test
def is_message(value: Any) -> bool:
    """Whether a value may be a message of this API. A text message may also be a chat message."""
    if not isinstance(value, Mapping) or value.get("role") not in _ROLES or value.keys() & {"tool_calls", "parts"}:
        return False
    content = value.get("content")
    if isinstance(content, str):
        return True
    return isinstance(content, (list, tuple)) and all(
        isinstance(block, Mapping) and isinstance(block.get("type"), str) and block["type"] not in _CHAT_PARTS
        for block in content
    )


def _has_own_blocks(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, (list, tuple)) and any(
        block["type"] in _OWN_BLOCKS or block.keys() & {"cache_control", "signature", "citations"} for block in content
    )


@shape_test
def matches(value: Any) -> bool:
    if not _is_readable(value):
        return False
    messages = messages_of(value)
    return (
        messages is None or any(map(_has_own_blocks, messages)) or (isinstance(value, Mapping) and _is_request(value))
    )


def _is_readable(value: Any) -> bool:
    """Whether a value can be read. It matches only if something in it shows that it is not chat data."""
    messages = messages_of(value)
    if messages is None:
        return is_message(value) or _is_response(value)
    return all(map(is_message, messages))


def _is_request(value: Mapping[str, Any]) -> bool:
    body = value.get("params", value)
    is_claude = "claude" in str(body.get("model") or "")
    return is_claude or "system" in body or "anthropic_version" in body or "params" in value


def _is_response(value: Any) -> bool:
    return isinstance(value, Mapping) and value.get("type") == "message" and "stop_reason" in value


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, lambda value: is_message(value) and not _is_response(value), _is_conversation):
        yield read_message_stream(source, is_message, _items)
    else:
        yield from read_each(source, _is_conversation, _conversation)


@shape_test
def _is_conversation(value: Any) -> bool:
    """Whether a value contains messages. In a file of such values, a single message belongs to none of them."""
    return _is_readable(value) and (messages_of(value) is not None or _is_response(value))


_items = partial(items_of, is_anthropic=True)


def _conversation(value: Any, place: str) -> SourceConversation:
    if _is_response(value):
        answer = read_input(value)
        items = [SourceMessage(message, place, None, answer.model, answer.usage) for message in answer.messages]
        return SourceConversation(items=items, id=value.get("id"), model=answer.model)
    if not isinstance(value, Mapping):
        return SourceConversation(items=_items(value, list_places(place)))
    body = value.get("params", value)
    system = body.get("system")
    system_messages = [{"role": "system", "content": system}] if system else []
    system_places = [f"{place}, system"] * len(system_messages)
    items = _items(chain(system_messages, body["messages"]), chain(system_places, list_places(place)))
    return SourceConversation(items=items, **facts_of(value), data=without_messages(value))


def write(conversation: SourceConversation) -> Any:
    messages = conversation.messages
    arguments = anthropic_arguments(messages, as_read=conversation.format == FORMAT.name)
    data = dict(conversation.data) or fact_fields(conversation)
    body = data.get("params")
    target = dict(body) if isinstance(body, Mapping) else data
    prompt = "\n".join(map(text_of, messages[: leading_system_count(messages)]))
    original = target.get("system")
    if original and text_of({"content": original}) == prompt:
        arguments["system"] = original
    target = {**target, **arguments}
    return {**data, "params": target} if isinstance(body, Mapping) else target


FORMAT: Final = Format(
    name="anthropic",
    title="Anthropic messages: requests, lists of messages, responses, batches (JSON or JSONL)",
    matches=matches,
    read=read,
    provider="anthropic",
    write=write,
    evidence=_EVIDENCE,
)
