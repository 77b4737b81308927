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
from minutebook.conversation.view_source import ViewSource, compacts
from minutebook.errors import CannotFit
from minutebook.history.compose import PassthroughManager
from minutebook.history.protocol import HistoryManager
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import Loaded, NewDocument

_LOG: Final = logging.getLogger("minutebook.service")


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
        self.manager: HistoryManager = self._manager if call.policy.mode == "on" else PassthroughManager()
        """What the agent curates with: nothing is left out where it is only worked out what would be."""

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
        view = event.view
        if self.call.policy.mode != "on":
            try:
                view = self._lens.view(event.view.record, ())
            except CannotFit:
                _LOG.warning("what would be pruned is not known: CannotFit")
        place, known = self.length - 1, self.source.positions
        positions = [*known, *range(place, place + len(view.record) - len(known))]
        call = replace(self.call, request_id=self._new_id())
        self.requests.append(self._request(call, view, event.view, positions))
        return self.request

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
            made += [dict(record[place + shift]) for place in range(max(part[0], stored), part[1])]
        return made
