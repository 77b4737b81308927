"""Chat-completions messages to entries and back, losing nothing.

An entry has typed fields for what every provider knows. Whatever else a message carried (content parts, `refusal`,
reasoning, `cache_control`, keys we have never heard of, even the order of its keys) travels in `extras`, so the way
back gives the same bytes. Change a typed field and the change wins over what `extras` remembers.

Entries as JSON, the form in which stores and exports keep them.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.errors import InvalidMessage
from minutebook.record.entry import ConversationEntry, ToolCall
from minutebook.record.message import FUNCTION_ID_PREFIX, Message, MessageRole, plain_copy, require_message, text_of

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def json_bytes(value: Any) -> bytes:
    """A value as JSON; half a surrogate pair, which UTF-8 cannot say, as an escape."""
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
"""Keys that the message did not have although an entry's message would."""
_ORDER: Final = "~order"
"""The order of the message's keys, where it is not ours."""


def entry_to_provider_message(entry: ConversationEntry) -> dict[str, Any]:
    """Convert a ConversationEntry to provider message format."""
    return _restore(_plain(entry), entry.extras)


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
        InvalidMessage: something a message must have is missing or has the wrong shape; `path` says where.
    """
    require_message(msg, sequence)
    role = msg.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessage("role", f"is {role!r}; use system, developer, user, assistant or tool", sequence)
    fields: dict[str, Any] = {
        "role": _ROLES[role],
        "content": _content(msg, sequence),
        "evaluation_id": evaluation_id,
        "sequence": sequence,
        "created_at": created_at,
        "tool_calls": _calls(msg, role, sequence),
        "tool_call_id": _call_id(msg, role, sequence),
        "tool_name": _tool_name(msg, role),
        "provider": provider,
        "model": model,
    }
    return ConversationEntry(**fields, extras=_rest(_plain(ConversationEntry(**fields)), msg))


def new_entries(
    messages: Iterable[Message], *, provider: str | None = None, model: str | None = None
) -> list[ConversationEntry]:
    """The entries of new messages, which are appended together now.

    Raises:
        InvalidMessage: a message is malformed.
    """
    evaluation_id, created_at = uuid4(), datetime.now(UTC)
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


def _plain(entry: ConversationEntry) -> dict[str, Any]:
    """The message of an entry's typed fields alone."""
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
    raise InvalidMessage("content", f"is a {type(content).__name__}; it is text, a list of parts or null", index)


def _calls(msg: Message, role: str, index: int) -> tuple[ToolCall, ...] | None:
    """The assistant's calls. On anybody else's message they are no calls, and travel with the rest."""
    raw = msg.get("tool_calls") if role == "assistant" else None
    return tuple(_call(call, at, index) for at, call in enumerate(raw or ())) or None


def _call(raw: Mapping[str, Any], at: int, index: int) -> ToolCall:
    function = raw.get("function", raw.get("custom"))
    if not isinstance(raw.get("id"), str) or not raw["id"]:
        raise InvalidMessage(f"tool_calls[{at}].id", "is missing; every call has an id", index)
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidMessage(f"tool_calls[{at}].function.name", "is missing; every call names its tool", index)
    call = ToolCall(raw["id"], function["name"], _arguments(function))
    return ToolCall(call.id, call.name, call.arguments, extras=_rest(_call_to_provider(call), raw))


def _arguments(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else json.dumps(plain_copy(arguments), ensure_ascii=False, separators=(",", ":"))


def _call_to_provider(call: ToolCall) -> dict[str, Any]:
    plain = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    was = call.extras.get("function", call.extras.get("custom"))
    extras = dict(call.extras)
    if isinstance(was, Mapping) and (was.get("name") != call.name or _arguments(was) != call.arguments):
        key = "function" if "function" in extras else "custom"
        extras[key] = {**was, "name": call.name, "input" if "input" in was else "arguments": call.arguments}
    return _restore(plain, extras)


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


def _rest(plain: Message, msg: Message) -> dict[str, Any]:
    """What `plain` does not say about `msg`."""
    rest = {key: value for key, value in msg.items() if key not in plain or not _equal(plain[key], value)}
    absent = [key for key in plain if key not in msg]
    if absent:
        rest[_ABSENT] = absent
    if list(msg) != [key for key in plain if key in msg] + [key for key in msg if key not in plain]:
        rest[_ORDER] = list(msg)
    return rest


def _restore(plain: dict[str, Any], extras: Mapping[str, Any]) -> dict[str, Any]:
    absent = extras.get(_ABSENT, ())
    message = {key: value for key, value in plain.items() if key not in absent or (key == "content" and value)}
    for key, value in extras.items():
        if key not in {_ABSENT, _ORDER} and not _outdated(key, value, plain):
            message[key] = plain_copy(value)
    order = extras.get(_ORDER)
    if order:
        rank = {key: place for place, key in enumerate(order)}
        message = dict(sorted(message.items(), key=lambda item: rank.get(item[0], len(rank))))
    return message


def _outdated(key: str, value: Any, plain: Mapping[str, Any]) -> bool:
    """Whether a typed field was changed since `extras` remembered its other spelling."""
    if key == "content":
        return text_of({"content": value}) != (plain.get("content") or "")
    if key == "role":
        return _ROLES.get(value) != plain.get("role")
    return key == "tool_calls" and bool(plain.get("tool_calls"))


def _equal(one: Any, other: Any) -> bool:
    """Equal in JSON too, where 1, 1.0 and true are three things."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return type(one) is type(other) and one == other


def entry_to_json(entry: ConversationEntry) -> str:
    """One line of JSON that holds the whole entry; ASCII, so lone surrogates and any encoding survive."""
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
        known = _known(stored)
    except (ValueError, KeyError, TypeError) as problem:
        raise InvalidMessage("entry", f"cannot be read: {problem!r}") from problem
    return provider_message_to_entry(stored["message"], **known)


def _known(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "evaluation_id": UUID(stored["evaluation_id"]),
        "sequence": stored["sequence"],
        "created_at": datetime.fromisoformat(stored["created_at"]),
        "provider": stored.get("provider"),
        "model": stored.get("model"),
    }
