"""Compaction that clients request: above the request's `compact_threshold`, of a stored conversation, or of items."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.turns import TurnStrategy
from minutebook.conversation.compactor import FoldStorage, TurnCompactor
from minutebook.conversation.record_cache import update_record
from minutebook.errors import CannotFit
from minutebook.record.fold import record_with_folds
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.service.responses.continuation import ContinuedConversation
from minutebook.service.state import Service, counter_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation, StoredFold
from minutebook.tokens.models import ModelInfo

_DEFAULT_STRATEGY: Final = "hybrid"
"""The strategy if the policy has none."""


@dataclass(frozen=True, slots=True)
class RequestedCompaction:
    """The result of compacting a stored conversation at the client's request."""

    folds: tuple[StoredFold, ...]
    tokens_before: int
    tokens_after: int
    reason: str


async def compact_above_threshold(
    service: Service, store: ConversationStore, continued: ContinuedConversation, threshold: int, model: str
) -> ContinuedConversation:
    """Fold old messages of a conversation with more tokens than `threshold`, and load it again."""
    record = continued.record
    if record is None:
        return continued
    source = record.source(counter_of(model), continued.copies)
    strategy = service.policy(model).strategy or strategy_named(_DEFAULT_STRATEGY)
    storage = FoldStorage(store, continued.conversation, source.folds)
    window = ModelInfo(model, max_input_tokens=threshold)
    manager = CompactionManager(
        strategy, window, folds=source.folds, save_fold=storage.save, load_rewinds=storage.rewinds
    )
    if manager.compaction_input(source.record).tokens <= threshold:
        return continued
    try:
        await manager.check_and_apply(source.record)
    except CannotFit:
        return continued  # the model call fails if the view does not fit
    loaded = await store.load(continued.conversation, since=len(record.messages), folded=True)
    return replace(continued, record=await update_record(store, record, loaded))


async def compact_now(
    service: Service, store: ConversationStore, loaded: LoadedConversation, *, keep_turns: int | None
) -> RequestedCompaction:
    """Fold all but the last turns of a conversation."""
    conversation, model = loaded.conversation.id, service.model_of(None)
    counter = counter_of(model)
    tokens_before = loaded.transcript(counter=counter).tokens
    strategy = None if keep_turns is None else TurnStrategy(max_turns=max(10, keep_turns), keep_turns=keep_turns)
    result = await TurnCompactor(store, strategy=strategy, counter=counter).compact(conversation)
    tokens_after = (await store.load(conversation)).transcript(counter=counter).tokens
    folds = tuple(stored for stored in await store.folds(conversation) if stored.fold.id == result.fold_id)
    return RequestedCompaction(folds, tokens_before, tokens_after, result.reason)


def compact_messages(messages: Sequence[Message], model: str) -> list[Message]:
    """Replace all but the last turns with a summary. Nothing is stored. Call it in a thread, without an event loop."""
    record = Transcript(messages, counter=counter_of(model), broken="mark")
    result = asyncio.run(CompactionManager(TurnStrategy(), ModelInfo(model)).apply(record))
    return list(record_with_folds(record, result.folds).transcript)
