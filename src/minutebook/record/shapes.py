"""The shapes of single messages that providers accept: content, tool calls, names and encodable text.

These problems do not depend on other messages, so a transcript checks each message once, when it arrives. A message that
no provider accepts and that has no reasonable repair is refused (`require_content`). Anything else stays in the record
unchanged, and views contain a repaired copy (`with_valid_shape`, `with_valid_names`, `with_known_parts`).
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from operator import is_
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.finding import FindingKind
from minutebook.record.message import RESULT_ROLES, Message, Provider, plain_copy, role_of

NO_KINDS: Final[tuple[FindingKind, ...]] = ()
UNKNOWN_TOOL: Final = "unknown"
"""The name in views of a tool whose call has no name."""

_COMMON_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_TOOL_NAMES: Final[dict[Provider, re.Pattern[str]]] = {
    "openai": re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    "anthropic": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
}
_MAX_NAME: Final[dict[Provider, int]] = {"openai": 64, "anthropic": 128, "gemini": 64}
_AUTHOR_NAME: Final = re.compile(r"[^\s<|\\/>]{1,64}")
"""OpenAI's rule for the `name` of a message's author. Other providers are not sent this field."""
_UNKNOWN_TO_ANTHROPIC: Final = frozenset({"input_audio", "audio", "video_url", "input_video"})
_ANTHROPIC_FILES: Final = ("data:application/pdf;base64,", "data:text/", "data:image/")
_OTHER_CONTENT: Final = ("tool_calls", "function_call", "refusal", "audio")
"""Keys of an assistant message that may replace its content."""


def require_content(message: Message, index: int | None = None) -> None:
    """Refuse content that no provider accepts.

    An assistant message or a tool result may be empty: models and tools sometimes return nothing. Views then contain an
    empty text.

    Raises:
        InvalidMessage: the content is missing, empty, or neither text nor a list of parts.
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
        raise InvalidMessage("content", f"is a {type(content).__name__}; expected text or a list of parts", index)
    for number, part in enumerate(content if not isinstance(content, str) else ()):
        if not _is_part(part):
            raise InvalidMessage(f"content[{number}]", "is not a part: expected a mapping with a type", index)


def shape_problems(message: Message) -> Sequence[FindingKind]:
    """The problems of this message that every provider rejects, whatever the other messages are."""
    if is_plain(message):
        return NO_KINDS
    kinds = []
    if not _has_valid_content(message):
        kinds.append(FindingKind.BAD_CONTENT)
    if "tool_calls" in message and not _has_valid_calls(message):
        kinds.append(FindingKind.BAD_CALLS)
    if not _is_encodable(message):
        kinds.append(FindingKind.BAD_TEXT)
    return kinds or NO_KINDS


def is_plain(message: Message) -> bool:
    """Whether the message consists of ASCII texts and ordinary calls. This is fast, and true of most messages.

    Such a message has no shape problems, and every provider accepts its names.
    """
    content = message.get("content")
    if type(content) is str:
        if not content.isascii():
            return False
        if len(message) == 2:
            return "role" in message
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
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping) and not _is_common_name(str(legacy.get("name"))):
        return False
    name = message.get("name")
    return name is None or (isinstance(name, str) and _AUTHOR_NAME.fullmatch(name) is not None)


@lru_cache(maxsize=1024)
def _is_common_name(name: str) -> bool:
    return _COMMON_NAME.fullmatch(name) is not None


def has_valid_names(message: Message, provider: Provider) -> bool:
    """Whether this provider accepts the names of the message's author and of its tools."""
    return has_common_names(message) or with_valid_names(message, provider) is message


def with_valid_names(message: Message, provider: Provider) -> Message:
    """The message with names that the provider accepts; the same object if they need no change.

    Other characters are replaced by underscores, and long names are shortened.
    """
    changes: dict[str, Any] = {}
    if calls := message.get("tool_calls"):
        renamed = [_with_name(call, provider) for call in calls]
        if not all(map(is_, renamed, calls)):
            changes["tool_calls"] = renamed
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        name = _valid_name(str(legacy.get("name") or ""), provider)
        if name != legacy.get("name"):
            changes["function_call"] = {**legacy, "name": name}
    author = message.get("name")
    if provider == "openai" and author is not None:
        is_function = role_of(message) == "function"
        valid = _valid_name(str(author), provider) if is_function else re.sub(r"[\s<|\\/>]", "_", str(author))[:64]
        if valid != author:
            changes["name"] = valid or UNKNOWN_TOOL
    return {**message, **changes} if changes else message


def with_known_parts(message: Message, provider: Provider) -> Message:
    """The message with a text instead of each part that the provider does not accept; the same object without such parts."""
    content = message.get("content")
    if provider != "anthropic" or not isinstance(content, (list, tuple)):
        return message
    is_answer = role_of(message) == "assistant"
    if not any(_is_unknown(part, is_answer=is_answer) for part in content):
        return message
    return {
        **message,
        "content": [placeholder_part(part) if _is_unknown(part, is_answer=is_answer) else part for part in content],
    }


def placeholder_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A text that says which part is left out."""
    file = part.get("file")
    name = file.get("filename") or file.get("file_id") if isinstance(file, Mapping) else None
    label = f"{part.get('type')} {name}" if name else str(part.get("type"))
    return {"type": "text", "text": f"[{label}: left out, the model cannot read it]"}


def _is_unknown(part: Any, *, is_answer: bool) -> bool:
    """Whether Anthropic has no block for this part: audio, video, files that only OpenAI stores, media in an answer."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "file":
        file = part.get("file")
        data = file.get("file_data") if isinstance(file, Mapping) else None
        return (
            is_answer
            or not isinstance(data, str)
            or (data.startswith("data:") and not data.startswith(_ANTHROPIC_FILES))
        )
    return kind in _UNKNOWN_TO_ANTHROPIC or (kind == "image_url" and is_answer)


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


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("type"), str)


def _has_valid_content(message: Message) -> bool:
    content = message.get("content")
    if isinstance(content, str):
        return True
    if content is None:
        return role_of(message) == "assistant" and any(message.get(key) for key in _OTHER_CONTENT)
    return isinstance(content, (list, tuple)) and bool(content) and all(map(_is_part, content))


def _valid_content(content: Any) -> str | list[Any]:
    if content is None:
        return ""
    if not isinstance(content, (list, tuple)):
        return [content] if _is_part(content) else _json_text(content)
    return [part if _is_part(part) else {"type": "text", "text": _json_text(part)} for part in content] or ""


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
    name, text = str(tool.get("name") or UNKNOWN_TOOL), "{}" if arguments is None else _json_text(arguments)
    return {**_without_tool(call), "type": "function", "function": {"name": name, "arguments": text}}


def _without_tool(call: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if key not in {"type", "function", "custom"}}


def _tool_name(call: Mapping[str, Any]) -> str:
    tool = call.get("function") or call.get("custom")
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def _with_name(call: Mapping[str, Any], provider: Provider) -> Mapping[str, Any]:
    name = _tool_name(call)
    valid = _valid_name(name, provider)
    key = "function" if call.get("function") else "custom"
    return (
        call if valid == name or not isinstance(call.get(key), Mapping) else {**call, key: {**call[key], "name": valid}}
    )


def _valid_name(name: str, provider: Provider) -> str:
    if _TOOL_NAMES[provider].fullmatch(name):
        return name
    valid = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if provider == "gemini" and not _COMMON_NAME.match(valid):
        valid = f"_{valid}"
    return valid[: _MAX_NAME[provider]] if name else UNKNOWN_TOOL
