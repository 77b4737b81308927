"""Managers that make tool results smaller and leave the conversation whole."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from minutebook.history.curated import Note, Status
from minutebook.history.draft import Curator, Draft, RewriteDraft
from minutebook.history.keep import Keep, last_exchange
from minutebook.history.shorten import has_media, truncated
from minutebook.history.window import require_count, stepped
from minutebook.record.message import Message, is_result, text_of
from minutebook.record.transcript import Transcript


@dataclass(slots=True, frozen=True)
class ToolResultTruncator(Curator):
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

    def draft(self, source: Transcript, keep: Keep, basis: Hashable) -> Draft:  # noqa: ARG002
        return RewriteDraft(source, keep, self._boundary, self._rewrite)

    def fits(self, messages: Sequence[Message]) -> bool:
        return all(self._short(message) is message for message in messages if is_result(message))

    def _boundary(self, source: Transcript) -> int:
        return newest(source, self.keep_last)

    def _rewrite(self, source: Transcript, place: int) -> tuple[Message, Note] | None:
        message = source[place]
        short = self._short(message) if is_result(message) else message
        if short is message:
            return None
        return short, Note(Status.TRUNCATED, f"longer than {self.max_length:,} characters")

    def _short(self, message: Message) -> Message:
        return truncated(message, self.max_length, self.suffix)


@dataclass(slots=True, frozen=True)
class ToolResultClearer(Curator):
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

    def draft(self, source: Transcript, keep: Keep, basis: Hashable) -> Draft:  # noqa: ARG002
        return RewriteDraft(source, keep, self._boundary, partial(cleared, marker=self.marker))

    def fits(self, messages: Sequence[Message]) -> bool:
        return len(Transcript.of(messages).result_places) <= self.keep

    def _boundary(self, source: Transcript) -> int:
        results = source.result_places
        old = stepped(len(results), self.keep, self.slack)
        return min(results[old] if old < len(results) else len(source), last_exchange(source).start)


def cleared(source: Transcript, place: int, *, marker: str) -> tuple[Message, Note] | None:
    """A tool result as its marker, or None if it is none or the marker would be no shorter."""
    message = source[place]
    if not is_result(message):
        return None
    text = text_of(message)
    shown = marker.format(characters=len(text))
    if len(text) <= len(shown) and not has_media(message):
        return None
    return {**message, "content": shown}, Note(Status.CLEARED, "an old tool result")


def newest(source: Transcript, count: int) -> int:
    """Where the newest `count` results begin."""
    results = source.result_places
    if not count:
        return len(source)
    return results[-count] if count <= len(results) else 0
