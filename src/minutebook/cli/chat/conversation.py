"""A chat: a stored conversation, its model calls, and the views that were or would be sent."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent, ViewBuilt
from minutebook.agent.messages import PromptResponse
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.conversation.agent_call import AgentCall
from minutebook.conversation.lease import hold_lease
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.policy import Policy
from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View, view_of
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_system, plain_copy, text_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, LoadedConversation

RECIPIENT: Final = "chat"
"""Recipient of all chats. `--continue` finds the newest chat by it."""
LEASE_SECONDS: Final = 10.0
"""Duration of the lease, which is renewed during an answer. After a crash the next chat waits at most this long."""
_SYSTEM_FOLD_PREFIX: Final = "system-"
"""Prefix of the ids of folds that replace the system message."""


@dataclass
class ChatConversation:
    """A conversation, and the settings of its model calls."""

    store: ConversationStore
    id: str
    adapter: ProviderAdapter
    manager: HistoryManager
    max_tokens: int | None = None
    system: str | None = None
    """System message to use; None for that of the record."""
    record: Transcript = field(default_factory=Transcript)
    """The messages that were last loaded and all that were added since."""
    _last_view: tuple[View, int] | None = None
    """The last view, and the length of the record when it was built."""

    async def ask(self, text: str, on_event: Callable[[RunEvent], None]) -> PromptResponse[str]:
        """Store the user message, call the model and store its answer, also if it is incomplete.

        Raises:
            ConversationBusy: another process holds the lease of this conversation.
        """
        run_id = f"run_{uuid4().hex}"
        async with hold_lease(self.store, self.id, run_id, seconds=LEASE_SECONDS, wait=True) as held_lease:
            call = await self._begin(text, run_id, held_lease.lease)
            self.record = call.source.record
            with Session() as session:
                runner: ConversationRunner[str] = ConversationRunner(
                    adapter=self.adapter,
                    prompt=text_prompt("chat", ""),
                    session=session,
                    history_manager=call.manager,
                    request=text,
                    conversation=self.record,
                    max_tokens=call.max_tokens,
                )

                def forward(event: RunEvent) -> None:
                    call.on_event(event)
                    if isinstance(event, ViewBuilt):
                        self._last_view = event.view, len(event.view.record)
                    on_event(event)

                outcome = {}
                try:
                    # Not `runner.stream`: on cancellation, events in its queue would be lost.
                    return await runner.run(forward, streaming=True)
                except BaseException as error:
                    outcome["failed"] = type(error).__name__
                    raise
                finally:
                    # The first entry is the user message, which `_begin` has stored.
                    answer = list(session.query(ConversationEntry).all())[1:]
                    await (call.finish(answer, outcome) if answer else call.fail(outcome))

    async def _begin(self, text: str, run_id: str, lease: Lease) -> AgentCall:
        loaded = await self.load()
        new_messages: list[Message] = [{"role": "user", "content": text}]
        if self.system is not None:
            system: Message = {"role": "system", "content": self.system}
            if loaded is None or not loaded.conversation.length:
                new_messages.insert(0, system)
            elif not (is_system(self.record[0]) and text_of(self.record[0]) == self.system):
                await self._replace_system_message(loaded, system)
                loaded = await self.load()
        last_request = 0 if loaded is None else loaded.conversation.requests
        settings = CallSettings(
            conversation=self.id,
            model=self.adapter.model,
            policy=Policy(RECIPIENT, self.manager, max_tokens=self.max_tokens),
            counter=self.adapter.counter,
            run_id=run_id,
            request_id=run_id,
            provider=self.adapter.name,
            lease=lease,
            minutes_fields={"surface": "cli", "number": 1 + last_request},
        )
        call = AgentCall(self.store, settings, loaded, new_messages, new_id=lambda: f"req_{uuid4().hex}")
        await call.begin(recipient=RECIPIENT)
        return call

    async def load(self) -> LoadedConversation | None:
        """Load the conversation with its folds; None if it does not exist."""
        try:
            loaded = await self.store.load(self.id, folded=True)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None
        self.record = loaded.transcript(counter=self.adapter.counter)
        return loaded

    async def _replace_system_message(self, loaded: LoadedConversation, system: Message) -> None:
        """Add a fold that shows another system message. The record keeps the previous one."""
        # A fold covers whole exchanges, so it also shows the messages after the system message again.
        first_fold = next((fold for fold in loaded.folds if not fold.start), None)
        stop = self.record.exchange_of(0).stop if first_fold is None else first_fold.stop
        shown = [plain_copy(message) for message in (self.record[:stop] if first_fold is None else first_fold.shown)]
        if is_system(shown[0]) and (first_fold is None or first_fold.id.startswith(_SYSTEM_FOLD_PREFIX)):
            shown = shown[1:]
        fold = Fold(f"{_SYSTEM_FOLD_PREFIX}{uuid4()}", 0, stop, (system, *shown), "the system message was replaced")
        await self.store.add_fold(self.id, fold, replacing=[] if first_fold is None else [first_fold.id])

    def last_view(self) -> View | None:
        """The view that was last sent, with the record of that time: later messages do not count as left out."""
        if self._last_view is None:
            return None
        view, length = self._last_view
        return replace(view, record=Transcript(view.record[:length], counter=view.record.counter, broken="mark"))

    def added_since_last_view(self) -> tuple[int, int]:
        """The number of messages recorded since the last view was sent, and their tokens."""
        indexes = range(0 if self._last_view is None else self._last_view[1], len(self.record))
        return len(indexes), sum(map(self.record.tokens_of, indexes))

    def next_view(self) -> View:
        """The view of the current record.

        Raises:
            CannotFit: the messages that must be sent exceed the token budget.
        """
        return view_of(self.record, self.manager, max_tokens=self.max_tokens, provider=self.adapter.provider)
