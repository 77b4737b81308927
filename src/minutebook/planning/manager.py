"""The manager that leaves out what the task history tells."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from minutebook.history.curated import Note, Status
from minutebook.history.draft import Curator, Draft
from minutebook.history.keep import Keep
from minutebook.history.protocol import SessionProtocol
from minutebook.planning.task import StepFold, TaskHistory
from minutebook.record.message import Message, call_ids, is_result, result_id, role_of
from minutebook.record.transcript import Transcript
from minutebook.session.session import Session


@dataclass(slots=True, frozen=True)
class StepHistoryManager(Curator):
    """Leave out the messages of steps that the `TaskHistorySection` shows as something shorter.

    It decides nothing: the session's `TaskHistory` says which steps are folded. Without one, or with none folded, the view
    is the conversation. Steps in full, the active one among them, stay word for word.
    """

    def basis(self, session: SessionProtocol | None) -> Hashable:
        history = session.query(TaskHistory).latest() if isinstance(session, Session) else None
        return () if history is None else history.folds

    def draft(self, source: Transcript, keep: Keep, basis: Hashable) -> Draft:
        assert isinstance(basis, tuple)
        return _StepDraft(source, keep, basis)

    def fits(self, messages: Sequence[Message]) -> bool:  # noqa: ARG002 - the session decides, and is not asked here
        return False


class _StepDraft(Draft):
    """All messages but those that folds hide. Folds end before the last exchange, so what is new is never hidden."""

    __slots__ = ("_folds", "_hidden", "_stop")

    def __init__(self, source: Transcript, keep: Keep, folds: Sequence[StepFold]) -> None:
        super().__init__(source, keep)
        self._folds = folds
        self._stop = max((fold.stop for fold in folds), default=0)
        self._hidden: dict[int, int] = {}

    def advance(self) -> None:
        source = self.source
        if self.keep.last or self._reached() < self._stop:  # what is hidden may change with what has come
            self.messages, self.places, self.seen, self.trail = [], [], 0, None
            self.generation += 1
        if not self.seen:
            self._hidden = self._places()
        notes = {}
        for place, message in enumerate(source.since(self.seen), self.seen):
            step_id = self._hidden.get(place)
            if step_id is None:
                self.messages.append(message)
                self.places.append(place)
            else:
                notes[place] = Note(Status.FOLDED, f"{_named(step_id)} is told in the task history")
        self.note(notes)
        self.seen = len(source)

    def _reached(self) -> int:
        """How much of the record was seen so far; everything, where a fold shows the end of it."""
        if not self.seen:
            return self._stop
        root = self.source.root_of(self.seen - 1)
        return self._stop if root is None else root + 1

    def _places(self) -> dict[int, int]:
        """Which places of the source are hidden, each with its step: whole exchanges, and nothing that must stay."""
        source, found = self.source, dict[int, int]()
        for fold in self._folds:
            places = [place for place in source.places_of(range(fold.start, fold.stop)) if place is not None]
            places = [place for place in places if place < len(source)]
            if places and source.root_of(places[0]) == fold.start and mark(source[places[0]]) == fold.mark:
                found |= dict.fromkeys(places, fold.step_id)
        staying = {
            *self.keep.pinned(source),
            *range(self.keep.lead(source)),
            *range(self.keep.tail(source), len(source)),
        }
        return {
            place: step_id
            for place, step_id in found.items()
            if all(other in found and other not in staying for other in source.exchange_of(place))
        }


def mark(message: Message) -> str:
    """By what a fold knows the first message it hides."""
    calls = call_ids(message)
    call = result_id(message) if is_result(message) else calls[0] if calls else ""
    return f"{'tool' if is_result(message) else role_of(message)} {call}".strip()


def _named(step_id: int) -> str:
    return f"step {step_id}" if step_id else "what was outside any step"
