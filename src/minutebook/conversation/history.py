"""Conversation history by recipient (document 003): messages in, the history of the last turns out.

One conversation for each recipient, kept by any store. Limits count turns, not messages: a turn with three tool calls is
five messages and still one turn.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.manager import CompactionResult
from minutebook.compaction.summarizer import Summarizer, is_summary, summary_text, unflagged
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.compactor import TurnCompactor
from minutebook.errors import (
    BrokenConversation,
    ConversationErased,
    ConversationNotFound,
    InvalidSetting,
    VersionConflict,
)
from minutebook.history.protocol import EventBus
from minutebook.history.view import view_of
from minutebook.record.finding import Finding, FindingKind
from minutebook.record.message import Message, Provider, is_system, require_message, thawed
from minutebook.record.pairing import Pairing
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now, require_status
from minutebook.store.types import Conversation, ConversationStatus, StoredFold, require_name
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import provider_message_to_entry

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HistoryStatus:
    """What a conversation is doing, and since when."""

    status: ConversationStatus
    updated_at: str | None
    """ISO-8601, in UTC; None before the first message."""


class ConversationHistory:
    """The history of the conversation with one recipient.

    `notice` is called with the conversation's id after every append, such as a `BackgroundCompaction`'s. Without
    `conversation`, the recipient's one conversation has the recipient's own id. The `strategy` says when old turns are
    summed up and what is kept; `max_turns_before_compaction` and `recent_turns_to_keep`, the names of document 003, are
    its `max_turns` and `keep_turns`. With `purge_compacted` what is summed up is deleted from the record, for good.

    Raises:
        InvalidSetting: a setting cannot be meant.
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
        purge_compacted: bool = False,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        bus: EventBus | None = None,
        notice: Callable[[str], object] | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.recipient = require_name("recipient", recipient)
        self.conversation = require_name("conversation", conversation if conversation is not None else recipient)
        self.store = store
        given: dict[str, Any] = {"max_turns": max_turns_before_compaction, "keep_turns": recent_turns_to_keep}
        self.strategy = replace(
            strategy or TurnStrategy(), **{name: value for name, value in given.items() if value is not None}
        )
        self.max_recent_turns = _require_turns(max_recent_turns)
        self._compactor = TurnCompactor(
            store,
            strategy=self.strategy,
            purge_compacted=purge_compacted,
            summarizer=summarizer,
            counter=counter,
            bus=bus,
            clock=clock,
            new_id=new_id,
        )
        self._notice = notice
        self._clock = clock
        self._new_id = new_id

    async def add_message(
        self,
        message: Message,
        *,
        provider: str | None = None,
        model: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Add one message in the OpenAI form, stamped with the time; return the conversation's version.

        An assistant message may wait for its results; until they are there nothing else is taken.

        Raises:
            InvalidMessage: it is none.
            BrokenConversation: it does not fit the ones before it.
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
        """Add messages that belong together, all or none: an assistant message and its results, or a whole turn.

        Raises:
            InvalidMessage: one of them is none.
            BrokenConversation: a call has no result among them, or a result no call.
        """
        pairing = Pairing()
        for place, message in enumerate(messages):
            pairing.take(place, require_message(message, place))
        if pairing.open:
            raise BrokenConversation(
                [Finding(FindingKind.DANGLING_CALL, pairing.start, call_id) for call_id in pairing.open]
            )
        return await self._append(messages, provider, model, idempotency_key)

    async def get_history(
        self, max_recent_turns: int | None = None, *, provider: Provider = "openai"
    ) -> list[dict[str, Any]]:
        """The messages to send: leading system messages, the summary if there is one, the last turns whole.

        10 turns at most, unless the history or the caller says otherwise. Ready for the provider: a call that still
        waits has a result that says so. A recipient who is not known has no history.

        Raises:
            ConversationErased: there was one.
        """
        turns = self.max_recent_turns if max_recent_turns is None else _require_turns(max_recent_turns)
        loaded = await _if_known(self.store.load(self.conversation, last_turns=turns, folded=True))
        if loaded is None:
            return []
        transcript = loaded.transcript()
        messages: Sequence[Message] = transcript
        if not all(map(is_system, transcript)):  # a provider refuses that anyway, until the user says something
            messages = view_of(transcript, provider=provider).messages
        return [thawed(unflagged(message)) for message in messages]

    async def summary(self) -> str | None:
        """The summary that stands for the compacted turns, without the ledger of facts that the view has after it."""
        loaded = await _if_known(self.store.load(self.conversation, last_turns=0, folded=True))
        folds = () if loaded is None else loaded.folds
        texts = [
            without_ledger(summary_text(message)) for fold in folds for message in fold.shown if is_summary(message)
        ]
        return "\n\n".join(texts) or None

    async def needs_compaction(self) -> bool:
        """Whether more than `max_turns` turns stand uncompacted, the ones kept last time included."""
        return bool(await _if_known(self._compactor.is_due(self.conversation)))

    async def compact(self, summarizer: Summarizer | None = None) -> CompactionResult:
        """Sum up all but the last `keep_turns` turns, due or not.

        The result is true if that was done. If the summarizer fails or its summary may not be used, nothing is
        changed, and the result says why.
        """
        return await self._compactor.compact(self.conversation, summarizer)

    async def undo(self, fold_id: str) -> StoredFold:
        """Take a compaction back: the view is what it was before, byte for byte.

        Raises:
            FoldNotFound: there is none of that id.
            FoldConflict: what it stands for was purged.
        """
        return await self.store.undo_fold(self.conversation, fold_id)

    async def status(self) -> HistoryStatus:
        """What the conversation is doing; idle, if nothing was said yet."""
        header = await _if_known(self.store.header(self.conversation))
        return HistoryStatus(ConversationStatus.IDLE, None) if header is None else _status_of(header)

    async def set_status(self, status: ConversationStatus | str) -> HistoryStatus:
        """Say what the conversation is doing: active, awaiting_answer, closed or idle, in any order.

        Raises:
            InvalidSetting: there is no such status.
        """
        wanted = require_status(status)
        header = await _if_known(self.store.set_status(self.conversation, wanted))
        if header is None:
            with suppress(VersionConflict):  # somebody else has made it by now: all that was wanted
                await self.store.append(self.conversation, [], recipient=self.recipient, expected_version=0)
            header = await self.store.set_status(self.conversation, wanted)
        return _status_of(header)

    async def _append(
        self, messages: Sequence[Message], provider: str | None, model: str | None, idempotency_key: str | None
    ) -> int:
        evaluation, at = self._new_id(), self._clock()
        entries = [
            provider_message_to_entry(
                message, evaluation_id=evaluation, sequence=place, created_at=at, provider=provider, model=model
            )
            for place, message in enumerate(messages)
        ]
        version = await self.store.append(
            self.conversation, entries, recipient=self.recipient, idempotency_key=idempotency_key
        )
        if self._notice is not None:
            self._notice(self.conversation)
        return version


_ALIASES: Final = {"max_turns_before_compaction": "max_turns", "recent_turns_to_keep": "keep_turns"}
"""Document 003's names of two settings of `TurnStrategy`."""
_SETTINGS: Final = (
    *_ALIASES,
    "max_recent_turns",
    "purge_compacted",
    *(each.name for each in fields(TurnStrategy) if each.name != "threshold"),
)


def history_settings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `ConversationHistory` that settings spell, as `recentTurnsToKeep` or as `recent_turns_to_keep`.

    Raises:
        InvalidSetting: one is unknown, given twice, or cannot be meant.
    """
    known = {spelling: name for name in _SETTINGS for spelling in (name, _camel(name))}
    found: dict[str, Any] = {}
    for spelling, value in document.items():
        if spelling not in known:
            near = get_close_matches(str(spelling), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidSetting("a setting of the history", spelling, f"one of {', '.join(_SETTINGS)}{hint}")
        name = _ALIASES.get(known[spelling], known[spelling])
        if name in found:
            raise InvalidSetting(name, value, "it once, in one spelling")
        found[name] = value
    strategy = {each.name: found.pop(each.name) for each in fields(TurnStrategy) if each.name in found}
    return {**found, "strategy": TurnStrategy(**strategy)}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _require_turns(turns: int) -> int:
    if type(turns) is not int or turns < 1:
        raise InvalidSetting("max_recent_turns", turns, "1 or more")
    return turns


async def _if_known(reading: Awaitable[T]) -> T | None:
    """What is read of a conversation, None if nobody has begun it. One that was erased is another matter."""
    try:
        return await reading
    except ConversationErased:
        raise
    except ConversationNotFound:
        return None


def _status_of(header: Conversation) -> HistoryStatus:
    return HistoryStatus(header.status, header.status_updated_at.astimezone(UTC).isoformat())
