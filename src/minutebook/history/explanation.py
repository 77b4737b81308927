"""Why each message of the record is in a view, changed in it, or out of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minutebook.history.cache_cost import shared_beginning
from minutebook.history.curation import Curated, NoteStatus, ViewNote
from minutebook.history.origins import origins
from minutebook.record.fold import Fold
from minutebook.record.message import Message, role_of
from minutebook.record.repairs import RepairAction
from minutebook.record.transcript import Transcript

_OUT = frozenset({NoteStatus.DROPPED, NoteStatus.FOLDED})


@dataclass(frozen=True, slots=True)
class ExplanationLine:
    """What became of one message."""

    index: int | None
    """Its place in the record; None for a message that only the view has."""
    role: str
    status: NoteStatus
    reason: str
    tokens: int
    """Its tokens in the record."""
    sent_tokens: int
    """Its tokens in the view."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A view beside its record, message by message."""

    lines: tuple[ExplanationLine, ...]
    cached_tokens: int | None = None
    """Tokens at the beginning of the view that the previous view had too, where one was given."""

    @property
    def record_tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    @property
    def view_tokens(self) -> int:
        return sum(line.sent_tokens for line in self.lines)

    def counts(self) -> dict[NoteStatus, int]:
        """How many messages met each fate."""
        fates = [line.status for line in self.lines]
        return {status: fates.count(status) for status in NoteStatus if status in fates}

    def to_json(self) -> dict[str, Any]:
        """The same as JSON data."""
        return {
            "record_tokens": self.record_tokens,
            "view_tokens": self.view_tokens,
            "cached_tokens": self.cached_tokens,
            "messages": [asdict(line) for line in self.lines],
        }

    def __str__(self) -> str:
        rows = [
            f"{'' if line.index is None else line.index:>5}  {line.role:<9}  {line.status.value:<9}  {line.reason}".rstrip()
            for line in self.lines
        ]
        return "\n".join([f"{self.record_tokens:,} tokens in the record, {self.view_tokens:,} in the view", *rows])


def explain(
    record: Sequence[Message],
    view: Sequence[Message],
    *,
    previous: Sequence[Message] | None = None,
    hidden: Mapping[int, Fold] | None = None,
) -> Explanation:
    """What became of every message of the record in this view, and why.

    A view from one of our managers brings its reasons along; for any other list the messages are matched by what they
    say. `previous` is the view that was sent before: what the two share at the beginning is what a prompt cache saves.
    `hidden` are the messages that folds stand for.
    """
    transcript = Transcript.of(record)
    placed = origins(record, view)
    notes = _notes(transcript, view, hidden or {})
    counts = [_tokens(transcript, message, at) for message, at in zip(view, placed, strict=True)]
    at_root = {root: position for position, root in enumerate(placed) if root is not None}
    lines = []
    for index, message in enumerate(transcript):
        position = at_root.get(index)
        status, reason = _fate(message, None if position is None else view[position], notes.get(index))
        sent = 0 if position is None else counts[position]
        lines.append(ExplanationLine(index, role_of(message), status, reason, transcript.tokens_of(index), sent))
    lines = _with_added(lines, view, placed, counts)
    cached = None if previous is None else sum(counts[: shared_beginning(previous, view)])
    return Explanation(tuple(lines), cached)


def _tokens(transcript: Transcript, message: Message, root: int | None) -> int:
    if root is not None and transcript[root] is message:
        return transcript.tokens_of(root)
    return transcript.counter.message(message)


def _notes(record: Transcript, view: Sequence[Message], hidden: Mapping[int, Fold]) -> dict[int, ViewNote]:
    notes = {index: ViewNote(NoteStatus.FOLDED, f"fold {fold.id}: {fold.reason}") for index, fold in hidden.items()}
    record.coherent()
    for done in record.repairs:
        status = NoteStatus.DROPPED if done.action is RepairAction.DROPPED else NoteStatus.REPAIRED
        notes.setdefault(done.index, ViewNote(status, done.what))
    if isinstance(view, Curated):
        notes.update(view.notes())
    return notes


def _fate(message: Message, sent: Message | None, note: ViewNote | None) -> tuple[NoteStatus, str]:
    if sent is None:
        return (note.status, note.reason) if note and note.status in _OUT else (NoteStatus.DROPPED, "not in the view")
    if sent is message or sent == message:
        return NoteStatus.SENT, note.reason if note and note.status is NoteStatus.REPAIRED else ""
    if note is not None and note.status not in _OUT:
        return note.status, note.reason
    return NoteStatus.TRUNCATED, "not as it is in the record"


def _with_added(
    lines: list[ExplanationLine], view: Sequence[Message], placed: Sequence[int | None], counts: Sequence[int]
) -> list[ExplanationLine]:
    """The lines, with those of messages that only the view has after the message they follow there."""
    after: dict[int, list[ExplanationLine]] = {}
    last = -1
    for message, root, tokens in zip(view, placed, counts, strict=True):
        if root is not None:
            last = root
        else:
            line = ExplanationLine(None, role_of(message), NoteStatus.ADDED, "not in the record", 0, tokens)
            after.setdefault(last, []).append(line)
    return [*after.get(-1, []), *(each for line in lines for each in (line, *after.get(line.index or 0, [])))]
