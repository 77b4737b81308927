"""The record of one google-adk session, or of one branch of it, in a conversation store."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final, NamedTuple
from uuid import NAMESPACE_OID, uuid5

from minutebook.compaction.manager import CompactionManager, HistoryCompacted
from minutebook.conversation.compactor import FoldStorage
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    FoldConflict,
    InvalidSetting,
    MissingExtra,
    VersionConflict,
)
from minutebook.integrations.adk.contents import ADK_KEY, messages_of, signature_of
from minutebook.integrations.adk.view import RecordedEvent, RequestContent, record_as_sent, with_folds
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import provider_message_to_entry

try:
    from google.adk.events.event import Event
except ImportError as error:
    raise MissingExtra("google-adk", "adk") from error

_MAX_ATTEMPTS: Final = 5
"""Maximum attempts to write while other processes change the same conversation."""


class AdkRecord:
    """Appends the events of a session to a stored conversation and folds it. Hold `lock` while you call a method."""

    def __init__(
        self,
        store: ConversationStore,
        conversation: str,
        recipient: str,
        *,
        create_manager: Callable[..., CompactionManager],
        counter: TokenCounter,
    ) -> None:
        self.conversation = conversation
        self.lock = asyncio.Lock()
        self._store = store
        self._recipient = recipient
        self._manager = create_manager(save_fold=self._store_fold, conversation=conversation, tenant=store.tenant)
        self._counter = counter
        self._version: int | None = None
        """The stored version that `_transcript` was loaded from; None if it must be loaded."""

    async def add(self, events: Sequence[Event]) -> None:
        """Append the events that are not in the record yet.

        Raises:
            VersionConflict: other processes changed the conversation during every attempt.
            InvalidSetting: a part of the record was purged.
        """
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            try:
                if self._version is None:
                    await self._load()
                for event in events:
                    if event.id not in self._events:
                        await self._append(event)
            except VersionConflict:
                self._version = None
                if not attempts_left:
                    raise
            else:
                return

    def event(self, event_id: str) -> RecordedEvent:
        return self._events[event_id]

    async def apply_folds(self, contents: Sequence[RequestContent]) -> list[RequestContent]:
        """Read the active folds, and return the contents with them applied."""
        return with_folds(contents, self.conversation, self._transcript, await self._load_folds())

    async def compact(self, contents: Sequence[RequestContent], overhead_tokens: int) -> HistoryCompacted | None:
        """Fold the record if the request does not fit the model's window.

        `contents` have the folds of all other records applied, but none of this one.

        Raises:
            CannotFit: the messages that must be sent need more tokens than the window.
        """
        sent, other_tokens = record_as_sent(contents, self.conversation, self._transcript)
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            self._manager.folds = await self._load_folds()
            self._fold_storage = FoldStorage(self._store, self.conversation, self._manager.folds)
            try:
                result = await self._manager.check_and_apply(sent, overhead_tokens=overhead_tokens + other_tokens)
            except FoldConflict:  # another process added a fold at the same time
                if not attempts_left:
                    raise
                continue
            return result.event
        return None

    async def _store_fold(self, fold: Fold) -> Fold:
        return await self._fold_storage.save(fold)

    async def _load_folds(self) -> tuple[Fold, ...]:
        """The folds that were not undone, including those of other processes."""
        try:
            stored_folds = await self._store.folds(self.conversation)
        except ConversationErased:
            raise
        except ConversationNotFound:  # no event was appended yet
            return ()
        return tuple(stored.fold for stored in stored_folds if stored.undone_at is None)

    async def _load(self) -> None:
        self._transcript = Transcript(counter=self._counter, broken="mark")
        self._events: dict[str, RecordedEvent] = {}
        self._next_sequence: Counter[str] = Counter()
        try:
            loaded = await self._store.load(self.conversation)
        except ConversationErased:
            raise
        except ConversationNotFound:
            self._version = 0
            return
        if loaded.conversation.first:
            raise InvalidSetting("conversation", self.conversation, "one from which no messages were purged")
        for source, messages in groupby(loaded.messages, _source_of):
            self._add_messages(source, list(messages))
        for pin in loaded.pins:
            self._transcript.pin(pin)
        self._version = loaded.conversation.version

    async def _append(self, event: Event) -> None:
        assert event.content is not None
        assert self._version is not None
        messages = messages_of(event.content, event=event.id, author=event.author, run=event.invocation_id)
        entries = [
            provider_message_to_entry(
                message,
                evaluation_id=uuid5(NAMESPACE_OID, event.invocation_id),
                sequence=sequence,
                created_at=datetime.fromtimestamp(event.timestamp, UTC),
                model=event.model_version,
            )
            for sequence, message in enumerate(messages, self._next_sequence[event.invocation_id])
        ]
        version = await self._store.append(
            self.conversation,
            entries,
            recipient=self._recipient,
            expected_version=self._version,
            idempotency_key=f"adk:{event.id}",
            broken="mark",
        )
        if version != self._version + 1:  # another process appended this event, at another version
            raise VersionConflict(self.conversation, version, self._version)
        self._version = version
        self._add_messages(_Source(event.id, event.author, event.invocation_id), messages)

    def _add_messages(self, source: "_Source", messages: Sequence[Message]) -> None:
        """Add the stored messages of one event to the state in memory."""
        start = len(self._transcript)
        self._transcript.extend(messages)
        self._next_sequence[source.invocation_id] += len(messages)
        self._events[source.event_id] = RecordedEvent(
            self.conversation, source.author, signature_of(messages), range(start, len(self._transcript))
        )


class _Source(NamedTuple):
    """The event of a message; the fields are empty for a message that no event contains."""

    event_id: str
    author: str
    invocation_id: str


def _source_of(message: Message) -> _Source:
    extension = message.get(ADK_KEY) or {}
    return _Source(extension.get("event", ""), extension.get("author", ""), extension.get("run", ""))
