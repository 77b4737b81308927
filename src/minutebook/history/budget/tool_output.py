"""Tool results with their middle cut out: long output of commands and searches, and results that do not fit.

Long text of files is not cut for its length: later answers repeat its lines, but hardly ever lines of the output of a
command or a search.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from minutebook.history.names import frequent_names
from minutebook.history.tool_results import cleared_result, with_middle_cut
from minutebook.record.message import Message, call_ids, result_id, text_of
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

_SHELLS: Final = frozenset({"bash", "execute_bash", "exec_command", "shell", "run", "terminal"})
_COMMAND_KEYS: Final = ("command", "cmd", "input")
_MAX_COMMAND: Final = 400
"""Maximum characters of a command that are searched for a command that reads files (`_READS`)."""
_READS: Final = re.compile(r"\b(?:cat|sed -n|head|tail|nl|less|view)\b")
_FILE_TOOL_NAMES: Final = ("edit", "write", "replace", "patch", "create", "insert", "read", "view")
_SEARCH_NAMES: Final = ("grep", "glob", "search", "list", "find")

_MIN_CLIPPED_CHARACTERS: Final = 200
"""Minimum length of a clipped result. A result that would be shorter is cleared instead."""
_MAX_NAMES_LENGTH: Final = 600
"""Maximum characters of the names that a clipped output lists."""


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


def clipped_output(message: Message, share: float) -> Message:
    """This share of the text: its start, the most frequent names, and its end."""
    text = text_of(message)
    note = f"the middle is left out; names in it: {frequent_names(text, _MAX_NAMES_LENGTH)}"
    return with_middle_cut(message, int(len(text) * share), note)


def clipped_to_fit(
    source: Transcript, index: int, max_tokens: int, tokens: int, counter: TokenCounter
) -> Message | None:
    """The result, which has `tokens`, with its middle cut out, or cleared; None if it cannot be made smaller."""
    message = source[index]
    length = len(text_of(message)) * max_tokens // max(1, tokens)
    while length > _MIN_CLIPPED_CHARACTERS:
        clipped = with_middle_cut(message, length)
        if counter.message(clipped) <= max_tokens:
            return clipped
        length = length * 4 // 5
    rewrite = cleared_result(source, index)
    return rewrite[0] if rewrite else None


def max_tokens_per_result(result_tokens: Sequence[int], tokens_left: int) -> int:
    """The highest limit of tokens per result with which all results together fit in `tokens_left`."""
    results_left = len(result_tokens)
    for tokens in sorted(result_tokens):
        if tokens * results_left > tokens_left:
            return max(0, tokens_left) // results_left
        tokens_left -= tokens
        results_left -= 1
    return max(result_tokens, default=0)
