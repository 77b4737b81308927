"""The result of a manager: a list of messages with their origins and the reasons for changes.

`Curated` equals a plain list of the same messages. It also has the position in the record of each message, and the
manager's reasons for the messages that were changed or left out, so that `explain` need not guess. For the plain list of
another manager, `curated_of` finds the positions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import is_
from typing import Any, Final

from minutebook.errors import InvalidSetting, require_type
from minutebook.record.message import Message, is_result, require_message, result_id, role_of, text_of
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


def curated_of(record: Sequence[Message], view: Sequence[Message]) -> Curated:
    """Any view of these messages with the origins of its messages. The reasons of `Changed` messages become notes."""
    if isinstance(view, Curated) and not any(type(message) is Changed for message in view):
        return view
    indexes = origins(record, view)
    changed = {
        index: ViewNote(NoteStatus.CHANGED, message.because)
        for message, index in zip(view, indexes, strict=True)
        if index is not None and isinstance(message, Changed)
    }
    messages = [dict(message) if isinstance(message, Changed) else message for message in view]
    note_chains = view.note_chains if isinstance(view, Curated) else ()
    repairs = view.repairs if isinstance(view, Curated) else ()
    return Curated(
        messages, indexes, (*note_chains, NoteChain(changed, None)) if changed else note_chains, repairs=repairs
    )


def origins(record: Sequence[Message], view: Sequence[Message]) -> Sequence[int | None]:
    """The index in the record of each message of a view; None for an added message.

    A `Curated` view has its origins. In any other view, a message matches the same object, an equal message, or one that
    answers the same call or starts with the same text. Each message of the record is matched once; further messages that
    equal it are duplicates and have the same index. If several match, the next one after the previous match is preferred.
    """
    if isinstance(view, Curated) and len(view.origins) == len(view):
        return view.origins
    by_identity: dict[int, int | None] = {}
    for index, message in enumerate(record):  # an object that the record has twice is found by its content
        by_identity[id(message)] = None if id(message) in by_identity else index
    exact_matches: dict[object, list[int]] = {}
    similar_matches: dict[object, list[int]] = {}
    for index, message in enumerate(record):
        exact_matches.setdefault(_exact_key(message), []).append(index)
        similar_matches.setdefault(_similarity_key(message), []).append(index)
    result: list[int | None] = []
    matched: set[int] = set()
    last_match = -1
    for message in view:
        match: int | None = by_identity.get(id(message))
        if match is None or match in matched:
            exact = exact_matches.get(_exact_key(message), ())
            match = _next_match(exact, last_match, matched)
            if match is None and exact:
                result.append(exact[-1])
                continue
        if match is None:
            match = _next_match(similar_matches.get(_similarity_key(message), ()), last_match, matched)
        if match is not None:
            matched.add(match)
            last_match = match
        result.append(match)
    _match_changed(record, view, result)
    return result


def _match_changed(record: Sequence[Message], view: Sequence[Message], matches: list[int | None]) -> None:
    """Match the remaining messages of the view with unmatched messages of the record between their neighbours' matches.

    A message of the record matches if it is the only one there with the same role and its text is similar. The text of
    `Changed` messages is not compared: they are matched in order if the record has as many messages with their role.
    """
    matched = {index for index in matches if index is not None}
    for view_index, message in enumerate(view):
        if matches[view_index] is not None:
            continue
        low = next((index for index in reversed(matches[:view_index]) if index is not None), -1)
        high = next((index for index in matches[view_index + 1 :] if index is not None), len(record))
        candidates = [
            index
            for index in range(low + 1, high)
            if index not in matched and role_of(record[index]) == role_of(message)
        ]
        if isinstance(message, Changed):
            is_match = len(candidates) == _changed_count(view, matches, view_index)
        else:
            is_match = len(candidates) == 1 and _are_similar(text_of(record[candidates[0]]), text_of(message))
        if is_match:
            matches[view_index] = candidates[0]
            matched.add(candidates[0])


def _changed_count(view: Sequence[Message], matches: Sequence[int | None], start: int) -> int:
    """The number of unmatched `Changed` messages with the role of the first one, up to the next match."""
    count = 0
    for message, match in zip(view[start:], matches[start:], strict=True):
        if match is not None:
            break
        count += isinstance(message, Changed) and role_of(message) == role_of(view[start])
    return count


def _are_similar(left: str, right: str) -> bool:
    """Whether the texts have the same start or the same end, half as long as the shorter text."""
    half = (min(len(left), len(right)) + 1) // 2
    return half > 0 and (left[:half] == right[:half] or left[-half:] == right[-half:])


def _next_match(indexes: Sequence[int], last_match: int, matched: set[int]) -> int | None:
    unmatched = [index for index in indexes if index not in matched]
    return next((index for index in unmatched if index > last_match), unmatched[0] if unmatched else None)


def _exact_key(message: Message) -> object:
    return repr(sorted(message.items(), key=lambda item: str(item[0])))


def _similarity_key(message: Message) -> object:
    """The properties that a shortened message has in common with the original: its call, or the start of its text."""
    role = role_of(message)
    return (role, result_id(message)) if is_result(message) else (role, text_of(message)[:40])
