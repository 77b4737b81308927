"""What a conversation has and its value in another format does not."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from minutebook.formats.conversation import SourceConversation
from minutebook.record.message import Message, call_ids, is_result, result_id, role_of, text_of
from minutebook.wire.anthropic import FIELDS_KEY
from minutebook.wire.write import FORMAT_KEYS

_READ_FIELDS: Final = frozenset(
    {"messages", "input", "items", "output", "data", "contents", "candidates", "choices", "content", "role", "object"}
    | {"mapping", "current_node", "chat_messages", "conversations", "events", "history", "trajectory", "chat", "type"}
    | {"system", "instructions", "systemInstruction", "system_instruction", "body", "params", "usage", "usageMetadata"}
)
"""Fields of conversations that become messages, forks or usage, which are compared one by one."""
_CHAT_BLOCKS: Final = frozenset({"text", "tool_use", "tool_result"})
"""Types of Anthropic's blocks that chat messages have too."""
_TEXT_KEYS: Final = frozenset({"type", "text"})
_CHAT_PARTS: Final = frozenset({"text", "functionCall", "functionResponse", "function_call", "function_response"})
"""Keys of Gemini's parts that chat messages have too."""


def losses(conversation: SourceConversation, value: Any, written: Sequence[Message]) -> Iterator[str]:
    """The fields, messages and parts of messages that a written value does not have.

    `written` are the messages that are read from it. No format that can be written has compactions or usage.
    """
    fields = [name for name, field in _fields(conversation) if not _has_field(value, name, field)]
    if fields:
        yield f"fields of the conversation: {', '.join(dict.fromkeys(fields))}"
    for name, count in (
        ("usage", sum(item.usage is not None for item in conversation.items)),
        ("time", sum(item.at is not None for item in conversation.items)),
        ("model", sum(item.model not in (None, conversation.model) for item in conversation.items)),
    ):
        if count:
            yield f"the {name} of {count} messages"
    for fold in conversation.folds:
        yield f"message {fold.start}: the summary of {fold.stop - fold.start} messages, which are written in its place"
    for index, (before, after) in enumerate(_pairs(conversation.messages, written)):
        if after is None:
            yield f"message {index}: the whole {role_of(before)} message"
        else:
            is_joined = len(written) != len(conversation.messages) and text_of(before) in text_of(after)
            found = _message_losses(before, after, is_joined=is_joined)
            yield from (f"message {index}: {loss}" for loss in found)


def _fields(conversation: SourceConversation) -> Iterator[tuple[str, Any]]:
    """The fields around the messages, also those of the request in a line of a batch."""
    outer = conversation.data or (conversation.original if isinstance(conversation.original, Mapping) else {})
    for each in (outer, outer.get("body"), outer.get("params")):
        if isinstance(each, Mapping):
            yield from ((name, field) for name, field in each.items() if name not in _READ_FIELDS and field is not None)


def _has_field(value: Any, name: str, field: Any) -> bool:
    """Whether a value has a field. An id, a model or a title may have another name in it."""
    if not isinstance(value, Mapping):
        return False
    body = value.get("body", value.get("params", {}))
    is_fact = isinstance(field, (str, int)) and str(field) in [value.get(key) for key in ("id", "model", "title")]
    return is_fact or value.get(name) == field or (isinstance(body, Mapping) and body.get(name) == field)


def _pairs(before: Sequence[Message], after: Sequence[Message]) -> Iterator[tuple[Message, Message | None]]:
    """Each message with the one that was written for it; None if there is none."""
    if len(before) == len(after):
        yield from zip(before, after, strict=True)
        return
    matcher = SequenceMatcher(None, list(map(_identity, before)), list(map(_identity, after)), autojunk=False)
    for tag, start, stop, after_start, after_stop in matcher.get_opcodes():
        for index in range(start, stop):
            if tag == "equal":
                yield before[index], after[after_start + index - start]
            else:
                candidates = after[after_start:after_stop]
                yield before[index], next((each for each in candidates if _may_be_same(before[index], each)), None)


def _identity(message: Message) -> tuple[Any, ...]:
    return role_of(message), text_of(message), tuple(call_ids(message)), is_result(message) and result_id(message)


def _may_be_same(before: Message, after: Message) -> bool:
    """Whether `after` may be the message, changed or joined with others."""
    if role_of(before) != role_of(after) or is_result(before) != is_result(after):
        return False
    if is_result(before):
        return result_id(before) == result_id(after)
    return text_of(before) in text_of(after) and set(call_ids(before)) <= set(call_ids(after))


def _message_losses(before: Message, after: Message, *, is_joined: bool) -> Iterator[str]:
    for key, value in before.items():
        if key in FORMAT_KEYS or value is None or value == after.get(key):
            continue
        if key != "content":
            yield key
        elif parts := _lost_parts(value, after.get("content")):
            yield f"content ({', '.join(parts)})"
        elif not is_joined:
            yield key
    if lost_keys := sorted(key for key in FORMAT_KEYS if key in before and key not in after):
        names = dict.fromkeys(name for key in lost_keys for name in _detail_names(key, before[key]))
        yield f"details of the original format: {', '.join(names)}"


def _lost_parts(before: Any, after: Any) -> list[str]:
    """The types of the content parts, other than texts, that were not written."""
    parts = [part for part in before if isinstance(part, Mapping)] if isinstance(before, (list, tuple)) else []
    written = list(after) if isinstance(after, (list, tuple)) else []
    return [str(part.get("type")) for part in parts if part.get("type") != "text" and part not in written]


def _detail_names(key: str, stored: Any) -> list[str]:
    """The types of the blocks or items, or the fields, that a chat message cannot express; the key if there are none."""
    if not isinstance(stored, (Mapping, list)):
        return [key]
    if key == FIELDS_KEY:
        return list(stored)
    marks = stored.get("marks", ()) if isinstance(stored, Mapping) else stored
    blocks = [mark.get("item", mark) for mark in marks if isinstance(mark, Mapping)]
    names = [str(block["type"]) for block in blocks if "type" in block and str(block["type"]) not in _CHAT_BLOCKS]
    names += [name for block in blocks if block.get("type") == "text" for name in block if name not in _TEXT_KEYS]
    for mark in marks:
        names += _changed_fields(mark.get("patch") if isinstance(mark, Mapping) else None)
    if isinstance(stored, Mapping):
        names += [name for part in stored.get("parts") or () for name in part if name not in _CHAT_PARTS]
        names += list(_changed_fields(stored))
    return names or [key]


def _changed_fields(patch: Any) -> Iterator[str]:
    """The names of the fields that a patch adds or changes."""
    if isinstance(patch, Mapping):
        for name, change in (patch.get("in") or {}).items():
            inner = list(_changed_fields(change))
            yield from inner or [name]
        for _, change in patch.get("at") or ():
            yield from _changed_fields(change)
