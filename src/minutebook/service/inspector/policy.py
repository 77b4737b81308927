"""The policy that builds the views of a replay, and a conversation that is replayed in a thread."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from minutebook.conversation.policy import manager_from_texts
from minutebook.history.budget import TokenBudgetManager
from minutebook.history.compose import PassthroughManager
from minutebook.history.protocol import HistoryManager
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.service.inspector.conversation import InspectedConversation, InspectedFold, title_of
from minutebook.service.inspector.replay import ViewReplay, request_lengths
from minutebook.service.inspector.requests import Pricing, RequestSeries
from minutebook.tokens import counter_for
from minutebook.tokens.models import ModelInfo, ModelTable, known_model_info

UNKNOWN_WINDOW: Final = 128_000
"""The budget for a model whose window is not known."""


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """The policy of replays: managers by name, or the token budget of the model's window."""

    managers: tuple[str, ...] = ()
    max_tokens: int | None = None
    model: str | None = None
    """The model whose tokenizer, window and prices count; None for the one that the conversation names."""
    models: ModelTable = field(default_factory=dict)
    """The user's own table of models."""

    def manager(self, model: str | None) -> tuple[HistoryManager, int | None, str]:
        """The manager for a model, its budget, and its name for the page."""
        budget = self.max_tokens or window_of(self.model or model, self.models)
        if not self.managers:
            return TokenBudgetManager(budget), budget, f"TokenBudgetManager {budget:,}"
        manager = manager_from_texts(self.managers, self.max_tokens)
        name = "no manager" if isinstance(manager, PassthroughManager) else " + ".join(self.managers)
        return manager, self.max_tokens, name if self.max_tokens is None else f"{name} {self.max_tokens:,}"


def info_of(model: str | None, own: ModelTable | None = None) -> ModelInfo | None:
    """The model's window and prices; None if it is not known. `own` is the user's own table of models."""
    return known_model_info(model, own) if model else None


def window_of(model: str | None, own: ModelTable | None = None) -> int:
    info = info_of(model, own)
    return UNKNOWN_WINDOW if info is None else info.room()


def pricing_of(model: str | None, own: ModelTable | None = None) -> Pricing:
    """The model's prices, or relative ones."""
    info = info_of(model, own)
    return Pricing() if info is None or not info.prices.input else Pricing(info.prices, is_known=True)


class TokenSums(Sequence[int]):
    """Tokens of a record before each position, added up as the record grows."""

    def __init__(self, record: Transcript) -> None:
        self._record = record
        self._sums = [0]

    def _extend(self) -> None:
        counts = self._record.token_counts()
        for position in range(len(self._sums) - 1, len(counts)):
            self._sums.append(self._sums[-1] + counts[position])

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, int) or index >= len(self._sums):
            self._extend()
        return self._sums[index]

    def __len__(self) -> int:
        self._extend()
        return len(self._sums)


def new_conversation(
    conversation_id: str,
    messages: Sequence[Message],
    *,
    title: str | None = None,
    model: str | None = None,
    folds: Sequence[InspectedFold] = (),
    times: Sequence[datetime | None] = (),
    models: ModelTable | None = None,
    **facts: Any,
) -> InspectedConversation:
    """A conversation without requests. `models` is the user's own table of models; `facts` are further fields."""
    record = Transcript(counter=counter_for(model), broken="mark")
    return InspectedConversation(
        id=conversation_id,
        title=title_of(messages, title) or conversation_id,
        messages=messages,
        record=record,
        series=RequestSeries(TokenSums(record), pricing_of(model, models)),
        model=model,
        models=models or {},
        folds=folds,
        times=times,
        **facts,
    )


def replay(conversation: InspectedConversation, policy: ReplayPolicy) -> None:
    """Build the view of every request, once. The conversation can be read meanwhile, in other threads."""
    if not conversation.replay_lock.acquire(blocking=False):
        conversation.finished.wait()
        return
    try:
        manager, conversation.budget, conversation.policy = policy.manager(conversation.model)
        conversation.managers = policy.managers
        folds: list[Fold] = [item.fold for item in conversation.folds if item.undone_at is None]
        views = ViewReplay(
            conversation.record, conversation.series, manager, max_tokens=conversation.budget, folds=folds
        )
        messages, record = conversation.messages, conversation.record
        for length in request_lengths(messages):
            record.extend(messages[len(record) : length])
            views.request()
        record.extend(messages[len(record) :])
    except Exception as error:  # noqa: BLE001 - the page reports it; a thread has no caller
        conversation.failure = error
    finally:
        conversation.finished.set()


def start_replay(conversation: InspectedConversation, policy: ReplayPolicy) -> None:
    """Replay a conversation in a new thread."""
    threading.Thread(target=replay, args=(conversation, policy), daemon=True, name="replay").start()
