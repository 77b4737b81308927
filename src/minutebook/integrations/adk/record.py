"""The record of one google-adk session, or of one branch of it, in our store."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Final
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
from minutebook.integrations.adk.contents import KEY, messages_of, signature_of
from minutebook.integrations.adk.view import Placed, Said, as_sent, folded
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

_TRIES: Final = 5
"""How often somebody else may write the same conversation in between."""


class AdkRecord:
    """Keeps up with the events of a session, and folds what they said. One task at a time uses it, which `lock` is for."""

    def __init__(
        self,
        store: ConversationStore,
        conversation: str,
        recipient: str,
        *,
        compactor: Callable[..., CompactionManager],
        counter: TokenCounter,
    ) -> None:
        self.conversation = conversation
        self.lock = asyncio.Lock()
        self._store = store
        self._recipient = recipient
        self._compactor = compactor(keep=self._keep, conversation=conversation, tenant=store.tenant)
        self._counter = counter
        self._version: int | None = None
        """The version that we know; None before the first reading."""

    async def add(self, events: Sequence[Event]) -> None:
        """Append what was said since; what is in the record already is not added twice.

        Raises:
            VersionConflict: others write it all the time.
            InvalidSetting: a part of the record was purged.
        """
        for tries in reversed(range(_TRIES)):
            try:
                if self._version is None:
                    await self._read()
                for event in events:
                    if event.id not in self._said:
                        await self._append(event)
            except VersionConflict:
                self._version = None
                if not tries:
                    raise
            else:
                return

    def said(self, event: str) -> Said:
        """What one of the events said that were added."""
        return self._said[event]

    async def shown(self, placed: Sequence[Placed]) -> list[Placed]:
        """The contents with the folds that stand."""
        return folded(placed, self.conversation, self._transcript, await self._folds())

    async def compact(self, placed: Sequence[Placed], overhead_tokens: int) -> HistoryCompacted | None:
        """Fold what must be folded before these contents are sent.

        `placed` is without the folds of this record, and with those of all others.

        Raises:
            CannotFit: what must be sent is larger than the window.
        """
        sent, others = as_sent(placed, self.conversation, self._transcript)
        for tries in reversed(range(_TRIES)):
            self._compactor.folds = await self._folds()
            self._storage = FoldStorage(self._store, self.conversation, self._compactor.folds)
            try:
                done = await self._compactor.check_and_apply(sent, overhead_tokens=overhead_tokens + others)
            except FoldConflict:  # somebody else folded it in the meantime
                if not tries:
                    raise
                continue
            return done.event
        return None

    async def _keep(self, fold: Fold) -> Fold:
        return await self._storage.keep(fold)

    async def _folds(self) -> tuple[Fold, ...]:
        """The folds that were not undone, by whomever."""
        try:
            stored = await self._store.folds(self.conversation)
        except ConversationErased:
            raise
        except ConversationNotFound:  # nothing was said yet
            return ()
        return tuple(one.fold for one in stored if one.undone_at is None)

    async def _read(self) -> None:
        self._transcript = Transcript(counter=self._counter, broken="mark")
        self._said: dict[str, Said] = {}
        self._sequence: Counter[str] = Counter()
        try:
            loaded = await self._store.load(self.conversation)
        except ConversationErased:
            raise
        except ConversationNotFound:
            self._version = 0
            return
        if loaded.conversation.first:
            raise InvalidSetting("conversation", self.conversation, "one that nothing was purged from")
        for source, messages in groupby(loaded.messages, _source):
            self._place(*source, list(messages))
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
            for sequence, message in enumerate(messages, self._sequence[event.invocation_id])
        ]
        version = await self._store.append(
            self.conversation,
            entries,
            recipient=self._recipient,
            expected_version=self._version,
            idempotency_key=f"adk:{event.id}",
            broken="mark",
        )
        if version != self._version + 1:  # somebody else has added it, and more before it
            raise VersionConflict(self.conversation, version, self._version)
        self._version = version
        self._place(event.id, event.author, event.invocation_id, messages)

    def _place(self, event: str, author: str, run: str, messages: Sequence[Message]) -> None:
        start = len(self._transcript)
        self._transcript.extend(messages)
        self._sequence[run] += len(messages)
        self._said[event] = Said(self.conversation, author, signature_of(messages), range(start, len(self._transcript)))


def _source(message: Message) -> tuple[str, str, str]:
    """The event, its author and its run; nothing for what came into the record by other ways."""
    note = message.get(KEY) or {}
    return note.get("event", ""), note.get("author", ""), note.get("run", "")
