"""Compaction of a stored conversation: `FoldStorage` stores folds, `TurnCompactor` compacts by number of turns.

Compaction adds a fold and leaves the record unchanged; undoing the fold restores the earlier view. The strategy reads the
folded conversation, so messages that were summarized before are not loaded again and may have been purged. Other
processes may append while the summary is written: the fold is stored only if no other fold was added to its range.
"""

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.compaction.strategy import CompactionInput, is_summary_fold
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.compaction.turns import TurnStrategy
from minutebook.errors import InvalidSetting
from minutebook.history.protocol import EventBus
from minutebook.record.exchange import exchanges
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_result
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.rules import folds_in_range, now, visible_folds
from minutebook.store.types import LoadedConversation
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo

_ANY_MODEL: Final = ModelInfo("any", max_input_tokens=sys.maxsize)
"""For conversations whose views have no limit."""
_FIRST_PAGE_RADIUS: Final = 32
"""Entries that are read before and after a pinned one to find its exchange; doubled until the exchange is complete."""


class FoldStorage:
    """Stores the folds of one conversation; pass `save` and `rewinds` to a `CompactionManager`.

    Each fold gets a new unique id. A strategy gives equal folds equal ids, and a store rejects the id of an undone fold.
    """

    def __init__(self, store: ConversationStore, conversation: str, folds: Iterable[Fold]) -> None:
        """`folds` are the stored ones."""
        self.active = tuple(visible_folds(folds))
        self._store = store
        self._conversation = conversation

    async def rewinds(self) -> list[Fold]:
        """The folds of `rewind` that are not undone, in the order in which they were added."""
        stored = await self._store.folds(self._conversation)
        return [entry.fold for entry in stored if entry.fold.is_rewind and entry.undone_at is None]

    async def save(self, fold: Fold, *, fold_id: str | None = None) -> Fold:
        """Store a fold, replacing the active folds in its range, and return it with its new id.

        Raises:
            FoldConflict: another process has added a fold in its range.
        """
        new_fold = replace(fold, id=fold_id or f"{fold.id}-{uuid4().hex[:12]}")
        replaced = [other.id for other in folds_in_range(self.active, fold.start, fold.stop)]
        self.active = tuple(visible_folds([*self.active, new_fold]))
        await self._store.add_fold(self._conversation, new_fold, replacing=replaced)
        return new_fold


class TurnCompactor:
    """Compacts conversations of one store. It has no state of a conversation, so it may be shared.

    Raises:
        InvalidSetting: the strategy has a threshold, which needs a model's window.
    """

    def __init__(
        self,
        store: ConversationStore,
        *,
        strategy: TurnStrategy | None = None,
        purge_compacted: bool = False,
        summarizer: Summarizer | None = None,
        counter: TokenCounter | None = None,
        max_tokens: int | None = None,
        bus: EventBus | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        """`max_tokens` is the limit of the conversations' views: a summary has at most a share of it."""
        self.store = store
        self.strategy = strategy or TurnStrategy()
        if self.strategy.threshold is not None:
            raise InvalidSetting(
                "threshold", self.strategy.threshold, "None, because stored histories count turns only"
            )
        if type(purge_compacted) is not bool:
            raise InvalidSetting("purge_compacted", purge_compacted, "True or False")
        self._purge = purge_compacted
        self._summarizer = summarizer
        self._counter = counter
        self._model = _ANY_MODEL if max_tokens is None else replace(_ANY_MODEL, max_input_tokens=max_tokens)
        self._bus = None if bus is None else _StrictBus(bus)
        self._clock = clock
        self._new_id = new_id

    async def is_due(self, conversation: str) -> bool:
        """Whether more than `max_turns` turns are not covered by a fold.

        The turns that the last compaction kept count too. By default the 11th turn makes the first compaction due, and
        after that every eighth.
        """
        max_turns = self.strategy.max_turns
        if (await self.store.header(conversation)).turns <= max_turns:
            return False
        loaded = await self.store.load(conversation, last_turns=max_turns + 1, folded=True)
        return self.strategy.should_trigger(CompactionInput(Transcript.of(loaded.messages), (), _ANY_MODEL))

    async def compact(self, conversation: str, summarizer: Summarizer | None = None) -> CompactionResult:
        """Summarize all but the last turns, even if compaction is not due. Earlier summaries are extended.

        An error of the summarizer is returned in the result.

        Raises:
            ConversationNotFound, StoreUnavailable: from the store.
            EventFailed: a subscriber of the bus failed. The fold is stored.
        """
        loaded_view = await self._load(conversation)
        earlier_folds = loaded_view.loaded.folds
        storage = FoldStorage(self.store, conversation, earlier_folds)

        async def save_fold(fold: Fold) -> Fold:
            positioned_fold = loaded_view.at_stored_positions(fold, with_leading=self._purge)
            return await storage.save(positioned_fold, fold_id=str(self._new_id()))

        manager = CompactionManager(
            self.strategy,
            self._model,
            summarizer or self._summarizer,
            folds=loaded_view.folds,
            save_fold=save_fold,
            bus=self._bus,
            conversation=conversation,
            tenant=self.store.tenant,
            clock=self._clock,
        )
        result = await manager.apply(loaded_view.record)
        result = replace(result, folds=(*earlier_folds, *result.added))
        if self._purge and result.stop is not None:  # if purging fails, the next compaction repeats it
            result = replace(result, purged=await self.store.purge(conversation, before=result.stop))
        return result

    async def _load(self, conversation: str) -> "_LoadedView":
        """Load the record that the strategy gets. Summarized and purged messages are replaced by the messages of their fold."""
        loaded = await self.store.load(conversation, folded=True)
        rows = [
            _Row(position, message, position in loaded.pins)
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
        ]
        for fold in loaded.folds:
            rows += await self._rows_of_fold(loaded, fold)
        rows.sort(key=lambda row: row.position)  # stable: the rows of one fold have one position and keep their order
        return _LoadedView(loaded, rows, self._counter or counter_for(None))

    async def _rows_of_fold(self, loaded: LoadedConversation, fold: Fold) -> list["_Row"]:
        """The messages that a fold hides or, if they are summarized or purged, the messages that it shows instead."""
        conversation, first = loaded.conversation.id, loaded.conversation.first
        if not is_summary_fold(fold):
            if fold.stop <= first:  # purged: as system messages, the shown messages stay unchanged
                return [_Row(fold.start, {**message, "role": "system"}) for message in fold.shown]
            start = max(fold.start, first)
            hidden = await self.store.load(conversation, since=start, limit=fold.stop - start)
            return [
                _Row(position, message, position in loaded.pins)
                for position, message in zip(hidden.positions, hidden.messages, strict=True)
            ]
        summary_index = next(index for index, message in enumerate(fold.shown) if is_summary(message))
        # As an assistant message the summary counts neither as a leading system message nor as a turn.
        summary: Message = {**fold.shown[summary_index], "role": "assistant"}
        rows = [*(_Row(fold.start, message) for message in fold.shown[:summary_index]), _Row(fold.start, summary)]
        if fold.stop <= first:  # purged: the pinned messages exist only in the fold
            return [*rows, *(_Row(fold.start, message, is_pinned=True) for message in fold.shown[summary_index + 1 :])]
        pinned_messages: dict[int, Message] = {}
        for pin in sorted(loaded.pins):
            if max(fold.start, first, loaded.conversation.lead) <= pin < fold.stop and pin not in pinned_messages:
                pinned_messages |= await self._exchange(conversation, pin, first)
        pinned_rows = [_Row(fold.start, message, is_pinned=True) for _, message in sorted(pinned_messages.items())]
        return [*rows, *pinned_rows]

    async def _exchange(self, conversation: str, position: int, first: int) -> dict[int, Message]:
        """The messages of the exchange at a position, by position."""
        radius = _FIRST_PAGE_RADIUS
        while True:
            start = max(first, position - radius)
            page = await self.store.load(conversation, since=start, limit=2 * radius)
            exchange = next(exchange for exchange in exchanges(page.messages) if position - start in exchange)
            starts_before_page = exchange.start == 0 and start > first
            if not starts_before_page and exchange.stop < 2 * radius:
                return {start + index: page.messages[index] for index in exchange}
            radius *= 2


@dataclass(frozen=True, slots=True)
class _Row:
    """A message of the record that a strategy gets."""

    position: int
    """The message's position in the store; for a message that a fold shows, the start of the fold."""
    message: Message
    is_pinned: bool = False


class _LoadedView:
    """A record with summaries in place of the messages they replace, and its folds by index in this record."""

    def __init__(self, loaded: LoadedConversation, rows: Sequence[_Row], counter: TokenCounter) -> None:
        self.loaded = loaded
        self.record = Transcript.of([row.message for row in rows], counter=counter)
        for index, row in enumerate(rows):
            if row.is_pinned:
                self.record.pin(index)
        self._positions = [*(row.position for row in rows), loaded.conversation.length]
        folds = (
            replace(fold, start=self._index(fold.start), stop=self._index(fold.stop))
            for fold in loaded.folds
            if is_summary_fold(fold) or fold.stop > loaded.conversation.first
        )
        self.folds = tuple(fold for fold in folds if fold.start < fold.stop)

    def _index(self, position: int) -> int:
        return bisect_left(self._positions, position)

    def at_stored_positions(self, fold: Fold, *, with_leading: bool) -> Fold:
        """The fold at its positions in the store. `with_leading` extends it over the leading system messages.

        A store purges only entries that a fold from position 0 covers, and a fold must not start at a result without its call.
        """
        start, stop = self._positions[fold.start], self._positions[fold.stop]
        if (with_leading or is_result(self.record[fold.start])) and not folds_in_range(self.loaded.folds, 0, start):
            return replace(fold, start=0, stop=stop, shown=(*self.record[: fold.start], *fold.shown))
        return replace(fold, start=start, stop=stop)


class _StrictBus:
    """A bus that raises the errors of its subscribers."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    def publish(self, event: object) -> None:
        result = self._bus.publish(event)
        if hasattr(result, "raise_errors"):
            result.raise_errors()
