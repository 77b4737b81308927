"""The run of an agent in a stored conversation, which stores messages and requests as they happen.

The user message is stored before the first model call, a tool call together with its results, and the answer before the
run returns. So a run that is killed loses at most the exchange in progress, and the next run continues after the last
stored one.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict
from uuid import uuid4

from minutebook.agent.limits import Budget, BudgetTracker, Deadline
from minutebook.agent.messages import Usage
from minutebook.compaction.manager import CompactionResult
from minutebook.conversation.agent_call import AgentCall
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.minutes import CallSettings, last_request_number, request_id, usage_json
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import DocumentExists, VersionConflict
from minutebook.history.protocol import SessionProtocol
from minutebook.history.view import View
from minutebook.record.entry import ConversationEntry
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument
from minutebook.wire.chat import entry_to_provider_message

LEASE_SECONDS: Final = 10.0
"""Duration of a run's lease, which is renewed. After a crash the next run waits at most this long."""
_ATTEMPTS: Final = 5
"""Maximum attempts to write while other processes write to the same conversation."""


class RunLimits(TypedDict, total=False):
    """Optional limits of a run; see `ConversationRunner` for their meaning."""

    deadline: Deadline | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    max_calls: int


@dataclass(frozen=True, slots=True)
class _Batch:
    """Entries that are stored together. The key makes a second attempt harmless if the first one has stored them."""

    key: str
    entries: tuple[ConversationEntry, ...]


class RunRecord(AgentCall):
    """The record of a stored conversation during one run. `ConversationRunner` appends to it and saves."""

    def __init__(
        self,
        store: ConversationStore,
        call: CallSettings,
        source: ViewSource,
        *,
        version: int,
        recipient: str | None,
        last_request: int,
        first_entries: Sequence[ConversationEntry] = (),
    ) -> None:
        """`first_entries` are at the end of the source and not stored yet; they are stored with the first save."""
        super().__init__(store, call, None, (), new_id=lambda: "", source=source)
        self.version, self.last_request = version, last_request
        self._recipient = recipient
        self._first_entries = tuple(first_entries)
        self._stored_length = len(source.record) - len(first_entries)
        self._batches: deque[_Batch] = deque()
        """Entries that are not stored yet."""
        self._open_storage()

    def _open_storage(self) -> None:
        self._folds = FoldStorage(self._store, self.call.conversation, self.source.folds)
        self._compactor = self.compactor(keep=True)

    @property
    def record(self) -> Transcript:
        """All messages, including those that are not saved yet."""
        return self.source.record

    @property
    def is_saved(self) -> bool:
        """Whether the store has all messages of `record`."""
        return len(self.record) == self._stored_length

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol, overhead_tokens: int
    ) -> CompactionResult:
        """Let the policy's strategy fold old messages if the window is too full, and return all folds."""
        if self._compactor is None:
            return CompactionResult(self.source.folds)
        result = await self._compactor.check_and_apply(record, session=session, overhead_tokens=overhead_tokens)
        self.source.folds = result.folds
        return result

    async def begin_request(self, view: View) -> int:
        """Store the minutes of the next request, and return its number."""
        for _ in range(_ATTEMPTS):
            number = self.last_request + 1
            call = replace(self.call, request_id=request_id(self.call.conversation, number), number=number)
            request = self._request(call, view, view, self.source.positions)
            try:
                await self._put([request.document(self._stored_length)])
            except DocumentExists:  # another process has taken the number
                self.last_request = await last_request_number(self._store, self.call.conversation)
                continue
            self.last_request = number
            self.requests = [request]
            return number
        raise DocumentExists(
            "request", request_id(self.call.conversation, self.last_request + 1), self.call.conversation
        )

    def end_request(self, usage: Usage, finish: str) -> None:
        """Note the outcome of the newest request, which is stored with its answer."""
        self.request.outcome = {"finish": finish, "usage": usage_json(usage), "answer": self._stored_length}

    async def note_failure(self, error: BaseException) -> None:
        """Store in the minutes of the newest request that it was not answered, if it was not."""
        if self.requests and not self.request.outcome:
            await self.fail({"failed": type(error).__name__})

    async def save(self, entries: Sequence[ConversationEntry], *, session: SessionProtocol) -> None:  # noqa: ARG002
        """Store entries that were appended to the record, and those that an earlier attempt could not store.

        Raises:
            LeaseLost: the lease of this run was lost to another holder.
            BrokenConversation: another process has appended messages that these do not fit.
        """
        if entries:
            self._batches.append(_Batch(f"{self.call.run_id}-{uuid4().hex}", (*self._first_entries, *entries)))
            self._first_entries = ()
        while self._batches:
            append = asyncio.ensure_future(self._append(self._batches[0]))
            try:
                await asyncio.shield(append)
            except asyncio.CancelledError:
                await asyncio.wait({append})  # the append may still succeed, and must not be repeated
                raise

    async def _append(self, batch: _Batch) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self.version = await self._store.append(
                    self.call.conversation,
                    batch.entries,
                    recipient=None if self.version else self._recipient,
                    expected_version=self.version,
                    idempotency_key=batch.key,
                    lease=self.call.lease,
                    documents=self._documents(),
                )
            except VersionConflict:  # another process has appended without the lease
                await self._reload()
                continue
            self._batches.popleft()
            self._stored_length += len(batch.entries)
            self.source.positions += range(len(self.source.positions), self._stored_length)
            return
        raise VersionConflict(
            self.call.conversation, (await self._store.header(self.call.conversation)).version, self.version
        )

    def _documents(self) -> list[NewDocument]:
        """The minutes of the newest request, if it was answered since they were stored."""
        if not self.requests or "usage" not in self.request.outcome:
            return []
        return [self.request.document(self.request.stored_length or self._stored_length)]

    async def _reload(self) -> None:
        """Read the record again, and append the messages that are not stored yet to it."""
        loaded = await self._store.load(self.call.conversation)
        unsaved = [entry_to_provider_message(entry) for batch in self._batches for entry in batch.entries]
        self.source = ViewSource(loaded, unsaved, counter=self.call.counter, whole=True)
        self.version, self._stored_length = loaded.conversation.version, loaded.conversation.length
        if self.requests and "usage" in self.request.outcome:
            self.request.outcome["answer"] = self._stored_length
        self._open_storage()
