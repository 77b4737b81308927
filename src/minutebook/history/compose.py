"""The manager that changes nothing, and the one that is made of others.

Managers that tell a bus what another manager did.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast

from minutebook.errors import InvalidSetting
from minutebook.history.curation import Curated, NoteChain
from minutebook.history.incremental import ContextualManager, IncrementalManager, IncrementalView, KeepSet
from minutebook.history.origins import origins
from minutebook.history.protocol import (
    NO_CONTEXT,
    CurationContext,
    EventBus,
    HistoryCurated,
    HistoryManager,
    SessionProtocol,
)
from minutebook.record.message import Message, frozen_copy
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter


@dataclass(slots=True, frozen=True)
class PassthroughManager(ContextualManager):
    """No-op manager that returns messages unchanged."""

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,  # noqa: ARG002 - the protocol's
        context: CurationContext | None = None,  # noqa: ARG002 - nothing is removed, so everything is preserved
    ) -> Curated:
        roots = messages.roots if isinstance(messages, Transcript) else None
        return Curated(messages, range(len(messages)) if roots is None else roots.copy(), ())

    def fits(self, messages: Sequence[Message]) -> bool:  # noqa: ARG002
        return True


@dataclass(slots=True, frozen=True)
class ComposedManager(ContextualManager):
    """Apply multiple managers in sequence."""

    managers: tuple[HistoryManager, ...]
    """Managers to apply, in order. None at all is a passthrough."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "managers", tuple(self.managers))

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        context = context or NO_CONTEXT
        record = Transcript.of(messages, counter=self.counts_with())
        with record.lock:
            source = record.coherent()
            links = source.remember((self, KeepSet.asked(context, source)), lambda: [_Link() for _ in self.managers])
            trails: tuple[NoteChain | None, ...] = ()
            for manager, link in zip(self.managers, links, strict=True):
                source, said = link.follow(manager, source, session, context)
                trails += said
            return Curated(source, [source.position_of(place) for place in range(len(source))], trails)

    def fits(self, messages: Sequence[Message]) -> bool:
        return all(isinstance(manager, ContextualManager) and manager.fits(messages) for manager in self.managers)

    def counts_with(self) -> TokenCounter | None:
        ours = (manager.counts_with() for manager in self.managers if isinstance(manager, ContextualManager))
        return next((counter for counter in ours if counter is not None), None)


class _Link:
    """One manager's view as a transcript for the next, kept up to date while that view only grows."""

    __slots__ = ("_draft", "_generation", "_made")

    def __init__(self) -> None:
        self._draft: IncrementalView | None = None
        self._generation = 0
        self._made: Transcript | None = None

    def follow(
        self,
        manager: HistoryManager,
        source: Transcript,
        session: SessionProtocol | None,
        context: CurationContext,
    ) -> tuple[Transcript, tuple[NoteChain | None, ...]]:
        if not isinstance(manager, IncrementalManager):
            return _apart(manager, source, session, context)
        draft = manager.current_draft(source, session, context).shown()
        if self._made is None or self._draft is not draft or self._generation != draft.generation:
            self._made = source.derive(draft.messages, draft.places, in_order=True)
            self._draft, self._generation = draft, draft.generation
        else:
            for position in range(len(self._made), len(draft.messages)):
                self._made.append_from(draft.places[position], draft.messages[position])
        return self._made, (draft.trail,)


def _apart(
    manager: HistoryManager, source: Transcript, session: SessionProtocol | None, context: CurationContext
) -> tuple[Transcript, tuple[NoteChain | None, ...]]:
    """The view of a manager that keeps no draft."""
    view = curated_view(manager, source, session, context)
    made = source.derive(view, source.indexes_of(view.origins))
    return made.coherent(), view.trails


def curated_view(
    manager: HistoryManager, source: Transcript, session: SessionProtocol | None, context: CurationContext
) -> Curated:
    """Any manager's view of a transcript, with the places in the record that its messages came from."""
    if isinstance(manager, ContextualManager):
        return manager.curate(source, session=session, context=context)
    lent = _lent(source)
    view = manager.curate(list(lent), session=cast("SessionProtocol", session))
    places = origins(lent, view)
    return Curated(
        [
            message if at is None or message is not lent[at] else source[at]
            for message, at in zip(view, places, strict=True)
        ],
        [None if at is None else source.position_of(at) for at in places],
    )


def _lent(source: Transcript) -> list[Message]:
    """The messages in the form in which code that is not ours may see them: it cannot change them."""
    lent: list[Message] = source.remember(("lent",), list)
    lent += map(frozen_copy, source.since(len(lent)))
    return lent


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
        view = curated_view(self.inner, source, session, context or NO_CONTEXT)
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


def managers_of(managers: HistoryManager | Sequence[HistoryManager]) -> tuple[HistoryManager, ...]:
    """One manager or several as a tuple.

    Raises:
        InvalidSetting: one of them has no method `curate`.
    """
    parts = tuple(managers) if isinstance(managers, Sequence) and not isinstance(managers, str) else (managers,)
    for part in parts:
        if not callable(getattr(part, "curate", None)) or isinstance(part, type):
            raise InvalidSetting("manager", part, "an object with a method curate(messages, *, session), or several")
    return parts


def composed(managers: Sequence[HistoryManager]) -> HistoryManager:
    """One manager that applies all of them in order."""
    if len(managers) == 1:
        return managers[0]
    return ComposedManager(tuple(managers)) if managers else PassthroughManager()
