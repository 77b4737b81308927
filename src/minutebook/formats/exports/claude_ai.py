"""`conversations.json` of a Claude.ai data export. Calls and results are blocks of one message in the export."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, read_each, time_of
from minutebook.formats.messages import assistant, call, json_text, result, user
from minutebook.formats.source import Source
from minutebook.record.message import Message


def matches(value: Any) -> bool:
    if not has_keys(value, "chat_messages") or not isinstance(value["chat_messages"], list):
        return False
    return all(has_keys(message, "sender") for message in value["chat_messages"])


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, _conversation)


def _conversation(value: Mapping[str, Any], place: str) -> SourceConversation:
    items = [
        SourceMessage(message, f"{place}, chat_messages[{index}]", time_of(exported.get("created_at")))
        for index, exported in enumerate(value["chat_messages"])
        for message in _messages(exported)
    ]
    return SourceConversation(
        items=items,
        id=value.get("uuid"),
        title=value.get("name"),
        model=value.get("model"),
        created_at=time_of(value.get("created_at")),
    )


def _messages(exported: Mapping[str, Any]) -> Iterator[Message]:
    """The chat messages of one message of the export."""
    blocks = exported.get("content")
    blocks = [block for block in blocks if isinstance(block, Mapping)] if isinstance(blocks, list) and blocks else []
    if not blocks:
        blocks = [{"type": "text", "text": str(exported.get("text") or "")}]
    if exported["sender"] == "human":
        texts = [str(block.get("text") or "") for block in blocks if block.get("type") == "text"]
        texts += [
            f"{file.get('file_name')}:\n{file['extracted_content']}"
            for file in exported.get("attachments") or ()
            if file.get("extracted_content")
        ]
        yield user("\n\n".join(texts))
    else:
        yield from _answer(blocks, str(exported.get("uuid") or ""))


def _answer(blocks: list[Mapping[str, Any]], message_id: str) -> Iterator[Message]:
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
    if text or calls or thinking or not blocks:
        yield assistant(text, calls, reasoning=thinking)


def _result_text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part["text"]) if has_keys(part, "text") else json_text(part) for part in content)
    return json_text(content if content is not None else "")


FORMAT: Final = Format(name="claude-ai", title="Claude.ai data export (conversations.json)", matches=matches, read=read)
