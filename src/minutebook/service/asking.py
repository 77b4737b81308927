"""The calls of one agent's answer, beside the record: what each was sent, what was left out, and how it ended."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from minutebook.agent.events import ModelAnswered, RunEvent, ViewMade
from minutebook.errors import CannotFit, MinutebookError
from minutebook.history.compose import PassthroughManager, curated_by
from minutebook.history.context import NO_CONTEXT, CurationContext
from minutebook.history.curated import Curated
from minutebook.history.draft import ContextualManager
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.record.fold import Fold
from minutebook.record.frozen import thawed
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.service.ids import new_id
from minutebook.service.minutes import Minutes, Part, minutes_of
from minutebook.service.pruned import HistoryPruned
from minutebook.service.retention import PruningDecision
from minutebook.service.sheet import Sheet, lens_of
from minutebook.service.telling import usage_json
from minutebook.service.turns import Call, listening, pruned_by, request_document
from minutebook.store.documents import NewDocument
from minutebook.tokens import TokenCounter

_LOG: Final = logging.getLogger("minutebook.service")


class FailOpen(ContextualManager):
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
            self.bypass = type(error).__name__
            _LOG.warning("curation failed, so everything is sent: %s", self.bypass)
            return PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self._manager, ContextualManager) and self._manager.fits(messages)

    def counts_with(self) -> TokenCounter | None:
        return self._manager.counts_with() if isinstance(self._manager, ContextualManager) else None


@dataclass(slots=True, kw_only=True)
class Ask:
    """One call of the model."""

    call: Call
    minutes: Minutes
    decided: PruningDecision | None
    loaded: int
    bypass: str | None
    folds: tuple[Fold, ...]
    asked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    outcome: dict[str, Any] = field(default_factory=dict)

    @property
    def pruned(self) -> HistoryPruned:
        """What its view left out, in numbers."""
        budget = self.call.policy.max_tokens
        return pruned_by(self.call, self.minutes, self.decided, loaded=self.loaded, budget=budget)

    def document(self, known: Mapping[str, Any]) -> NewDocument:
        """Its minutes."""
        told = {"bypass": self.bypass, "asked_at": self.asked_at.isoformat(), **self.call.facts}
        return request_document(self.call, self.minutes, self.folds, {**told, **known, **self.outcome})


class Asking:
    """Watches an agent, and writes the minutes of each of its calls."""

    def __init__(self, call: Call, sheet: Sheet, length: int, folds: Callable[[], tuple[Fold, ...]]) -> None:
        """`length` is where the user's message stands in the record: everything new comes after it."""
        self._call = call
        self._sheet = sheet
        self._known = list(sheet.positions)
        self._length = length
        self._folds = folds
        self.manager: HistoryManager = (
            FailOpen(call.policy.manager) if call.policy.mode == "on" else PassthroughManager()
        )
        """What the agent is to curate with: nothing is left out where it is only worked out what would be."""
        self.max_tokens = call.policy.max_tokens if call.policy.mode == "on" else None
        self.asks: list[Ask] = []

    def hear(self, event: RunEvent) -> Ask | None:
        """Take note of what an agent does; return the call that begins, if one does."""
        if isinstance(event, ModelAnswered):
            self.asks[-1].outcome = {"finish": event.finish, "usage": usage_json(event.usage)}
        if not isinstance(event, ViewMade):
            return None
        self.asks.append(self._ask(event.view))
        return self.asks[-1]

    def documents(self, *, stored: int, failed: str | None = None) -> list[NewDocument]:
        """The minutes of all calls. What the record will not hold from `stored` on is written out in them."""
        if failed is not None and self.asks:
            self.asks[-1].outcome = {"failed": failed}
        for ask in self.asks:
            ask.minutes = replace(ask.minutes, parts=self._written_out(ask.minutes.parts, stored))
        return [ask.document({"length": stored}) for ask in self.asks]

    def _ask(self, view: View) -> Ask:
        sent, decided = view, None
        if self._call.policy.mode != "on":
            view, decided = self._would_be(view)
        positions = [*self._known, *range(self._length, self._length + len(view.record) - len(self._known))]
        return Ask(
            call=replace(self._call, request_id=new_id("req")),
            minutes=minutes_of(view, sent, positions),
            decided=decided,
            loaded=len(view.record),
            bypass=self.manager.bypass if isinstance(self.manager, FailOpen) else None,
            folds=self._folds(),
        )

    def _would_be(self, sent: View) -> tuple[View, PruningDecision | None]:
        """What the policy would have sent, had it been let; what retention says of it is in shadow mode all there is."""
        policy = self._call.policy
        with listening() as decisions:
            try:
                view = lens_of(policy.manager, policy.max_tokens).view(sent.record, ())
            except MinutebookError as error:
                _LOG.warning("what would be pruned is not known: %s", type(error).__name__)
                return sent, None
        return view, decisions[-1] if decisions and policy.mode == "shadow" else None

    def _written_out(self, parts: Sequence[Part], stored: int) -> list[Part]:
        """The parts of a request, with the messages themselves in place of positions that the record will not have."""
        made: list[Part] = []
        for part in parts:
            if isinstance(part, dict) or part[1] <= stored:
                made.append(part)
                continue
            if part[0] < stored:
                made.append([part[0], stored])
            record, shift = self._sheet.record, len(self._known) - self._length
            made += [thawed(record[place + shift]) for place in range(max(part[0], stored), part[1])]
        return made
