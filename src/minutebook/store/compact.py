"""Compaction by turns (document 003): old turns are shown as a summary, the last ones as they are.

The record stays; what is added is a fold, and undoing it gives back the earlier view. The summary is made from the one
before it and from everything said since, while others may go on appending: the fold is taken only if the part it was
made from is still as it was read.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from uuid import UUID, uuid4

from minutebook.compaction.config import HistoryConfig
from minutebook.compaction.extract import ExtractiveSummarizer
from minutebook.compaction.result import (
    CompactionFailed,
    CompactionOutcome,
    CompactionResult,
    ConversationCompacted,
)
from minutebook.compaction.summarizer import Summarizer, SummaryRequest, accepted
from minutebook.errors import FoldConflict, SummaryRejected
from minutebook.history.protocol import EventBus
from minutebook.record.fold import Fold
from minutebook.record.message import Message, MessageRole, is_result
from minutebook.store.contract import ConversationStore
from minutebook.store.plan import Plan, fold_range, folds_in, pinned_exchanges, unread
from minutebook.store.rules import now
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter, counter_for, total

_WINDOW = 32
"""How many entries are read around a pinned one, to begin with."""


class TurnCompactor:
    """Compacts conversations of one store. It holds nothing of them and may be shared.

    `TurnStrategy` is the same idea for a record that is at hand whole. This one never reads the whole: what was summed
    up before is not loaded again, and may be purged.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        config: HistoryConfig | None = None,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        bus: EventBus | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.store = store
        self.config = config or HistoryConfig()
        self._summarizer = summarizer or ExtractiveSummarizer()
        self._counter = counter
        self._bus = bus
        self._clock = clock
        self._new_id = new_id

    async def is_due(self, conversation: str) -> bool:
        """Whether more turns stand uncompacted than may: user messages that no fold covers.

        The turns that the last compaction kept whole are among them. By default the 11th turn makes the first one
        due, and after that every eighth.
        """
        most = self.config.max_turns_before_compaction
        if (await self.store.header(conversation)).turns <= most:
            return False
        loaded = await self.store.load(conversation, last_turns=most + 1, folded=True)
        return sum(entry.role is MessageRole.USER for entry in loaded.entries) > most

    async def compact(self, conversation: str, summarizer: Summarizer | None = None) -> CompactionResult:
        """Sum up all but the last turns, whether it is due or not; those that were summed up before are not read again.

        Raises:
            ConversationNotFound, StoreUnavailable: the store's own errors. What the summarizer raises is in the result.
            EventFailed: somebody on the bus failed to take the event; the fold stands all the same.
        """
        result = await self._attempt(conversation, summarizer or self._summarizer)
        try:
            if result and self.config.purge_compacted and result.stop is not None:
                result = replace(result, purged=await self.store.purge(conversation, before=result.stop))
        finally:  # a purge that fails is the next one's to do, and the fold stands
            self._tell(result)
        return result

    async def _attempt(self, conversation: str, summarizer: Summarizer) -> CompactionResult:
        plan = await self._plan(conversation, with_lead=self.config.purge_compacted)
        if plan is None or not plan.turns:
            kept = self.config.recent_turns_to_keep
            reason = f"no turn is uncompacted but the last {kept}, which are kept"
            return CompactionResult(conversation, CompactionOutcome.NOTHING_TO_FOLD, reason)
        role, most = self.config.summary_role, self.config.max_summary_tokens
        counter = self._counter or counter_for(None)
        request = plan.request(counter, max_tokens=most, role=role)
        before = total(counter, plan.shown_before())
        result = CompactionResult(
            conversation,
            CompactionOutcome.NOTHING_TO_FOLD,
            f"what could be summed up has {before:,} tokens, and a summary would not have less",
            plan.part.start,
            plan.part.stop,
            tokens_before=before,
        )
        if request is None:
            return result
        try:
            summary, shown = await self._summarize(summarizer, request, plan, before)
        except SummaryRejected as problem:
            return replace(result, outcome=CompactionOutcome.REJECTED, reason=str(problem), error=problem)
        except Exception as error:  # noqa: BLE001 - a summarizer is anybody's code, and its failure changes nothing
            reason = f"the summarizer failed: {type(error).__name__}: {error}"
            return replace(result, outcome=CompactionOutcome.FAILED, reason=reason, error=error)
        return await self._commit(plan, shown, replace(result, summary=summary, tokens_after=total(counter, shown)))

    async def _summarize(
        self, summarizer: Summarizer, request: SummaryRequest, plan: Plan, before: int
    ) -> tuple[str, tuple[Message, ...]]:
        summary = accepted(await summarizer.summarize(request), request)
        shown = plan.shown_after(summary, self.config.summary_role)
        after = total(request.counter, shown)
        if after >= before:
            raise SummaryRejected(f"would be shown with {after:,} tokens in place of {before:,}")
        return summary, shown

    async def _commit(self, plan: Plan, shown: tuple[Message, ...], result: CompactionResult) -> CompactionResult:
        reason = f"{plan.turns} turns were summed up, {result.tokens_before:,} tokens as {result.tokens_after:,}"
        fold = Fold(str(self._new_id()), plan.part.start, plan.part.stop, shown, reason)
        try:
            await self.store.add_fold(result.conversation, fold, replacing=plan.replacing)
        except FoldConflict as problem:
            return replace(
                result,
                outcome=CompactionOutcome.CONFLICT,
                reason=str(problem),
                error=problem,
                summary=None,
                tokens_after=None,
            )
        return replace(result, outcome=CompactionOutcome.FOLDED, reason=reason, turns=plan.turns, fold_id=fold.id)

    async def _plan(self, conversation: str, *, with_lead: bool) -> Plan | None:
        """What to sum up, read from the store; None if there is nothing."""
        end = await self.store.load(conversation, last_turns=self.config.recent_turns_to_keep, folded=True)
        header = end.conversation
        if header.turns <= self.config.recent_turns_to_keep:
            return None
        part = fold_range(header, end.start, end.folds, with_lead=with_lead)
        folds = folds_in(part, end.folds)
        to_read = unread(part, folds)
        if not to_read:
            return None
        messages: dict[int, Message] = {}
        pinned: dict[int, Message] = {}
        for gap in to_read:
            read = await self.store.load(conversation, since=gap.start, limit=len(gap))
            messages |= dict(zip(read.positions, read.messages, strict=True))
            pinned |= pinned_exchanges(read.messages, read.positions, end.pins)
        if part.start in messages and is_result(messages[part.start]) and not with_lead:
            return await self._plan(conversation, with_lead=True)  # a result without a call: no fold may begin there
        for pin in sorted(end.pins):
            if pin in part and pin not in messages and header.first <= pin:
                pinned |= await self._around(conversation, pin, end)
        return Plan(part, header.lead, folds, messages, pinned, header.first)

    async def _around(self, conversation: str, pin: int, end: Loaded) -> dict[int, Message]:
        """The pinned exchange at a position that an earlier summary covers."""
        window = _WINDOW
        while True:
            start = max(end.conversation.first, pin - window)
            read = await self.store.load(conversation, since=start, limit=2 * window)
            found = pinned_exchanges(read.messages, read.positions, frozenset({pin}))
            cut_in_front = min(found) == start > end.conversation.first
            cut_behind = max(found) + 1 == start + 2 * window
            if not (cut_in_front or cut_behind):
                return found
            window *= 2

    def _tell(self, result: CompactionResult) -> None:
        """Publish what happened, if anything did.

        Raises:
            EventFailed: somebody failed to take it.
        """
        if self._bus is None or result.outcome is CompactionOutcome.NOTHING_TO_FOLD:
            return
        kind = ConversationCompacted if result else CompactionFailed
        published = self._bus.publish(kind(result, self.store.tenant, self._clock()))
        if hasattr(published, "raise_errors"):
            published.raise_errors()
