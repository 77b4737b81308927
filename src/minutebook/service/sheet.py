"""What the view of a request is made from: the record as far as it was loaded, with what is new at its end."""

from collections.abc import Sequence
from typing import Final

from minutebook.agent.lens import Lens
from minutebook.history.compose import PassthroughManager
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View
from minutebook.record.fold import Fold
from minutebook.record.frozen import thawed
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.service.reconcile import lead_of
from minutebook.session.session import Session
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter

PROVIDER: Final = "openai"
_OWN: Final = "instructions"
"""The fold that shows a request's own system messages. It is never stored: it belongs to that request."""
_NOBODY: Final = Session()


class Sheet:
    """A record, the folds over it, and where its messages stand in the store.

    A strategy folds by positions, so it needs the `whole` record. Otherwise the part that a view shows is enough.
    """

    def __init__(self, loaded: Loaded | None, new: Sequence[Message], *, counter: TokenCounter, whole: bool) -> None:
        self.folds: tuple[Fold, ...] = ()
        self.front: list[Message] = []
        """System messages that the record has no place for, sent before everything else."""
        start = 0
        if loaded is None:
            self.record, self.positions = Transcript(counter=counter), list[int | None]()
        else:
            start = loaded.conversation.length
            self._take(loaded, counter, whole=whole)
        for place, message in enumerate(new, start):
            self.record.append(message)
            self.positions.append(place)

    def _take(self, loaded: Loaded, counter: TokenCounter, *, whole: bool) -> None:
        if not whole:
            self.record = loaded.transcript(counter=counter)
            self.positions = [position for position, _ in loaded.shown()]
            return
        purged: list[Message] = [{"role": "user", "content": ""}] * loaded.start  # standing folds hide them
        self.record = Transcript([*purged, *loaded.messages], counter=counter)
        self.positions = list(range(len(self.record)))
        self.folds = loaded.folds
        for place in loaded.pins:
            self.record.pin(place)

    def instruct(self, messages: Sequence[Message]) -> int:
        """Begin with other system messages than the record, in this request alone; return the tokens that adds."""
        lead = lead_of(self.record)
        if [thawed(message) for message in self.record[:lead]] == [thawed(message) for message in messages]:
            return 0
        if not lead:
            self.front = list(messages)
            return sum(map(self.record.counter.message, messages))
        shown = Fold(_OWN, 0, lead, tuple(messages), "this request has system messages of its own")
        self.folds = (*(fold for fold in self.folds if fold.start >= lead), shown)
        return 0

    @property
    def stored(self) -> tuple[Fold, ...]:
        """The folds that the store has."""
        return tuple(fold for fold in self.folds if fold.id != _OWN)

    def through(self, lens: Lens) -> View:
        """The view by a lens."""
        return lens.view(self.record, self.folds)

    def everything(self) -> View:
        """All there is, in a form that a provider takes."""
        return self.through(lens_of(PassthroughManager(), None))


def lens_of(manager: HistoryManager, max_tokens: int | None) -> Lens:
    """A lens for one request of the service."""
    return Lens(manager, session=_NOBODY, provider=PROVIDER, max_tokens=max_tokens, prompt_name="service")
