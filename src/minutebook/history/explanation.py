"""Why each message of the record was sent, changed or left out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minutebook.history.cache_cost import shared_prefix_length
from minutebook.history.curation import Curated, NoteStatus, ViewNote
from minutebook.history.origins import curated_of
from minutebook.record.fold import Fold
from minutebook.record.message import Message, role_of
from minutebook.record.repairs import RepairAction
from minutebook.record.transcript import Transcript

_NOT_SENT = frozenset({NoteStatus.DROPPED, NoteStatus.FOLDED})
_COMPARED_KEYS = ("role", "kind", "tool_call_id", "tool_calls")
"""Keys by which a message that a fold shows is found in the view."""


@dataclass(frozen=True, slots=True)
class ExplanationLine:
    """What a view did with one message, and why."""

    index: int | None
    """Index of the message in the record; None for a message that is only in the view."""
    role: str
    status: NoteStatus
    reason: str
    tokens: int
    """Tokens of the message in the record."""
    sent_tokens: int
    """Tokens of the message in the view; 0 if it is left out."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """A view compared with its record, message by message."""

    lines: tuple[ExplanationLine, ...]
    cached_tokens: int | None = None
    """Tokens of the prefix that the view shares with the previous one, if that was given."""

    @property
    def record_tokens(self) -> int:
        return sum(line.tokens for line in self.lines)

    @property
    def view_tokens(self) -> int:
        return sum(line.sent_tokens for line in self.lines)

    def counts(self) -> dict[NoteStatus, int]:
        """The number of messages with each status."""
        statuses = [line.status for line in self.lines]
        return {status: statuses.count(status) for status in NoteStatus if status in statuses}

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON data."""
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
    """Explain for every message of the record whether this view sends it, and why.

    Views of the built-in managers contain the reasons. The messages of any other list are matched by their content.
    `previous` is the view that was sent before: the prefix that both share is read from the prompt cache. `hidden` maps
    the index of each message that a fold hides to the fold.
    """
    transcript = Transcript.of(record)
    view = curated_of(record, view)
    view_origins = view.origins
    notes = _notes(transcript, view, hidden or {})
    counts = [_tokens(transcript, message, origin) for message, origin in zip(view, view_origins, strict=True)]
    view_index_of_position = {
        position: view_index for view_index, position in enumerate(view_origins) if position is not None
    }
    lines = []
    for index, message in enumerate(transcript):
        view_index = view_index_of_position.get(index)
        status, reason = status_and_reason(message, None if view_index is None else view[view_index], notes.get(index))
        sent_tokens = 0 if view_index is None else counts[view_index]
        lines.append(ExplanationLine(index, role_of(message), status, reason, transcript.tokens_of(index), sent_tokens))
    folds = folds_of_added(view, dict.fromkeys((hidden or {}).values()))
    lines = _with_added_lines(lines, view, counts, folds)
    cached_tokens = None if previous is None else sum(counts[: shared_prefix_length(previous, view)])
    return Explanation(tuple(lines), cached_tokens)


def changed_messages(
    record: Transcript, view: Curated, hidden: Mapping[int, Fold], *, start: int = 0
) -> Iterator[tuple[int, NoteStatus, str]]:
    """The index, status and reason of every message from `start` on that the view does not send unchanged."""
    sent = dict(zip(view.origins, view, strict=True))
    notes: dict[int, ViewNote] | None = None  # collected when needed: most views send every new message unchanged
    for index, message in enumerate(record.since(start), start):
        sent_message = sent.get(index)
        if sent_message is not message:
            notes = _notes(record, view, hidden) if notes is None else notes
            status, reason = status_and_reason(message, sent_message, notes.get(index))
            if status is not NoteStatus.SENT:
                yield index, status, reason


def _tokens(transcript: Transcript, message: Message, position: int | None) -> int:
    if position is not None and transcript[position] is message:
        return transcript.tokens_of(position)
    return transcript.counter.message(message)


def _notes(record: Transcript, view: Curated, hidden: Mapping[int, Fold]) -> dict[int, ViewNote]:
    missing_folds = _folds_without_messages(view, hidden)
    notes = {
        index: ViewNote(NoteStatus.DROPPED, f"fold {fold.id}: {fold.reason}, but the view has no message of the fold")
        if fold.id in missing_folds
        else ViewNote(NoteStatus.FOLDED, f"fold {fold.id}: {fold.reason}")
        for index, fold in hidden.items()
    }
    record.coherent()  # updates `record.repairs`
    for repair in record.repairs:
        status = NoteStatus.DROPPED if repair.action is RepairAction.DROPPED else NoteStatus.REPAIRED
        notes.setdefault(repair.index, ViewNote(status, repair.what))
    return notes | view.notes()


def _folds_without_messages(view: Curated, hidden: Mapping[int, Fold]) -> set[str]:
    """Ids of the folds whose messages the manager left out.

    The folds of one compaction have the same reason, and only the first shows the summary. So a fold counts as shown if
    the view has a message of any fold with the same reason.
    """
    folds = list(dict.fromkeys(hidden.values()))
    in_view = {fold.id for fold in folds_of_added(view, folds).values()}
    reasons = {fold.reason for fold in folds if fold.shown and fold.id not in in_view}
    reasons -= {fold.reason for fold in folds if fold.id in in_view}
    return {fold.id for fold in folds if fold.reason in reasons}


def folds_of_added(view: Curated, folds: Iterable[Fold]) -> dict[int, Fold]:
    """Index in the view → the fold that shows the message. A manager may have changed the text of the message."""
    added = [view_index for view_index, origin in enumerate(view.origins) if origin is None]
    result: dict[int, Fold] = {}
    start = 0  # folds are in the order of the view, so each search starts after the last match
    for fold in folds:
        for message in fold.shown:
            for number in range(start, len(added)):
                sent = view[added[number]]
                if sent is message or all(sent.get(key) == message.get(key) for key in _COMPARED_KEYS):
                    result[added[number]] = fold
                    start = number + 1
                    break
    return result


def status_and_reason(message: Message, sent: Message | None, note: ViewNote | None) -> tuple[NoteStatus, str]:
    """What a view does with a message of the record, given the message that it sends instead and the manager's note."""
    if sent is None:
        if note is not None and note.status in _NOT_SENT:
            return note.status, note.reason
        return NoteStatus.DROPPED, "not in the view"
    if sent is message or sent == message:
        return NoteStatus.SENT, note.reason if note and note.status is NoteStatus.REPAIRED else ""
    if note is not None and note.status not in _NOT_SENT:
        return note.status, note.reason
    return NoteStatus.CHANGED, "changed from the record"


def _with_added_lines(
    lines: list[ExplanationLine], view: Curated, counts: Sequence[int], folds: Mapping[int, Fold]
) -> list[ExplanationLine]:
    """The lines, with lines for messages that are only in the view, each after the message that precedes it there."""
    lines_after: dict[int, list[ExplanationLine]] = {}
    last_position = -1
    for view_index, (message, position, tokens) in enumerate(zip(view, view.origins, counts, strict=True)):
        if position is not None:
            last_position = position
        else:
            fold = folds.get(view_index)
            reason = "not in the record" if fold is None else f"shown by fold {fold.id}"
            line = ExplanationLine(None, role_of(message), NoteStatus.ADDED, reason, 0, tokens)
            lines_after.setdefault(last_position, []).append(line)
    result = lines_after.get(-1, [])
    for line in lines:
        result += [line, *lines_after.get(line.index or 0, [])]
    return result
