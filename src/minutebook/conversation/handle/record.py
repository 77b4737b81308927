"""The record of a stored conversation in memory: reads the entries that other processes have added, and appends to it."""

import asyncio
import logging
import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid4, uuid5

from minutebook.agent.recorder import interrupted_result
from minutebook.conversation.agent_call import ATTEMPTS, RunRecord
from minutebook.conversation.handle.lock import TaskLock
from minutebook.conversation.handle.policy_builder import PolicyBuilder
from minutebook.conversation.lease import RenewedLease
from minutebook.conversation.minutes import SentRequest
from minutebook.conversation.model_call import AnswerDocuments
from minutebook.conversation.record_cache import new_messages_of
from minutebook.conversation.view_source import ViewSource, load_record
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    MissingSetting,
    VersionConflict,
)
from minutebook.record.message import Message, call_ids, is_result, result_id
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, ConversationStatus, LoadedConversation
from minutebook.wire.chat import json_bytes, new_entries

_LOG: Final = logging.getLogger("minutebook.conversation")
_MAX_PAUSE_SECONDS: Final = 0.02
"""Maximum pause before the next attempt. It is random, so that two processes do not collide again."""


class ConversationRecord:
    """The record of one conversation, which tasks of any thread may share."""

    def __init__(
        self,
        store: ConversationStore,
        id_: str | None,
        recipient: str | None,
        system: str | None,
        policy: PolicyBuilder,
    ) -> None:
        self.store = store
        self._id, self._recipient, self._system, self._policy = id_, recipient, system, policy
        self._lock = TaskLock()
        """Held while the record is read or written."""
        self._source: ViewSource | None = None
        """The record, once the conversation was read."""
        self._run: RunRecord | None = None
        """The run that this handle has opened. Its record is its own, so that other tasks may append meanwhile."""
        self._version = 0
        """The stored version, 0 if there is none yet."""
        self._header: ConversationHeader | None = None
        """The header with which the record was last read."""
        self._own_calls: frozenset[str] = frozenset()
        """The ids of the newest tool calls that were appended with this handle."""
        self._renewed_lease: RenewedLease | None = None
        """The lease that this handle holds."""
        self._last_request = 0
        self._unanswered_request: SentRequest | None = None
        """The newest request, if it has no answer yet. The next answer's usage is stored in its minutes."""

    @property
    @abstractmethod
    def id(self) -> str: ...

    @property
    def _record(self) -> Transcript:
        if self._source is not None:
            return self._source.record
        if self._run is not None:
            return self._run.record
        raise MissingSetting("an open conversation", "write `async with conversation:`, or await open() first")

    async def _read_locked(self) -> ViewSource:
        """Read the new entries of the conversation, while no other task of this handle reads or writes."""
        async with self._lock:
            return await self._synchronize()

    async def _open_locked(self) -> None:
        """Read the conversation, unless it is in memory, while no other task of this handle reads or writes."""
        if self._source is None and self._run is None:
            await self._read_locked()

    async def _open(self) -> ViewSource:
        """The record, read if it is not in memory. The caller holds the lock."""
        return self._source or await self._synchronize()

    async def _synchronize(self) -> ViewSource:
        """Read the entries, folds and pins that were added since the last call; all of them the first time."""
        if self._id is None:
            assert self._recipient is not None
            self._id = await id_of_recipient(self.store, self._recipient)
        try:
            if self._source is not None and self._version and await self._read_new(self._source):
                return self._source
            loaded = await load_record(self.store, self._id)
        except ConversationErased:
            raise
        except ConversationNotFound:  # new, or expired
            self._forget()
            self._source = self._empty_source()
            return self._source
        return await self._replace_record(loaded)

    def _empty_source(self) -> ViewSource:
        return ViewSource(None, (), counter=self._policy.counter, whole_record=True)

    def _forget(self) -> None:
        self._source, self._header, self._sent, self._own_calls = None, None, None, frozenset()
        self._version = self._last_request = 0

    async def _replace_record(self, loaded: LoadedConversation) -> ViewSource:
        header = loaded.conversation
        if self._recipient is not None and header.recipient != self._recipient:
            expected = f"{header.recipient!r}, the recipient of conversation {self._id!r}"
            raise InvalidSetting("recipient", self._recipient, expected)
        self._version, self._header, self._last_request = header.version, header, header.requests
        self._source = ViewSource(loaded, (), counter=self._policy.counter, whole_record=True)
        return self._source

    async def _read_new(self, source: ViewSource) -> bool:
        """Add new entries, folds and pins to the record. Return False if the whole record must be read again."""
        length = len(source.record)
        loaded = await self.store.load(self.id, since=length, folded=True)
        new = new_messages_of(loaded, self._header or loaded.conversation, length)
        if new is None:
            return False
        source.extend(new)
        source.set_pins(loaded.pins)
        source.folds = loaded.folds
        self._header = loaded.conversation
        self._version, self._last_request = self._header.version, self._header.requests
        return True

    async def _append_messages(
        self,
        new_messages: Sequence[Message],
        idempotency_key: str | None,
        *,
        provider: str,
        model: str | None,
        documents: AnswerDocuments,
    ) -> int:
        """Append messages and return the position of the last one. `documents` gets the position of the first one.

        The caller holds the lock.
        """
        source = await self._open()
        # The id of a keyed append depends on the key, so that a repeated append can find the entries of the first.
        append_id = uuid4() if idempotency_key is None else uuid5(NAMESPACE_OID, f"{self.id}\n{idempotency_key}")
        attempts_left = ATTEMPTS
        while True:
            interrupted = [] if is_rewound(source) else self._interrupted_results(source.record, new_messages)
            added_messages = [*self._first_messages(source), *interrupted, *new_messages]
            try:
                version = await self.store.append(
                    self.id,
                    new_entries(added_messages, provider=provider, model=model, evaluation_id=append_id),
                    recipient=None if self._version else self._recipient,
                    expected_version=self._version,
                    idempotency_key=idempotency_key,
                    fingerprint=None if idempotency_key is None else json_bytes(new_messages),
                    documents=documents(len(source.record) + len(added_messages) - len(new_messages)),
                    lease=None if self._renewed_lease is None else self._renewed_lease.lease,
                )
            except ConversationErased:
                raise
            except (VersionConflict, ConversationNotFound):  # another process has appended, or the conversation expired
                attempts_left -= 1
                if not attempts_left:
                    raise
                await asyncio.sleep(random.uniform(0, _MAX_PAUSE_SECONDS))  # noqa: S311 - only spreads retries
                source = await self._synchronize()
                continue
            is_new = version == self._version + 1
            if is_new and (idempotency_key is not None or not self._version):
                self._header = await self.store.header(self.id)
                # Another handle that used the key may have stored other messages before these, such as a system message.
                is_new = self._header.length == len(source.record) + len(added_messages)
            if not is_new:
                await self._synchronize()
                return await self._last_position_of(append_id)
            source.extend(added_messages)
            self._version = version
            self._note_calls(new_messages)
            self._warn_interrupted(interrupted)
            return len(source.record) - 1

    async def _rewind(self, to: int | None, expected_version: int | None) -> ConversationHeader:
        """Hide the messages from a position on; all if it is None. The caller holds the lock."""
        if to is None:
            header = await self.store.clear(self.id, expected_version=expected_version)
        else:
            header = await self.store.rewind(self.id, to, expected_version=expected_version)
        self._source, self._sent, self._own_calls = None, None, frozenset()
        await self._synchronize()
        return header

    async def _last_position_of(self, append_id: UUID) -> int:
        """The position of the last entry of an earlier append; of the last purged entry if they were purged."""
        loaded = await self.store.load(self.id)
        positions = [
            position
            for position, entry in zip(loaded.positions, loaded.entries, strict=True)
            if entry.evaluation_id == append_id
        ]
        return positions[-1] if positions else loaded.start - 1

    def _first_messages(self, source: ViewSource) -> list[Message]:
        if self._system is None or not is_empty(source):
            return []
        return [{"role": "system", "content": self._system}]

    def _interrupted_results(self, record: Transcript, new_messages: Sequence[Message]) -> list[Message]:
        """Results for the tool calls that another process has left without, unless the new messages have them."""
        has_results = bool(new_messages) and is_result(new_messages[0])
        if not record.open_calls or has_results or self._own_calls.issuperset(record.open_calls):
            return []
        return list(map(interrupted_result, record.open_calls))

    def _warn_interrupted(self, results: Sequence[Message]) -> None:
        if results:
            text = "conversation %s: tool calls of another process had no result and got an interrupted result: %s"
            _LOG.warning(text, self.id, ", ".join(map(result_id, results)))

    def _note_calls(self, messages: Sequence[Message]) -> None:
        """Remember the tool calls of stored messages: this handle gets their results, so they are not interrupted."""
        for message in messages:
            self._own_calls = frozenset(call_ids(message)) or self._own_calls


def is_rewound(source: ViewSource) -> bool:
    """Whether the last message is hidden, so that nothing was appended since a rewind."""
    last = source.folds[-1] if source.folds else None
    return last is not None and last.stop == len(source.record) and last.is_rewind


def is_empty(source: ViewSource) -> bool:
    """Whether there are no messages, or a rewind hides all of them."""
    return source.start == len(source.record)


async def id_of_recipient(store: ConversationStore, recipient: str) -> str:
    """The id of the recipient's newest conversation that is neither closed nor a fork, else an id for a new one.

    The new id is the recipient's name, with a random suffix if a conversation has or had that id.
    """
    cursor = None
    while True:
        page = await store.list(recipient=recipient, cursor=cursor)
        for header in page.items:
            if header.status is not ConversationStatus.CLOSED and header.origin is None:
                return header.id
        if (cursor := page.cursor) is None:
            break
    try:
        header = await store.header(recipient)
    except ConversationErased:
        pass
    except ConversationNotFound:
        return recipient
    else:
        is_open = header.recipient == recipient and header.status is not ConversationStatus.CLOSED
        if is_open and header.origin is None:  # another process has created it since the list was read
            return recipient
    return f"{recipient[:400]}.{uuid4().hex}"
