"""The rows of a conversation at one request: record, what was sent, and why."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from minutebook.history.curation import NoteStatus
from minutebook.service.inspector.conversation import Fate, FateSpan, InspectedConversation, InspectedFold
from minutebook.service.inspector.heads import MessageHead, head_of
from minutebook.service.inspector.requests import CacheBreak, InspectedRequest

CHUNK_ROWS: Final = 100
GLYPHS: Final[dict[Fate, str]] = {
    "kept": "=", "new": "+", "cleared": "◌", "folded": "⊟", "dropped": "\N{MINUS SIGN}", "repaired": "~", "later": "·",
}  # fmt: skip
WORDS: Final[dict[Fate, str]] = {
    "kept": "Kept", "new": "New", "cleared": "Cleared", "folded": "Folded", "dropped": "Not sent", "repaired": "Repaired",
    "later": "After this request",
}  # fmt: skip
_STATUS_WORDS: Final = {
    NoteStatus.TRUNCATED: ("…", "Truncated"),
    NoteStatus.STRIPPED: ("\N{SET MINUS}", "Stripped"),
    NoteStatus.CHANGED: ("~", "Changed"),
}
_GROUPED: Final = frozenset({"dropped", "folded"})
"""Fates of which neighbouring messages are one block."""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of the record."""

    position: int
    head: MessageHead
    tokens: int
    turn: int | None
    """The number of the turn that starts here."""


@dataclass(frozen=True, slots=True)
class SentRow:
    """A message as it is sent."""

    head: MessageHead
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowBlock:
    """One or more messages with one fate: a row in each of the three lanes."""

    fate: Fate
    glyph: str
    word: str
    messages: tuple[MessageRow, ...]
    tokens: int
    """Tokens of the messages in the record; of a group, of all messages of the run."""
    sent_tokens: int
    run: range
    """The positions of all messages of the run. A page of rows may have only some of them."""
    is_change: bool
    reason: str
    """Empty if the row before has the same reason."""
    full_reason: str
    since: tuple[int, int] | None
    """The requests from which on the first and the last message of the run had this fate."""
    sent: tuple[SentRow, ...]
    """What is sent instead. Empty if the messages are sent unchanged or not at all."""
    fold: InspectedFold | None
    break_before: CacheBreak | None
    starts_turn: bool

    @property
    def is_continued(self) -> bool:
        """Whether the run began before these rows."""
        return self.messages[0].position > self.run.start

    @property
    def is_group(self) -> bool:
        return self.fate in _GROUPED


def row_blocks(
    conversation: InspectedConversation, request: InspectedRequest | None, start: int, stop: int
) -> Iterator[RowBlock]:
    """The rows from position `start` to `stop`. Without a request, all messages are shown as part of the record."""
    stop = min(stop, len(conversation.messages))
    if request is None:
        for position in range(start, stop):
            span = FateSpan(position, position + 1, "later", NoteStatus.DROPPED, "", False)
            yield _block(conversation, None, span, whole=span)
        return
    break_at = request.cache_break
    for span in conversation.fate_spans_in(request, start, stop):
        left, right = max(span.start, start), min(span.stop, stop)
        edges = {left, right}
        if break_at is not None:
            edges.add(break_at.position)
        edges.update(_fold_edges(conversation, request, span) if span.fate in _GROUPED else range(left, right))
        for first, end in pairwise(sorted(edge for edge in edges if left <= edge <= right)):
            yield _block(conversation, request, span._replace(start=first, stop=end), whole=span)


def chunks_with(conversation: InspectedConversation, request: InspectedRequest, only: str) -> list[int]:
    """The positions where the chunks with matching rows begin. `only` is a fate, or "changed" for changed and new messages."""
    spans = conversation.fate_spans(request)
    matches = (
        span for span in spans if (span.is_change or span.fate == "new" if only == "changed" else span.fate == only)
    )
    return sorted(
        {
            number * CHUNK_ROWS
            for span in matches
            for number in range(span.start // CHUNK_ROWS, (span.stop - 1) // CHUNK_ROWS + 1)
        }
    )


def _fold_edges(conversation: InspectedConversation, request: InspectedRequest, span: FateSpan) -> Iterator[int]:
    if span.fate == "folded":
        for item in conversation.folds:
            if item.fold.id in request.folds and fold_at(conversation, request, item.fold.start) is item:
                yield from (item.fold.start, item.fold.stop)


def fold_at(conversation: InspectedConversation, request: InspectedRequest, position: int) -> InspectedFold | None:
    """The fold that hides a message in a request: the longest one, if it replaced others."""
    matches = [
        item
        for item in conversation.folds
        if item.fold.id in request.folds and item.fold.start <= position < item.fold.stop
    ]
    return max(matches, key=lambda item: item.fold.stop - item.fold.start, default=None)


def _block(
    conversation: InspectedConversation, request: InspectedRequest | None, span: FateSpan, *, whole: FateSpan
) -> RowBlock:
    start, stop, fate = span.start, span.stop, span.fate
    messages = tuple(_message_row(conversation, position) for position in range(start, stop))
    glyph, word = (
        _STATUS_WORDS.get(span.status, (GLYPHS[fate], WORDS[fate]))
        if fate == "cleared"
        else (GLYPHS[fate], WORDS[fate])
    )
    fold = fold_at(conversation, request, start) if request is not None and fate == "folded" else None
    run, tokens = range(start, stop), sum(row.tokens for row in messages)
    if fate in _GROUPED:
        run = range(whole.start, whole.stop) if fold is None else range(fold.fold.start, fold.fold.stop)
        tokens = conversation.series.token_sums[run.stop] - conversation.series.token_sums[run.start]
    sent: list[SentRow] = []
    sent_tokens = 0
    if request is not None and fate != "later":
        for part in conversation.added(request, run.start, run.stop):
            if part.message is not None:
                sent.append(SentRow(head_of(part.message), part.tokens))
                sent_tokens += part.tokens
        changed = conversation.sent_part(request, start) if fate in {"cleared", "repaired"} else None
        if changed is not None and changed.message is not None:
            sent.append(SentRow(head_of(changed.message), changed.tokens))
        sent_tokens += sum(conversation.sent_tokens(request, position) for position in range(start, stop))
    is_first = start == whole.start
    since = None
    if request is not None and (is_first or fate in _GROUPED) and fate not in {"kept", "new", "later"}:
        since = conversation.since(request, run.start), conversation.since(request, run.stop - 1)
    is_break = request is not None and request.cache_break is not None and request.cache_break.position == start
    return RowBlock(
        fate=fate,
        glyph=glyph,
        word=word,
        messages=messages,
        tokens=tokens,
        run=run,
        sent_tokens=sent_tokens,
        is_change=span.is_change,
        reason=(span.reason if fold is None else fold.fold.reason) if is_first or span.fate in _GROUPED else "",
        full_reason=span.reason,
        since=since,
        sent=tuple(sent),
        fold=fold,
        break_before=request.cache_break if is_break and request is not None else None,
        starts_turn=messages[0].turn is not None,
    )  # fmt: skip


def _message_row(conversation: InspectedConversation, position: int) -> MessageRow:
    turn = conversation.turn_of(position)
    starts = turn > 0 and conversation.turn_starts[turn - 1] == position
    return MessageRow(
        position, head_of(conversation.messages[position]), conversation.tokens_of(position), turn if starts else None
    )
