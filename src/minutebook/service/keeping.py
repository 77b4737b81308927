"""What one answer of a thread does to the record: the user's message first, and at the end all of the answer at once."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid4

from minutebook.errors import ConversationErased, ConversationNotFound, FoldConflict, StoreUnavailable, VersionConflict
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_user
from minutebook.service.asking import Asking
from minutebook.service.auth import require_sight
from minutebook.service.caller import Caller
from minutebook.service.replies import RUN, Claim
from minutebook.service.runs import Hold
from minutebook.service.sheet import PROVIDER, Sheet
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import NewDocument
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import entry_to_provider_message, provider_message_to_entry

_LOG: Final = logging.getLogger("minutebook.service")
SURFACE: Final = "threads"
DRAFT: Final = "draft_"
"""Threads that were made while there was no database; they are recorded from the first message on that can be."""
_TRIES: Final = 3
"""So often an answer is stored anew because somebody added to the conversation without answering in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client asks in a thread."""

    thread: str
    message: Message
    model: str
    claim: Claim
    policy: str | None = None
    options: Mapping[str, Any]
    """What the provider is told besides, such as a temperature."""
    authorization: str | None = None
    version: int | None = None
    """The version that the client knows, where it says so."""


class Keeping:
    """The record of one answer, which nobody else makes meanwhile."""

    def __init__(self, store: ConversationStore, hold: Hold, question: Question, run_id: str) -> None:
        self._store, self._hold = store, hold
        self._question, self._run_id = question, run_id
        self._loaded: Loaded | None = None
        self._lead: list[Message] = []
        self._is_asked = self._is_answered = False
        self._evaluation: UUID = uuid4()
        self.folds: tuple[Fold, ...] = ()
        """The folds that stand."""
        self._waiting: list[tuple[Fold, list[str]]] = []
        """Folds over what is not stored yet, each with those that it takes the place of."""
        self.version = 0
        self.place = 0
        """Where the user's message stands."""

    @property
    def evaluation(self) -> UUID:
        """What ties the entries of the answer together."""
        return self._evaluation

    async def load(
        self, caller: Caller, *, open_at: int | None, whole: bool, system_prompt: str | None, may_make: bool
    ) -> None:
        """Read the thread. `open_at` is where an earlier try left the message, unanswered; it is not said again.

        Raises:
            ConversationNotFound: there is no such thread, or the caller does not see it.
            VersionConflict: it is not as the client knows it.
        """
        question = self._question
        try:
            loaded = await self._store.load(question.thread, folded=not whole)
        except ConversationErased:
            raise
        except ConversationNotFound:
            if not may_make or not question.thread.startswith(DRAFT):
                raise
            self._begin_with(system_prompt)
            return
        require_sight(caller, loaded.conversation)
        known = loaded.conversation
        self._is_asked = open_at is not None and _ends_in(loaded, open_at, question.message)
        if question.version not in {None, known.version} and not self._is_asked:
            raise VersionConflict(question.thread, known.version, question.version or 0)
        self.version, self.folds = known.version, loaded.folds
        if self._is_asked:
            loaded = replace(
                loaded,
                entries=loaded.entries[:-1],
                positions=loaded.positions[:-1],
                conversation=replace(known, length=known.length - 1),
            )
        self._loaded = loaded
        self.place = loaded.conversation.length
        if not self.place:
            self._begin_with(system_prompt)

    def _begin_with(self, system_prompt: str | None) -> None:
        self._lead = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
        self.place = len(self._lead)

    def sheet(self, counter: TokenCounter, *, whole: bool) -> Sheet:
        """What was said before the user's message."""
        return Sheet(self._loaded, self._lead, counter=counter, whole=whole)

    async def ask(self, caller: Caller) -> None:
        """Store the user's message, and that it is being answered."""
        documents = [self.run_document({"status": "in_progress"}), self._question.claim.document(self._run_id)]
        if self._is_asked:
            for document in documents:
                await self._store.put_document(self._question.thread, document)
            return
        made: dict[str, Any] = {"recipient": caller.recipient} if self._loaded is None else {}
        messages = [*self._lead, self._question.message]
        self.version = await self._store.append(
            self._question.thread,
            [self._entry(message, at) for at, message in enumerate(messages)],
            expected_version=self.version,
            lease=self._hold.lease,
            documents=documents,
            **made,
        )

    async def keep(self, fold: Fold) -> None:
        """Keep a fold, as soon as what it covers is stored."""
        covered = [each.id for each in self.folds if fold.start <= each.start and each.stop <= fold.stop]
        self.folds = (*(each for each in self.folds if each.id not in covered), fold)
        self._waiting.append((fold, covered))
        if fold.stop <= self.place + 1:
            await self._keep_waiting()

    async def _keep_waiting(self) -> None:
        while self._waiting:
            fold, covered = self._waiting[0]
            try:
                await self._store.add_fold(self._question.thread, fold, replacing=covered)
            except (FoldConflict, StoreUnavailable) as error:
                _LOG.warning("a fold holds for this answer alone: %s", type(error).__name__)
            self._waiting.pop(0)

    async def finish(
        self, entries: Sequence[ConversationEntry], asking: Asking, facts: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Store the answer, all of it or nothing; return what its run says of it.

        Raises:
            LeaseLost: somebody else answers there by now.
        """
        start = self.place + 1
        for left in reversed(range(_TRIES)):
            stop = start + len(entries)
            told = {
                **facts,
                "status": "completed",
                "answer": start,
                "stop": stop,
                "version": self.version + 1,
                "requests": [ask.call.request_id for ask in asking.asks],
            }
            run = self.run_document(told)
            minutes = asking.documents(stored=stop if start == self.place + 1 else self.place + 1)
            try:
                await _to_the_end(self._append(entries, [run, *minutes]))
            except VersionConflict:
                if not left:
                    raise
                header = await self._store.header(self._question.thread)
                self.version, start = header.version, header.length
            else:
                await self._keep_waiting()
                return dict(run.body)
        raise AssertionError("the last try returns or raises")

    async def _append(self, entries: Sequence[ConversationEntry], documents: Sequence[NewDocument]) -> None:
        self.version = await self._store.append(
            self._question.thread,
            entries,
            expected_version=self.version,
            lease=self._hold.lease,
            documents=documents,
            idempotency_key=self._run_id,
        )
        self._is_answered = True

    async def fail(self, asking: Asking, facts: Mapping[str, Any]) -> None:
        """Say how a request ended that has no answer. What was said is in its minutes: nobody can build on it."""
        if self._is_answered:
            return
        run = self.run_document({**facts, "status": "failed"})
        for document in (run, *asking.documents(stored=self.place + 1, failed=facts["failed"])):
            try:
                await self._store.put_document(self._question.thread, document)
            except StoreUnavailable:
                _LOG.warning("how a request failed could not be written down: the database cannot be reached")

    def run_document(self, facts: Mapping[str, Any]) -> NewDocument:
        """What is known of the answer by now."""
        body = {
            "surface": SURFACE,
            "conversation": self._question.thread,
            "question": self.place,
            "model": self._question.model,
            "at": datetime.now(UTC).isoformat(),
            **facts,
        }
        return NewDocument(RUN, self._run_id, body, replace=True)

    def _entry(self, message: Message, sequence: int) -> ConversationEntry:
        return provider_message_to_entry(
            message,
            evaluation_id=self._evaluation,
            sequence=sequence,
            created_at=datetime.now(UTC),
            provider=PROVIDER,
            model=self._question.model,
        )


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for something that, once begun, must not be left: who is cancelled meanwhile is so afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        task.exception()  # whoever is stopped is not told besides that it would have failed
        raise


def _ends_in(loaded: Loaded, place: int, message: Message) -> bool:
    """Whether the record ends in this message, at that place, and so waits for an answer to it."""
    if loaded.conversation.length != place + 1 or not loaded.entries:
        return False
    last = entry_to_provider_message(loaded.entries[-1])
    return is_user(last) and last.get("content") == message["content"]
