"""Compaction of one conversation: a strategy decides what is folded, the manager applies it and reports the result."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

from minutebook.compaction.circuit_breaker import CircuitBreaker
from minutebook.compaction.cuts import cut_folds, view_with_cuts
from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.registry import strategy_from
from minutebook.compaction.strategy import CompactionInput, HistoryStrategy, folds_of, require_folds
from minutebook.compaction.summarize import SummarizeStrategy
from minutebook.compaction.summarizer import Summarizer, is_summary, require_summarizer, summary_text
from minutebook.compaction.truncate import TruncateStrategy, fitting_folds
from minutebook.compaction.visible_record import VisibleRecord
from minutebook.errors import FoldConflict, InvalidResult, SummaryRejected, require_type
from minutebook.history.curation import Curated
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.record.fold import Fold
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo

CompactionOutcome: TypeAlias = Literal["not due", "folded", "nothing to fold", "failed", "rejected", "conflict"]
"""`failed`: the strategy or its summarizer raised. `rejected`: the summary is not usable. `conflict`: another process has
folded the same messages in the meantime."""


@dataclass(frozen=True, slots=True)
class HistoryCompacted:
    """Published after each compaction, except if there was nothing to fold. The event is never sent to a model."""

    strategy: str
    folds: tuple[str, ...]
    """Ids of the added folds."""
    tokens_before: int
    tokens_after: int
    session_id: UUID | None
    created_at: datetime
    fallback: str | None = None
    """Why other methods than the strategy were used; None if the strategy was enough."""
    methods: tuple[str, ...] = ()
    """What reduced the conversation, in order: the strategy's name or "history manager", "extractive summary",
    "truncation"."""
    outcome: CompactionOutcome = "folded"
    reason: str = ""
    conversation: str | None = None
    """Id of the conversation in a store."""
    tenant: str | None = None

    def __str__(self) -> str:
        return self.notice

    @property
    def notice(self) -> str:
        """A line of text for the user."""
        if self.outcome != "folded":
            return f"[History not compacted using {self.strategy} strategy: {self.reason}]"
        if self.fallback is not None:
            return f"[History compacted using {', then '.join(self.methods)}: {self.fallback}]"
        return f"[History compacted using {self.strategy} strategy]"


_LOG: Final = logging.getLogger("minutebook.compaction")
_MIN_GROWTH: Final = 0.02
"""The strategy is called again only if new messages with this share of the window were added since the last attempt."""
_NOTHING_TO_FOLD: Final = "every message that is not folded yet is required, or folding would save no tokens"


def now() -> datetime:
    """The default clock."""
    return datetime.now(UTC)


SaveFold = Callable[[Fold], Awaitable[object]]
"""Stores a fold. If it returns a fold, that is the stored one: its id or its positions may differ."""
LoadRewinds = Callable[[], Awaitable[Sequence[Fold]]]
"""Returns the folds of `rewind`, in the order in which they were added, also those that later folds replaced."""


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction. `bool(result)` is True if messages were folded; otherwise nothing was changed."""

    folds: tuple[Fold, ...] = field(default=(), repr=False)
    """All folds of the conversation, for the view."""
    outcome: CompactionOutcome = "not due"
    reason: str = ""
    """Why messages were folded or not. Empty if no compaction was due."""
    added: tuple[Fold, ...] = ()
    turns: int = 0
    """Number of newly folded turns."""
    tokens_before: int | None = None
    """Tokens of the whole view before the compaction."""
    tokens_after: int | None = None
    event: HistoryCompacted | None = None
    """The published event, if messages were folded."""
    error: Exception | None = None
    """The exception of the strategy or of its rejected summary. The conversation was then truncated if necessary."""
    purged: int = 0
    """Number of entries deleted from the record, if purging was requested."""

    def __bool__(self) -> bool:
        return self.outcome == "folded"

    @property
    def start(self) -> int | None:
        """The first newly folded position."""
        return min((fold.start for fold in self.added), default=None)

    @property
    def stop(self) -> int | None:
        """The position after the last newly folded one."""
        return max((fold.stop for fold in self.added), default=None)

    @property
    def fold_id(self) -> str | None:
        """Id of the first added fold. `TurnStrategy` adds only this one, so its compactions can be undone by this id."""
        return self.added[0].id if self.added else None

    @property
    def summary(self) -> str | None:
        """The new summary, without its ledger."""
        shown = (message for fold in self.added for message in fold.shown if is_summary(message))
        return next((without_ledger(summary_text(message)) for message in shown), None)


class _Attempt(NamedTuple):
    """The folds of a strategy, or the reason why there are none."""

    folds: list[Fold]
    outcome: CompactionOutcome
    reason: str = ""
    error: Exception | None = None
    methods: tuple[str, ...] = ()
    fallback: str | None = None


class CompactionManager:
    """Folds old messages of one conversation with a strategy when the model's context window fills up.

    Without a strategy nothing is folded. `folds` has all folds of the conversation. If `save_fold` is set, it is called
    with each new fold before that is added to `folds`. `load_rewinds` is needed if `folds` has only the active ones. Every compaction is published on `bus`, by default that of the
    session, except if there was nothing to fold. `conversation` and `tenant` are part of that event. After three failures in a row the strategy is not called
    for five minutes; managers with the same `breaker` count them together.

    `manager` is the history manager that is applied after the folds. A compaction also folds the messages that this
    manager leaves out. Otherwise they could be in the next view, which the manager makes from the shorter conversation.
    """

    def __init__(
        self,
        strategy: HistoryStrategy | str | None,
        model: ModelInfo,
        summarizer: Summarizer | None = None,
        *,
        folds: Sequence[Fold] = (),
        save_fold: SaveFold | None = None,
        load_rewinds: LoadRewinds | None = None,
        bus: EventBus | None = None,
        conversation: str | None = None,
        tenant: str | None = None,
        reply_tokens: int | None = None,
        manager: HistoryManager | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self.strategy = None if strategy is None else strategy_from(strategy)
        require_type("model", model, ModelInfo, "a ModelInfo, such as model_info('gpt-4o')")
        self.model = model
        self.summarizer: Summarizer = summarizer or ExtractiveSummarizer()
        require_summarizer(self.summarizer)
        self.folds = tuple(folds)
        self._save_fold = save_fold
        self._load_rewinds = load_rewinds
        self._rewinds: Sequence[Fold] = ()
        self._bus = bus
        self._conversation, self._tenant = conversation, tenant
        self._reply_tokens = reply_tokens
        self._manager = manager
        self._breaker = breaker or CircuitBreaker()
        self._clock = clock or now
        self._last_attempt = 0
        """Length of the record at the last attempt."""

    def compaction_input(self, record: Transcript, overhead_tokens: int = 0) -> CompactionInput:
        require_type("record", record, Transcript, "a Transcript, such as Transcript(messages)")
        visible = VisibleRecord(record, self.folds, self._rewinds)
        return CompactionInput(visible.record, visible.folds, self.model, overhead_tokens, self._reply_tokens)

    async def check_and_apply(
        self,
        record: Transcript,
        *,
        session: SessionProtocol | None = None,
        overhead_tokens: int = 0,
        manager: HistoryManager | None = None,
    ) -> CompactionResult:
        """Fold messages if that is due before the next model call.

        `manager` is the history manager of that call, if it was not given to the constructor.

        Any strategy is due if the request exceeds the window. If the request still exceeds it after the strategy was
        applied or has failed, old messages are replaced by an extractive summary and, if that is not enough, truncated. If
        the request does not exceed the window, a strategy that fails changes nothing.

        Raises:
            CannotFit: the leading system messages, the pins, the newest user message and the last exchange, with its
                results cleared, exceed the window.
            InvalidResult: the strategy's `apply` returns or yields something else than folds.
            FoldConflict: one of its folds splits an exchange, or hides a leading system message, a pin or the newest
                user message.
        """
        strategy, history = self.strategy, self.compaction_input(record, overhead_tokens)
        if strategy is None:
            return CompactionResult(self.folds)
        try:
            if not _is_due(strategy, history):
                return CompactionResult(self.folds)
        except InvalidResult:
            raise
        except Exception as error:  # noqa: BLE001 - strategies can be user code
            return await self._finish(strategy, record, history, _log_failure(strategy, error), session)
        history = await self._with_all_rewinds(record, history)
        manager = self._manager or manager
        view = None if manager is None else view_with_cuts(history, manager, session)
        attempt = await self._attempt_if_useful(strategy, history)
        if view is not None:
            attempt = _with_cuts(history, view, attempt)
        if history.with_folds(attempt.folds).tokens > history.limit:
            attempt = await self._fit(strategy, history, attempt)
        return await self._finish(strategy, record, history, attempt, session)

    async def _fit(self, strategy: HistoryStrategy, history: CompactionInput, attempt: _Attempt) -> _Attempt:
        """Add folds until the request fits: an extractive summary first, then truncation.

        Raises:
            CannotFit: the essential messages exceed the window.
        """
        methods, folds = [*attempt.methods], [*attempt.folds]
        after = history.with_folds(folds)
        if not isinstance(strategy, TruncateStrategy):
            summarize = getattr(strategy, "summarize", strategy)
            if not isinstance(summarize, SummarizeStrategy):
                summarize = SummarizeStrategy()
            is_extractive = isinstance(self.summarizer, ExtractiveSummarizer)
            summarizer = self.summarizer if is_extractive else ExtractiveSummarizer()
            summary_folds = (await self._attempt(summarize, after, summarizer)).folds
            if summary_folds:
                methods.append("extractive summary")
                folds += summary_folds
                after = history.with_folds(folds)
        if after.tokens > history.limit:
            methods.append("truncation")
            folds += fitting_folds(after)
        fallback = attempt.reason or f"{strategy.name} was not enough"
        return _Attempt(folds, "folded", attempt.reason, attempt.error, tuple(methods), fallback)

    async def apply(self, record: Transcript, *, session: SessionProtocol | None = None) -> CompactionResult:
        """Apply the strategy even if it is not due. Nothing is truncated, even if the request exceeds the window.

        A strategy with a wrong result raises as in `check_and_apply`. But a `FoldConflict` from `save_fold` is not raised; the outcome is "conflict".
        """
        strategy, history = self.strategy, self.compaction_input(record)
        if strategy is None:
            return CompactionResult(self.folds)
        history = await self._with_all_rewinds(record, history)
        attempt = await self._attempt(strategy, history, self.summarizer)
        if attempt.folds and self._manager is not None:
            view = view_with_cuts(history, self._manager, session)
            attempt = attempt if view is None else _with_cuts(history, view, attempt)
        try:
            return await self._finish(strategy, record, history, attempt, session)
        except FoldConflict as error:
            return await self._finish(strategy, record, history, _Attempt([], "conflict", str(error), error), session)

    async def _with_all_rewinds(self, record: Transcript, history: CompactionInput) -> CompactionInput:
        """The input without the messages of replaced rewinds, which must not be summarized again."""
        if self._load_rewinds is None or all(fold.is_rewind for fold in self.folds):
            return history
        rewinds = await self._load_rewinds()
        self._rewinds = [fold for fold in rewinds if fold.stop <= len(record)]
        return self.compaction_input(record, history.overhead_tokens)

    async def _attempt_if_useful(self, strategy: HistoryStrategy, history: CompactionInput) -> _Attempt:
        """Call the strategy, unless it failed several times or too few messages were added since the last call."""
        reason_to_skip = self._reason_to_skip(history)
        if reason_to_skip:
            return _Attempt([], "nothing to fold", reason_to_skip)
        attempt = await self._attempt(strategy, history, self.summarizer)
        self._breaker.record(self._clock(), failed=attempt.error is not None)
        self._last_attempt = len(history.record)
        return attempt

    async def _attempt(self, strategy: HistoryStrategy, history: CompactionInput, summarizer: Summarizer) -> _Attempt:
        """Call the strategy. Its folds are discarded if they do not reduce the tokens."""
        try:
            folds = await folds_of(strategy, history, summarizer)
        except InvalidResult:  # a mistake in the strategy, which no retry repairs
            raise
        except Exception as error:  # noqa: BLE001 - strategies and summarizers can be user code
            return _log_failure(strategy, error)
        require_folds(strategy, history, folds, self._conversation)
        if folds and history.with_folds(folds).tokens < history.tokens:
            return _Attempt(folds, "folded", methods=(strategy.name,))
        return _Attempt([], "nothing to fold", _NOTHING_TO_FOLD)

    def _reason_to_skip(self, history: CompactionInput) -> str:
        """Why the strategy is not called although it is due; empty if it is called."""
        record = history.record
        new_tokens = sum(map(record.tokens_of, range(min(self._last_attempt, len(record)), len(record))))
        breaker, is_growing = self._breaker, not self._last_attempt or new_tokens >= history.limit * _MIN_GROWTH
        if is_growing and breaker.allow(self._clock()):
            return ""
        if breaker.retry_at is None:
            return "too few messages were added since the last attempt"
        time = breaker.retry_at.isoformat(timespec="seconds")
        return f"the strategy failed {breaker.failures} times in a row and is not called again before {time}"

    async def _finish(
        self,
        strategy: HistoryStrategy,
        record: Transcript,
        history: CompactionInput,
        attempt: _Attempt,
        session: SessionProtocol | None,
    ) -> CompactionResult:
        """Store the folds, publish the event and return the result."""
        after = history.with_folds(attempt.folds)
        visible = VisibleRecord(record, self.folds, self._rewinds)
        added: list[Fold] = []
        for fold in map(visible.at_record_positions, attempt.folds):
            stored = fold if self._save_fold is None else await self._save_fold(fold)
            added.append(stored if isinstance(stored, Fold) else fold)
        if attempt.outcome == "nothing to fold":
            return CompactionResult(self.folds, attempt.outcome, attempt.reason)
        self.folds = (*self.folds, *added)
        reason = added[0].reason if added else attempt.reason
        event = HistoryCompacted(
            strategy=strategy.name,
            folds=tuple(fold.id for fold in added),
            tokens_before=history.tokens,
            tokens_after=after.tokens,
            session_id=getattr(session, "session_id", None),
            created_at=self._clock(),
            fallback=attempt.fallback,
            methods=attempt.methods,
            outcome=attempt.outcome,
            reason=reason,
            conversation=self._conversation,
            tenant=self._tenant,
        )
        bus: EventBus | None = self._bus or getattr(session, "bus", None)
        if bus is not None:
            bus.publish(event)
        return CompactionResult(
            self.folds,
            attempt.outcome,
            reason,
            tuple(added),
            history.turns - after.turns,
            history.tokens,
            after.tokens,
            event if added else None,
            attempt.error,
        )


def _is_due(strategy: HistoryStrategy, history: CompactionInput) -> bool:
    """Whether the request exceeds the window, or the strategy wants to compact.

    Raises:
        InvalidResult: `should_trigger` is a coroutine.
    """
    if history.tokens > history.limit:
        return True
    is_due: Any = strategy.should_trigger(history)
    if isinstance(is_due, Coroutine):
        is_due.close()
        fix = "write `def should_trigger`, not `async def`, and return True or False"
        raise InvalidResult(f"{type(strategy).__name__}.should_trigger", "a coroutine", fix)
    return bool(is_due)


def _log_failure(strategy: HistoryStrategy, error: Exception) -> _Attempt:
    """Log the error of a strategy, and return an attempt that folds nothing."""
    _LOG.warning("compaction by %s failed; nothing was changed", strategy.name, exc_info=error)
    if isinstance(error, SummaryRejected):
        return _Attempt([], "rejected", str(error), error)
    return _Attempt([], "failed", f"strategy {strategy.name} failed: {type(error).__name__}: {error}", error)


def _with_cuts(history: CompactionInput, view: Curated, attempt: _Attempt) -> _Attempt:
    """The attempt with additional folds for the messages that the history manager left out.

    If the conversation is not shorter with the attempt's own folds, only the additional ones remain.
    """
    cuts = cut_folds(history, view)
    if not cuts:
        return attempt
    folds = [*attempt.folds, *cut_folds(history, view, attempt.folds)]
    if attempt.folds and history.with_folds(folds).tokens < history.with_folds(cuts).tokens:
        return attempt._replace(folds=folds)
    reason = attempt.reason or _NOTHING_TO_FOLD
    return _Attempt(cuts, "folded", reason, attempt.error, ("history manager",), reason)
