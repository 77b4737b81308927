"""A conversation as plain text, for whoever sums it up.

Who said what, in order. What tools were called with and what they returned is left out unless it is asked for: their
results were there to answer from, and the answers say what came of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minutebook.compaction.shown import is_summary, summary_text
from minutebook.record.message import Message, is_result, role_of

_SPEAKERS: Final = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}


def paragraphs(messages: Sequence[Message], *, tool_details: bool = False) -> list[str]:
    """One paragraph for each message that says something: `User: …`, `Assistant: …`, `User (maria): …`.

    With `tool_details` calls and results are told too. A message that shows an earlier summary is told as one.
    """
    return [told for message in messages if (told := _paragraph(message, tool_details=tool_details))]


def words_of(message: Message) -> str:
    """What a message says; a picture or a file is named by its kind."""
    content = message.get("content")
    refusal = message.get("refusal")
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = [_part(part) for part in parts] + ([refusal] if isinstance(refusal, str) else [])
    return "\n".join(text for text in texts if text.strip())


def speaker(message: Message) -> str:
    """Who says it, with the name that the message carries, if any."""
    name = message.get("name")
    who = _SPEAKERS.get(role_of(message), role_of(message).capitalize() or "Somebody")
    return f"{who} ({name})" if isinstance(name, str) and name and not is_result(message) else who


def _paragraph(message: Message, *, tool_details: bool) -> str:
    if is_summary(message):
        return f"Summary of what came before: {summary_text(message)}"
    if is_result(message):
        return f"Result: {words_of(message)}" if tool_details else ""
    words = words_of(message)
    lines = [f"{speaker(message)}: {words}"] if words.strip() else []
    if tool_details:
        lines += [f"{speaker(message)} called {call}" for call in _calls(message)]
    return "\n".join(lines)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return ""
    text = part.get("text")
    return text if isinstance(text, str) else f"[{str(part.get('type') or 'attachment').removesuffix('_url')}]"


def _calls(message: Message) -> Iterator[str]:
    old = message.get("function_call")
    asked = [call.get("function") or call.get("custom") for call in message.get("tool_calls") or ()]
    for function in [*asked, old]:
        if isinstance(function, Mapping):
            yield f"{function.get('name')}({function.get('arguments', function.get('input', ''))})"
