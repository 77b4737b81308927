"""`conversations.json` of a Claude.ai data export. Calls and results are blocks of one message in the export.

If the messages have parents, regenerated answers and edited prompts are branches.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    Node,
    SourceConversation,
    SourceMessage,
    branches,
    has_keys,
    list_places,
    read_each,
    read_items,
    time_of,
)
from minutebook.formats.messages import assistant, call, json_text, result, user
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import known_parts, shape_test, skip_unknown_role
from minutebook.record.message import Message


@shape_test
def matches(value: Any) -> bool:
    if not has_keys(value, "chat_messages") or not isinstance(value["chat_messages"], list):
        return False
    return all(map(_is_message, value["chat_messages"]))


def _is_message(value: Any) -> bool:
    return has_keys(value, "sender")


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversations, source))


def _conversations(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceConversation]:
    def read_message(exported: Mapping[str, Any], message_place: str) -> Iterator[SourceMessage]:
        at = time_of(exported.get("created_at"))
        return (SourceMessage(message, message_place, at) for message in _messages(source, exported, message_place))

    messages = value["chat_messages"]
    items_by_index = [
        read_items(source, [exported], _is_message, read_message)
        for exported in map(Value, messages, list_places(place, "chat_messages"))
    ]
    facts: dict[str, Any] = {
        "title": value.get("name"),
        "model": value.get("model"),
        "created_at": time_of(value.get("created_at")),
    }
    nodes = {
        str(message.get("uuid")): Node(str(message.get("uuid")), message.get("parent_message_uuid"), items)
        for message, items in zip(messages, items_by_index, strict=True)
    }
    if len(nodes) < len(messages) or not any(node.parent in nodes for node in nodes.values()):
        yield SourceConversation(items=list(chain.from_iterable(items_by_index)), id=value.get("uuid"), **facts)
        return
    current = value.get("current_leaf_message_uuid")
    for ids, items in branches(str(value.get("uuid")), nodes, current if current in nodes else [*nodes][-1]):
        yield SourceConversation(items=items, **ids, **facts)


def _messages(source: Source, exported: Mapping[str, Any], place: str) -> Iterator[Message]:
    """The chat messages of one message of the export."""
    blocks = exported.get("content") or [{"type": "text", "text": str(exported.get("text") or "")}]
    for index, file in enumerate(exported.get("attachments") or ()):
        if not file.get("extracted_content"):
            source.skip(f"{place}, attachments[{index}]", "has no text in the export")
    for index in range(len(exported.get("files") or ())):
        source.skip(f"{place}, files[{index}]", "is a file that the export does not contain")
    if exported["sender"] == "human":
        texts = [str(block.get("text") or "") for block in known_parts(source, blocks, place, {"text", "voice_note"})]
        texts += [
            f"{file.get('file_name')}:\n{file['extracted_content']}"
            for file in exported.get("attachments") or ()
            if file.get("extracted_content")
        ]
        yield user("\n\n".join(texts))
    elif exported["sender"] == "assistant":
        types = {"text", "thinking", "tool_use", "tool_result"}
        known = known_parts(source, blocks, place, types, ignored={"token_budget"})
        yield from _answer(source, known, str(exported.get("uuid") or ""), place)
    else:
        skip_unknown_role(source, place, exported["sender"])


def _answer(source: Source, blocks: list[Mapping[str, Any]], message_id: str, place: str) -> Iterator[Message]:
    """The messages of an answer. After tool results, the next block starts another assistant message."""
    text, thinking, calls, results = "", "", list[dict[str, Any]](), list[Message]()
    for number, block in enumerate([*blocks, {"type": "end"}]):
        kind = block.get("type")
        if results and kind != "tool_result":
            yield assistant(text, calls, reasoning=thinking)
            yield from results
            text, thinking, calls, results = "", "", [], []
        if kind == "text":
            text += str(block.get("text") or "")
        elif kind == "thinking":
            thinking += str(block.get("thinking") or "")
        elif kind == "tool_use":
            calls.append(call(block.get("id") or f"call_{message_id}_{number}", block.get("name"), block.get("input")))
        elif kind == "tool_result" and len(results) < len(calls):
            call_id = block.get("tool_use_id") or calls[len(results)]["id"]
            results.append(result(call_id, _result_text(block.get("content")), is_error=bool(block.get("is_error"))))
        elif kind == "tool_result":
            source.skip(f"{place}, part {number}", "is a result without a call")
    if text or calls or thinking or not blocks:
        yield assistant(text, calls, reasoning=thinking)


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        is_text = [has_keys(part, "type", "text") and part["type"] == "text" for part in content]
        return "\n".join(part["text"] if text else json_text(part) for part, text in zip(content, is_text, strict=True))
    return json_text(content if content is not None else "")


FORMAT: Final = Format(
    name="claude-ai",
    title="Claude.ai data export (conversations.json)",
    matches=matches,
    read=read,
    provider="anthropic",
)
