"""The shapes of single messages that providers accept: content, tool calls, names and encodable text.

These problems do not depend on other messages, so a transcript checks each message once, when it arrives. A message that
no provider accepts and that has no reasonable repair is refused (`require_content`). Anything else stays in the record
unchanged, and views contain a repaired copy (`with_valid_shape`, `with_valid_names`, `parts.with_known_parts`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.finding import FindingKind
from minutebook.record.message import RESULT_ROLES, Message, Provider, plain_copy, refuse_recursion, role_of
from minutebook.record.parts import is_part, missing_field

NO_KINDS: Final[tuple[FindingKind, ...]] = ()
UNKNOWN_TOOL: Final = "unknown"
"""The tool name that views show for a call without one."""
UNKNOWN_AUTHOR: Final = "unknown"
"""The name that views show for an author with an empty name."""

_COMMON_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""Tool names that every provider accepts."""
_TOOL_NAMES: Final[dict[Provider, re.Pattern[str]]] = {
    "openai": re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    "anthropic": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
}
_MAX_NAME_LENGTH: Final[dict[Provider, int]] = {"openai": 64, "anthropic": 128, "gemini": 64}
_AUTHOR_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
"""OpenAI's rule for a message's `name`, which names the author. This field is sent to OpenAI only."""
_CONTENT_SUBSTITUTES: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Keys of an assistant message. If it has one of them, its content may be missing."""


def require_content(message: Message, index: int | None = None) -> None:
    """Refuse content that no provider accepts.

    An assistant message or a tool result may have no content: models and tools sometimes return nothing. Views then
    contain an empty text.

    Raises:
        InvalidMessage: the content is missing, an empty list, or neither text nor a list of parts.
    """
    content = message.get("content")
    if type(content) is str:
        return
    if not content and (content is None or isinstance(content, (list, tuple))):
        if role_of(message) == "assistant" or role_of(message) in RESULT_ROLES:
            return
        state = "is missing" if "content" not in message else f"is {json.dumps(content)}"
        raise InvalidMessage("content", f"{state}; expected text or a list of parts", index)
    if not isinstance(content, (str, list, tuple)):
        raise InvalidMessage("content", f"is of type {type(content).__name__}; expected text or a list of parts", index)
    for part_index, part in enumerate(content if not isinstance(content, str) else ()):
        if is_part(part):
            continue
        path = f"content[{part_index}]"
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            raise InvalidMessage(
                path, "is not a part: expected a mapping with a type and, if that is text, a text", index
            )
        problem = f"is not a part: a part of type {part['type']!r} needs a text in {missing_field(part)}"
        raise InvalidMessage(path, problem, index)


def shape_problems(message: Message) -> Sequence[FindingKind]:
    """The problems within this message that every provider rejects (`finding.SHAPE_KINDS`).

    Raises:
        InvalidMessage: a value of the message contains itself or is nested too deep.
    """
    if is_plain(message):
        return NO_KINDS
    kinds = []
    if not _has_valid_content(message):
        kinds.append(FindingKind.BAD_CONTENT)
    if "tool_calls" in message and not _has_valid_calls(message):
        kinds.append(FindingKind.BAD_CALLS)
    with refuse_recursion():
        if not _is_encodable(message):
            kinds.append(FindingKind.BAD_TEXT)
    return kinds or NO_KINDS


def is_plain(message: Message) -> bool:
    """Whether the message has only ASCII texts and ordinary function calls.

    Such a message has no shape problems, and every provider accepts its names. This check is much faster than the
    complete ones, and most messages pass it.
    """
    content = message.get("content")
    if type(content) is str:
        if not content.isascii():
            return False
        if len(message) == 2:  # content and one other key
            return type(message.get("role")) is str
    elif content is not None or message.get("role") != "assistant" or "tool_calls" not in message:
        return False
    for key, value in message.items():
        if key == "tool_calls":
            if type(value) is not list or not value or not all(map(_is_plain_call, value)):
                return False
        elif key not in _PLAIN_KEYS or (type(value) is not str and key != "content") or not (value or "").isascii():
            return False
    return True


_PLAIN_KEYS: Final = frozenset({"role", "content", "tool_call_id"})


def _is_plain_call(call: Any) -> bool:
    function = call.get("function") if type(call) is dict else None
    if type(function) is not dict or len(function) != 2 or len(call) != 3 or call.get("type") != "function":
        return False
    call_id, name, arguments = call.get("id"), function.get("name"), function.get("arguments")
    return (
        type(call_id) is str
        and type(name) is str
        and type(arguments) is str
        and call_id.isascii()
        and arguments.isascii()
        and _is_common_name(name)
    )


def with_valid_shape(message: Message) -> Message:
    """The message without its `shape_problems`."""
    valid = dict(message)
    if not _has_valid_content(message):
        valid["content"] = _valid_content(message.get("content"))
    calls = message.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        if calls:
            valid["tool_calls"] = [_valid_call(call) for call in calls]
        else:
            del valid["tool_calls"]
    return encodable_copy(valid)  # type: ignore[no-any-return]  # JSON in, JSON out


def has_common_names(message: Message) -> bool:
    """Whether every provider accepts the names of this message's author and of its tools."""
    calls = message.get("tool_calls")
    if calls and not all(map(_is_common_name, map(_tool_name, calls))):
        return False
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping) and not _is_common_name(str(function_call.get("name"))):
        return False
    author = message.get("name")
    return author is None or (isinstance(author, str) and _AUTHOR_NAME.fullmatch(author) is not None)


@lru_cache(maxsize=1024)
def _is_common_name(name: str) -> bool:
    return _COMMON_NAME.fullmatch(name) is not None


def has_valid_names(message: Message, provider: Provider) -> bool:
    """Whether this provider accepts the names of the message's author and of its tools."""
    return has_common_names(message) or with_valid_names(message, provider) is message


def with_valid_names(message: Message, provider: Provider) -> Message:
    """The message with names that the provider accepts; the same object if they need no change.

    In a name that the provider rejects, special characters are replaced by underscores, and a long name is shortened.
    """
    changes: dict[str, Any] = {}
    if calls := message.get("tool_calls"):
        renamed = [_with_valid_tool_name(call, provider) for call in calls]
        if not all(map(is_, renamed, calls)):
            changes["tool_calls"] = renamed
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping):
        name = _valid_tool_name(str(function_call.get("name") or ""), provider)
        if name != function_call.get("name"):
            changes["function_call"] = {**function_call, "name": name}
    author = message.get("name")
    if provider == "openai" and author is not None:
        if role_of(message) == "function":  # the author is a tool
            valid_author = _valid_tool_name(str(author), provider)
        else:
            valid_author = re.sub(r"[\s<|\\/>]", "_", str(author))[:64] or UNKNOWN_AUTHOR
        if valid_author != author:
            changes["name"] = valid_author
    return {**message, **changes} if changes else message


def encodable_copy(value: Any) -> Any:
    """A copy in plain dicts and lists. Lone surrogates, which UTF-8 cannot encode, are replaced by U+FFFD."""
    if isinstance(value, str):
        if value.isascii() or _is_encodable(value):
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, Mapping):
        return {key if key.isascii() else encodable_copy(key): encodable_copy(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [encodable_copy(inner) for inner in value]
    return value


def _is_encodable(value: Any) -> bool:
    """Whether UTF-8 can encode every text in JSON data."""
    if isinstance(value, str):
        if value.isascii():
            return True
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    if isinstance(value, Mapping):
        return all(_is_encodable(key) and _is_encodable(inner) for key, inner in value.items())
    return all(map(_is_encodable, value)) if isinstance(value, (list, tuple)) else True


def _has_valid_content(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return True
    if content is None:
        return role_of(message) == "assistant" and any(message.get(key) for key in _CONTENT_SUBSTITUTES)
    return isinstance(content, (list, tuple)) and bool(content) and all(map(is_part, content))


def _valid_content(content: Any) -> str | list[Any]:
    if content is None:
        return ""
    if not isinstance(content, (list, tuple)):
        return [content] if is_part(content) else _json_text(content)
    return [part if is_part(part) else _text_part(part) for part in content] or ""


def _text_part(part: Any) -> dict[str, Any]:
    """A text part in place of a value that is no part."""
    if isinstance(part, Mapping) and part.get("type") == "text":
        text = part.get("text")
        return {**part, "text": "" if text is None else _json_text(text)}
    return {"type": "text", "text": _json_text(part)}


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(plain_copy(value), ensure_ascii=False, default=str)


def _has_valid_calls(message: Message) -> bool:
    calls = message["tool_calls"]
    return calls is None or (bool(calls) and all(map(_is_valid_call, calls)))


def _is_valid_call(call: Mapping[str, Any]) -> bool:
    if call.get("type") == "custom":
        custom = call.get("custom")
        return (
            isinstance(custom, Mapping) and isinstance(custom.get("name"), str) and isinstance(custom.get("input"), str)
        )
    function = call.get("function")
    return (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and isinstance(function.get("arguments"), str)
    )


def _valid_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    if _is_valid_call(call):
        return call
    tool = call.get("function") or call.get("custom")
    tool = tool if isinstance(tool, Mapping) else {}
    arguments = tool.get("arguments", tool.get("input"))
    function = {
        "name": str(tool.get("name") or UNKNOWN_TOOL),
        "arguments": "{}" if arguments is None else _json_text(arguments),
    }
    other_keys = {key: value for key, value in call.items() if key not in {"type", "function", "custom"}}
    return {**other_keys, "type": "function", "function": function}


def _tool_name(call: Mapping[str, Any]) -> str:
    tool = call.get("function") or call.get("custom")
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def _with_valid_tool_name(call: Mapping[str, Any], provider: Provider) -> Mapping[str, Any]:
    name = _tool_name(call)
    valid_name = _valid_tool_name(name, provider)
    key = "function" if call.get("function") else "custom"
    if valid_name == name or not isinstance(call.get(key), Mapping):
        return call
    return {**call, key: {**call[key], "name": valid_name}}


def _valid_tool_name(name: str, provider: Provider) -> str:
    if _TOOL_NAMES[provider].fullmatch(name):
        return name
    valid = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if provider == "gemini" and not _COMMON_NAME.match(valid):
        valid = f"_{valid}"
    return valid[: _MAX_NAME_LENGTH[provider]] if name else UNKNOWN_TOOL
