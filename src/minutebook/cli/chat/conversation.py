"""A conversation with a model: what is asked, what was sent, and what would be sent next."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent, ViewMade
from minutebook.agent.messages import PromptResponse
from minutebook.agent.runner import ConversationRunner
from minutebook.cli.chat.log import ChatLog
from minutebook.history.protocol import HistoryManager
from minutebook.history.view import View, view_of
from minutebook.prompt.section import Section
from minutebook.prompt.template import Prompt, PromptTemplate
from minutebook.record.entry import ConversationRecorded
from minutebook.record.message import Message, is_system, text_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.wire.chat import provider_message_to_entry


class Words(Section[None]):
    """A text as it is, without a heading."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(title="Words", key="words")

    def render(self, *_: Any, **__: Any) -> str:
        return self.text


@dataclass
class Talk:
    """One conversation, and all it takes to go on with it."""

    adapter: ProviderAdapter
    manager: HistoryManager
    max_tokens: int | None = None
    session: Session = field(default_factory=Session)
    conversation: Transcript = field(default_factory=Transcript)
    system: str | None = None
    _sent: tuple[View, int] | None = None
    """The last view, and how long the record was when it was made."""

    def begin(self, log: ChatLog, system: str | None) -> None:
        """Take up the conversation of a log, and keep in it all that is said from now on.

        A system message that it did not have is recorded, and stands in the place of its own.
        """
        self.session.bus.subscribe(
            ConversationRecorded, lambda event: log.append(event.entry), session_id=self.session.session_id
        )
        before = log.messages()
        own = text_of(before[0]) if before and is_system(before[0]) else None
        self.system = own if system is None else system
        if before and self.system != own:
            message = {"role": "system", "content": self.system}
            self._record(message)
            before = [message, *before[own is not None :]]
        self.conversation = Transcript(before, counter=self.adapter.counter, broken="mark")

    async def ask(self, text: str, hear: Callable[[RunEvent], None]) -> PromptResponse[str]:
        """The answer; `hear` is told what happens on the way to it."""
        spoken = text if self.system is None else self.system
        prompt = Prompt(PromptTemplate[str](ns="cli", key="chat", sections=[Words(spoken)]))
        runner = ConversationRunner(
            adapter=self.adapter,
            prompt=prompt,
            session=self.session,
            request=None if self.system is None else text,
            conversation=self.conversation,
            history_manager=self.manager,
            max_tokens=self.max_tokens,
        )

        def emit(event: RunEvent) -> None:
            if isinstance(event, ViewMade):
                self._sent = event.view, len(event.view.record)
            hear(event)

        # Not `adapter.stream`: what it has heard and not yet told when somebody cancels is recorded, and never shown.
        return await runner.run(emit, streaming=True)

    def sent(self) -> View | None:
        """What was last sent, beside the record as it was then: what was said since is not missing from it."""
        if self._sent is None:
            return None
        view, length = self._sent
        return replace(view, record=Transcript(view.record[:length], counter=view.record.counter, broken="mark"))

    def since(self) -> tuple[int, int]:
        """How many messages were recorded since something was last sent, and their tokens."""
        places = range(0 if self._sent is None else self._sent[1], len(self.conversation))
        return len(places), sum(map(self.conversation.tokens_of, places))

    def next_view(self) -> View:
        """What would be sent if nothing more were said.

        Raises:
            CannotFit: what must be sent is larger than it may be.
        """
        return view_of(
            self.conversation,
            self.manager,
            session=self.session,
            max_tokens=self.max_tokens,
            provider=self.adapter.provider,
        )

    def _record(self, message: Message) -> None:
        entry = provider_message_to_entry(
            message,
            evaluation_id=uuid4(),
            sequence=0,
            created_at=datetime.now(UTC),
            provider=self.adapter.name,
            model=self.adapter.model,
        )
        event = ConversationRecorded(entry, self.session.session_id, entry.created_at)
        self.session.bus.publish(event).raise_errors()
