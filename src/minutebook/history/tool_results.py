"""Managers that make tool results smaller and leave the conversation whole.

Shorter forms of a message's content; every other field stays as it is.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, KeepSet, RewriteDraft, last_exchange
from minutebook.history.window import require_count, stepped
from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript


def truncated(message: Message, max_length: int, suffix: str) -> Message:
    """The message with its text cut to `max_length` characters, the suffix included; itself if it is short enough.

    Of a list of parts the text parts share the room in their order, and the others stay.
    """
    content = message.get("content")
    if isinstance(content, str):
        return message if len(content) <= max_length else {**message, "content": _cut(content, max_length, suffix)}
    if not isinstance(content, (list, tuple)) or _text_length(content) <= max_length:
        return message
    room = max_length
    parts: list[Any] = []
    for part in content:
        if not _is_text(part):
            parts.append(part)
        elif room > 0:
            text = part["text"] if len(part["text"]) < room else _cut(part["text"] + suffix, room, suffix)
            parts.append({**part, "text": text})
            room -= len(text)
    return {**message, "content": parts}


def clipped(message: Message, max_length: int) -> Message:
    """The message as text of at most `max_length` characters: its beginning, what is missing, and its end."""
    text = text_of(message)
    gap = f"\n[… {len(text):,} characters in all, cut here to fit …]\n"
    room = max(0, max_length - len(gap))
    head = room * 2 // 3
    tail = room - head
    return {**message, "content": text[:head] + gap[:max_length] + (text[-tail:] if tail else "")}


def has_media(message: Message) -> bool:
    """Whether some part of the content is not text."""
    content = message.get("content")
    return isinstance(content, (list, tuple)) and not all(map(_is_text, content))


def _cut(text: str, max_length: int, suffix: str) -> str:
    suffix = suffix[:max_length]
    return text[: max_length - len(suffix)] + suffix


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _text_length(parts: Any) -> int:
    return sum(len(part["text"]) for part in parts if _is_text(part))


@dataclass(slots=True, frozen=True)
class ToolResultTruncator(IncrementalManager):
    """Truncate tool result content to a maximum length.

    Raises:
        InvalidSetting: a number is negative.
    """

    max_length: int = 2000
    """Maximum characters per tool result, the suffix included."""
    suffix: str = "\n... [truncated]"
    """Suffix to append when truncating."""
    keep_last: int = 0
    """How many of the newest results are left alone. Each new result then shortens an older one, late in the view."""

    def __post_init__(self) -> None:
        require_count("max_length", self.max_length)
        require_count("keep_last", self.keep_last)

    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:  # noqa: ARG002
        return RewriteDraft(source, keep, self._boundary, self._rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        return all(self._short(message) is message for message in messages if is_result(message))

    def _boundary(self, source: Transcript) -> int:
        return newest(source, self.keep_last)

    def _rewrite(self, source: Transcript, place: int) -> tuple[Message, ViewNote] | None:
        message = source[place]
        short = self._short(message) if is_result(message) else message
        if short is message:
            return None
        return short, ViewNote(NoteStatus.TRUNCATED, f"longer than {self.max_length:,} characters")

    def _short(self, message: Message) -> Message:
        return truncated(message, self.max_length, self.suffix)


@dataclass(slots=True, frozen=True)
class ToolResultClearer(IncrementalManager):
    """Replace old tool results by a short marker; the newest are exact.

    The calls stay, so the model still sees what it did and can ask again. Clearing happens in batches of `slack + 1`
    results, because each batch costs the prompt cache once.

    Raises:
        InvalidSetting: a number is negative.
    """

    keep: int = 3
    """How many of the newest results are always exact."""
    slack: int = 9
    """How many results more than `keep` may gather before the old ones are cleared."""
    marker: str = "[cleared: {characters} characters]"
    """What stands in place of a result."""

    def __post_init__(self) -> None:
        require_count("keep", self.keep)
        require_count("slack", self.slack)

    def draft(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:  # noqa: ARG002
        return RewriteDraft(source, keep, self._boundary, partial(cleared_result, marker=self.marker))

    def fits(self, messages: Sequence[Message]) -> bool:
        return len(Transcript.of(messages).result_indexes) <= self.keep

    def _boundary(self, source: Transcript) -> int:
        results = source.result_indexes
        old = stepped(len(results), self.keep, self.slack)
        return min(results[old] if old < len(results) else len(source), last_exchange(source).start)


def cleared_result(source: Transcript, place: int, *, marker: str) -> tuple[Message, ViewNote] | None:
    """A tool result as its marker, or None if it is none or the marker would be no shorter."""
    message = source[place]
    if not is_result(message):
        return None
    text = text_of(message)
    shown = marker.format(characters=len(text))
    if len(text) <= len(shown) and not has_media(message):
        return None
    return {**message, "content": shown}, ViewNote(NoteStatus.CLEARED, "an old tool result")


def newest(source: Transcript, count: int) -> int:
    """Where the newest `count` results begin."""
    results = source.result_indexes
    if not count:
        return len(source)
    return results[-count] if count <= len(results) else 0
