"""Requests of the Converse API of Amazon Bedrock."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    describe,
    has_keys,
    holds_messages,
    items_of,
    list_places,
    read_each,
)
from minutebook.formats.messages import json_text, system
from minutebook.formats.requests.chat import facts_of, read_message_stream, without_messages
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import plain_copy

_BLOCKS: Final = frozenset(
    {"text", "toolUse", "toolResult", "image", "document", "video", "reasoningContent", "cachePoint", "guardContent"}
)


@shape_test
def is_message(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.get("role") in {"user", "assistant"}
        and isinstance(value.get("content"), list)
        and bool(value["content"])
        and all(isinstance(block, Mapping) and "type" not in block for block in value["content"])
    )


def _has_known_block(message: Mapping[str, Any]) -> bool:
    return any(block.keys() & _BLOCKS for block in message["content"])


def _response_of(value: Any) -> Any:
    """The message of a response; None if the value is no response."""
    return value["output"].get("message") if has_keys(value, "output", "stopReason") else None


@shape_test
def matches(value: Any) -> bool:
    messages = value.get("messages") if isinstance(value, Mapping) else value
    response = _response_of(value)
    if not isinstance(messages, list):
        messages = [value if response is None else response]
    # Messages may have blocks that this version does not know.
    return all(map(is_message, messages)) and any(map(_has_known_block, messages))


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_message, matches):
        yield read_message_stream(
            source, is_message, lambda messages, places: items_of(map(_message, messages), places)
        )
    else:
        yield from read_each(source, _is_conversation, partial(_conversation, source))


@shape_test
def _is_conversation(value: Any) -> bool:
    return matches(value) and not is_message(value)


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    response = _response_of(value)
    if response is not None:
        items = items_of([_message(response)], [place], usage=_usage(value.get("usage") or {}))
        return SourceConversation(items=items)
    messages = value["messages"] if isinstance(value, Mapping) else value
    items = items_of(map(_message, messages), list_places(place))
    if not isinstance(value, Mapping):
        return SourceConversation(items=items)
    prompt = "\n".join(str(block["text"]) for block in value.get("system") or () if "text" in block)
    for index, block in enumerate(value.get("system") or ()):
        if "text" not in block and "cachePoint" not in block:
            source.skip(f"{place}, system[{index}]", f"is {describe(block)}, not a text")
    if prompt:
        items.insert(0, SourceMessage(system(prompt), f"{place}, system"))
    facts = facts_of(value)
    return SourceConversation(
        items=items, **{**facts, "model": facts["model"] or value.get("modelId")}, data=without_messages(value)
    )


def _usage(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The usage in the form of Anthropic's own API."""
    return {
        "input_tokens": counts.get("inputTokens", 0),
        "output_tokens": counts.get("outputTokens", 0),
        "cache_read_input_tokens": counts.get("cacheReadInputTokens", 0),
        "cache_creation_input_tokens": counts.get("cacheWriteInputTokens", 0),
    }


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message in the format of Anthropic's own API, which has the same structure."""
    blocks: list[dict[str, Any]] = []
    for block in message["content"]:
        if "cachePoint" in block and blocks:
            blocks[-1]["cache_control"] = {"type": "ephemeral"}
        else:
            blocks.append(_block(block))
    return {"role": message["role"], "content": blocks}


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    if "toolUse" in block:
        tool_use = block["toolUse"]
        return {
            "type": "tool_use",
            "id": tool_use.get("toolUseId"),
            "name": tool_use.get("name"),
            "input": tool_use.get("input") or {},
        }
    if "toolResult" in block:
        result = block["toolResult"]
        content = [_result_block(inner) for inner in result.get("content") or ()]
        tool_result = {"type": "tool_result", "tool_use_id": result.get("toolUseId"), "content": content}
        return {**tool_result, "is_error": True} if result.get("status") == "error" else tool_result
    if "redactedContent" in (block.get("reasoningContent") or ()):
        return {"type": "redacted_thinking", "data": block["reasoningContent"]["redactedContent"]}
    if "reasoningContent" in block:
        text = block["reasoningContent"].get("reasoningText") or {}
        return {"type": "thinking", "thinking": text.get("text", ""), "signature": text.get("signature", "")}
    return _result_block(block)


def _result_block(block: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    image = block.get("image")
    if isinstance(image, Mapping) and isinstance((image.get("source") or {}).get("bytes"), str):
        source = {"type": "base64", "media_type": f"image/{image.get('format')}", "data": image["source"]["bytes"]}
        return {"type": "image", "source": source}
    document = block.get("document")
    if isinstance(document, Mapping) and document.get("format") == "pdf" and "bytes" in (document.get("source") or {}):
        source = {"type": "base64", "media_type": "application/pdf", "data": document["source"]["bytes"]}
        return {"type": "document", "source": source, "title": document.get("name")}
    return {"type": "text", "text": json_text(plain_copy(block.get("json", block)))}


FORMAT: Final = Format(
    name="bedrock",
    title="Amazon Bedrock Converse: requests, lists of messages, responses (JSON or JSONL)",
    matches=matches,
    read=read,
    provider="anthropic",
)
