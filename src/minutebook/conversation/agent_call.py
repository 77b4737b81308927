"""The model call of an agent: it makes its views itself, one for each request, and may use tools in between.

What it says is stored at the end, all at once. So the views of its later requests show messages that the record does not
have yet, and may never have.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from minutebook.agent.events import ModelAnswered, RunEvent, ViewMade
from minutebook.agent.runner import Compactor
from minutebook.conversation.minutes import CallSettings, Part, SentRequest, usage_json
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.retention import PruningDecision, collect_decisions
from minutebook.conversation.view_source import ViewSource, compacts
from minutebook.errors import CannotFit, MinutebookError
from minutebook.history.compose import PassthroughManager, curated_by
from minutebook.history.curated import Curated
from minutebook.history.incremental import ContextualManager
from minutebook.history.protocol import NO_CONTEXT, CurationContext, HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.record.message import Message, thawed
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.types import Loaded, NewDocument
from minutebook.tokens import TokenCounter

_LOG: Final = logging.getLogger("minutebook.service")


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
            self.bypass = type(error).__name__
            _LOG.warning("curation failed, so everything is sent: %s", self.bypass)
            return PassthroughManager().curate(source.coherent())

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self._manager, ContextualManager) and self._manager.fits(messages)

    def counts_with(self) -> TokenCounter | None:
        return self._manager.counts_with() if isinstance(self._manager, ContextualManager) else None


class AgentCall(ModelCall):
    """A model call whose asker is an agent. The last of the new messages is what the agent is asked."""

    def __init__(
        self,
        store: ConversationStore,
        call: CallSettings,
        loaded: Loaded | None,
        new: Sequence[Message],
        *,
        new_id: Callable[[], str],
        is_asked: bool = False,
    ) -> None:
        """`is_asked` says that an earlier try stored what is new; `loaded` is without it."""
        super().__init__(store, call, loaded, new)
        self._new_id = new_id
        self._is_asked = is_asked
        self.manager: HistoryManager = PassthroughManager()
        """What the agent curates with: nothing is left out where it is only worked out what would be."""
        if call.policy.mode == "on":
            self.manager = FailOpenManager(call.policy.manager)

    def _source(self, loaded: Loaded | None, new: Sequence[Message]) -> ViewSource:
        return super()._source(loaded, new[:-1])  # the agent appends what it is asked itself

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of messages that a request may have."""
        return self._lens.max_tokens if self.call.policy.mode == "on" else None

    def compactor(self, *, keep: bool) -> Compactor | None:
        """What folds old parts of the conversation before a request; with `keep` its folds are stored."""
        if not compacts(self.call.policy):
            return None
        return self.call.policy.compaction(self.source.folds, self._keep_fold if keep else None)

    async def begin(self, *, documents: Sequence[NewDocument] = (), recipient: str | None = None) -> None:
        """Store what is new, unless an earlier try did."""
        if self._is_asked:
            await self._put(documents)
        else:
            await self._append_new(documents, recipient)

    def hear(self, event: RunEvent) -> SentRequest | None:
        """Take note of what the agent does; return the request that it makes, if it makes one."""
        if isinstance(event, ModelAnswered):
            self.request.outcome = {"finish": event.finish, "usage": usage_json(event.usage)}
        if not isinstance(event, ViewMade):
            return None
        view, decision = event.view, None
        if self.call.policy.mode != "on":
            view, decision = self._policy_view(event.view)
        self.bypass = self.manager.bypass if isinstance(self.manager, FailOpenManager) else None
        place, known = self.length - 1, self.source.positions
        positions = [*known, *range(place, place + len(view.record) - len(known))]
        call = replace(self.call, request_id=self._new_id())
        self.requests.append(self._request(call, view, event.view, positions, decision))
        return self.request

    def _policy_view(self, sent: View) -> tuple[View, PruningDecision | None]:
        """What the policy would have sent; what retention says of it is in shadow mode all there is."""
        with collect_decisions() as decisions:
            try:
                view = self._lens.view(sent.record, ())
            except MinutebookError as error:
                _LOG.warning("what would be pruned is not known: %s", type(error).__name__)
                return sent, None
        return view, decisions[-1] if decisions and self.call.policy.mode == "shadow" else None

    def _note_answer(self, start: int) -> None:
        """The run says where the answer begins: it has several requests."""

    def _minutes(self, stored: int) -> list[NewDocument]:
        for request in self.requests:
            request.minutes = replace(request.minutes, parts=self._written_out(request.minutes.parts, stored))
        return [request.document(stored) for request in self.requests]

    def _written_out(self, parts: Sequence[Part], stored: int) -> list[Part]:
        """The parts of a request, with the messages themselves in place of positions that the record will not have."""
        made: list[Part] = []
        record, shift = self.source.record, len(self.source.positions) - (self.length - 1)
        for part in parts:
            if isinstance(part, dict) or part[1] <= stored:
                made.append(part)
                continue
            if part[0] < stored:
                made.append([part[0], stored])
            made += [thawed(record[place + shift]) for place in range(max(part[0], stored), part[1])]
        return made
