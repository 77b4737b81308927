"""OpenAI's Responses API: requests, lists of items, responses."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    text_id,
    time_of,
)
from minutebook.formats.messages import system, user
from minutebook.formats.requests.chat import fact_fields, facts_of, read_message_stream, without_messages
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test
from minutebook.record.message import is_system, text_of
from minutebook.wire.responses import is_item_part, item_type, message_to_items
from minutebook.wire.write import responses_arguments

_ITEM_TYPE_ENDINGS: Final = (
    "_call",
    "_output",
    "_call_output",
    "reasoning",
    "item_reference",
    "compaction",
    "additional_tools",
)
_LIST_NAMES: Final = ("input", "items", "output", "data")


@shape_test
def is_item(value: Any) -> bool:
    """Whether a value may be an item. A message with a text may also be a chat message."""
    if not isinstance(value, Mapping):
        return False
    kind = value.get("type")
    if isinstance(kind, str) and kind != "message":
        return ("role" not in value or kind == "additional_tools") and (
            kind.startswith("mcp_") or kind.endswith(_ITEM_TYPE_ENDINGS)
        )
    content = value.get("content")
    if value.get("role") not in {"user", "assistant", "system", "developer"} or value.keys() & {
        *("tool_calls", "parts", "toolInvocations")
    }:
        return False
    is_parts = isinstance(content, (list, tuple)) and all(has_keys(part, "type") for part in content)
    has_own_parts = is_parts and (
        not content
        or any(part["type"] == "refusal" or is_item_part(part["type"]) for part in content)
        or (kind == "message" and any(part["type"] == "input_audio" for part in content))
    )
    return has_own_parts or isinstance(content, str) or "tools" in value


def _body_of(value: Any) -> Any:
    """The request or response in a line of a batch; another value unchanged."""
    if has_keys(value, "custom_id", "body") and str(value.get("url")).endswith("/responses"):
        return value["body"]
    if has_keys(value, "custom_id", "response") and has_keys(value["response"], "body"):
        body = value["response"]["body"]
        return body if has_keys(body, "output") else value
    return value


def _items(value: Any) -> tuple[str, list[Any]] | None:
    """The name and the value of the list of items in a request or response."""
    value = _body_of(value)
    if isinstance(value, list):
        return "", value
    for name in _LIST_NAMES if isinstance(value, Mapping) else ():
        if isinstance(value.get(name), list):
            return name, value[name]
    return (
        ("input", [user(value["input"])])
        if has_keys(value, "input", "model") and isinstance(value["input"], str)
        else None
    )


@shape_test
def matches(value: Any) -> bool:
    named_items = _items(value)
    if named_items is None:
        return is_item(value)
    name, items = named_items
    is_named = name in {"input", "output"} or (name == "data" and value.get("object") == "list") or name == "items"
    if not items or not (is_named or any("type" in item for item in items)):
        return False
    # In a request or a response, items may have types that this version does not know.
    return any(map(is_item, items)) and all(
        is_item(item) or (is_named and item_type(item) not in {"", "message"}) for item in items
    )


def read(source: Source) -> Iterator[SourceConversation]:
    if holds_messages(source, is_item, matches):
        yield read_message_stream(source, is_item, partial(items_of, api="responses"))
    else:
        # In a file of requests, a single item belongs to none of them.
        yield from read_each(
            source, lambda value: matches(value) and _items(value) is not None, partial(_conversation, source)
        )


def _conversation(source: Source, value: Any, place: str) -> SourceConversation:
    name, items = _items(value) or ("", [])
    messages = items_of(items, list_places(place, name or "items"), api="responses")
    if not isinstance(value, Mapping):
        return SourceConversation(items=messages)
    body = _body_of(value)
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions and name != "output":
        messages.insert(0, SourceMessage(system(instructions), f"{place}, instructions"))
    elif instructions and not isinstance(instructions, str):
        source.skip(f"{place}, instructions", f"is {describe(instructions)}, not a text")
    if name == "output":
        at, usage = time_of(body.get("created_at")), body.get("usage")
        messages = [replace(item, at=at, model=body.get("model")) for item in messages]
        messages[-1:] = [replace(item, usage=usage) for item in messages[-1:]]
    has_references = any(item_type(item) == "item_reference" for item in items)
    is_continuation = has_references or bool(body.get("previous_response_id") or body.get("conversation"))
    facts: dict[str, Any] = {**facts_of(body), "is_continuation": is_continuation}
    if body is value:
        return SourceConversation(items=messages, **facts, data=without_messages(value, name))
    facts["id"] = text_id(value["custom_id"])
    key = "body" if "body" in value else "response"
    return SourceConversation(items=messages, **facts, data={**value, key: without_messages(body, name)})


def write(conversation: SourceConversation) -> Any:
    """The request or the list's object. A line of a batch is written with the changed request or response in it."""
    line = conversation.data
    if "custom_id" in line and isinstance(line.get("body"), Mapping):
        return {**line, "body": _with_items(conversation, line["body"])}
    if "custom_id" in line and isinstance(line.get("response"), Mapping):
        original = conversation.original["response"]
        return {**line, "response": {**original, "body": _with_items(conversation, line["response"])}}
    return _with_items(conversation, line)


def _with_items(conversation: SourceConversation, fields: Mapping[str, Any]) -> dict[str, Any]:
    messages, data = conversation.messages, dict(fields)
    name = next((name for name in _LIST_NAMES if name in data and data[name] is None), None)
    if name is None:
        return {**fact_fields(conversation), **responses_arguments(messages)}
    instructions = data.get("instructions")
    has_instructions = bool(instructions) and instructions == text_of(messages[0]) and is_system(messages[0])
    items = [item for message in messages[int(has_instructions) :] for item in message_to_items(message)]
    return {**data, name: items}


FORMAT: Final = Format(
    name="openai-responses",
    title="OpenAI Responses: requests, lists of items, responses, batches (JSON or JSONL)",
    has_api_messages=True,
    matches=matches,
    read=read,
    write=write,
    list_name="input",
    evidence=frozenset(
        {"input", "output", "instructions", "previous_response_id", "max_output_tokens", "reasoning", "include"}
    ),
)
