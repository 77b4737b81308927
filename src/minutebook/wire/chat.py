"""Chat-completions messages to entries and back without loss, and entries as JSON for stores and exports.

An entry has typed fields for what all providers have in common. Everything else in a message (content parts, `refusal`,
reasoning, `cache_control`, unknown keys, even the order of keys) is stored in `extras`, so that converting the entry back
gives the same bytes. If a typed field was changed, the change takes precedence over `extras`.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.errors import InvalidMessage
from minutebook.record.entry import ConversationEntry, ToolCall
from minutebook.record.message import (
    FUNCTION_ID_PREFIX,
    Message,
    MessageRole,
    plain_copy,
    refuse_recursion,
    require_message,
    text_of,
)
from minutebook.record.shapes import require_content

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def json_bytes(value: Any) -> bytes:
    """A value as JSON. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    try:
        return _ENCODER.encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


_ROLES: Final = {
    "system": MessageRole.SYSTEM,
    "developer": MessageRole.SYSTEM,
    "user": MessageRole.USER,
    "assistant": MessageRole.ASSISTANT,
    "tool": MessageRole.TOOL,
    "function": MessageRole.TOOL,
}
_ABSENT: Final = "~absent"
"""The key in `extras` for the list of keys that `_plain_message` writes and the original did not have."""
_ORDER: Final = "~order"
"""The key in `extras` for the order of the original's keys, if it differs from that of `_plain_message`."""


def entry_to_provider_message(entry: ConversationEntry) -> dict[str, Any]:
    """Convert a ConversationEntry to provider message format."""
    return _with_extras(_plain_message(entry), entry.extras)


@refuse_recursion()
def provider_message_to_entry(
    msg: Message,
    *,
    evaluation_id: UUID,
    sequence: int,
    created_at: datetime,
    provider: str | None = None,
    model: str | None = None,
) -> ConversationEntry:
    """Convert a provider message to ConversationEntry.

    Raises:
        InvalidMessage: a required field is missing or has the wrong type, and `path` names the field; or a value contains
            itself or is nested too deep.
    """
    require_message(msg, sequence)
    role = msg.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        problem = "is missing" if role is None else "is unknown"
        raise InvalidMessage("role", f"{problem}; use system, developer, user, assistant or tool", sequence, role)
    fields: dict[str, Any] = {
        "role": _ROLES[role],
        "content": _content(msg, sequence),
        "evaluation_id": evaluation_id,
        "sequence": sequence,
        "created_at": created_at,
        "tool_calls": _tool_calls(msg, role, sequence),
        "tool_call_id": _call_id(msg, role, sequence),
        "tool_name": _tool_name(msg, role),
        "provider": provider,
        "model": model,
    }
    entry = ConversationEntry(**fields)
    extras = _extras(_plain_message(entry), msg)
    return ConversationEntry(**fields, extras=extras) if extras else entry


def new_entries(
    messages: Iterable[Message],
    *,
    provider: str | None = None,
    model: str | None = None,
    evaluation_id: UUID | None = None,
) -> list[ConversationEntry]:
    """The entries of new messages, with the current time and the same `evaluation_id`. Default: a new id.

    Raises:
        InvalidMessage: a message is malformed, or no provider accepts its content.
    """
    messages = list(messages)
    for index, message in enumerate(messages):
        require_content(require_message(message, index), index)
    evaluation_id, created_at = evaluation_id or uuid4(), datetime.now(UTC)
    return [
        provider_message_to_entry(
            message,
            evaluation_id=evaluation_id,
            sequence=sequence,
            created_at=created_at,
            provider=provider,
            model=model,
        )
        for sequence, message in enumerate(messages)
    ]


def _plain_message(entry: ConversationEntry) -> dict[str, Any]:
    """The message that an entry's typed fields describe."""
    message: dict[str, Any] = {"role": entry.role.value, "content": entry.content}
    if entry.tool_calls is not None:
        message["tool_calls"] = [_call_to_provider(call) for call in entry.tool_calls]
    if entry.tool_call_id is not None:
        message["tool_call_id"] = entry.tool_call_id
    if entry.tool_name is not None:
        message["name"] = entry.tool_name
    return message


def _content(msg: Message, index: int) -> str | None:
    content = msg.get("content")
    if isinstance(content, str):
        return content
    if content is None:
        return None if msg.get("role") == "assistant" else ""
    if isinstance(content, (list, tuple)):
        return text_of(msg)
    raise InvalidMessage("content", f"is of type {type(content).__name__}; use text, a list of parts or null", index)


def _tool_calls(msg: Message, role: str, index: int) -> tuple[ToolCall, ...] | None:
    """The calls of an assistant message. `tool_calls` in a message of another role are stored in `extras`."""
    raw_calls = msg.get("tool_calls") if role == "assistant" else None
    return tuple(_tool_call(raw_call, call_index, index) for call_index, raw_call in enumerate(raw_calls or ())) or None


def _tool_call(raw_call: Mapping[str, Any], call_index: int, index: int) -> ToolCall:
    function = raw_call.get("function", raw_call.get("custom"))
    if not isinstance(raw_call.get("id"), str) or not raw_call["id"]:
        raise InvalidMessage(f"tool_calls[{call_index}].id", "is missing; every call has an id", index)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidMessage(f"tool_calls[{call_index}].function.name", "is missing; every call names its tool", index)
    call = ToolCall(raw_call["id"], function["name"], _arguments(function))
    extras = _extras(_call_to_provider(call), raw_call)
    return ToolCall(call.id, call.name, call.arguments, extras=extras) if extras else call


def _arguments(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else json.dumps(plain_copy(arguments), ensure_ascii=False, separators=(",", ":"))


def _call_to_provider(call: ToolCall) -> dict[str, Any]:
    plain = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    if not call.extras:
        return plain
    original = call.extras.get("function", call.extras.get("custom"))
    extras = dict(call.extras)
    if isinstance(original, Mapping) and (original.get("name") != call.name or _arguments(original) != call.arguments):
        key = "function" if "function" in extras else "custom"
        extras[key] = {**original, "name": call.name, "input" if "input" in original else "arguments": call.arguments}
    return _with_extras(plain, extras)


def _call_id(msg: Message, role: str, index: int) -> str | None:
    if _ROLES[role] is not MessageRole.TOOL:
        return None
    call_id = f"{FUNCTION_ID_PREFIX}{msg.get('name')}" if role == "function" else msg.get("tool_call_id")
    if not isinstance(call_id, str) or not call_id:
        raise InvalidMessage("tool_call_id", "is missing; a tool message names the call it answers", index)
    return call_id


def _tool_name(msg: Message, role: str) -> str | None:
    name = msg.get("name")
    return name if _ROLES[role] is MessageRole.TOOL and isinstance(name, str) else None


def _extras(plain: Message, msg: Message) -> dict[str, Any]:
    """What `_with_extras` needs to restore `msg` from `plain`."""
    extras = {key: value for key, value in msg.items() if key not in plain or not _is_same_json(plain[key], value)}
    absent = [key for key in plain if key not in msg]
    if absent:
        extras[_ABSENT] = absent
    order = list(msg)
    if order != list(plain) and order != [key for key in plain if key in msg] + [
        key for key in msg if key not in plain
    ]:
        extras[_ORDER] = order
    return extras


def _with_extras(plain: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    """The original message of `_extras`, with the changes of typed fields since then."""
    if not extras:
        return plain
    absent = extras.get(_ABSENT, ())
    message = {key: value for key, value in plain.items() if key not in absent or (key == "content" and value)}
    for key, value in extras.items():
        if key not in {_ABSENT, _ORDER} and not _is_outdated(key, value, plain):
            message[key] = plain_copy(value)
    order = extras.get(_ORDER)
    if order:
        rank = {key: index for index, key in enumerate(order)}
        message = dict(sorted(message.items(), key=lambda item: rank.get(item[0], len(rank))))
    return message


def _is_outdated(key: str, value: Any, plain: Mapping[str, Any]) -> bool:
    """Whether the typed field was changed after its original value was stored in `extras`.

    Stored `tool_calls` are outdated if the entry has typed ones, because each of these has its own extras.
    """
    if key == "content":
        return text_of({"content": value}) != (plain.get("content") or "")
    if key == "role":
        return _ROLES.get(value) != plain.get("role")
    return key == "tool_calls" and bool(plain.get("tool_calls"))


def _is_same_json(left: Any, right: Any) -> bool:
    """Whether two values have the same JSON text: 1, 1.0 and true differ, and the order of keys matters."""
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(_is_same_json(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_is_same_json, left, right))
    return type(left) is type(right) and left == right


def entry_to_json(entry: ConversationEntry) -> str:
    """The entry as one line of JSON. It is ASCII, so that lone surrogates are preserved in any encoding."""
    return json.dumps(
        {
            "message": entry_to_provider_message(entry),
            "evaluation_id": str(entry.evaluation_id),
            "sequence": entry.sequence,
            "created_at": entry.created_at.isoformat(),
            "provider": entry.provider,
            "model": entry.model,
        },
        separators=(",", ":"),
    )


def entry_from_json(line: str) -> ConversationEntry:
    """The entry that `entry_to_json` wrote.

    Raises:
        InvalidMessage: the line is not an entry.
    """
    try:
        stored = json.loads(line)
        message = stored["message"]
        fields = {
            "evaluation_id": UUID(stored["evaluation_id"]),
            "sequence": stored["sequence"],
            "created_at": datetime.fromisoformat(stored["created_at"]),
            "provider": stored.get("provider"),
            "model": stored.get("model"),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidMessage("entry", f"cannot be read: {error!r}") from error
    return provider_message_to_entry(message, **fields)
