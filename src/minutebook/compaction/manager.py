"""Before every call: is it too much, and if so, what is shown in place of the old parts?"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from minutebook.compaction.events import HistoryCompacted
from minutebook.compaction.extract import ExtractiveSummarizer
from minutebook.compaction.registry import strategy_named
from minutebook.compaction.situation import Situation
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.compaction.truncate import TARGET_RATIO, clipped, truncated
from minutebook.errors import CannotFit
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.record.fold import Fold
from minutebook.record.message import role_of
from minutebook.record.transcript import Transcript
from minutebook.tokens.models import ModelInfo

_LOG: Final = logging.getLogger("minutebook.compaction")
_GROWTH: Final = 0.02
"""How much of the window must have come in since the last try before there is another."""
_FAILURES: Final = 3
"""After so many failures in a row, only what keeps the call within the window is still done."""

KeepFold = Callable[[Fold], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Compaction:
    """What became of a check. It is true when something was folded."""

    folds: tuple[Fold, ...] = field(repr=False)
    """All folds that stand or stood, for the view."""
    added: tuple[Fold, ...] = ()
    event: HistoryCompacted | None = None
    failure: Exception | None = None
    """Why the strategy could not do its work; the conversation is then as it was, or truncated where it had to be."""

    def __bool__(self) -> bool:
        return bool(self.added)


class CompactionManager:
    """Watches one conversation, and folds its old parts by a strategy when the model's window gets full.

    One without a strategy never does. Folds are remembered here; `keep` puts them somewhere durable, before they count.
    """

    def __init__(
        self,
        strategy: HistoryStrategy | str | None,
        model: ModelInfo,
        summarizer: Summarizer | None = None,
        *,
        folds: Sequence[Fold] = (),
        keep: KeepFold | None = None,
        bus: EventBus | None = None,
        reply_tokens: int | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.strategy = strategy_named(strategy) if isinstance(strategy, str) else strategy
        self.model = model
        self.summarizer: Summarizer = summarizer or ExtractiveSummarizer()
        self.folds = tuple(folds)
        self._keep = keep
        self._bus = bus
        self._reply_tokens = reply_tokens
        self._clock = clock
        self._tried_at = 0
        """How many messages there were at the last try."""
        self._failures = 0

    def situation(self, record: Transcript, overhead_tokens: int = 0) -> Situation:
        return Situation(record, self.folds, self.model, overhead_tokens, self._reply_tokens)

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol | None = None, overhead_tokens: int = 0
    ) -> Compaction:
        """Fold what must be folded before the next call.

        A strategy that fails changes nothing. Only when the call would not fit otherwise, the middle is truncated.

        Raises:
            CannotFit: what must be sent is larger than the window.
        """
        strategy, situation = self.strategy, self.situation(record, overhead_tokens)
        if strategy is None or not strategy.should_trigger(situation):
            return Compaction(self.folds)
        added: list[Fold] = []
        failure: Exception | None = None
        if self._may_try(situation):
            try:
                added = await self._folds(strategy, situation)
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - a strategy and its model are anybody's code
                failure = error
                self._failures += 1
                _LOG.warning("compaction by %s failed; nothing was changed", strategy.name, exc_info=error)
            self._tried_at = len(record)
        fallback = None
        if situation.with_folds(added).tokens > situation.limit:
            after = situation.with_folds(added)
            more = truncated(after, int(situation.limit * TARGET_RATIO))
            fallback = (
                f"{strategy.name} did not make it fit" if failure is None else f"{type(failure).__name__}: {failure}"
            )
            added += more
            after = situation.with_folds(added)
            if after.tokens > situation.limit and (clip := clipped(after)) is not None:
                added.append(clip)
            _require_fit(situation.with_folds(added))
        return await self._kept(situation, added, session, fallback, failure)

    async def _folds(self, strategy: HistoryStrategy, situation: Situation) -> list[Fold]:
        """The strategy's folds, if they are worth having: a view that is no shorter is not."""
        made = [fold async for fold in strategy.apply(situation, self.summarizer)]
        return made if made and situation.with_folds(made).tokens < situation.tokens else []

    def _may_try(self, situation: Situation) -> bool:
        """Whether enough has come since the last try that another can do better, and trying is not known to fail."""
        if self._failures >= _FAILURES:
            return False
        record = situation.record
        new = sum(map(record.tokens_of, range(min(self._tried_at, len(record)), len(record))))
        return not self._tried_at or new >= situation.limit * _GROWTH

    async def _kept(
        self,
        situation: Situation,
        added: list[Fold],
        session: SessionProtocol | None,
        fallback: str | None,
        failure: Exception | None,
    ) -> Compaction:
        assert self.strategy is not None
        if not added:
            return Compaction(self.folds, failure=failure)
        if self._keep is not None:
            for fold in added:
                await self._keep(fold)
        after = situation.with_folds(added)
        self.folds = after.folds
        event = HistoryCompacted(
            strategy=self.strategy.name,
            folds=tuple(fold.id for fold in added),
            tokens_before=situation.tokens,
            tokens_after=after.tokens,
            session_id=getattr(session, "session_id", None),
            created_at=self._clock(),
            fallback=fallback,
        )
        if self._bus is not None:
            self._bus.publish(event)
        return Compaction(self.folds, tuple(added), event, failure)


def _require_fit(situation: Situation) -> None:
    if situation.tokens <= situation.limit:
        return
    shown = situation.shown
    parts = [
        (f"the {role_of(shown[place])} message", shown.root_of(place) or 0, shown.tokens_of(place))
        for place in range(len(shown))
    ]
    raise CannotFit(situation.limit, situation.tokens, parts)
