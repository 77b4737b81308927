"""Conversation history by recipient (document 003): messages in, the history of the last turns out.

One conversation for each recipient, kept by any store. Limits count turns, not messages: a turn with three tool calls is
five messages and still one turn.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID, uuid4

from minutebook.compaction.config import HistoryConfig
from minutebook.compaction.result import CompactionResult
from minutebook.compaction.shown import is_summary, summary_text, unflagged
from minutebook.compaction.summarizer import Summarizer
from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    VersionConflict,
)
from minutebook.history.protocol import EventBus
from minutebook.history.view import view_of
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.frozen import thawed
from minutebook.record.message import Message, Provider, is_system, require_message
from minutebook.record.pairing import Pairing
from minutebook.store.compact import TurnCompactor
from minutebook.store.contract import ConversationStore
from minutebook.store.request import require_status
from minutebook.store.rules import now, require_name
from minutebook.store.types import Conversation, ConversationStatus, StoredFold
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import provider_message_to_entry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """What a conversation is doing, and since when."""

    status: ConversationStatus
    updated_at: str | None
    """ISO-8601, in UTC; None before the first message."""


class ConversationHistory:
    """The history of the conversation with one recipient.

    `notice` is called with the conversation's id after every append, such as a `BackgroundCompaction`'s. Without
    `conversation`, the recipient's one conversation has the recipient's own id.
    """

    def __init__(
        self,
        store: ConversationStore,
        recipient: str,
        *,
        conversation: str | None = None,
        config: HistoryConfig | None = None,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        bus: EventBus | None = None,
        notice: Callable[[str], object] | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.recipient = require_name("recipient", recipient)
        self.conversation = require_name("conversation", conversation if conversation is not None else recipient)
        self.store = store
        self.config = config or HistoryConfig()
        self._compactor = TurnCompactor(
            store,
            config=self.config,
            summarizer=summarizer,
            counter=counter,
            bus=bus,
            clock=clock,
            new_id=new_id,
        )
        self._notice = notice
        self._clock = clock
        self._new_id = new_id

    async def add_message(
        self,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Add one message in the OpenAI form, stamped with the time; return the conversation's version.

        An assistant message may wait for its results; until they are there nothing else is taken.

        Raises:
            InvalidMessage: it is none.
            BrokenConversation: it does not fit the ones before it.
        """
        return await self._append([message], provider, model, idempotency_key)

    async def add_turn(
        self,
        messages: Sequence[Message],
        *,
        provider: str | None = None,
        model: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Add messages that belong together, all or none: an assistant message and its results, or a whole turn.

        Raises:
            InvalidMessage: one of them is none.
            BrokenConversation: a call has no result among them, or a result no call.
        """
        pairing = Pairing()
        for place, message in enumerate(messages):
            pairing.take(place, require_message(message, place))
        if pairing.open:
            raise BrokenConversation(
                [Finding(FindingKind.DANGLING_CALL, pairing.start, call_id) for call_id in pairing.open]
            )
        return await self._append(messages, provider, model, idempotency_key)

    async def get_history(
        self, max_recent_turns: int | None = None, *, provider: Provider = "openai"
    ) -> list[dict[str, Any]]:
        """The messages to send: leading system messages, the summary if there is one, the last turns whole.

        10 turns at most, unless the config or the caller says otherwise. Ready for the provider: a call that still
        waits has a result that says so. A recipient who is not known has no history.

        Raises:
            ConversationErased: there was one.
        """
        turns = self.config.max_recent_turns if max_recent_turns is None else max_recent_turns
        if turns < 1:
            raise InvalidSetting("max_recent_turns", turns, "1 or more")
        loaded = await _if_known(self.store.load(self.conversation, last_turns=turns, folded=True))
        if loaded is None:
            return []
        transcript = loaded.transcript()
        messages: Sequence[Message] = transcript
        if not all(map(is_system, transcript)):  # a provider refuses that anyway, until the user says something
            messages = view_of(transcript, provider=provider).messages
        return [thawed(unflagged(message)) for message in messages]

    async def summary(self) -> str | None:
        """The summary that stands for the compacted turns."""
        loaded = await _if_known(self.store.load(self.conversation, last_turns=0, folded=True))
        folds = () if loaded is None else loaded.folds
        texts = [summary_text(message) for fold in folds for message in fold.shown if is_summary(message)]
        return "\n\n".join(texts) or None

    async def needs_compaction(self) -> bool:
        """Whether more than `max_turns_before_compaction` turns stand uncompacted, the ones kept last time included."""
        return bool(await _if_known(self._compactor.is_due(self.conversation)))

    async def compact(self, summarizer: Summarizer | None = None) -> CompactionResult:
        """Sum up all but the last `recent_turns_to_keep` turns, due or not.

        The result is true if that was done. If the summarizer fails or its summary may not be used, nothing is
        changed, and the result says why.
        """
        return await self._compactor.compact(self.conversation, summarizer)

    async def undo(self, fold_id: str) -> StoredFold:
        """Take a compaction back: the view is what it was before, byte for byte.

        Raises:
            FoldNotFound: there is none of that id.
            FoldConflict: what it stands for was purged.
        """
        return await self.store.undo_fold(self.conversation, fold_id)

    async def status(self) -> HistoryStatus:
        """What the conversation is doing; idle, if nothing was said yet."""
        header = await _if_known(self.store.header(self.conversation))
        return HistoryStatus(ConversationStatus.IDLE, None) if header is None else _status_of(header)

    async def set_status(self, status: ConversationStatus | str) -> HistoryStatus:
        """Say what the conversation is doing: active, awaiting_answer, closed or idle, in any order.

        Raises:
            InvalidSetting: there is no such status.
        """
        wanted = require_status(status)
        header = await _if_known(self.store.set_status(self.conversation, wanted))
        if header is None:
            with suppress(VersionConflict):  # somebody else has made it by now: all that was wanted
                await self.store.append(self.conversation, [], recipient=self.recipient, expected_version=0)
            header = await self.store.set_status(self.conversation, wanted)
        return _status_of(header)

    async def _append(
        self, messages: Sequence[Message], provider: str | None, model: str | None, idempotency_key: str | None
    ) -> int:
        evaluation, at = self._new_id(), self._clock()
        entries = [
            provider_message_to_entry(
                message, evaluation_id=evaluation, sequence=place, created_at=at, provider=provider, model=model
            )
            for place, message in enumerate(messages)
        ]
        version = await self.store.append(
            self.conversation, entries, recipient=self.recipient, idempotency_key=idempotency_key
        )
        if self._notice is not None:
            self._notice(self.conversation)
        return version


async def _if_known(reading: Awaitable[T]) -> T | None:
    """What is read of a conversation, None if nobody has begun it. One that was erased is another matter."""
    try:
        return await reading
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


def _status_of(header: Conversation) -> HistoryStatus:
    return HistoryStatus(header.status, header.status_updated_at.astimezone(UTC).isoformat())
