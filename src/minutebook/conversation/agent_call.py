"""The record of a stored conversation during the run of an agent, which makes several requests and may call tools.

`RunRecord` stores each message as soon as it is complete: the user message before the first model call, a tool call together with its results,
and the answer before the run returns. A run that is killed loses at most the exchange in progress, and the next run
continues after the last stored one. If tools were running that may not be repeated, the message that called them is not
lost: the next run stores it, with results that say that they were interrupted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict
from uuid import uuid4

from minutebook.agent.limits import Budget, BudgetTracker, Deadline
from minutebook.agent.messages import Usage
from minutebook.agent.runner import Compactor
from minutebook.compaction.manager import CompactionResult
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.minutes import CallSettings, SentRequest, usage_json
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.requests import conversation_digest, request_id
from minutebook.conversation.view_source import ViewSource, compacts, load_record
from minutebook.errors import CannotFit, DocumentExists, DocumentNotFound, VersionConflict
from minutebook.history.compose import PassthroughManager
from minutebook.history.protocol import HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.planning.plan_snapshot import PlanChanges
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument
from minutebook.wire.chat import entry_to_provider_message

_LOG: Final = logging.getLogger("minutebook.conversation")
LEASE_SECONDS: Final = 10.0
"""Duration of a run's lease, which is renewed. After a crash the next run waits at most this long."""
PLAN_KIND: Final = "plan"
"""The document kind of a conversation's plan."""
CALLS_KIND: Final = "calls"
"""The document kind of a message whose tool calls are running. It is empty after their results are stored."""
ATTEMPTS: Final = 200
"""Maximum attempts to write while other processes write to the same conversation.

A slow one among six that never paused was seen to fail 20 times in a row.
"""


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


class RunRecord(ModelCall):
    """The record of a stored conversation during one run. `ConversationRunner` appends to it and saves."""

    def __init__(
        self,
        store: ConversationStore,
        settings: CallSettings,
        source: ViewSource,
        *,
        version: int,
        recipient: str | None,
        last_request: int,
        first_entries: Sequence[ConversationEntry] = (),
    ) -> None:
        """`first_entries` are at the end of the source and not stored yet; they are stored with the first save."""
        super().__init__(store, settings, source=source)
        manager = self._manager if settings.fails_open else self._manager.inner
        self.manager: HistoryManager = manager if settings.policy.mode == "on" else PassthroughManager()
        """The manager of the run. In shadow mode it leaves nothing out: what would be pruned is only computed."""
        self.version, self.last_request = version, last_request
        self._recipient = recipient
        self._first_entries = tuple(first_entries)
        self._stored_length = len(source.record) - len(first_entries)
        self._batches: deque[_Batch] = deque()
        """Entries that are not stored yet."""
        self._plan = PlanChanges(self._plan_id)
        self._has_begun_tools = False
        self._open_storage()

    def _open_storage(self) -> None:
        self._fold_storage = FoldStorage(self._store, self.settings.conversation, self.source.folds)
        self._compactor: Compactor | None = None
        if compacts(self.settings.policy):
            policy, folds = self.settings.policy, self.source.folds
            self._compactor = policy.compaction(
                folds, self._save_fold, self._fold_storage.rewinds, tenant=self._store.tenant
            )

    @property
    def max_tokens(self) -> int | None:
        """The token budget of a request's messages; None for no limit."""
        return self._view_builder.max_tokens if self.settings.policy.mode == "on" else None

    async def restore_plan(self, session: SessionProtocol) -> None:
        """Load the plan that earlier runs stored into the session, unless that has a plan or was rolled back to before it.

        A plan that was changed after the message to which the conversation was rewound is not loaded.
        """
        try:
            document = await self._store.document(PLAN_KIND, self._plan_id)
        except DocumentNotFound:
            return
        hidden = [range(fold.start, fold.stop) for fold in self.source.folds if fold.is_rewind]
        self._plan.restore(session, document.body, hidden)

    @property
    def _calls_id(self) -> str:
        return f"calls-{conversation_digest(self.settings.conversation)}"

    @property
    def _plan_id(self) -> str:
        return f"plan-{conversation_digest(self.settings.conversation)}"

    @property
    def record(self) -> Transcript:
        """All messages, including those that are not saved yet."""
        return self.source.record

    @property
    def start(self) -> int:
        """The index of the first message that is not cleared."""
        return self.source.start

    def stored_source(self) -> ViewSource:
        """The part of the record that is saved."""
        if len(self.record) == self._stored_length:
            return self.source
        messages = self.record[: self._stored_length]
        source = ViewSource(None, messages, counter=self.settings.counter, whole_record=True)
        source.folds = tuple(fold for fold in self.source.folds if fold.stop <= self._stored_length)
        source.set_pins(self.record.pins)
        return source

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
        for _ in range(ATTEMPTS):
            request = self._next_request(view)
            try:
                await self._put_documents([request.document(self._stored_length)])
            except DocumentExists:  # another process has taken the number
                self.last_request = (await self._store.header(self.settings.conversation)).requests
                continue
            return self._start_request(request)
        raise DocumentExists(
            "request", request_id(self.settings.conversation, self.last_request + 1), self.settings.conversation
        )

    def _next_request(self, view: View) -> SentRequest:
        pruned_view = view
        if self.settings.policy.mode != "on":
            try:
                pruned_view = self._view_builder.view(view.record, ())
            except CannotFit:
                _LOG.warning("shadow mode: the pruned view cannot be computed: CannotFit")
        number = self.last_request + 1
        settings = replace(self.settings, request_id=request_id(self.settings.conversation, number), number=number)
        return self._request(settings, pruned_view, view, self.source.positions)

    def _start_request(self, request: SentRequest) -> int:
        self.last_request += 1
        self.requests = [request]
        return self.last_request

    async def begin_tools(self, message: Message) -> None:
        """Store the message whose tool calls are about to run, with the outcome of its request."""
        self._has_begun_tools = True
        body = {"version": self.version, "message": dict(message)}
        await self._put_documents([*self._documents(), NewDocument(CALLS_KIND, self._calls_id, body, replace=True)])

    async def find_interrupted_message(self) -> Message | None:
        """The message of `begin_tools` in an earlier run, unless messages were stored after it."""
        try:
            body = (await self._store.document(CALLS_KIND, self._calls_id)).body
        except DocumentNotFound:
            return None
        self._has_begun_tools = bool(body)
        message: Message | None = body.get("message") if body.get("version") == self.version else None
        return message

    def end_request(self, usage: Usage, finish: str) -> None:
        """Note the outcome of the newest request, which is stored with its answer."""
        self.request.outcome = {"finish": finish, "usage": usage_json(usage), "answer": self._stored_length}

    async def note_failure(self, error: BaseException) -> None:
        """Store the error in the minutes of the newest request, unless the request was answered."""
        if self.requests and not self.request.outcome:
            await self.fail({"failed": type(error).__name__})

    async def store_first(self, documents: Sequence[NewDocument] = ()) -> None:
        """Store the first entries now, instead of with the first save, atomically with these documents."""
        if not self._first_entries:
            await self._put_documents(documents)
            return
        self.version = await self._store.append(
            self.settings.conversation,
            self._first_entries,
            recipient=None if self.version else self._recipient,
            expected_version=self.version,
            lease=self.settings.lease,
            documents=documents,
        )
        self._stored_length += len(self._first_entries)
        self._first_entries = ()

    async def save(self, entries: Sequence[ConversationEntry], *, session: SessionProtocol) -> None:
        """Store entries that were appended to the record, and those that an earlier attempt could not store.

        If the session's plan has changed, it is stored atomically with them.

        Raises:
            LeaseLost: the lease of this run was lost to another holder.
            BrokenConversation: another process has appended messages that these do not fit.
        """
        if entries:
            self._batches.append(_Batch(f"{self.settings.run_id}-{uuid4().hex}", (*self._first_entries, *entries)))
            self._first_entries = ()
        while self._batches:
            append = asyncio.ensure_future(self._append(self._batches[0], session))
            try:
                await asyncio.shield(append)
            except asyncio.CancelledError:
                await asyncio.wait({append})  # the append may still succeed, and must not be repeated
                raise

    async def _append(self, batch: _Batch, session: SessionProtocol) -> None:
        plan = self._plan.data(session, self._stored_length + len(batch.entries))
        documents = [] if plan is None else [NewDocument(PLAN_KIND, self._plan_id, plan, replace=True)]
        if self._has_begun_tools:
            documents.append(NewDocument(CALLS_KIND, self._calls_id, {}, replace=True))
        expected_version = self.version
        for _ in range(ATTEMPTS):
            try:
                version = await self._store.append(
                    self.settings.conversation,
                    batch.entries,
                    recipient=None if self.version else self._recipient,
                    expected_version=expected_version,
                    idempotency_key=batch.key,
                    lease=self.settings.lease,
                    documents=[*self._documents(), *documents],
                )
            except VersionConflict:  # another task or process has appended without the lease
                # Only the header is read: in a longer pause others could append again.
                header = await self._store.header(self.settings.conversation)
                expected_version = header.version
                if self.requests and "usage" in self.request.outcome:
                    self.request.outcome["answer"] = header.length
                continue
            self._plan.note_stored(session)
            self._has_begun_tools = False
            self._batches.popleft()
            if expected_version != self.version:
                await self._reload()
                return
            self.version = version
            self._stored_length += len(batch.entries)
            self.source.positions += range(len(self.source.positions), self._stored_length)
            return
        raise VersionConflict(self.settings.conversation, expected_version, self.version)

    def _documents(self) -> list[NewDocument]:
        """The minutes of the newest request, if it was answered since they were stored."""
        if not self.requests or "usage" not in self.request.outcome:
            return []
        return [self.request.document(self.request.stored_length or self._stored_length)]

    async def _reload(self) -> None:
        """Read the record again, and append the messages that are not stored yet to it."""
        loaded = await load_record(self._store, self.settings.conversation)
        unsaved = [entry_to_provider_message(entry) for batch in self._batches for entry in batch.entries]
        self.source = ViewSource(loaded, unsaved, counter=self.settings.counter, whole_record=True)
        self.version, self._stored_length = loaded.conversation.version, loaded.conversation.length
        self._open_storage()
