"""The chat history of aider: `.aider.chat.history.md`.

The file has no structure except the starts of its lines: `#### ` before each line of the user, `> ` before the program's own
output, and a heading whenever aider was started. The program's output is not part of the conversation.

Current versions end their own lines and the user's with two spaces, so a line of an answer can begin like them.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, time_of
from minutebook.formats.messages import assistant, user
from minutebook.formats.source import Source

_START_HEADING: Final = re.compile(r"^# aider chat started at (.+)$")
_USER_PREFIX: Final = "#### "
_OWN_STARTS: Final = (_USER_PREFIX, ">")


def matches(value: Any) -> bool:
    return isinstance(value, str) and any(_START_HEADING.match(line) for line in value.splitlines())


def read(source: Source) -> Iterator[SourceConversation]:
    items: list[SourceMessage] = []
    started_at: str | None = None
    number = 0
    speaker, lines, place = "", list[str](), ""
    has_line_breaks = False
    for line_number, raw_line in source.text_lines():
        line = raw_line.rstrip("\r\n")
        start = _START_HEADING.match(line)
        has_line_breaks = has_line_breaks or (line.startswith(_OWN_STARTS) and line.endswith("  "))
        is_answer = speaker == "assistant" and has_line_breaks and not line.endswith("  ")
        next_speaker = (
            "start"
            if start
            else "assistant"
            if is_answer or not line.startswith(_OWN_STARTS)
            else "user"
            if line.startswith(_USER_PREFIX)
            else "output"
        )
        if not line.strip() and speaker != "assistant":
            continue
        if next_speaker != speaker:
            items += _item(speaker, lines, place)
            speaker, lines, place = next_speaker, [], f"line {line_number}"
        if start:
            if items:
                yield _conversation(source, items, started_at, number)
            number, items, started_at = number + bool(items), [], start[1]
        lines.append(line.removeprefix(_USER_PREFIX).removesuffix("  ") if speaker == "user" else line)
    items += _item(speaker, lines, place)
    if items:
        yield _conversation(source, items, started_at, number)


def _item(speaker: str, lines: list[str], place: str) -> list[SourceMessage]:
    """The message of consecutive lines of one speaker; empty if they are not part of the conversation."""
    text = "\n".join(lines).strip()
    if not text or speaker not in {"user", "assistant"}:
        return []
    return [SourceMessage(user(text) if speaker == "user" else assistant(text), place)]


def _conversation(
    source: Source, items: list[SourceMessage], started_at: str | None, number: int
) -> SourceConversation:
    return SourceConversation(
        items=items,
        id=f"{source.stem or 'aider'}-{number}",
        is_id_derived=True,
        created_at=time_of(started_at),
    )


FORMAT: Final = Format(
    name="aider", title="aider chat history (.aider.chat.history.md)", matches=matches, read=read, kind="text"
)
