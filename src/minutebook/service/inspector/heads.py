"""A message on a few lines: who wrote it, the beginning of its text, and its calls."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from minutebook.record.message import Message, is_result, is_system, role_of, text_of

ROLE_NAMES: Final = {
    "user": "User",
    "assistant": "Assistant",
    "system": "System",
    "developer": "System",
    "tool": "Tool result",
    "function": "Tool result",
}
_HEAD_CHARACTERS: Final = 420
_MAIN_ARGUMENTS: Final = ("file_path", "path", "filename", "notebook_path", "command", "cmd", "pattern", "query", "url")
"""Arguments of common tools that say most about a call."""
_EDITS: Final = (("old_string", "new_string"), ("old_str", "new_str"), ("oldText", "newText"))
"""Arguments of common tools that replace a text."""
_LONG_PATH: Final = 56
_SHOWN_FOLDERS: Final = 4
"""Of a long path, the last parts are shown."""
ANSI: Final = re.compile(r"\x1b(?:\[[0-9;:?<=>]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Escape sequences of terminals."""
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)
"""Characters that change how text is shown, or that cannot be shown."""


def visible(text: str) -> str:
    """The text with visible escapes for control characters, bidirectional controls and lone surrogates."""
    return _HIDDEN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@dataclass(frozen=True, slots=True)
class CallHead:
    """A tool call on one line."""

    name: str
    summary: str


@dataclass(frozen=True, slots=True)
class MessageHead:
    """A message in short."""

    kind: str
    """`user`, `assistant`, `system` or `tool`."""
    role: str
    text: str
    thinking: str
    thinking_characters: int
    calls: tuple[CallHead, ...]
    lines: int
    images: int
    tool: str
    """Of a result: the tool's name, if the message has it."""


def head_of(message: Message) -> MessageHead:
    """A message in short."""
    role = role_of(message)
    kind = "tool" if is_result(message) else "system" if is_system(message) else role if role in ROLE_NAMES else "other"
    text, thinking = text_of(message), thinking_of(message)
    if kind == "tool":
        start = ANSI.sub("", text[:2000]).strip("\n")
        shown = next((line.strip() for line in start.split("\n") if line.strip()), "")[:_HEAD_CHARACTERS]
    else:
        shown = _shortened(ANSI.sub("", text[:2000]))
    return MessageHead(
        kind,
        ROLE_NAMES.get(role, role or "No role"),
        shown,
        " ".join(thinking[:200].split()),
        len(thinking),
        tuple(CallHead(name, summary) for name, summary in map(_call_head, calls_of(message))),
        text.count("\n") + 1 if text else 0,
        sum(1 for part in parts_of(message) if part.get("type") in {"image", "image_url", "input_image"}),
        str(message.get("name") or "") if kind == "tool" else "",
    )


def _shortened(text: str) -> str:
    lines = [line for line in text.strip().split("\n") if line.strip()]
    shown = "\n".join(lines[:4])
    return shown if len(lines) <= 4 and len(shown) <= _HEAD_CHARACTERS else f"{shown[:_HEAD_CHARACTERS].rstrip()}…"


def thinking_of(message: Message) -> str:
    """The text of a message's thinking."""
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str):
            return str(message[key])
    texts = [part.get("thinking") for part in parts_of(message) if part.get("type") == "thinking"]
    return "\n".join(text for text in texts if isinstance(text, str))


def parts_of(message: Message) -> list[Mapping[str, Any]]:
    """The parts of a message's content, if it is a list."""
    content = message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, (list, tuple)) else []


def calls_of(message: Message) -> list[tuple[str, Any]]:
    """The name and the arguments of each tool call. Arguments that are JSON are parsed."""
    calls = []
    tool_calls = message.get("tool_calls")
    for call in tool_calls if isinstance(tool_calls, (list, tuple)) else ():
        function = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            calls.append(
                (
                    str(function.get("name") or "call"),
                    _parsed_arguments(function.get("arguments", function.get("input"))),
                )
            )
    function_call = message.get("function_call")
    if isinstance(function_call, Mapping):
        calls.append((str(function_call.get("name") or "call"), _parsed_arguments(function_call.get("arguments"))))
    return calls


def _parsed_arguments(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _with_short_path(summary: str) -> str:
    """A long path without its first folders: the end of a line can be hidden, and the file's name is at the end."""
    if len(summary) <= _LONG_PATH or " " in summary or "/" not in summary:
        return summary
    return f"…/{'/'.join(summary.split('/')[-_SHOWN_FOLDERS:])}"


def edit_keys(arguments: Mapping[str, Any]) -> tuple[str, str] | None:
    """The names of the arguments with the old and the new text, if the call replaces a text in a file."""
    for keys in _EDITS:
        if all(isinstance(arguments.get(key), str) for key in keys):
            return keys
    return None


def _call_head(call: tuple[str, Any]) -> tuple[str, str]:
    name, arguments = call
    if not isinstance(arguments, Mapping):
        return name[:80], " ".join(str(arguments or "")[:200].split())
    main = next((arguments[key] for key in _MAIN_ARGUMENTS if isinstance(arguments.get(key), str)), None)
    if main is None:
        main = next((value for value in arguments.values() if isinstance(value, str)), "")
    summary = _with_short_path(" ".join(main[:200].split()))
    keys = edit_keys(arguments)
    if keys is not None:
        old, new = (arguments[key].count("\n") + 1 for key in keys)
        summary += f"  \N{MINUS SIGN}{old} +{new} lines"
    return name[:80], summary
