"""Managers that shorten tool results and keep all messages.

Only the content of a message is changed.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import (
    IncrementalManager,
    IncrementalRewrite,
    IncrementalView,
    PreservedMessages,
    last_exchange,
)
from minutebook.history.window import count_before_window, require_count
from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript

CLEARED_MARKER: Final = "[cleared: {characters} characters]"
"""Text that replaces a tool result; `{characters}` is its length."""
NUMBERED_MARKER: Final = "[cleared: {characters} characters, message {position}]"
"""The same with the position of the result in the record."""


def with_truncated_text(message: Message, max_length: int, suffix: str) -> Message:
    """The message with its text cut to `max_length` characters including the suffix; the same object if it is shorter.

    In a list of parts, `max_length` applies to all text parts together; other parts stay.
    """
    content = message.get("content")
    if isinstance(content, str):
        return message if len(content) <= max_length else {**message, "content": _cut(content, max_length, suffix)}
    if not isinstance(content, (list, tuple)) or _text_length(content) <= max_length:
        return message
    length_left = max_length
    parts: list[Any] = []
    for part in content:
        if not _is_text_part(part):
            parts.append(part)
        elif length_left > 0:
            text = part["text"]
            if len(text) >= length_left:
                text = _cut(text + suffix, length_left, suffix)
            parts.append({**part, "text": text})
            length_left -= len(text)
    return {**message, "content": parts or ""}  # providers reject an empty list


def with_middle_cut(message: Message, max_length: int, note: str = "cut here to fit") -> Message:
    """The message as text of at most `max_length` characters: its start, a marker with the full length, and its end."""
    text = text_of(message)
    marker = f"\n[… {len(text):,} characters in all, {note} …]\n"
    kept_length = max(0, max_length - len(marker))
    start_length = kept_length * 2 // 3
    end_length = kept_length - start_length
    end = text[-end_length:] if end_length else ""
    return {**message, "content": text[:start_length] + marker[:max_length] + end}


def has_media(message: Message) -> bool:
    """Whether some part of the content is not text."""
    content = message.get("content")
    return isinstance(content, (list, tuple)) and not all(map(_is_text_part, content))


def _cut(text: str, max_length: int, suffix: str) -> str:
    suffix = suffix[:max_length]
    return text[: max_length - len(suffix)] + suffix


def _is_text_part(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _text_length(parts: Any) -> int:
    return sum(len(part["text"]) for part in parts if _is_text_part(part))


@dataclass(slots=True, frozen=True)
class ToolResultTruncator(IncrementalManager):
    """Truncate tool result content to a maximum length.

    Raises:
        InvalidSetting: a number is negative.
    """

    max_length: int = 2000
    """Maximum characters per tool result, including the suffix."""
    suffix: str = "\n... [truncated]"
    """Suffix to append when truncating."""
    keep_last: int = 0
    """Number of newest results that stay unchanged. Each new result then shortens an older one near the end of the view."""

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_count("keep_last", self.keep_last)

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return IncrementalRewrite(source, preserved, self._boundary, self._rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        return all(self._truncated(message) is message for message in messages if is_result(message))

    def _boundary(self, source: Transcript) -> int:
        return newest_results_start(source, self.keep_last)

    def _rewrite(self, source: Transcript, index: int) -> tuple[Message, ViewNote] | None:
        message = source[index]
        truncated = self._truncated(message) if is_result(message) else message
        if truncated is message:
            return None
        return truncated, ViewNote(NoteStatus.TRUNCATED, f"longer than {self.max_length:,} characters")

    def _truncated(self, message: Message) -> Message:
        return with_truncated_text(message, self.max_length, self.suffix)


@dataclass(slots=True, frozen=True)
class ToolResultClearer(IncrementalManager):
    """Replace old tool results with a short marker; the newest stay unchanged.

    The calls stay, so the model still sees what it did and can call the tool again. Results are cleared in batches of
    `slack + 1`, because each batch invalidates the prompt cache once.

    Raises:
        InvalidSetting: a number is negative.
    """

    keep: int = 3
    """Number of newest results that always stay unchanged."""
    slack: int = 9
    """Number of results above `keep` before the old ones are cleared."""
    marker: str = CLEARED_MARKER
    """Text that replaces a result; `{characters}` is its length."""

    def __post_init__(self) -> None:
        require_count("keep", self.keep)
        require_count("slack", self.slack)

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:  # noqa: ARG002
        return IncrementalRewrite(source, preserved, self._boundary, partial(cleared_result, marker=self.marker))

    def fits(self, messages: Sequence[Message]) -> bool:
        return len(Transcript.of(messages).result_indexes) <= self.keep

    def _boundary(self, source: Transcript) -> int:
        results = source.result_indexes
        old_count = count_before_window(len(results), self.keep, self.slack)
        return min(results[old_count] if old_count < len(results) else len(source), last_exchange(source).start)


def cleared_result(source: Transcript, index: int, *, marker: str = CLEARED_MARKER) -> tuple[Message, ViewNote] | None:
    """The tool result with the marker as its content. None for other messages, or if the marker would not be shorter."""
    message = source[index]
    if not is_result(message):
        return None
    text = text_of(message)
    position = source.position_of(index)
    marker = CLEARED_MARKER if position is None and marker == NUMBERED_MARKER else marker
    marker_text = marker.format(characters=len(text), position=position)
    if len(text) <= len(marker_text) and not has_media(message):
        return None
    return {**message, "content": marker_text}, ViewNote(NoteStatus.CLEARED, "an old tool result")


def newest_results_start(source: Transcript, count: int) -> int:
    """The index of the oldest of the newest `count` results. With a count of 0, the length of the transcript."""
    results = source.result_indexes
    if not count:
        return len(source)
    return results[-count] if count <= len(results) else 0
