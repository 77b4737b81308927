"""The result of a manager: a list of messages with their origins and the reasons for changes.

`Curated` equals a plain list of the same messages. It also has the position in the record of each message, and the
manager's reasons for the messages that were changed or left out, so that `explain` need not guess.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import is_
from typing import Any, Final

from minutebook.errors import InvalidSetting, require_type
from minutebook.record.message import Message, require_message
from minutebook.record.repairs import Repair
from minutebook.record.transcript import Transcript


class NoteStatus(StrEnum):
    """What a view does with a message of the record."""

    SENT = "sent"
    TRUNCATED = "truncated"
    CLEARED = "cleared"
    STRIPPED = "stripped"
    CHANGED = "changed"
    DROPPED = "dropped"
    FOLDED = "folded"
    REPAIRED = "repaired"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class ViewNote:
    """Why a message was changed or left out."""

    status: NoteStatus
    reason: str


@dataclass(frozen=True, slots=True)
class NoteChain:
    """The notes of one cut, linked to those of the cut before it."""

    notes: dict[int, ViewNote]
    """Position in the record → the note on that message."""
    previous: "NoteChain | None"


_MAX_NEW_LINKS: Final = 64


def notes_since(chain: NoteChain | None, earlier: NoteChain | None) -> dict[int, ViewNote] | None:
    """The last note on each message in the cuts after `earlier`; None if `chain` does not continue it, or is much longer."""
    notes: dict[int, ViewNote] = {}
    for _ in range(_MAX_NEW_LINKS):
        if chain is earlier:
            return notes
        if chain is None:
            return None
        notes = chain.notes | notes
        chain = chain.previous
    return None


class Changed(dict[str, Any]):
    """A message that a manager of your own has changed, with the reason that `explain` and `why` give for it.

    Put this object in the list that `curate` returns. It equals the message, and the view has a plain message.

    Raises:
        InvalidMessage: `message` is not a message.
        InvalidSetting: `because` is empty or not a text.
    """

    __slots__ = ("because",)

    def __init__(self, message: Message, *, because: str) -> None:
        expected = 'the reason for the change, such as "an old image"'
        require_type("because", because, str, expected)
        if not because.strip():
            raise InvalidSetting("because", because, expected)
        super().__init__(require_message(message))
        self.because = because


class Curated(list[Message]):
    """The messages of a view, with the position in the record of each (`origins`) and the notes of each manager."""

    __slots__ = ("note_chains", "origins", "repairs", "tokens")

    def __init__(
        self,
        messages: Iterable[Message],
        origins: Sequence[int | None],
        note_chains: tuple[NoteChain | None, ...] = (),
        tokens: int | None = None,
        repairs: tuple[Repair, ...] = (),
    ) -> None:
        super().__init__(messages)
        self.origins = origins
        self.note_chains = note_chains
        """The notes of each manager that was applied, in order; None for a manager that made no cut."""
        self.tokens = tokens
        """Tokens of all messages by the record's counter, if the manager has counted them."""
        self.repairs = repairs
        """Repairs of one manager's result before the next manager was applied. The guard reports them."""

    def notes(self) -> dict[int, ViewNote]:
        """Position in the record → the last note on that message."""
        result: dict[int, ViewNote] = {}
        for note_chain in self.note_chains:
            notes_of_manager: dict[int, ViewNote] = {}
            link: NoteChain | None = note_chain
            while link is not None:  # from the newest cut to the oldest
                for position, note in link.notes.items():
                    notes_of_manager.setdefault(position, note)
                link = link.previous
            result.update(notes_of_manager)
        return result


def tokens_of_view(record: Transcript, view: Curated) -> int:
    """Tokens of a view. Unchanged messages of the record are not counted again."""
    if view.tokens is not None:
        return view.tokens
    if len(view) == len(record) and record.record_positions is None and all(map(is_, view, record)):
        return record.tokens
    return sum(
        record.tokens_of(origin)
        if origin is not None and record.record_positions is None and record[origin] is message
        else record.counter.message(message)
        for origin, message in zip(view.origins, view, strict=True)
    )
