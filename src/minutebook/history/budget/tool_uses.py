"""What the tool calls of a transcript do: which kind of result each has, and which file it is about.

How long a result stays useful depends on its kind. Later answers repeat lines of files for some calls, of listings and
searches for a few, and of the output of commands hardly ever.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from minutebook.record.message import Message, call_ids, is_result, result_id
from minutebook.record.transcript import Transcript


class ResultKind(StrEnum):
    """What a tool result contains."""

    FILE = "a file"
    LISTING = "a listing"
    OUTPUT = "the output of a command"
    EDIT = "the result of an edit"
    OTHER = "an old tool result"


class ToolUse(NamedTuple):
    """One tool call."""

    kind: ResultKind
    path: str | None
    """The file that it reads or writes, if the arguments say so."""


_SHELLS: Final = frozenset({"bash", "execute_bash", "exec_command", "shell", "run", "terminal"})
_PATH_KEYS: Final = ("file_path", "path", "filename", "notebook_path", "file")
_COMMAND_KEYS: Final = ("command", "cmd", "input")
_MAX_COMMAND: Final = 400
"""Characters of a command that are searched for what it does."""
_READS: Final = re.compile(r"\b(?:cat|sed -n|head|tail|nl|less|view)\b")
_LISTS: Final = re.compile(r"\b(?:grep|rg|find|ls|tree|glob)\b")
_FILE: Final = re.compile(r"(?:[\w.~-]*/)+[\w.-]+|\b[\w-]+\.\w{1,5}\b")
_PATCHED: Final = re.compile(r"^\*\*\* (?:Update|Add) File: (.+)$", re.MULTILINE)
_WRITING_NAMES: Final = ("edit", "write", "replace", "patch", "create", "insert")
_LISTING_NAMES: Final = ("grep", "glob", "search", "list", "find")


class ToolUses:
    """The tool uses of a transcript's results, each call read once."""

    def __init__(self, source: Transcript) -> None:
        self._source = source
        self._uses: list[ToolUse | None] = []
        """The use of each message that is a result."""
        self._calls: dict[str, ToolUse] = {}
        """The calls of the last assistant message, by id."""
        self._uses_of_file: dict[str, list[int]] = {}
        """Indexes of the calls that read or write a file, in order."""

    def of(self, index: int) -> ToolUse:
        """The use of a tool that the result at this index belongs to."""
        self._extend(index + 1)
        return self._uses[index] or _UNKNOWN_USE

    def is_superseded(self, index: int, end: int) -> bool:
        """Whether the file of a result is read or written again after it, before `end`."""
        path = self.of(index).path
        if path is None:
            return False
        self._extend(end)
        calls = self._uses_of_file[path]
        return index < calls[bisect_left(calls, end) - 1]

    def _extend(self, end: int) -> None:
        for index in range(len(self._uses), end):
            message = self._source[index]
            if is_result(message):
                self._uses.append(self._calls.get(result_id(message)))
                continue
            self._uses.append(None)
            if ids := call_ids(message):
                self._calls = dict(zip(ids, map(_use_of, message.get("tool_calls") or ()), strict=False))
                for use in self._calls.values():
                    if use.path is not None:
                        self._uses_of_file.setdefault(use.path, []).append(index)


_UNKNOWN_USE: Final = ToolUse(ResultKind.OTHER, None)


def _use_of(call: Message) -> ToolUse:
    function = call.get("function") or call.get("custom") or {}
    text = str(function.get("arguments", function.get("input")) or "")
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = {"input": text}
    arguments = arguments if isinstance(arguments, Mapping) else {}
    command = _command(arguments)
    return ToolUse(_kind(str(function.get("name") or "").lower(), command, arguments), _path(arguments, command))


def _command(arguments: Mapping[str, Any]) -> str:
    command = next((arguments[key] for key in _COMMAND_KEYS if arguments.get(key)), "")
    return (" ".join(map(str, command)) if isinstance(command, list) else str(command))[:_MAX_COMMAND]


def _kind(tool: str, command: str, arguments: Mapping[str, Any]) -> ResultKind:
    if tool in _SHELLS:
        if _READS.search(command):
            return ResultKind.FILE
        return ResultKind.LISTING if _LISTS.search(command) else ResultKind.OUTPUT
    if any(name in tool for name in _WRITING_NAMES):
        return ResultKind.FILE if arguments.get("command") == "view" else ResultKind.EDIT
    if "read" in tool or "view" in tool:
        return ResultKind.FILE
    return ResultKind.LISTING if any(name in tool for name in _LISTING_NAMES) else ResultKind.OTHER


def _path(arguments: Mapping[str, Any], command: str) -> str | None:
    for key in _PATH_KEYS:
        if isinstance(path := arguments.get(key), str):
            return path
    if patched := _PATCHED.search(command):
        return patched.group(1).strip()
    files = _FILE.findall(command) if _READS.search(command) else ()
    return files[-1] if files else None
