"""Managers that tell a bus what another manager did."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from minutebook.history.compose import curated_by
from minutebook.history.context import NO_CONTEXT, CurationContext
from minutebook.history.curated import Curated
from minutebook.history.draft import ContextualManager
from minutebook.history.events import HistoryCurated
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, frozen=True)
class ObservableManager(ContextualManager):
    """Publishes `HistoryCurated` for every view that another manager makes; the view is that manager's own."""

    inner: HistoryManager
    bus: EventBus
    prompt_name: str
    strategy: str | None = None
    """What the event calls the manager; by default its class, in words: `sliding_window`."""
    clock: Callable[[], datetime] = _now

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages, counter=self.counts_with())
        view = curated_by(self.inner, source, session, context or NO_CONTEXT)
        self.bus.publish(
            HistoryCurated(
                prompt_name=self.prompt_name,
                original_count=len(messages),
                curated_count=len(view),
                strategy=self.strategy or strategy_name(self.inner),
                session_id=getattr(session, "session_id", None),
                created_at=self.clock(),
            )
        )
        return view

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self.inner, ContextualManager) and self.inner.fits(messages)

    def counts_with(self) -> TokenCounter | None:
        return self.inner.counts_with() if isinstance(self.inner, ContextualManager) else None


@dataclass(slots=True, frozen=True)
class ObservableSlidingWindowManager(ObservableManager):
    """SlidingWindowManager with event emission."""


def strategy_name(manager: object) -> str:
    """A manager's class in words: `SlidingWindowManager` is `sliding_window`."""
    name = type(manager).__name__
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name.removesuffix("Manager") or name)
    return "_".join(words).lower()
