"""Compaction on demand: when a request sets a limit, and when somebody asks for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.compactor import FoldStorage, TurnCompactor
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import CannotFit
from minutebook.record.fold import record_with_folds
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.service.responses.placement import Placed
from minutebook.service.state import Service, counter_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, StoredFold
from minutebook.tokens.models import ModelInfo

_STRATEGY: Final = "hybrid"
"""What folds where the policy has no strategy of its own."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What a compaction by hand did."""

    folds: tuple[StoredFold, ...]
    tokens_before: int
    tokens_after: int
    reason: str


async def compact_above(
    service: Service, store: ConversationStore, place: Placed, threshold: int, model: str
) -> Placed:
    """Fold old parts of a conversation that has more tokens than a request allows. What cannot be folded stays."""
    if place.loaded is None:
        return place
    source = ViewSource(place.loaded, (), counter=counter_of(model), whole=True)
    strategy = service.policy(model).strategy or strategy_named(_STRATEGY)
    keep = FoldStorage(store, place.conversation, source.folds).keep
    window = ModelInfo(model, max_input_tokens=threshold)
    manager = CompactionManager(strategy, window, folds=source.folds, keep=keep)
    if manager.situation(source.record).tokens <= threshold:
        return place
    try:
        await manager.check_and_apply(source.record)
    except CannotFit:
        return place  # less cannot be shown: the request says so itself if the model has no room for it
    return replace(place, loaded=await store.load(place.conversation))


async def compact_now(
    service: Service, store: ConversationStore, loaded: LoadedConversation, *, keep_turns: int | None
) -> Shrunk:
    """Show all but the last turns as a summary."""
    name, model = loaded.conversation.id, service.model_of(None)
    counter = counter_of(model)
    before = loaded.transcript(counter=counter).tokens
    result = await _compactor(store, model, keep_turns).compact(name)
    after = (await store.load(name)).transcript(counter=counter).tokens
    made = tuple(stored for stored in await store.folds(name) if stored.fold.id == result.fold_id)
    return Shrunk(made, before, after, result.reason)


async def compacted(messages: Sequence[Message], model: str) -> list[Message]:
    """Messages that are not stored, with all but the last turns as a summary."""
    record = Transcript(messages, counter=counter_of(model), broken="mark")
    result = await CompactionManager(TurnStrategy(), ModelInfo(model)).apply(record)
    return list(record_with_folds(record, result.folds).transcript)


def _compactor(store: ConversationStore, model: str, keep_turns: int | None) -> TurnCompactor:
    strategy = None if keep_turns is None else TurnStrategy(max_turns=max(10, keep_turns), keep_turns=keep_turns)
    return TurnCompactor(store, strategy=strategy, counter=counter_of(model))
