"""Compaction of a conversation that is kept in a store, by turns or by a strategy, and what to say about it."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from minutebook import UnknownModel, counter_for, model_info
from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.result import CompactionOutcome
from minutebook.errors import InvalidSetting
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.store.compact import TurnCompactor
from minutebook.store.contract import ConversationStore
from minutebook.store.memory import MemoryStore
from minutebook.store.rules import standing, touching
from minutebook.store.types import Loaded
from minutebook.tokens import TokenCounter
from minutebook.tokens.models import ModelInfo


@dataclass(frozen=True, slots=True)
class Report:
    """What a compaction did, or why it did nothing."""

    conversation: str
    strategy: str | None
    counter: str
    folds: Sequence[Fold] = ()
    tokens_before: int = 0
    """Of the part that was folded or, by a strategy, of the whole view."""
    tokens_after: int = 0
    reason: str = ""
    failed: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "conversation": self.conversation,
            "strategy": self.strategy,
            "summarizer": "extractive",
            "counter": self.counter,
            "folds": [
                {"id": fold.id, "start": fold.start, "stop": fold.stop, "reason": fold.reason} for fold in self.folds
            ],
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "reason": self.reason,
            "failed": self.failed,
        }


async def rehearsal(store: ConversationStore, conversation: str) -> ConversationStore:
    """A copy of one conversation in memory, with which anything may be tried."""
    copy = MemoryStore(tenant=store.tenant)
    await copy.import_(store.export(conversation))
    return copy


async def by_turns(store: ConversationStore, conversation: str, model: str | None) -> Report:
    """Sum up all but the last turns."""
    counter = counter_for(model)
    result = await TurnCompactor(store, counter=counter).compact(conversation)
    report = Report(conversation, None, counter.name)
    if not result:
        failed = result.outcome is not CompactionOutcome.NOTHING_TO_FOLD
        return replace(report, reason=result.reason, failed=failed)
    made = [stored.fold for stored in await store.folds(conversation) if stored.fold.id == result.fold_id]
    assert result.tokens_before is not None
    assert result.tokens_after is not None
    return replace(report, folds=made, tokens_before=result.tokens_before, tokens_after=result.tokens_after)


async def by_strategy(
    store: ConversationStore, conversation: str, name: str, model: str | None, max_tokens: int | None
) -> Report:
    """Fold what the strategy says before the next call of a model with such a window.

    Raises:
        UnknownStrategy: there is none of that name.
        InvalidSetting: nobody knows how much the model reads.
        CannotFit: what must be sent is larger than the window.
    """
    strategy, window, counter = strategy_named(name), _window(model, max_tokens), counter_for(model)
    loaded = await store.load(conversation)
    known, kept = list(loaded.folds), []

    async def keep(made: Fold) -> None:
        # A strategy names the same fold alike each time, and a store takes none again that was undone.
        fold = replace(made, id=f"{name}-{uuid4()}")
        replacing = [other.id for other in touching(known, fold.start, fold.stop)]
        await store.add_fold(conversation, fold, replacing=replacing)
        known[:] = standing([*known, fold])
        kept.append(fold)

    manager = CompactionManager(strategy, window, folds=loaded.folds, keep=keep)
    record = _record(loaded, counter)
    before = manager.situation(record)
    done = await manager.check_and_apply(record)
    report = Report(conversation, name, counter.name, kept, before.tokens, manager.situation(record).tokens)
    if done:
        fallback = done.event.fallback if done.event is not None else None
        return replace(report, reason=f"the middle was truncated: {fallback}" if fallback else "")
    if done.failure is not None:
        problem = f"{type(done.failure).__name__}: {done.failure}"
        return replace(report, reason=problem, failed=True)
    share = f"{before.tokens:,} of {before.limit:,} tokens are in the window"
    due = strategy.should_trigger(before)
    return replace(report, reason=f"{share}, and nothing makes it shorter" if due else f"not due: {share}")


def _window(model: str | None, max_tokens: int | None) -> ModelInfo:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownModel)  # an error here: a guessed window would fold what need not be
        info = model_info(model or "any", max_input_tokens=max_tokens)
    if not info.is_known:
        raise InvalidSetting("--model", model, "a model that is known, or --max-tokens as well")
    return info


def _record(loaded: Loaded, counter: TokenCounter) -> Transcript:
    """The whole record, with something empty where it was purged, so that positions stay; folds hide that."""
    gone: list[Message] = [{"role": "assistant", "content": ""}] * loaded.conversation.first
    record = Transcript.of([*gone, *loaded.messages], counter=counter)
    for pin in loaded.pins:
        record.pin(pin)
    return record
