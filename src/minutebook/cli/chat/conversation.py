"""A chat: a conversation in a store, asked through `AgentCall`; what was sent, and what would be sent next."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent, ViewMade
from minutebook.agent.messages import PromptResponse
from minutebook.agent.prompt_message import prompt_of
from minutebook.agent.runner import ConversationRunner
from minutebook.conversation.agent_call import AgentCall
from minutebook.conversation.lease import held
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.policy import Policy
from minutebook.errors import ConversationBusy, ConversationErased, ConversationNotFound
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View, view_of
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_system, text_of, thawed
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, Loaded

RECIPIENT: Final = "chat"
"""The recipient of every chat, by which the newest one is found."""
LEASE_SECONDS: Final = 10.0
"""Renewed while a model answers. A chat that was killed keeps the next one waiting for no longer than this."""
_SYSTEM: Final = "system-"
"""How the ids of folds begin that show another system message than the record's."""


@dataclass
class ChatConversation:
    """One conversation, and what it takes to go on with it."""

    store: ConversationStore
    id: str
    adapter: ProviderAdapter
    manager: HistoryManager
    max_tokens: int | None = None
    system: str | None = None
    """The system message to begin with; None for the record's own."""
    record: Transcript = field(default_factory=Transcript)
    """The conversation as it was last loaded, with all that was said since."""
    _sent: tuple[View, int] | None = None
    """The last view, and how long the record was when it was made."""

    async def ask(self, text: str, hear: Callable[[RunEvent], None]) -> PromptResponse[str]:
        """Store the question, ask the model, and store the answer, or what came of it; `hear` is told each event.

        Raises:
            ConversationBusy: somebody else is answering in this conversation.
        """
        run_id = f"run_{uuid4().hex}"
        await self._wait_for_lease(run_id)
        async with held(self.store, self.id, run_id, seconds=LEASE_SECONDS) as hold:
            call = await self._begin(text, run_id, hold.lease)
            self.record = call.source.record
            with Session() as session:
                runner: ConversationRunner[str] = ConversationRunner(
                    adapter=self.adapter,
                    prompt=prompt_of("chat", ""),
                    session=session,
                    history_manager=call.manager,
                    request=text,
                    conversation=self.record,
                    max_tokens=call.max_tokens,
                )

                def emit(event: RunEvent) -> None:
                    call.hear(event)
                    if isinstance(event, ViewMade):
                        self._sent = event.view, len(event.view.record)
                    hear(event)

                outcome = {}
                try:
                    # Not `runner.stream`: events that wait in its queue when the task is cancelled would not be shown.
                    return await runner.run(emit, streaming=True)
                except BaseException as error:
                    outcome["failed"] = type(error).__name__
                    raise
                finally:
                    answer = list(session.query(ConversationEntry).all())[1:]
                    await (call.finish(answer, outcome) if answer else call.fail(outcome))

    async def _wait_for_lease(self, holder: str) -> None:
        """Wait until the lease of a chat that was killed has run out."""
        try:
            await self.store.acquire_lease(self.id, holder, seconds=LEASE_SECONDS)
        except ConversationBusy as busy:
            seconds = (busy.until - datetime.now(UTC)).total_seconds()
            await asyncio.sleep(seconds if 0 < seconds <= LEASE_SECONDS else 0)

    async def _begin(self, text: str, run_id: str, lease: Lease) -> AgentCall:
        loaded = await self.load()
        new: list[Message] = [{"role": "user", "content": text}]
        if self.system is not None:
            system: Message = {"role": "system", "content": self.system}
            if loaded is None or not loaded.conversation.length:
                new.insert(0, system)
            elif not (is_system(self.record[0]) and text_of(self.record[0]) == self.system):
                await self._show_system(loaded, system)
                loaded = await self.load()
        settings = CallSettings(
            conversation=self.id,
            model=self.adapter.model,
            policy=Policy(RECIPIENT, self.manager, max_tokens=self.max_tokens),
            counter=self.adapter.counter,
            run_id=run_id,
            request_id=run_id,
            provider=self.adapter.name,
            lease=lease,
            facts={"surface": "cli"},
        )
        call = AgentCall(self.store, settings, loaded, new, new_id=lambda: f"req_{uuid4().hex}")
        await call.begin(recipient=RECIPIENT)
        return call

    async def load(self) -> Loaded | None:
        """The conversation as a view shows it; None if there is none yet."""
        try:
            loaded = await self.store.load(self.id, folded=True)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None
        self.record = loaded.transcript(counter=self.adapter.counter)
        return loaded

    async def _show_system(self, loaded: Loaded, system: Message) -> None:
        """Show another system message from now on: as a fold, so that the record keeps the one there was."""
        before = next((fold for fold in loaded.folds if not fold.start), None)
        stop = self.record.exchange_of(0).stop if before is None else before.stop
        shown = [thawed(message) for message in (self.record[:stop] if before is None else before.shown)]
        if is_system(shown[0]) and (before is None or before.id.startswith(_SYSTEM)):
            shown = shown[1:]
        fold = Fold(f"{_SYSTEM}{uuid4()}", 0, stop, (system, *shown), "another system message was given")
        await self.store.add_fold(self.id, fold, replacing=[] if before is None else [before.id])

    def sent(self) -> View | None:
        """What was last sent, beside the record as it was then: what was said since is not missing from it."""
        if self._sent is None:
            return None
        view, length = self._sent
        return replace(view, record=Transcript(view.record[:length], counter=view.record.counter, broken="mark"))

    def since(self) -> tuple[int, int]:
        """How many messages were recorded since something was last sent, and their tokens."""
        places = range(0 if self._sent is None else self._sent[1], len(self.record))
        return len(places), sum(map(self.record.tokens_of, places))

    def next_view(self) -> View:
        """What would be sent if nothing more were said.

        Raises:
            CannotFit: what must be sent is larger than it may be.
        """
        return view_of(self.record, self.manager, max_tokens=self.max_tokens, provider=self.adapter.provider)
