"""Conversation history by recipient: append messages, get the summary and the last turns.

Each recipient has one conversation, in any store. Limits count turns, not messages: a turn with three tool calls is five
messages and still one turn.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.manager import CompactionResult
from minutebook.compaction.summarizer import Summarizer, is_summary, summary_text, without_summary_flag
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.compactor import TurnCompactor
from minutebook.conversation.handle.async_conversation import AsyncConversation
from minutebook.conversation.handle.lock import TaskLock
from minutebook.conversation.handle.record import id_of_recipient
from minutebook.conversation.lease import RenewedLease, hold_lease
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import (
    BrokenConversation,
    ConversationBusy,
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    VersionConflict,
)
from minutebook.history.protocol import EventBus, HistoryManager
from minutebook.history.view import view_of
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.fold import Fold
from minutebook.record.message import Message, Provider, is_system, plain_copy, require_message
from minutebook.record.pairing import Pairing
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now, require_status
from minutebook.store.types import ConversationHeader, ConversationStatus, Lease, StoredFold, require_name
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import json_bytes, provider_message_to_entry

T = TypeVar("T")
_LEASE_SECONDS: Final = 10.0
_LEASE_DELAYS: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""Seconds between attempts to acquire the lease."""


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """The status of a conversation and the time of its last change."""

    status: ConversationStatus
    updated_at: str | None
    """ISO 8601, in UTC; None if the conversation does not exist yet."""


class ConversationHistory(AsyncConversation):
    """The history of the conversation with one recipient.

    It has the methods of `AsyncConversation` too, and compacts by turns.

    `conversation` is the conversation's id; by default it is the recipient. If that conversation was erased before this
    object used it, the recipient's newest open conversation is continued or a new one starts. Each append holds the
    conversation's lease, so it waits for other writers.

    `strategy` sets when old turns are summarized and how many are kept; `max_turns_before_compaction` and
    `recent_turns_to_keep` override its `max_turns` and `keep_turns`. `manager` and `max_tokens` limit what `get_history`
    returns. `purge_compacted` permanently deletes summarized messages from the record. `notice` is called with the
    conversation's id after every append, for example `BackgroundCompaction.notice`.

    Raises:
        InvalidSetting: a setting is out of range.
    """

    def __init__(
        self,
        store: ConversationStore,
        recipient: str,
        *,
        conversation: str | None = None,
        strategy: TurnStrategy | None = None,
        max_turns_before_compaction: int | None = None,
        recent_turns_to_keep: int | None = None,
        max_recent_turns: int = 10,
        max_tokens: int | None = None,
        manager: HistoryManager | str | Sequence[HistoryManager | str] = (),
        purge_compacted: bool = False,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        bus: EventBus | None = None,
        notice: Callable[[str], object] | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.recipient = require_name("recipient", recipient)
        overrides: dict[str, Any] = {"max_turns": max_turns_before_compaction, "keep_turns": recent_turns_to_keep}
        self.strategy = replace(
            strategy or TurnStrategy(), **{name: value for name, value in overrides.items() if value is not None}
        )
        super().__init__(
            require_name("conversation", conversation if conversation is not None else recipient),
            store=store,
            recipient=recipient,
            max_tokens=max_tokens,
            manager=manager,
            strategy=self.strategy,
            summarizer=summarizer,
        )
        self._policy.counter = counter or self._policy.counter
        self._has_fixed_id = conversation is not None
        """Whether the id cannot change any more, because the caller set it or the conversation was used."""
        self._holder, self._write_lock = f"history-{uuid4()}", TaskLock()
        self.max_recent_turns = _require_turns(max_recent_turns)
        self._compactor = TurnCompactor(
            store,
            strategy=self.strategy,
            purge_compacted=purge_compacted,
            summarizer=summarizer,
            counter=counter,
            max_tokens=self._policy.max_view_tokens,
            bus=bus,
            clock=clock,
            new_id=new_id,
        )
        self._notice = notice
        self._clock = clock
        self._new_id = new_id

    @property
    def conversation(self) -> str:
        """The conversation's id. It changes once if the recipient's conversation was erased: see `ConversationHistory`."""
        return self.id

    async def add_message(
        self,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Append one message in OpenAI's format with the current time. Return the conversation's new version.

        After an assistant message with tool calls, only their results are accepted until all are appended. If another
        process has left calls without results, the next message is accepted: they get "interrupted" results before it, and
        a warning is logged.

        Raises:
            InvalidMessage: a field of the message is missing or has the wrong type.
            BrokenConversation: the message breaks the pairing of tool calls and results.
            ConversationBusy: another holder keeps the conversation's lease.
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
        """Append several messages atomically: an assistant message with its tool results, or a whole turn.

        Raises:
            InvalidMessage: a field of a message is missing or has the wrong type.
            BrokenConversation: a tool call has no result among the messages, or a result has no call.
            ConversationBusy: another holder keeps the conversation's lease.
        """
        pairing = Pairing()
        for index, message in enumerate(messages):
            pairing.add(index, require_message(message, index))
        if pairing.open:
            raise BrokenConversation(
                [Finding(FindingKind.DANGLING_CALL, pairing.start, call_id) for call_id in pairing.open]
            )
        return await self._append(messages, provider, model, idempotency_key)

    async def get_history(
        self, max_recent_turns: int | None = None, *, provider: Provider = "openai"
    ) -> list[dict[str, Any]]:
        """The messages to send: leading system messages, the summary if there is one, and the last turns unchanged.

        `max_recent_turns` defaults to the history's setting (10). The messages are valid for the provider: a tool call
        without a result gets a placeholder result. The history of an unknown recipient is empty.

        Raises:
            ConversationErased: the conversation was erased.
            CannotFit: the messages that must be returned exceed `max_tokens`.
        """
        turns = self.max_recent_turns if max_recent_turns is None else _require_turns(max_recent_turns)
        loaded = await self._read(lambda id_: self.store.load(id_, last_turns=turns, folded=True))
        if loaded is None:
            return []
        policy = self._policy.policy
        transcript = loaded.transcript(counter=self._policy.counter)
        messages: Sequence[Message] = transcript
        if not all(map(is_system, transcript)):  # without a user message no view is valid for a provider
            messages = view_of(transcript, policy.manager, max_tokens=policy.max_tokens, provider=provider).messages
        return [plain_copy(without_summary_flag(message)) for message in messages]

    async def summary(self) -> str | None:
        """The summary of the compacted turns, without the fact ledger that follows it in the view."""
        loaded = await self._read(lambda id_: self.store.load(id_, last_turns=0, folded=True))
        folds = () if loaded is None else loaded.folds
        texts = [
            without_ledger(summary_text(message)) for fold in folds for message in fold.shown if is_summary(message)
        ]
        return "\n\n".join(texts) or None

    async def needs_compaction(self) -> bool:
        """Whether more than `max_turns` turns are not summarized, including those that the last compaction kept."""
        return bool(await self._read(self._compactor.is_due))

    async def compact(  # type: ignore[override] # it takes a summarizer instead of a strategy
        self, summarizer: Summarizer | None = None
    ) -> CompactionResult:
        """Summarize all but the last `keep_turns` turns, even if compaction is not due.

        The result is true if turns were summarized. If the summarizer fails or its summary is rejected, nothing is
        changed and the result has the reason.
        """
        return await self._use(lambda id_: self._compactor.compact(id_, summarizer))

    async def undo(self, fold: Fold | str) -> StoredFold:
        """Undo a compaction. The view is then byte-identical to the one before it.

        Raises:
            FoldNotFound: no fold has that id.
            FoldConflict: the summarized messages were purged.
        """
        fold_id = fold if isinstance(fold, str) else fold.id
        return await self._use(lambda id_: self.store.undo_fold(id_, fold_id))

    async def status(self) -> HistoryStatus:
        """The conversation's status: idle if it does not exist yet."""
        header = await self._read(self.store.header)
        return HistoryStatus(ConversationStatus.IDLE, None) if header is None else _status_of(header)

    async def set_status(self, status: ConversationStatus | str) -> HistoryStatus:
        """Set the status: active, awaiting_answer, closed or idle. Any change is allowed.

        Raises:
            InvalidSetting: the status is unknown.
        """
        new_status = require_status(status)
        header = await self._read(lambda id_: self.store.set_status(id_, new_status))
        if header is None:
            with suppress(VersionConflict):  # another process has just created the conversation
                await self.store.append(self.conversation, [], recipient=self.recipient, expected_version=0)
            header = await self.store.set_status(self.conversation, new_status)
        return _status_of(header)

    async def _append(
        self, messages: Sequence[Message], provider: str | None, model: str | None, idempotency_key: str | None
    ) -> int:
        evaluation_id, created_at = self._new_id(), self._clock()

        async def append(conversation: str, interrupted: Sequence[Message] = ()) -> int:
            entries = [
                provider_message_to_entry(
                    message,
                    evaluation_id=evaluation_id,
                    sequence=sequence,
                    created_at=created_at,
                    provider=provider,
                    model=model,
                )
                for sequence, message in enumerate([*interrupted, *messages])
            ]
            async with self._append_lease(conversation) as (lease, release):
                return await self.store.append(
                    conversation,
                    entries,
                    recipient=self.recipient,
                    idempotency_key=idempotency_key,
                    fingerprint=None if idempotency_key is None else json_bytes(list(messages)),
                    lease=lease,
                    release=release,
                )

        async def append_after_crash(conversation: str) -> int:
            try:
                return await append(conversation)
            except BrokenConversation as error:
                try:
                    last_exchange = await self.store.load(conversation, last_messages=1)
                except ConversationNotFound:  # it would have been the first message
                    raise error from None
                interrupted = self._interrupted_results(last_exchange.transcript(), messages)
                if not interrupted:
                    raise
                version = await append(conversation, interrupted)
                self._warn_interrupted(interrupted)
                return version

        version = await self._use(append_after_crash)
        self._note_calls(messages)
        if self._notice is not None:
            self._notice(self.conversation)
        return version

    @asynccontextmanager
    async def _append_lease(self, conversation: str) -> AsyncIterator[tuple[Lease, bool]]:
        """The lease for one append, and whether the append releases it. Within a block of `lease` it does not."""
        if self._renewed_lease is not None:
            yield self._renewed_lease.lease, False
            return
        async with self._write_lock, self._write_lease(conversation) as renewed, renewed.release_on_append():
            yield renewed.lease, True

    @asynccontextmanager
    async def _write_lease(self, conversation: str) -> AsyncIterator[RenewedLease]:
        """Hold the lease for this block. Other writers have it for a moment only, so wait for them."""
        async with AsyncExitStack() as stack:
            for delay in (*_LEASE_DELAYS, None):
                try:
                    renewed = await stack.enter_async_context(
                        hold_lease(self.store, conversation, self._holder, seconds=_LEASE_SECONDS)
                    )
                    break
                except ConversationBusy:
                    if delay is None:
                        raise
                    await asyncio.sleep(delay)
            yield renewed

    async def _synchronize(self) -> ViewSource:
        synchronize = super()._synchronize
        return await self._use(lambda _: synchronize())

    async def _use(self, operation: Callable[[str], Awaitable[T]]) -> T:
        """Call the operation with the conversation's id. If it was erased before its first use, find an id again."""
        try:
            result = await operation(self.conversation)
        except ConversationErased:
            if self._has_fixed_id:
                raise
            self._id = await id_of_recipient(self.store, self.recipient)
            self._has_fixed_id = True
            return await operation(self.conversation)
        self._has_fixed_id = True
        return result

    async def _read(self, operation: Callable[[str], Awaitable[T]]) -> T | None:
        """The result of the operation; None if the conversation does not exist yet."""
        try:
            return await self._use(operation)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None


_ALIASES: Final = {"max_turns_before_compaction": "max_turns", "recent_turns_to_keep": "keep_turns"}
"""Longer names of two settings → their names in `TurnStrategy`."""
_SETTINGS: Final = (
    *_ALIASES,
    "max_recent_turns",
    "purge_compacted",
    *(setting.name for setting in fields(TurnStrategy) if setting.name != "threshold"),
)


def history_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Read keyword arguments of `ConversationHistory` from settings in camelCase or snake_case.

    Raises:
        InvalidSetting: a setting is unknown, given twice in different spellings, or out of range.
    """
    names = {spelling: name for name in _SETTINGS for spelling in (name, _camel_case(name))}
    arguments: dict[str, Any] = {}
    for spelling, value in document.items():
        if spelling not in names:
            suggestions = get_close_matches(str(spelling), names, n=1)
            hint = f"; did you mean {suggestions[0]!r}?" if suggestions else ""
            raise InvalidSetting("setting", spelling, f"one of {', '.join(_SETTINGS)}{hint}")
        name = _ALIASES.get(names[spelling], names[spelling])
        if name in arguments:
            raise InvalidSetting(str(spelling), value, f"one spelling only, but {name} is set twice")
        arguments[name] = value
    strategy = {field.name: arguments.pop(field.name) for field in fields(TurnStrategy) if field.name in arguments}
    return {**arguments, "strategy": TurnStrategy(**strategy)}


def _camel_case(name: str) -> str:
    first_word, *other_words = name.split("_")
    return first_word + "".join(map(str.capitalize, other_words))


def _require_turns(turns: int) -> int:
    if type(turns) is not int or turns < 1:
        raise InvalidSetting("max_recent_turns", turns, "1 or more")
    return turns


def _status_of(header: ConversationHeader) -> HistoryStatus:
    return HistoryStatus(header.status, header.status_updated_at.astimezone(UTC).isoformat())
