"""A chat: a stored conversation, the runs that answer in it, and the views that were or would be sent."""

import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Final
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent, ViewBuilt
from minutebook.agent.messages import PromptResponse
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.conversation.handle.async_conversation import AsyncConversation
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View
from minutebook.record.fold import Fold, cleared_count
from minutebook.record.message import Message, is_system, text_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.tokens.models import ModelInfo, ModelTable, UnknownModel, model_info

RECIPIENT: Final = "chat"
"""Recipient of all chats. `--continue` finds the newest chat by it."""
_SYSTEM_FOLD_PREFIX: Final = "system-"
"""Prefix of the ids of folds that replace the system message."""


class ChatConversation:
    """A conversation with a model.

    `models` are the user's own models. `system` is the system message to use; None for that of the record.
    """

    def __init__(
        self,
        store: ConversationStore,
        id_: str,
        adapter: ProviderAdapter,
        *,
        manager: HistoryManager,
        max_tokens: int | None = None,
        models: ModelTable | None = None,
        system: str | None = None,
        recipient: str | None = None,
    ) -> None:
        self.adapter = adapter
        self._system = system
        model = _model_of(adapter, models)
        self.limit = max_tokens
        """The token limit of a view; None if the model's context window is unknown."""
        if max_tokens is None and isinstance(manager, TokenBudgetManager):
            self.limit = manager.limit
        elif max_tokens is None and model.max_input_tokens < sys.maxsize:
            self.limit = model.room()
        self.conversation = AsyncConversation(
            id_,
            store=store,
            recipient=recipient,
            system=system,
            model=model,
            max_tokens=max_tokens,
            manager=manager,
            provider=adapter.provider,
        )
        self._last_view: tuple[View, int] | None = None
        """The last view, and the length of the record when it was built."""

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def record(self) -> Transcript:
        """All messages of the conversation, with their token counts."""
        return Transcript(self.conversation, counter=self.adapter.counter, broken="mark")

    async def ask(self, text: str, on_event: Callable[[RunEvent], None]) -> PromptResponse[str]:
        """Store the user message, call the model and store its answer, also if it is incomplete.

        Raises:
            ConversationBusy: another process holds the lease of this conversation.
        """
        await self._show_system_message()
        with Session() as session:
            runner: ConversationRunner[str] = ConversationRunner(
                adapter=self.adapter,
                prompt=text_prompt("chat", ""),
                session=session,
                request=text,
                conversation=self.conversation,
            )

            def forward(event: RunEvent) -> None:
                if isinstance(event, ViewBuilt):
                    self._last_view = event.view, len(event.view.record)
                on_event(event)

            # Not `runner.stream`: on cancellation, events in its queue would be lost.
            return await runner.run(forward, streaming=True)

    async def _show_system_message(self) -> None:
        """If the conversation has another system message, add a fold that shows this one. The record keeps the other."""
        if self._system is None or not len(self.conversation):
            return
        folds = await self.conversation.folds()
        record, start = self.record, cleared_count(folds)
        if start == len(record):
            return  # the next message follows a new system message
        # A fold covers whole exchanges, so it also shows the messages after the system message again.
        first_fold = next((fold for fold in folds if fold.start == start), None)
        stop = record.exchange_of(start).stop if first_fold is None else first_fold.stop
        shown = list(record[start:stop] if first_fold is None else first_fold.shown)
        if shown and is_system(shown[0]):
            if text_of(shown[0]) == self._system:
                return
            if first_fold is None or first_fold.id.startswith(_SYSTEM_FOLD_PREFIX):
                shown = shown[1:]
        system: Message = {"role": "system", "content": self._system}
        fold = Fold(f"{_SYSTEM_FOLD_PREFIX}{uuid4()}", start, stop, (system, *shown), "the system message was replaced")
        replaced = [] if first_fold is None else [first_fold.id]
        await self.conversation.store.add_fold(self.id, fold, replacing=replaced)

    def last_view(self) -> View | None:
        """The view that was last sent, with the record of that time: later messages do not count as left out."""
        if self._last_view is None:
            return None
        view, length = self._last_view
        return replace(view, record=Transcript(view.record[:length], counter=view.record.counter, broken="mark"))

    def added_since_last_view(self) -> tuple[int, int]:
        """The number of messages recorded since the last view was sent, and their tokens."""
        added = self.conversation[0 if self._last_view is None else self._last_view[1] :]
        return len(added), sum(map(self.adapter.counter.message, added))


def _model_of(adapter: ProviderAdapter, models: ModelTable | None) -> ModelInfo:
    """The adapter's model, without an input limit if it is unknown: the provider then says what is too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownModel)
        model = model_info(adapter.model, own=models)
    return model if model.is_known else replace(model, max_input_tokens=sys.maxsize)
