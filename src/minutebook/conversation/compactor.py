"""Compaction of a stored conversation: the storing of folds for any `CompactionManager`, and compaction by turns.

The record stays; what is added is a fold, and undoing it gives back the earlier view. The strategy sees the view of the
conversation: what was summed up before is not loaded again, and may be purged; one message stands for it. Others may go
on appending while the summary is made: the fold is taken only if the part it was made from is still as it was read.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID, uuid4

from minutebook.compaction.manager import CompactionManager, CompactionResult
from minutebook.compaction.strategy import Situation, shows_summary
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.compaction.turns import TurnStrategy
from minutebook.errors import InvalidSetting
from minutebook.history.protocol import EventBus
from minutebook.record.exchange import exchanges
from minutebook.record.fold import Fold
from minutebook.record.message import Message, is_result
from minutebook.record.transcript import Transcript
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now, standing, touching
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter, counter_for
from minutebook.tokens.models import ModelInfo

_ANY: Final = ModelInfo("any")
"""Turns are counted here and no window is filled, so any model will do."""
_WINDOW: Final = 32
"""How many entries are read around a pinned one, to begin with."""


class FoldStorage:
    """Stores the folds of one conversation; `keep` is what a `CompactionManager` takes.

    Each fold gets an id that no other has: a strategy names the same fold alike each time, and a store takes none again
    that was undone.
    """

    def __init__(
        self, store: ConversationStore, conversation: str, folds: Iterable[Fold], *, length: int | None = None
    ) -> None:
        """`folds` are those of the store; `length` is how many entries are stored, where a fold may cover others."""
        self.standing = tuple(standing(folds))
        self._store = store
        self._conversation = conversation
        self._length = length
        self.unstored: list[tuple[Fold, list[str]]] = []
        """Folds that wait until what they cover is stored, each with those that it replaces."""

    async def keep(self, fold: Fold, *, fold_id: str | None = None) -> Fold:
        """Store a fold in place of the standing ones in its range; return it as it is stored.

        Raises:
            FoldConflict: others stand in its range by now.
        """
        stored = replace(fold, id=fold_id or f"{fold.id}-{uuid4().hex[:12]}")
        self.unstored.append((stored, [other.id for other in touching(self.standing, fold.start, fold.stop)]))
        self.standing = tuple(standing([*self.standing, stored]))
        if self._length is None or fold.stop <= self._length:
            await self.flush()
        return stored

    async def flush(self) -> None:
        """Store the folds that wait."""
        while self.unstored:
            fold, replacing = self.unstored.pop(0)
            await self._store.add_fold(self._conversation, fold, replacing=replacing)


class TurnCompactor:
    """Compacts conversations of one store. It holds nothing of them and may be shared.

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
        bus: EventBus | None = None,
        clock: Callable[[], datetime] = now,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        self.store = store
        self.strategy = strategy or TurnStrategy()
        if self.strategy.threshold is not None:
            raise InvalidSetting("threshold", self.strategy.threshold, "None: a stored history counts turns only")
        if type(purge_compacted) is not bool:
            raise InvalidSetting("purge_compacted", purge_compacted, "True or False")
        self._purge = purge_compacted
        self._summarizer = summarizer
        self._counter = counter
        self._bus = None if bus is None else _StrictBus(bus)
        self._clock = clock
        self._new_id = new_id

    async def is_due(self, conversation: str) -> bool:
        """Whether more turns stand uncompacted than may: user messages that no fold covers.

        The turns that the last compaction kept whole are among them. By default the 11th turn makes the first one
        due, and after that every eighth.
        """
        most = self.strategy.max_turns
        if (await self.store.header(conversation)).turns <= most:
            return False
        loaded = await self.store.load(conversation, last_turns=most + 1, folded=True)
        return self.strategy.should_trigger(Situation(Transcript.of(loaded.messages), (), _ANY))

    async def compact(self, conversation: str, summarizer: Summarizer | None = None) -> CompactionResult:
        """Sum up all but the last turns, whether it is due or not; those that were summed up before are not read again.

        Raises:
            ConversationNotFound, StoreUnavailable: the store's own errors. What the summarizer raises is in the result.
            EventFailed: a subscriber of the bus failed; the fold stands all the same.
        """
        part = await self._load(conversation)
        known = part.loaded.folds
        storage = FoldStorage(self.store, conversation, known)

        async def keep(fold: Fold) -> Fold:
            return await storage.keep(part.stored(fold, with_lead=self._purge), fold_id=str(self._new_id()))

        manager = CompactionManager(
            self.strategy,
            _ANY,
            summarizer or self._summarizer,
            folds=part.folds,
            keep=keep,
            bus=self._bus,
            conversation=conversation,
            tenant=self.store.tenant,
            clock=self._clock,
        )
        result = await manager.apply(part.record)
        result = replace(result, folds=(*known, *result.added))
        if self._purge and result.stop is not None:  # one that fails is the next one's to do
            result = replace(result, purged=await self.store.purge(conversation, before=result.stop))
        return result

    async def _load(self, conversation: str) -> "_LoadedView":
        """The view of a conversation as a record: its folds are over what stands for the messages that they hide."""
        loaded = await self.store.load(conversation, folded=True)
        rows = [
            _Row(position, message, position in loaded.pins)
            for position, message in zip(loaded.positions, loaded.messages, strict=True)
        ]
        for fold in loaded.folds:
            rows += await self._hidden(loaded, fold)
        rows.sort(key=lambda row: row.position)  # stable: what stands for one fold stays in its order
        return _LoadedView(loaded, rows, self._counter or counter_for(None))

    async def _hidden(self, loaded: Loaded, fold: Fold) -> list["_Row"]:
        """What stands for the messages that a fold hides: themselves, unless they are summed up or purged."""
        conversation, first = loaded.conversation.id, loaded.conversation.first
        if not shows_summary(fold):
            if fold.stop <= first:  # like a leading message it can only stay as it is
                return [_Row(fold.start, {**message, "role": "system"}) for message in fold.shown]
            start = max(fold.start, first)
            read = await self.store.load(conversation, since=start, limit=fold.stop - start)
            return [_Row(at, each, at in loaded.pins) for at, each in zip(read.positions, read.messages, strict=True)]
        place = next(at for at, message in enumerate(fold.shown) if is_summary(message))
        summary: Message = {**fold.shown[place], "role": "assistant"}  # no leading message, and no turn
        rows = [*(_Row(fold.start, message) for message in fold.shown[:place]), _Row(fold.start, summary)]
        if fold.stop <= first:  # what it shows as it is can no longer be read anywhere else
            return [*rows, *(_Row(fold.start, message, is_pinned=True) for message in fold.shown[place + 1 :])]
        pinned: dict[int, Message] = {}
        for pin in sorted(loaded.pins):
            if max(fold.start, first, loaded.conversation.lead) <= pin < fold.stop and pin not in pinned:
                pinned |= await self._exchange(conversation, pin, first)
        return [*rows, *(_Row(fold.start, pinned[position], is_pinned=True) for position in sorted(pinned))]

    async def _exchange(self, conversation: str, position: int, first: int) -> dict[int, Message]:
        """The messages of the exchange at a position."""
        window = _WINDOW
        while True:
            start = max(first, position - window)
            read = await self.store.load(conversation, since=start, limit=2 * window)
            found = next(each for each in exchanges(read.messages) if position - start in each)
            cut_in_front = found.start == 0 and start > first
            if not cut_in_front and found.stop < 2 * window:
                return {start + place: read.messages[place] for place in found}
            window *= 2


@dataclass(frozen=True, slots=True)
class _Row:
    """A message of the record that a strategy sees, and where what it stands for begins in the store."""

    position: int
    message: Message
    is_pinned: bool = False


class _LoadedView:
    """A record of what is not summed up yet, and its folds; positions in it are not those of the store."""

    def __init__(self, loaded: Loaded, rows: Sequence[_Row], counter: TokenCounter) -> None:
        self.loaded = loaded
        self.record = Transcript.of([row.message for row in rows], counter=counter)
        for place, row in enumerate(rows):
            if row.is_pinned:
                self.record.pin(place)
        self._positions = [*(row.position for row in rows), loaded.conversation.length]
        readable = (
            replace(fold, start=self._place(fold.start), stop=self._place(fold.stop))
            for fold in loaded.folds
            if shows_summary(fold) or fold.stop > loaded.conversation.first
        )
        self.folds = tuple(fold for fold in readable if fold.start < fold.stop)

    def _place(self, position: int) -> int:
        return bisect_left(self._positions, position)

    def stored(self, fold: Fold, *, with_lead: bool) -> Fold:
        """The fold as the store takes it: at its positions, and `with_lead` over the leading messages too.

        Only a fold of everything lets a store purge, and none may begin at a result without a call.
        """
        start, stop = self._positions[fold.start], self._positions[fold.stop]
        if (with_lead or is_result(self.record[fold.start])) and not touching(self.loaded.folds, 0, start):
            return replace(fold, start=0, stop=stop, shown=(*self.record[: fold.start], *fold.shown))
        return replace(fold, start=start, stop=stop)


class _StrictBus:
    """A bus on which a subscriber that fails is an error."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus

    def publish(self, event: object) -> None:
        published = self._bus.publish(event)
        if hasattr(published, "raise_errors"):
            published.raise_errors()
