"""Compaction of one conversation: a strategy decides what is folded, the manager applies it and reports the result."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.strategy import CompactionInput, HistoryStrategy
from minutebook.compaction.summarizer import Summarizer, is_summary, summary_text
from minutebook.compaction.truncate import TARGET_RATIO, clipped, truncated
from minutebook.errors import CannotFit, FoldConflict, SummaryRejected
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.record.fold import Fold
from minutebook.record.message import role_of
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo

CompactionOutcome: TypeAlias = Literal["not due", "folded", "nothing to fold", "failed", "rejected", "conflict"]
"""`failed`: the strategy or its summarizer raised. `rejected`: the summary may not be used. `conflict`: somebody else
folded the same part in the meantime."""


@dataclass(frozen=True, slots=True)
class HistoryCompacted:
    """Emitted when folds were added to a conversation, or should have been: see `outcome`.

    It is for people, and never sent to a model.
    """

    strategy: str
    folds: tuple[str, ...]
    """The ids of the folds that were added."""
    tokens_before: int
    tokens_after: int
    session_id: UUID | None
    created_at: datetime
    fallback: str | None = None
    """Why another strategy had to help, where one had."""
    outcome: CompactionOutcome = "folded"
    reason: str = ""
    conversation: str | None = None
    """The id of a stored conversation."""
    tenant: str | None = None

    @property
    def notice(self) -> str:
        """What a user is shown."""
        if self.outcome != "folded":
            return f"[History not compacted using {self.strategy} strategy: {self.reason}]"
        return f"[History compacted using {self.strategy} strategy]"


_LOG: Final = logging.getLogger("minutebook.compaction")
_GROWTH: Final = 0.02
"""How much of the window must have come in since the last try before there is another."""
_FAILURES: Final = 3
"""After so many failures in a row, only what keeps the call within the window is still done."""
_NOTHING: Final = "only parts stand unfolded which are kept, or a summary would not have less tokens"

SaveFold = Callable[[Fold], Awaitable[object]]
"""Stores a fold. If it returns a fold, that is what was stored: under another id, or at other positions."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What became of a compaction; true if something was folded. If not, nothing was changed, and `reason` says why."""

    folds: tuple[Fold, ...] = field(default=(), repr=False)
    """All folds that stand or stood, for the view."""
    outcome: CompactionOutcome = "not due"
    reason: str = ""
    added: tuple[Fold, ...] = ()
    turns: int = 0
    """How many turns are folded that were not before."""
    tokens_before: int | None = None
    """The tokens of the whole view before."""
    tokens_after: int | None = None
    event: HistoryCompacted | None = None
    """What was published, if something was folded."""
    error: Exception | None = None
    """What the strategy raised, or what was wrong with its summary; the middle is then truncated where it had to be."""
    purged: int = 0
    """How many entries were deleted, where that is asked for."""

    def __bool__(self) -> bool:
        return self.outcome == "folded"

    @property
    def start(self) -> int | None:
        """The first position that was folded."""
        return self.added[0].start if self.added else None

    @property
    def stop(self) -> int | None:
        """The first position after it."""
        return self.added[-1].stop if self.added else None

    @property
    def fold_id(self) -> str | None:
        """What undoes a compaction by turns, which adds one fold."""
        return self.added[0].id if self.added else None

    @property
    def summary(self) -> str | None:
        """The new summary, without its ledger."""
        shown = (message for fold in self.added for message in fold.shown if is_summary(message))
        return next((without_ledger(summary_text(message)) for message in shown), None)


class _Attempt(NamedTuple):
    """What a strategy wants to fold, or why it folds nothing."""

    folds: list[Fold]
    outcome: CompactionOutcome
    reason: str = ""
    error: Exception | None = None


class CompactionManager:
    """Watches one conversation, and folds its old parts by a strategy when the model's window gets full.

    One without a strategy never does. Folds are remembered here; `keep` puts them somewhere durable, before they count.
    The `bus` is told of every compaction that was due, done or not; `conversation` and `tenant` say which it was.
    """

    def __init__(
        self,
        strategy: HistoryStrategy | str | None,
        model: ModelInfo,
        summarizer: Summarizer | None = None,
        *,
        folds: Sequence[Fold] = (),
        keep: SaveFold | None = None,
        bus: EventBus | None = None,
        conversation: str | None = None,
        tenant: str | None = None,
        reply_tokens: int | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
        self.model = model
        self.summarizer: Summarizer = summarizer or ExtractiveSummarizer()
        self.folds = tuple(folds)
        self._keep = keep
        self._bus = bus
        self._conversation, self._tenant = conversation, tenant
        self._reply_tokens = reply_tokens
        self._clock = clock
        self._tried_at = 0
        """How many messages there were at the last try."""
        self._failures = 0

    def situation(self, record: Transcript, overhead_tokens: int = 0) -> CompactionInput:
        return CompactionInput(record, self.folds, self.model, overhead_tokens, self._reply_tokens)

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol | None = None, overhead_tokens: int = 0
    ) -> CompactionResult:
        """Fold what must be folded before the next call.

        A strategy that fails changes nothing. Only when the call would not fit otherwise, the middle is truncated.

        Raises:
            CannotFit: what must be sent is larger than the window.
        """
        strategy, situation = self.strategy, self.situation(record, overhead_tokens)
        if strategy is None or not strategy.should_trigger(situation):
            return CompactionResult(self.folds)
        attempt = _Attempt([], "nothing to fold", "too little was added since the last try")
        if self._may_try(situation):
            attempt = await self._attempt(strategy, situation)
            self._failures = 0 if attempt.error is None else self._failures + 1
            self._tried_at = len(record)
        fallback = None
        after = situation.with_folds(attempt.folds)
        if after.tokens > situation.limit:
            error = attempt.error
            fallback = f"{strategy.name} did not make it fit" if error is None else f"{type(error).__name__}: {error}"
            added = [*attempt.folds, *truncated(after, int(situation.limit * TARGET_RATIO))]
            after = situation.with_folds(added)
            if after.tokens > situation.limit and (clip := clipped(after)) is not None:
                added.append(clip)
            _require_fit(situation.with_folds(added))
            attempt = _Attempt(added, "folded", error=error) if added else attempt
        return await self._finish(strategy, situation, attempt, session, fallback)

    async def apply(self, record: Transcript, *, session: SessionProtocol | None = None) -> CompactionResult:
        """Fold what the strategy folds, whether that is due or not. The window does not matter, so nothing is truncated.

        Unlike in `check_and_apply`, a `FoldConflict` of `keep` is an outcome and not raised.
        """
        strategy, situation = self.strategy, self.situation(record)
        if strategy is None:
            return CompactionResult(self.folds)
        attempt = await self._attempt(strategy, situation)
        try:
            return await self._finish(strategy, situation, attempt, session)
        except FoldConflict as error:
            return await self._finish(strategy, situation, _Attempt([], "conflict", str(error), error), session)

    async def _attempt(self, strategy: HistoryStrategy, situation: CompactionInput) -> _Attempt:
        """The strategy's folds, if they are worth having: a view that is no shorter is not."""
        try:
            made = [fold async for fold in strategy.apply(situation, self.summarizer)]
        except Exception as error:  # noqa: BLE001 - a strategy and its model are anybody's code
            _LOG.warning("compaction by %s failed; nothing was changed", strategy.name, exc_info=error)
            if isinstance(error, SummaryRejected):
                return _Attempt([], "rejected", str(error), error)
            return _Attempt([], "failed", f"the summarizer failed: {type(error).__name__}: {error}", error)
        if made and situation.with_folds(made).tokens < situation.tokens:
            return _Attempt(made, "folded")
        return _Attempt([], "nothing to fold", _NOTHING)

    def _may_try(self, situation: CompactionInput) -> bool:
        """Whether enough has come since the last try that another can do better, and trying is not known to fail."""
        if self._failures >= _FAILURES:
            return False
        record = situation.record
        new = sum(map(record.tokens_of, range(min(self._tried_at, len(record)), len(record))))
        return not self._tried_at or new >= situation.limit * _GROWTH

    async def _finish(
        self,
        strategy: HistoryStrategy,
        situation: CompactionInput,
        attempt: _Attempt,
        session: SessionProtocol | None,
        fallback: str | None = None,
    ) -> CompactionResult:
        """Keep the folds, publish the event and report both."""
        after = situation.with_folds(attempt.folds)
        added: list[Fold] = []
        for fold in attempt.folds:
            kept = fold if self._keep is None else await self._keep(fold)
            added.append(kept if isinstance(kept, Fold) else fold)
        if attempt.outcome == "nothing to fold":
            return CompactionResult(self.folds, attempt.outcome, attempt.reason)
        self.folds = (*situation.folds, *added)
        reason = added[0].reason if added else attempt.reason
        event = HistoryCompacted(
            strategy=strategy.name,
            folds=tuple(fold.id for fold in added),
            tokens_before=situation.tokens,
            tokens_after=after.tokens,
            session_id=getattr(session, "session_id", None),
            created_at=self._clock(),
            fallback=fallback,
            outcome=attempt.outcome,
            reason=reason,
            conversation=self._conversation,
            tenant=self._tenant,
        )
        if self._bus is not None:
            self._bus.publish(event)
        return CompactionResult(
            self.folds,
            attempt.outcome,
            reason,
            tuple(added),
            situation.turns - after.turns,
            situation.tokens,
            after.tokens,
            event if added else None,
            attempt.error,
        )


def _require_fit(situation: CompactionInput) -> None:
    if situation.tokens <= situation.limit:
        return
    shown = situation.shown
    parts = [
        (f"the {role_of(shown[place])} message", shown.position_of(place) or 0, shown.tokens_of(place))
        for place in range(len(shown))
    ]
    raise CannotFit(situation.limit, situation.tokens, parts)
