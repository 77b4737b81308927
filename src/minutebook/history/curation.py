"""A view that remembers where it came from.

It is a list of messages and compares equal to one. Besides, it knows which message of the record each of its own is,
and keeps the reasons that its manager gave for what is not there, so that `explain` need not guess.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import is_

from minutebook.record.message import Message
from minutebook.record.transcript import Transcript


class NoteStatus(StrEnum):
    """What became of a message of the record."""

    SENT = "sent"
    TRUNCATED = "truncated"
    CLEARED = "cleared"
    STRIPPED = "stripped"
    DROPPED = "dropped"
    FOLDED = "folded"
    REPAIRED = "repaired"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class ViewNote:
    """Why a message is not in the view as it is in the record."""

    status: NoteStatus
    reason: str


@dataclass(frozen=True, slots=True)
class NoteChain:
    """What was decided at one cut, and all that was decided before it."""

    notes: dict[int, ViewNote]
    before: "NoteChain | None"


class Curated(list[Message]):
    """The messages of a view; `origins` says where each stands in the record, `trails` why others are not there."""

    __slots__ = ("origins", "tokens", "trails")

    def __init__(
        self,
        messages: Iterable[Message],
        origins: Sequence[int | None],
        trails: tuple[NoteChain | None, ...] = (),
        tokens: int | None = None,
    ) -> None:
        super().__init__(messages)
        self.origins = origins
        self.trails = trails
        self.tokens = tokens
        """The tokens of all messages, by the record's own counter, where the manager had to know."""

    def notes(self) -> dict[int, ViewNote]:
        """The last word on every message of the record that any manager had something to say about."""
        said: dict[int, ViewNote] = {}
        for trail in self.trails:
            latest: dict[int, ViewNote] = {}
            step: NoteChain | None = trail
            while step is not None:
                for index, note in step.notes.items():
                    latest.setdefault(index, note)
                step = step.before
            said.update(latest)
        return said


def tokens_of_view(record: Transcript, view: Curated) -> int:
    """The tokens of a view's messages; those that are the record's own are not counted again."""
    if view.tokens is not None:
        return view.tokens
    if len(view) == len(record) and record.roots is None and all(map(is_, view, record)):
        return record.tokens
    return sum(
        record.tokens_of(origin)
        if origin is not None and record.roots is None and record[origin] is message
        else record.counter.message(message)
        for origin, message in zip(view.origins, view, strict=True)
    )
