"""What the view of a request is made from: the record as far as it was loaded, with what is new at its end."""

import logging
from collections.abc import Sequence
from typing import Final

from minutebook.conversation.policy import Policy
from minutebook.errors import CannotFit, MinutebookError, PromptEvaluationError
from minutebook.history.compose import PassthroughManager, curated_by
from minutebook.history.curated import Curated
from minutebook.history.incremental import ContextualManager
from minutebook.history.overflow import Lens
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.record.fold import Fold
from minutebook.record.message import Message, lead_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter

_LOG: Final = logging.getLogger("minutebook.service")
PROVIDER: Final = "openai"
_NO_SESSION: Final = Session()


class ViewSource:
    """A record, the folds over it, and where its messages stand in the store.

    A strategy folds by positions, so it needs the `whole` record. Otherwise the part that a view shows is enough.
    """

    def __init__(self, loaded: Loaded | None, new: Sequence[Message], *, counter: TokenCounter, whole: bool) -> None:
        self.folds: tuple[Fold, ...] = ()
        """The folds that a view applies to the record."""
        self.front: list[Message] = []
        """System messages that the record has no place for, sent before everything else."""
        start = 0
        if loaded is None:
            self.record, self.positions = Transcript(counter=counter), list[int | None]()
        else:
            start = loaded.conversation.length
            self._load(loaded, counter, whole=whole)
        for place, message in enumerate(new, start):
            self.record.append(message)
            self.positions.append(place)

    def _load(self, loaded: Loaded, counter: TokenCounter, *, whole: bool) -> None:
        if not whole:
            self.record = loaded.transcript(counter=counter)
            self.positions = [position for position, _ in loaded.shown()]
            return
        purged: list[Message] = [{"role": "user", "content": ""}] * loaded.start  # standing folds hide them
        self.record = Transcript([*purged, *loaded.messages], counter=counter)
        self.positions = list(range(len(self.record)))
        self.folds = loaded.folds
        for place in loaded.pins:
            if place >= loaded.start:  # what was purged is there as an empty message that folds hide
                self.record.pin(place)

    def instruct(self, messages: Sequence[Message]) -> int:
        """Begin with other system messages than the record, in this request alone; return the tokens that adds.

        The fold that shows them is never stored: it belongs to the request.
        """
        lead = lead_of(self.record)
        if list(self.record[:lead]) == list(messages):
            return 0
        if not lead:
            self.front = list(messages)
            return sum(map(self.record.counter.message, messages))
        shown = Fold("instructions", 0, lead, tuple(messages), "this request has system messages of its own")
        self.folds = (*(fold for fold in self.folds if fold.start >= lead), shown)
        return 0

    def view(self, lens: Lens) -> View:
        """The view through a lens."""
        return lens.view(self.record, self.folds)

    def whole_view(self) -> View:
        """All there is, in a form that a provider takes."""
        return self.view(lens_of(PassthroughManager(), None))


class FailOpenManager(ContextualManager):
    """A manager that keeps nobody from an answer: where it fails, everything is sent, and `bypass` says why."""

    def __init__(self, manager: HistoryManager) -> None:
        self._manager = manager
        self.bypass: str | None = None
        self.preserve_first_request = bool(getattr(manager, "preserve_first_request", False))

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages, counter=self.counts_with())
        try:
            return curated_by(self._manager, source, session, context or NO_CONTEXT)
        except CannotFit:
            raise
        except Exception as error:  # noqa: BLE001 - a manager is anybody's code
            _LOG.warning("curation failed, so everything is sent: %s", type(error).__name__)
            kind = type(error) if isinstance(error, MinutebookError) else PromptEvaluationError
            self.bypass = kind.__name__
            return PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self._manager, ContextualManager) and self._manager.fits(messages)

    def counts_with(self) -> TokenCounter | None:
        return self._manager.counts_with() if isinstance(self._manager, ContextualManager) else None


def lens_of(manager: HistoryManager, max_tokens: int | None) -> Lens:
    """A lens for one request."""
    return Lens(manager, session=_NO_SESSION, provider=PROVIDER, max_tokens=max_tokens, prompt_name="service")


def compacts(policy: Policy) -> bool:
    """Whether a policy folds old parts of the record before a call."""
    return policy.strategy is not None and policy.mode == "on"
