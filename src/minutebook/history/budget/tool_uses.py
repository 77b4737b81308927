"""Which tool results are the output of a command or a search.

Later answers repeat lines of files, but hardly ever lines of such output.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from minutebook.record.message import Message, call_ids, result_id
from minutebook.record.transcript import Transcript

_SHELLS: Final = frozenset({"bash", "execute_bash", "exec_command", "shell", "run", "terminal"})
_COMMAND_KEYS: Final = ("command", "cmd", "input")
_MAX_COMMAND: Final = 400
"""Characters of a command that are searched for what it does."""
_READS: Final = re.compile(r"\b(?:cat|sed -n|head|tail|nl|less|view)\b")
_FILE_TOOL_NAMES: Final = ("edit", "write", "replace", "patch", "create", "insert", "read", "view")
_SEARCH_NAMES: Final = ("grep", "glob", "search", "list", "find")


def is_output(source: Transcript, index: int) -> bool:
    """Whether the result at this index is the output of a command or a search, and not the text of a file."""
    message = source[source.exchange_of(index).start]
    calls = dict(zip(call_ids(message), message.get("tool_calls") or (), strict=False))
    call = calls.get(result_id(source[index]))
    if call is None:
        return False
    function = call.get("function") or call.get("custom") or {}
    tool = str(function.get("name") or "").lower()
    if tool in _SHELLS:
        return not _READS.search(_command(function))
    return any(name in tool for name in _SEARCH_NAMES) and not any(name in tool for name in _FILE_TOOL_NAMES)


def _command(function: Message) -> str:
    text = str(function.get("arguments", function.get("input")) or "")
    try:
        arguments: Any = json.loads(text)
    except (ValueError, RecursionError):
        arguments = {"input": text}
    values = (arguments.get(key) for key in _COMMAND_KEYS) if isinstance(arguments, Mapping) else ()
    command = next(filter(None, values), "")
    return (" ".join(map(str, command)) if isinstance(command, list) else str(command))[:_MAX_COMMAND]
