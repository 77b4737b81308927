"""One model call of a stored conversation: build the view to send, then store the answer.

New messages are stored before the request is sent, and the answer before the client gets the end of it. Both appends
are made under a lease, so no other process can answer in between.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.compaction.circuit_breaker import CircuitBreaker
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.minutes import CallSettings, Minutes, SentRequest, minutes_of
from minutebook.conversation.record_cache import MAX_INLINE_MESSAGES, are_large, compute
from minutebook.conversation.trimming import trim_old_turns, trims
from minutebook.conversation.view_source import FailOpenManager, ViewSource, compacts, view_builder_of
from minutebook.errors import (
    CannotFit,
    ContextOverflow,
    FoldConflict,
    MinutebookError,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.history.compose import PassthroughManager
from minutebook.history.overflow import AdaptiveViewBuilder
from minutebook.history.view import View
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold, record_with_folds
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, NewDocument
from minutebook.wire.chat import provider_message_to_entry
from minutebook.wire.write import without_own_keys

_LOG: Final = logging.getLogger("minutebook.conversation")
_MAX_INLINE_TOKENS: Final = 100_000
"""The view of a longer record is built in a thread."""
_APPEND_ATTEMPTS: Final = 3
"""Maximum attempts to store an answer. An attempt fails if another process appends messages without the lease."""
AnswerDocuments = Callable[[int], Sequence[NewDocument]]
"""Returns the documents to store with an answer, given the position of the answer's first entry."""


def no_documents(_start: int) -> Sequence[NewDocument]:
    """The `AnswerDocuments` of a call that stores only its minutes."""
    return ()


class ModelCall:
    """One model call of one conversation: call `begin`, send `messages`, then call `finish` with the answer."""

    def __init__(
        self,
        store: ConversationStore,
        settings: CallSettings,
        loaded: LoadedConversation | None = None,
        new_messages: Sequence[Message] = (),
        *,
        source: ViewSource | None = None,
        version: int = 0,
    ) -> None:
        """`source` is the whole record if the caller has it in memory, and `version` its version; `loaded` is then None."""
        self.settings = settings
        self.requests: list[SentRequest] = []
        """The requests to the provider, each with its outcome."""
        self.compactions: list[HistoryCompacted] = []
        self.version = version if loaded is None else loaded.conversation.version
        self.evaluation_id: UUID = uuid4()
        """The `evaluation_id` of the entries of this call."""
        self.is_stored = False
        """Whether the answer is in the record."""
        self._store = store
        self._new_messages = new_messages
        self._stored_length = 0 if loaded is None else loaded.conversation.length
        if source is None:
            whole_record = compacts(settings.policy)
            self.source = ViewSource(loaded, new_messages, counter=settings.counter, whole_record=whole_record)
        else:
            self.source, self._stored_length = source, len(source.record)
            source.extend(new_messages)
        self._overhead_tokens = settings.overhead_tokens
        if settings.instructions is not None:
            self._overhead_tokens += self.source.set_instructions(settings.instructions)
        limit = settings.policy.max_tokens
        manager = settings.policy.with_overhead(self._overhead_tokens).manager
        self._manager = FailOpenManager(manager)
        self._view_builder: AdaptiveViewBuilder = view_builder_of(
            self._manager if settings.fails_open else manager,
            None if limit is None else max(1, limit - self._overhead_tokens),
            settings.rules,
            keep_parts=settings.keeps_parts,
        )
        self._view: View | None = None
        self._sent: View | None = None
        """The view that is sent: `_view`, or all messages if the policy does not prune."""
        self._asked_at = datetime.now(UTC)
        self._sequence = 0
        folds = self.source.folds if loaded is None else loaded.folds
        self._fold_storage = FoldStorage(store, settings.conversation, folds)

    @property
    def messages(self) -> list[Message]:
        """The messages to send."""
        sent = () if self._sent is None else self._sent.curated
        return [without_own_keys(message) for message in (*self.source.front, *sent)]

    @property
    def request(self) -> SentRequest:
        """The newest request."""
        assert self.requests, "begin first"
        return self.requests[-1]

    @property
    def bypass(self) -> str | None:
        """The name of the error that made the manager fail, so that all messages are sent; None if it did not."""
        return self._manager.bypass

    @property
    def minutes(self) -> Minutes:
        """The minutes of the newest request."""
        return self.request.minutes

    @property
    def length(self) -> int:
        """The number of entries in the record after `begin`."""
        return self._stored_length + len(self._new_messages)

    @property
    def trims(self) -> bool:
        """Whether old tool payloads are trimmed after the answer is stored, which still needs the lease."""
        return self.settings.retention is not None and trims(self.settings.retention)

    async def begin(self, *, documents: Sequence[NewDocument] = (), recipient: str | None = None) -> None:
        """Store the new messages and build the view to send.

        Raises:
            VersionConflict: the conversation was changed after it was loaded.
            CannotFit: the messages that must be sent exceed the budget.
        """
        if not compacts(self.settings.policy):
            await compute(self.build_view, is_large=self.is_large)
            await self._append_new([*documents, *self._minutes(self.length)], recipient)
        else:  # a fold can only cover stored messages, so these are stored before the view is built
            await self._append_new(documents, recipient)
            await self._compact()
            await compute(self.build_view, is_large=self.is_large)
            await self._put_documents(self._minutes(self.length))

    async def preview(self) -> None:
        """Build the view without storing anything (dry run). Summaries are extracts, so no model is called.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
        """
        await self._compact(is_dry_run=True)
        self.build_view()

    async def finish(
        self,
        answer: Sequence[ConversationEntry],
        outcome: Mapping[str, Any] | None = None,
        documents: AnswerDocuments = no_documents,
        *,
        release: bool = False,
    ) -> int:
        """Store the answer and the minutes atomically, trim old tool payloads, and return the answer's first position.

        With `release` the append also releases the lease, unless trimming still needs it: see `trims`.

        Raises:
            LeaseLost: another holder took the lease.
        """
        start = self.length
        self.request.outcome |= outcome or {}
        for attempts_left in reversed(range(_APPEND_ATTEMPTS)):
            stored_length = start + len(answer) if start == self.length else self.length
            self.request.outcome["answer"] = start
            new_documents = [*documents(start), *self._minutes(stored_length)]
            try:
                await self._append_answer(answer, new_documents, release=release and not self.trims)
                break
            except VersionConflict:
                if not attempts_left:
                    raise
                header = await self._store.header(self.settings.conversation)
                self.version, start = header.version, header.length
        await self.trim()
        return start

    async def fail(self, outcome: Mapping[str, Any], documents: Sequence[NewDocument] = ()) -> None:
        """Store the minutes of a call that ended without an answer."""
        if self.is_stored:
            return
        if self.requests:
            self.request.outcome = dict(outcome)
        try:
            await self._put_documents([*documents, *self._minutes(self.length)])
        except StoreUnavailable:
            _LOG.warning("the minutes of a failed request could not be stored: the database is unavailable")

    def entries(self, messages: Sequence[Message]) -> list[ConversationEntry]:
        """Convert messages to entries of this call, numbered after the call's earlier entries."""
        entries = [
            provider_message_to_entry(
                message,
                evaluation_id=self.evaluation_id,
                sequence=sequence,
                created_at=datetime.now(UTC),
                provider=self.settings.provider,
                model=self.settings.model,
            )
            for sequence, message in enumerate(messages, self._sequence)
        ]
        self._sequence += len(entries)
        return entries

    def shorten_view(self, overflow: ContextOverflow) -> None:
        """Build a shorter view after the provider rejected this one as too long.

        Raises:
            ContextOverflow: no shorter view is possible, or the policy does not prune.
        """
        if self._view is None or self.settings.policy.mode != "on":
            raise overflow
        previous_tokens, overflows = self.minutes.tokens_after, self.request.overflows
        self._view_builder.lower_limit(self._view, overflow)
        try:
            self.build_view()
        except CannotFit:
            raise overflow from None
        self.request.overflows = overflows + 1
        if self.minutes.tokens_after >= previous_tokens:
            raise overflow

    @property
    def is_large(self) -> bool:
        """Whether work on the whole record would block the event loop."""
        record = self.source.record
        return len(record) > MAX_INLINE_MESSAGES or record.tokens > _MAX_INLINE_TOKENS

    def build_view(self) -> None:
        """Build the view and its minutes. If the manager fails, all messages are sent.

        Raises:
            CannotFit: the messages that must be sent exceed the budget.
        """
        is_pruning = self.settings.policy.mode == "on"
        try:
            view = self.source.view(self._view_builder)
        except CannotFit:
            if is_pruning:
                raise
            view = self._unpruned_view()
        sent = view if is_pruning else self._unpruned_view()
        self._view, self._sent = view, sent
        request = self._request(self.settings, view, sent, self.source.positions)
        request.asked_at = self._asked_at
        self.requests = [request]

    def _unpruned_view(self) -> View:
        """The view of all messages, without a manager or limit, valid for the provider."""
        rules, keep_parts = self.settings.rules, self.settings.keeps_parts
        return self.source.view(view_builder_of(PassthroughManager(), None, rules, keep_parts=keep_parts))

    def view(self, *, number: int | None = None) -> View:
        """The view to send, after `begin` or `preview`. `number` is the number of the recorded request."""
        assert self._sent is not None, "begin first"
        return replace(self._sent, number=number)

    def _request(self, settings: CallSettings, view: View, sent: View, positions: Sequence[int | None]) -> SentRequest:
        return SentRequest(
            settings=settings,
            minutes=minutes_of(view, sent, positions, self.source.front),
            decision=settings.policy.decision(record_with_folds(view.record, self.source.folds).transcript),
            loaded=len(view.record),
            budget=self._view_builder.max_tokens,
            bypass=self.bypass,
            folds=self._fold_storage.active,
        )

    def _minutes(self, stored_length: int) -> list[NewDocument]:
        """The minutes of every request as documents; `stored_length` is the record's length once they are stored."""
        return [request.document(min(stored_length, self.length)) for request in self.requests]

    async def _append_new(self, documents: Sequence[NewDocument], recipient: str | None) -> None:
        if self._stored_length and not self._new_messages:
            await self._put_documents(documents)
            return
        is_large = are_large(self._new_messages)
        entries = await compute(self.entries, self._new_messages, is_large=is_large)
        self.version = await self._store.append(
            self.settings.conversation,
            entries,
            expected_version=self.version,
            lease=self.settings.lease,
            documents=documents,
            recipient=None if self.version else recipient,
        )

    async def _append_answer(
        self, answer: Sequence[ConversationEntry], documents: Sequence[NewDocument], *, release: bool
    ) -> None:
        append = asyncio.ensure_future(
            self._store.append(
                self.settings.conversation,
                answer,
                expected_version=self.version,
                lease=self.settings.lease,
                documents=documents,
                release=release,
            )
        )
        try:
            self.version = await asyncio.shield(append)
        except asyncio.CancelledError:
            await asyncio.wait({append})  # the append may still succeed, and then `fail` must not overwrite its minutes
            self.is_stored = append.exception() is None
            raise
        self.is_stored = True

    async def _put_documents(self, documents: Sequence[NewDocument]) -> None:
        for document in documents:
            await self._store.put_document(self.settings.conversation, document)

    async def _compact(self, *, is_dry_run: bool = False) -> None:
        """Let the policy's strategy add folds if the window is too full. A dry run stores none and calls no model."""
        policy = self.settings.policy
        if is_dry_run:
            policy = replace(policy, summarizer=None, breakers=defaultdict(CircuitBreaker))
        manager = policy.compaction(
            self.source.folds,
            None if is_dry_run else self._save_fold,
            self._fold_storage.rewinds,
            tenant=self._store.tenant,
        )
        if manager is None or not compacts(policy):
            return
        result = await manager.check_and_apply(self.source.record, overhead_tokens=self._overhead_tokens)
        self.source.folds = result.folds
        if result.event is not None:
            self.compactions.append(result.event)

    async def _save_fold(self, fold: Fold) -> Fold:
        """Store a fold. If that fails, only this call uses it."""
        try:
            return await self._fold_storage.save(fold)
        except (FoldConflict, StoreUnavailable) as error:
            _LOG.warning("a fold could not be stored and is used for this answer only: %s", type(error).__name__)
            return fold

    async def trim(self) -> None:
        """Trim old tool payloads, as the settings say."""
        if self.settings.retention is None:
            return
        try:
            await trim_old_turns(self._store, self.settings.conversation, self.settings.retention)
        except MinutebookError as error:  # the next answer's trimming repeats it
            _LOG.warning("old tool payloads could not be trimmed: %s", type(error).__name__)
