"""The one path of a model call: from the record to what is sent, and from the answer back to the record.

What is new is stored before the model is asked, and the answer before the client is told that it is whole. Both appends
are made under a lease, so that nobody else answers in between.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.conversation.compactor import FoldStorage
from minutebook.conversation.minutes import CallSettings, Minutes, SentRequest, minutes_of
from minutebook.conversation.trimming import age_out, trims
from minutebook.conversation.view_source import FailOpenManager, ViewSource, compacts, lens_of
from minutebook.errors import (
    CannotFit,
    ContextOverflow,
    FoldConflict,
    MinutebookError,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.history.overflow import Lens
from minutebook.history.view import View
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold, folded
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.types import Loaded, NewDocument
from minutebook.wire.chat import provider_message_to_entry
from minutebook.wire.responses import bare

_LOG: Final = logging.getLogger("minutebook.service")
_APPEND_ATTEMPTS: Final = 3
"""Maximum attempts to store an answer while others, who do not answer, append to the conversation."""
DocumentsAt = Callable[[int], Sequence[NewDocument]]
"""What is stored with an answer, given the position where the answer begins."""


def no_documents(_start: int) -> Sequence[NewDocument]:
    """Nothing is stored with the answer but its minutes."""
    return ()


class ModelCall:
    """One model call of one conversation: `begin` it, send its `messages`, and `finish` it with the answer."""

    def __init__(
        self, store: ConversationStore, call: CallSettings, loaded: Loaded | None, new: Sequence[Message]
    ) -> None:
        self.call = call
        self.messages: list[Message] = []
        """What to send."""
        self.requests: list[SentRequest] = []
        """What the provider was sent, and how that ended."""
        self.notices: list[str] = []
        """What the user may be told, such as that old parts were compacted."""
        self.version = 0 if loaded is None else loaded.conversation.version
        self.evaluation: UUID = uuid4()
        """What marks the entries of this call."""
        self.is_stored = False
        """Whether the answer is in the record."""
        self._store = store
        self._new = new
        self._known = None if loaded is None else loaded.conversation
        self.source = self._source(loaded, new)
        self._overhead = call.overhead_tokens
        if call.instructions is not None:
            self._overhead += self.source.instruct(call.instructions)
        limit = call.policy.max_tokens
        self._manager = FailOpenManager(call.policy.manager)
        self._lens: Lens = lens_of(self._manager, None if limit is None else max(1, limit - self._overhead))
        self._view: View | None = None
        self._asked_at = datetime.now(UTC)
        self._sequence = 0
        folds = () if loaded is None else loaded.folds
        self._folds = FoldStorage(store, call.conversation, folds, length=self.length)

    def _source(self, loaded: Loaded | None, new: Sequence[Message]) -> ViewSource:
        return ViewSource(loaded, new, counter=self.call.counter, whole=compacts(self.call.policy))

    @property
    def request(self) -> SentRequest:
        """The newest request."""
        assert self.requests, "begin first"
        return self.requests[-1]

    @property
    def bypass(self) -> str | None:
        """Why the view was not used, where it could not be."""
        return self._manager.bypass

    @property
    def minutes(self) -> Minutes:
        """What is sent, beside the record."""
        return self.request.minutes

    @property
    def length(self) -> int:
        """How many entries the record has once the call has begun."""
        return (0 if self._known is None else self._known.length) + len(self._new)

    @property
    def trims(self) -> bool:
        """Whether old tool payloads are trimmed after the answer, for which the lease is still needed."""
        return self.call.retention is not None and trims(self.call.retention)

    async def begin(self, *, documents: Sequence[NewDocument] = (), recipient: str | None = None) -> None:
        """Store what is new, then make the view that is to be sent.

        Raises:
            VersionConflict: somebody wrote since it was loaded.
            CannotFit: what must be sent does not fit.
        """
        if not compacts(self.call.policy):
            self.look()
            await self._append_new([*documents, *self._minutes(self.length)], recipient)
        else:  # a fold stands over what is stored already
            await self._append_new(documents, recipient)
            await self._compact()
            self.look()
            await self._put(self._minutes(self.length))

    async def rehearse(self) -> None:
        """Make the view that would be sent now, and store nothing. What would be summarized is an extract here.

        Raises:
            CannotFit: what must be sent does not fit.
        """
        await self._compact(rehearsed=True)
        self.look()

    async def finish(
        self,
        answer: Sequence[ConversationEntry],
        outcome: Mapping[str, Any] | None = None,
        documents: DocumentsAt = no_documents,
        *,
        release: bool = False,
    ) -> int:
        """Store the answer, all of it or nothing, with the minutes; then trim what is old by now. Return where it begins.

        `release` gives the lease back with the append, unless something may be trimmed: see `trims`.

        Raises:
            LeaseLost: somebody else answers there by now.
        """
        start = self.length
        self.request.outcome |= outcome or {}
        for left in reversed(range(_APPEND_ATTEMPTS)):
            stored = start + len(answer) if start == self.length else self.length
            self._note_answer(start)
            made = [*documents(start), *self._minutes(stored)]
            try:
                await self._append_answer(answer, made, release=release and not self.trims)
                break
            except VersionConflict:
                if not left:
                    raise
                header = await self._store.header(self.call.conversation)
                self.version, start = header.version, header.length
        while self._folds.unstored:
            try:
                await self._folds.flush()
            except (FoldConflict, StoreUnavailable) as error:
                _warn_unstored(error)
        await self._trim()
        return start

    async def fail(self, outcome: Mapping[str, Any], documents: Sequence[NewDocument] = ()) -> None:
        """Write down how a call ended that has no answer."""
        if self.is_stored:
            return
        if self.requests:
            self.request.outcome = dict(outcome)
        try:
            await self._put([*documents, *self._minutes(self.length)])
        except StoreUnavailable:
            _LOG.warning("how a request failed could not be written down: the database cannot be reached")

    def entries(self, messages: Sequence[Message]) -> list[ConversationEntry]:
        """Messages as entries of this call."""
        made = [
            provider_message_to_entry(
                message,
                evaluation_id=self.evaluation,
                sequence=sequence,
                created_at=datetime.now(UTC),
                provider=self.call.provider,
                model=self.call.model,
            )
            for sequence, message in enumerate(messages, self._sequence)
        ]
        self._sequence += len(made)
        return made

    def narrow(self, overflow: ContextOverflow) -> None:
        """Make a shorter view, after the provider found this one too long.

        Raises:
            ContextOverflow: there is none.
        """
        if self._view is None or self.call.policy.mode != "on":
            raise overflow
        before = self.minutes.tokens_after
        self._lens.narrow(self._view, overflow)
        try:
            self.look()
        except CannotFit:
            raise overflow from None
        if self.minutes.tokens_after >= before:
            raise overflow

    def look(self) -> None:
        """Make the view. A manager that fails keeps nobody from an answer: everything is sent then.

        Raises:
            CannotFit: what must be sent does not fit.
        """
        pruning = self.call.policy.mode == "on"
        try:
            view = self.source.view(self._lens)
        except CannotFit:
            if pruning:
                raise
            view = self.source.whole_view()
        sent = view if pruning else self.source.whole_view()
        self._view = view
        self.messages = [bare(message) for message in (*self.source.front, *sent.messages)]
        request = self._request(self.call, view, sent, self.source.positions)
        request.asked_at = self._asked_at
        self.requests = [request]

    def _request(self, call: CallSettings, view: View, sent: View, positions: Sequence[int | None]) -> SentRequest:
        return SentRequest(
            call=call,
            minutes=minutes_of(view, sent, positions, self.source.front),
            decision=call.policy.decision(folded(view.record, self.source.folds).transcript),
            loaded=len(view.record),
            budget=self._lens.max_tokens,
            bypass=self.bypass,
            folds=self._folds.standing,
        )

    def _note_answer(self, start: int) -> None:
        self.request.outcome["answer"] = start

    def _minutes(self, stored: int) -> list[NewDocument]:
        """The minutes of every request, beside the record as it was then; `stored` is how many entries it will have."""
        return [request.document(min(stored, self.length)) for request in self.requests]

    async def _append_new(self, documents: Sequence[NewDocument], recipient: str | None) -> None:
        if self._known is not None and not self._new:
            await self._put(documents)
            return
        self.version = await self._store.append(
            self.call.conversation,
            self.entries(self._new),
            expected_version=self.version,
            lease=self.call.lease,
            documents=documents,
            recipient=recipient if self._known is None else None,
        )

    async def _append_answer(
        self, answer: Sequence[ConversationEntry], documents: Sequence[NewDocument], *, release: bool
    ) -> None:
        append = asyncio.ensure_future(
            self._store.append(
                self.call.conversation,
                answer,
                expected_version=self.version,
                lease=self.call.lease,
                documents=documents,
                release=release,
            )
        )
        try:
            self.version = await asyncio.shield(append)
        except asyncio.CancelledError:
            await asyncio.wait({append})  # it may be stored all the same, and whoever asks again must then find it
            self.is_stored = append.exception() is None
            raise
        self.is_stored = True

    async def _put(self, documents: Sequence[NewDocument]) -> None:
        for document in documents:
            await self._store.put_document(self.call.conversation, document)

    async def _compact(self, *, rehearsed: bool = False) -> None:
        """Let the policy's strategy fold what must be folded."""
        manager = self.call.policy.compaction(folds=self.source.folds, keep=None if rehearsed else self._keep_fold)
        if manager is None or not compacts(self.call.policy):
            return
        if rehearsed:
            manager.summarizer = ExtractiveSummarizer()
        done = await manager.check_and_apply(self.source.record, overhead_tokens=self._overhead)
        self.source.folds = done.folds
        if done.event is not None:
            self.notices.append(str(done.event))

    async def _keep_fold(self, fold: Fold) -> Fold:
        """Store a fold as soon as what it covers is stored. One that cannot be stored holds for this answer."""
        try:
            return await self._folds.keep(fold)
        except (FoldConflict, StoreUnavailable) as error:
            _warn_unstored(error)
            return fold

    async def _trim(self) -> None:
        if self.call.retention is None:
            return
        try:
            await age_out(self._store, self.call.conversation, self.call.retention)
        except MinutebookError as error:  # it is done with the next answer
            _LOG.warning("old tool payloads could not be trimmed: %s", type(error).__name__)


def _warn_unstored(error: MinutebookError) -> None:
    _LOG.warning("a fold holds for this answer alone: %s", type(error).__name__)
