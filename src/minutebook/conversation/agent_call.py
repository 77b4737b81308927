"""The model call of an agent, which builds a view for each of its requests and may call tools between them.

All messages of the agent are stored at the end, atomically. So the views of its later requests contain messages that are
not in the record yet, and never will be if the run fails.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from minutebook.agent.events import ModelAnswered, RunEvent, ViewBuilt
from minutebook.agent.runner import Compactor
from minutebook.conversation.minutes import CallSettings, Part, SentRequest, usage_json
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.view_source import ViewSource, compacts
from minutebook.errors import CannotFit
from minutebook.history.compose import PassthroughManager
from minutebook.history.protocol import HistoryManager
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, NewDocument

_LOG: Final = logging.getLogger("minutebook.service")


class AgentCall(ModelCall):
    """A model call that an agent makes. The last new message is the agent's question."""

    def __init__(
        self,
        store: ConversationStore,
        call: CallSettings,
        loaded: LoadedConversation | None,
        new_messages: Sequence[Message],
        *,
        new_id: Callable[[], str],
        has_stored_question: bool = False,
    ) -> None:
        """`has_stored_question`: an earlier attempt has stored the new messages. `loaded` never contains them."""
        super().__init__(store, call, loaded, new_messages)
        self._new_id = new_id
        self._has_stored_question = has_stored_question
        self.manager: HistoryManager = self._manager if call.policy.mode == "on" else PassthroughManager()
        """The agent's manager. In shadow mode it leaves nothing out: what would be pruned is only computed."""

    def _source(self, loaded: LoadedConversation | None, new_messages: Sequence[Message]) -> ViewSource:
        return super()._source(loaded, new_messages[:-1])  # the agent appends the question itself

    @property
    def max_tokens(self) -> int | None:
        """The token budget of a request's messages; None for no limit."""
        return self._adaptive_view.max_tokens if self.call.policy.mode == "on" else None

    def compactor(self, *, store_folds: bool) -> Compactor | None:
        """The compaction to run before each request; None if the policy has none."""
        if not compacts(self.call.policy):
            return None
        return self.call.policy.compaction(self.source.folds, self._save_fold if store_folds else None)

    async def begin(self, *, documents: Sequence[NewDocument] = (), recipient: str | None = None) -> None:
        """Store the new messages, unless an earlier attempt did."""
        if self._has_stored_question:
            await self._put(documents)
        else:
            await self._append_new(documents, recipient)

    def on_event(self, event: RunEvent) -> SentRequest | None:
        """Record an event of the agent's run. Return the new request if the event starts one."""
        if isinstance(event, ModelAnswered):
            self.request.outcome = {"finish": event.finish, "usage": usage_json(event.usage)}
        if not isinstance(event, ViewBuilt):
            return None
        view = event.view
        if self.call.policy.mode != "on":
            try:
                view = self._adaptive_view.view(event.view.record, ())
            except CannotFit:
                _LOG.warning("shadow mode: the pruned view cannot be computed: CannotFit")
        question_position, stored_positions = self.length - 1, self.source.positions
        new_count = len(view.record) - len(stored_positions)
        positions = [*stored_positions, *range(question_position, question_position + new_count)]
        call = replace(self.call, request_id=self._new_id())
        self.requests.append(self._request(call, view, event.view, positions))
        return self.request

    def _note_answer(self, start: int) -> None:
        """Do nothing: the answer belongs to several requests, so the run stores its position."""

    def _minutes(self, stored_length: int) -> list[NewDocument]:
        for request in self.requests:
            parts = self._with_unstored_messages(request.minutes.parts, stored_length)
            request.minutes = replace(request.minutes, parts=parts)
        return [request.document(stored_length) for request in self.requests]

    def _with_unstored_messages(self, parts: Sequence[Part], stored_length: int) -> list[Part]:
        """The parts of a request; positions at or after `stored_length` are replaced by the messages themselves."""
        result: list[Part] = []
        record, index_offset = self.source.record, len(self.source.positions) - (self.length - 1)
        for part in parts:
            if isinstance(part, dict) or part[1] <= stored_length:
                result.append(part)
                continue
            start, stop = part
            if start < stored_length:
                result.append([start, stored_length])
            unstored = range(max(start, stored_length), stop)
            result += [dict(record[position + index_offset]) for position in unstored]
        return result
