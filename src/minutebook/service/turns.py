"""The one path of a model call: from the record to what is sent, and from the answer back to the record.

What is new is stored before the model is asked, and the answer before the client is told that it is whole. Both appends
are made under a lease, so that nobody else answers in between.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from minutebook.agent.lens import Lens
from minutebook.compaction.extract import ExtractiveSummarizer
from minutebook.errors import CannotFit, ContextOverflow, MinutebookError, StoreUnavailable
from minutebook.history.curated import Status
from minutebook.history.view import View
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.frozen import thawed
from minutebook.record.message import Message
from minutebook.service.minutes import Minutes, minutes_of
from minutebook.service.policy import Policy
from minutebook.service.pruned import HistoryPruned
from minutebook.service.retention import PruningDecision
from minutebook.service.sheet import PROVIDER, Sheet, lens_of
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import NewDocument
from minutebook.store.leases import Lease
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import provider_message_to_entry
from minutebook.wire.responses import bare

_LOG: Final = logging.getLogger("minutebook.service")
_NARROWINGS: Final = 3
"""So often a view is asked with that the provider may find too long."""
T = TypeVar("T")
REQUEST: Final = "request"
"""The kind of document that holds the minutes of a request."""
_OUT: Final = frozenset({Status.DROPPED, Status.FOLDED})
_HEARD: ContextVar[list[PruningDecision]] = ContextVar("_HEARD")


def heard(decision: PruningDecision) -> None:
    """What retention decided, for the turn that is being curated; in shadow mode only retention itself knows it."""
    _HEARD.get([]).append(decision)


@contextmanager
def listening() -> Iterator[list[PruningDecision]]:
    """What retention decides within this block."""
    decisions: list[PruningDecision] = []
    token = _HEARD.set(decisions)
    try:
        yield decisions
    finally:
        _HEARD.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is asked, of whom, and on whose behalf: what does not change in the course of a turn."""

    conversation: str
    model: str
    policy: Policy
    counter: TokenCounter
    run_id: str
    """The answer that this is for, which may take several calls."""
    request_id: str
    lease: Lease | None = None
    overhead_tokens: int = 0
    """What the call sends besides messages: its tools."""
    instructions: Sequence[Message] | None = None
    """System messages of this call alone, in place of the record's leading ones; None for those."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What else the minutes say, such as how a resent history was understood."""


class Turn:
    """One model call of one conversation: `begin` it, send its `messages`, and `finish` it with the answer."""

    def __init__(self, store: ConversationStore, call: Call, loaded: Loaded | None, new: Sequence[Message]) -> None:
        self.call = call
        self.messages: list[Message] = []
        """What to send."""
        self.bypass: str | None = None
        """Why the view was not used, where it could not be."""
        self.notices: list[str] = []
        """What the user may be told, such as that old parts were compacted."""
        self.version = 0 if loaded is None else loaded.conversation.version
        self._store = store
        self._new = new
        self._known = None if loaded is None else loaded.conversation
        self._sheet = Sheet(loaded, new, counter=call.counter, whole=call.policy.strategy is not None)
        self._overhead = call.overhead_tokens
        if call.instructions is not None:
            self._overhead += self._sheet.instruct(call.instructions)
        limit = call.policy.max_tokens
        self._lens: Lens = lens_of(call.policy.manager, None if limit is None else max(1, limit - self._overhead))
        self._view: View | None = None
        self._decision: PruningDecision | None = None
        self._minutes: Minutes | None = None
        self._asked_at = datetime.now(UTC)
        self.evaluation: UUID = uuid4()
        """What marks the entries of this turn."""
        self._told = 0
        self.stored = False
        """Whether the answer is in the record."""

    @property
    def minutes(self) -> Minutes:
        """What is sent, beside the record."""
        assert self._minutes is not None, "begin first"
        return self._minutes

    @property
    def pruned(self) -> HistoryPruned:
        """What was pruned, in numbers, or in shadow mode would have been."""
        loaded = len(self._sheet.record)
        return pruned_by(self.call, self.minutes, self._decision, loaded=loaded, budget=self._lens.max_tokens)

    @property
    def length(self) -> int:
        """How many entries the record has once the turn has begun."""
        return (0 if self._known is None else self._known.length) + len(self._new)

    def headers(self) -> dict[str, str]:
        """What a client is told about its history."""
        told = {
            "x-history": "recorded" if self.call.policy.mode != "off" else "recorded, not pruned",
            "x-history-request": self.call.request_id,
            "x-history-tokens": f"{self.minutes.tokens_before}, {self.minutes.tokens_after}",
        }
        return told if self.bypass is None else {**told, "x-history-bypass": self.bypass}

    async def begin(
        self,
        *,
        documents: Sequence[NewDocument] = (),
        recipient: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Store what is new, then make the view that is to be sent.

        Raises:
            VersionConflict: somebody wrote since it was loaded.
            CannotFit: what must be sent does not fit.
        """
        made: dict[str, Any] = {} if self._known is not None else {"recipient": recipient, "labels": labels}
        if self.call.policy.strategy is None:
            self.look()
            await self._write([*documents, self._document({})], made)
        else:  # a fold stands over what is stored already
            await self._write(documents, made)
            await self._compact()
            self.look()
            await self._store.put_document(self.call.conversation, self._document({}))

    async def rehearse(self) -> None:
        """Make the view that would be sent now, and store nothing. What would be summed up is an extract here.

        Raises:
            CannotFit: what must be sent does not fit.
        """
        await self._compact(rehearsed=True)
        self.look()

    async def finish(
        self,
        answer: Sequence[Message],
        outcome: Mapping[str, Any],
        documents: Sequence[NewDocument] = (),
        *,
        release: bool = False,
    ) -> None:
        """Store the answer, all of it or nothing, and how the request ended; `release` gives its lease back with that.

        Raises:
            LeaseLost: somebody else answers there by now.
        """
        append = asyncio.ensure_future(
            self._store.append(
                self.call.conversation,
                [self._entry(message) for message in answer],
                expected_version=self.version,
                lease=self.call.lease,
                documents=[*documents, self._document(outcome)],
                release=release,
            )
        )
        try:
            self.version = await asyncio.shield(append)
        except asyncio.CancelledError:
            await asyncio.wait({append})  # it may be stored all the same, and whoever asks again must then find it
            self.stored = append.exception() is None
            raise
        self.stored = True

    async def fail(self, outcome: Mapping[str, Any], documents: Sequence[NewDocument] = ()) -> None:
        """Say how a request ended that has no answer."""
        if self.stored:
            return
        for document in (*documents, self._document(outcome)):
            try:
                await self._store.put_document(self.call.conversation, document)
            except StoreUnavailable:
                _LOG.warning("how a request failed could not be written down: the database cannot be reached")

    async def until_it_fits(
        self, ask: Callable[[], Awaitable[T]], tell: Callable[["Turn"], object], *, shorten: bool = True
    ) -> T:
        """Ask, and ask again with a shorter view as often as the provider finds it too long and there is a shorter one.

        Raises:
            ContextOverflow: there is none.
        """
        for left in reversed(range(_NARROWINGS)):
            try:
                return await ask()
            except ContextOverflow as overflow:
                if not left or not shorten or not self.narrow(overflow):
                    raise
                tell(self)
        raise AssertionError("the last try returns or raises")

    def narrow(self, overflow: ContextOverflow) -> bool:
        """Make a shorter view, after the provider found this one too long; whether there is one."""
        if self._view is None or self.call.policy.mode != "on":
            return False
        before = self.minutes.tokens_after
        self._lens.narrow(self._view, overflow)
        try:
            self.look()
        except CannotFit:
            return False
        return self.minutes.tokens_after < before

    def look(self) -> None:
        """Curate. A manager that fails keeps nobody from an answer: everything is sent then.

        Raises:
            CannotFit: what must be sent does not fit.
        """
        pruning = self.call.policy.mode == "on"
        with listening() as decisions:
            try:
                view = self._sheet.through(self._lens)
            except CannotFit:
                if pruning:
                    raise
                view = self._sheet.everything()
            except MinutebookError as error:
                _LOG.warning("curation failed, so everything is sent: %s", type(error).__name__)
                self.bypass = type(error).__name__
                view = self._sheet.everything()
        sent = view if pruning else self._sheet.everything()
        front = self._sheet.front
        self._view = view
        self.messages = [bare(message) for message in (*front, *sent.messages)]
        self._minutes = minutes_of(view, sent, self._sheet.positions, front)
        self._decision = decisions[-1] if decisions and self.call.policy.mode == "shadow" else None

    async def _write(self, documents: Sequence[NewDocument], made: Mapping[str, Any]) -> None:
        if self._known is not None and not self._new:
            for document in documents:
                await self._store.put_document(self.call.conversation, document)
            return
        self.version = await self._store.append(
            self.call.conversation,
            [self._entry(message) for message in self._new],
            expected_version=self.version,
            lease=self.call.lease,
            documents=documents,
            **made,
        )

    async def _compact(self, *, rehearsed: bool = False) -> None:
        """Let the policy's strategy fold what must be folded."""

        async def keep(fold: Fold) -> None:
            within = [other.id for other in self._sheet.stored if fold.start <= other.start and other.stop <= fold.stop]
            await self._store.add_fold(self.call.conversation, fold, replacing=within)

        manager = self.call.policy.compaction(folds=self._sheet.folds, keep=None if rehearsed else keep)
        if manager is None or self.call.policy.mode != "on":
            return
        if rehearsed:
            manager.summarizer = ExtractiveSummarizer()
        done = await manager.check_and_apply(self._sheet.record, overhead_tokens=self._overhead)
        self._sheet.folds = done.folds
        if done.event is not None:
            self.notices.append(str(done.event))

    def _document(self, outcome: Mapping[str, Any]) -> NewDocument:
        known = {"length": self.length, "bypass": self.bypass, "asked_at": self._asked_at.isoformat()}
        return request_document(self.call, self.minutes, self._sheet.stored, {**known, **self.call.facts, **outcome})

    def _entry(self, message: Message) -> ConversationEntry:
        entry = provider_message_to_entry(
            message,
            evaluation_id=self.evaluation,
            sequence=self._told,
            created_at=datetime.now(UTC),
            provider=PROVIDER,
            model=self.call.model,
        )
        self._told += 1
        return entry


def pruned_by(
    call: Call, minutes: Minutes, decided: PruningDecision | None, *, loaded: int, budget: int | None
) -> HistoryPruned:
    """What a call's view left out, in numbers; in shadow mode, what was `decided` and not done."""
    changed = sum(part["stop"] - part["start"] for part in minutes.left_out)
    stripped = sum(part["stop"] - part["start"] for part in minutes.left_out if part["status"] not in _OUT)
    return HistoryPruned(
        conversation=call.conversation,
        loaded=loaded,
        preserved=loaded - changed if decided is None else decided.loaded - decided.pruned,
        pruned=changed if decided is None else decided.pruned,
        tokens_before=minutes.tokens_before,
        tokens_after=minutes.tokens_after if decided is None else decided.tokens_after,
        mode=call.policy.mode,
        policy=call.policy.name,
        stripped=stripped,
        budget=budget,
        reconcile=call.facts.get("reconcile"),
    )


def request_document(call: Call, minutes: Minutes, folds: Iterable[Fold], known: Mapping[str, Any]) -> NewDocument:
    """The minutes of a call as they are kept: what was sent beside the record, by which policy, and how it ended."""
    body = {
        "run": call.run_id,
        "model": call.model,
        "policy": call.policy.describe(),
        "mode": call.policy.mode,
        "folds": [fold.id for fold in folds],
        **minutes.to_json(),
        **known,
    }
    return NewDocument(REQUEST, call.request_id, thawed(body), replace=True)
