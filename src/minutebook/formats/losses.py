"""What is lost when a conversation is written in another format."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from minutebook.formats.conversation import SourceConversation
from minutebook.record.message import (
    Message,
    call_arguments,
    call_ids,
    call_names,
    is_result,
    is_system,
    result_id,
    role_of,
    text_of,
    type_of,
)
from minutebook.tokens.counter import BLOCKS_KEY, ITEMS_KEY, PATCH_KEY
from minutebook.wire.anthropic import FIELDS_KEY, argument_object
from minutebook.wire.gemini import GEMINI_KEY
from minutebook.wire.write import FORMAT_KEYS

_READ_FIELDS: Final = frozenset(
    {"messages", "input", "items", "output", "data", "contents", "candidates", "choices", "content", "role", "object"}
    | {"mapping", "current_node", "chat_messages", "conversations", "events", "history", "trajectory", "chat", "type"}
    | {"system", "systemInstruction", "system_instruction", "body", "params", "usage", "usageMetadata"}
)
"""Fields of conversations that become messages, forks or usage, which are compared one by one."""
_BLOCK_FIELDS: Final = {
    "text": frozenset({"type", "text"}),
    "tool_use": frozenset({"type", "id", "name", "input"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error"}),
}
"""Types of Anthropic's blocks that chat messages have too, and their fields."""
_CALL_PARTS: Final = frozenset({"functionCall", "functionResponse", "function_call", "function_response"})
_CALL_FIELDS: Final = frozenset({"id", "name", "args", "response"})
_MEDIA_PARTS: Final = frozenset({"inlineData", "inline_data", "fileData", "file_data"})
"""Keys of Gemini's parts that chat messages have too; media only in messages of the user."""
_MOVED_TEXTS: Final = frozenset({"refusal", "reasoning_content", "reasoning"})
"""Texts of a chat message that another format may have elsewhere."""
_COMPARED_KEYS: Final = frozenset({"content", "role", "tool_calls", "function_call", "tool_call_id", "name"})


def losses(
    conversation: SourceConversation, value: Any, written: Sequence[Message], expressed: Collection[str] = ()
) -> Iterator[str]:
    """The fields, messages and parts of messages that a written value does not have.

    `written` are the messages that are read from it, `expressed` the fields that it has under other names.
    No format that can be written has compactions or usage.
    """
    fields = [
        name for name, field in _fields(conversation) if name not in expressed and not _has_field(value, name, field)
    ]
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
            yield from (f"message {index}: {loss}" for loss in _message_losses(before, after))


def _fields(conversation: SourceConversation) -> Iterator[tuple[str, Any]]:
    """The fields around the messages, also those of the request in a line of a batch."""
    has_prompt = any(map(is_system, conversation.messages[:1]))  # `instructions` of a response are not read
    outer = conversation.data or (conversation.original if isinstance(conversation.original, Mapping) else {})
    for mapping in (outer, outer.get("body"), outer.get("params")):
        if isinstance(mapping, Mapping):
            read_fields = _READ_FIELDS | {"instructions"} if has_prompt else _READ_FIELDS
            yield from (
                (name, field) for name, field in mapping.items() if name not in read_fields and field is not None
            )


def _has_field(value: Any, name: str, field: Any) -> bool:
    """Whether a value has a field. An id, a model or a title may have another name in it."""
    if not isinstance(value, Mapping):
        return False
    body = value.get("body", value.get("params", {}))
    is_fact = isinstance(field, (str, int)) and str(field) in [value.get(key) for key in ("id", "model", "title")]
    return is_fact or value.get(name) == field or (isinstance(body, Mapping) and body.get(name) == field)


def _pairs(before: Sequence[Message], after: Sequence[Message]) -> Iterator[tuple[Message, Message | None]]:
    """Each message with the one that was written for it; None if there is none."""
    if list(map(_role_group, before)) == list(map(_role_group, after)):
        yield from zip(before, after, strict=True)
        return
    matcher = SequenceMatcher(None, list(map(_identity, before)), list(map(_identity, after)), autojunk=False)
    for tag, start, stop, after_start, after_stop in matcher.get_opcodes():
        for index in range(start, stop):
            if tag == "equal":
                yield before[index], after[after_start + index - start]
            else:  # a format may have a message for each call, each followed by its result
                more_calls = after[after_stop : after_stop + 2 * len(call_ids(before[index]))]
                yield before[index], _combined_message(before[index], after[after_start:after_stop], more_calls)


def _identity(message: Message) -> tuple[Any, ...]:
    return _role_group(message), text_of(message), tuple(call_names(message))


def _role_group(message: Message) -> str:
    return "system" if is_system(message) else "tool" if is_result(message) else role_of(message)


def _combined_message(message: Message, candidates: Sequence[Message], more_calls: Sequence[Message]) -> Message | None:
    """The written messages that may have parts of a message, combined into one; None if they have nothing of it."""
    if is_result(message):
        return next(
            (candidate for candidate in candidates if is_result(candidate) and _is_same_result(message, candidate)),
            None,
        )
    for group in (
        [candidate for candidate in candidates if _role_group(candidate) == _role_group(message)],
        [candidate for candidate in candidates if not is_result(candidate)],
    ):
        keys = {key: value for candidate in reversed(group) for key, value in candidate.items()}
        calls = [call for candidate in (*group, *more_calls) for call in candidate.get("tool_calls") or ()]
        combined = {
            **keys,
            "content": [part for candidate in group for part in _content_parts(candidate)],
            "tool_calls": calls,
        }
        has_text = text_of(message) and text_of(message) in text_of(combined)
        has_part = any(part in combined["content"] for part in _content_parts(message))
        if has_text or has_part or any(call in _calls(combined) for call in _calls(message)):
            return combined
    return None


def _is_same_result(message: Message, other: Message) -> bool:
    return result_id(message) == result_id(other) or text_of(message) == text_of(other)


def _content_parts(message: Message) -> list[Any]:
    content = message.get("content")
    return (
        list(content) if isinstance(content, (list, tuple)) else [{"type": "text", "text": content}] if content else []
    )


def _calls(message: Message) -> list[tuple[str, Any]]:
    """The name and the arguments of each call."""
    return list(zip(call_names(message), map(argument_object, call_arguments(message)), strict=True))


def _message_losses(before: Message, after: Message) -> Iterator[str]:
    """The parts of a message that the written one does not have in any form."""
    if role_of(before) != role_of(after) and _role_group(before) != "tool":
        yield "role"
    if parts := [type_of(part) for part in _media(before) if part not in _media(after)]:
        yield f"content ({', '.join(parts)})"
    if text_of(before) not in text_of(after):
        yield "content"
    if any(call not in _calls(after) for call in _calls(before)):
        yield "tool_calls"
    elif before.get("tool_calls") and not set(call_ids(before)) <= set(call_ids(after)):
        yield "tool_calls (id)"
    if before.get("tool_call_id") and result_id(before) != result_id(after):
        yield "tool_call_id"
    if before.get("name") and not is_result(before) and before["name"] != after.get("name"):
        yield "name"
    for key, value in before.items():
        is_moved = key in _MOVED_TEXTS and _has_text(after, value)
        if key not in FORMAT_KEYS | _COMPARED_KEYS and value and value != after.get(key) and not is_moved:
            yield key
    details = [name for key in sorted(FORMAT_KEYS & before.keys() - after.keys()) for name in _details(before, key)]
    if details:
        yield f"details of the original format: {', '.join(dict.fromkeys(details))}"


def _media(message: Message) -> list[Mapping[str, Any]]:
    """The content parts that are not texts."""
    parts = (part for part in _content_parts(message) if isinstance(part, Mapping))
    return [part for part in parts if type_of(part) != "text"]


def _has_text(value: Any, text: Any) -> bool:
    """Whether a JSON value contains a text, at any depth."""
    if isinstance(value, Mapping):
        return any(_has_text(inner, text) for inner in value.values())
    return any(_has_text(inner, text) for inner in value) if isinstance(value, (list, tuple)) else bool(value == text)


def _details(message: Message, key: str) -> Iterator[str]:
    """The types of the blocks or items, and the fields, that a chat message cannot express."""
    stored = message[key]
    if key == FIELDS_KEY:
        yield from stored
    elif key == BLOCKS_KEY:
        for block in stored:
            kind = type_of(block)
            yield from (
                (name for name, value in block.items() if value and name not in _BLOCK_FIELDS[kind])
                if kind in _BLOCK_FIELDS
                else [kind]
            )
    elif key == PATCH_KEY:
        yield from _changed_fields(stored, text_of(message))
    elif key == ITEMS_KEY:
        for mark in stored["marks"]:
            yield from (
                [type_of(mark["item"])] if "item" in mark else _changed_fields(mark.get("patch"), text_of(message))
            )
    elif key == GEMINI_KEY:
        yield from (name for name in stored.get("fields", {}) if name != "role")
        media = frozenset[str]() if role_of(message) == "assistant" else _MEDIA_PARTS
        for part in stored.get("parts", ()):
            yield from {name for name, value in part.items() if value is not None} - _CALL_PARTS - media - {"text"}
            calls = [part[key] for key in part.keys() & _CALL_PARTS if isinstance(part[key], Mapping)]
            yield from (
                name for call in calls for name, value in call.items() if value is not None and name not in _CALL_FIELDS
            )


def _changed_fields(patch: Any, text: str) -> Iterator[str]:
    """The names of the fields to which a patch gives a value other than the text of the message."""
    if isinstance(patch, Mapping):
        for name, change in (patch.get("in") or {}).items():
            if "=" not in change:
                yield from _changed_fields(change, text)
            elif change["="] and change["="] != text and name != "type":
                yield name
        for _, change in patch.get("at") or ():
            yield from _changed_fields(change, text)
