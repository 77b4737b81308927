"""Managers that wrap other managers, to apply several in order or to publish an event, and one that changes nothing."""

import re
import reprlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from minutebook.errors import InvalidMessage, InvalidResult, InvalidSetting, MinutebookError, PromptEvaluationError
from minutebook.history.curation import Curated, NoteChain
from minutebook.history.incremental import ContextualManager, IncrementalManager, IncrementalView, PreservedMessages
from minutebook.history.origins import curated_of
from minutebook.history.protocol import (
    NO_CONTEXT,
    CurationContext,
    EventBus,
    HistoryCurated,
    HistoryManager,
    SessionProtocol,
    Violation,
)
from minutebook.record.finding import DESCRIPTIONS, FindingKind
from minutebook.record.message import Message, frozen_copy, require_message
from minutebook.record.repairs import Repair
from minutebook.record.shapes import shape_problems
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
        record_positions = messages.record_positions if isinstance(messages, Transcript) else None
        return Curated(messages, range(len(messages)) if record_positions is None else record_positions.copy(), ())

    def fits(self, messages: Sequence[Message]) -> bool:  # noqa: ARG002
        return True


@dataclass(slots=True, frozen=True)
class ComposedManager(ContextualManager):
    """Apply multiple managers in sequence."""

    managers: tuple[HistoryManager, ...]
    """Managers to apply, in order. Without managers, messages are unchanged."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "managers", managers_of(self.managers))

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        context = context or NO_CONTEXT
        record = Transcript.of(messages, counter=self.default_counter())
        with record.lock:
            source = record.coherent()
            derived_transcripts = source.cached_value(
                (self, PreservedMessages.of(context, source)), lambda: [_DerivedTranscript() for _ in self.managers]
            )
            note_chains: tuple[NoteChain | None, ...] = ()
            repairs: tuple[Repair, ...] = ()
            for manager, derived in zip(self.managers, derived_transcripts, strict=True):
                source, chains = derived.update(manager, source, session, context)
                note_chains += chains
                repairs += derived.repairs
            positions = [source.position_of(index) for index in range(len(source))]
            return Curated(source, positions, note_chains, repairs=repairs)

    def fits(self, messages: Sequence[Message]) -> bool:
        return all(isinstance(manager, ContextualManager) and manager.fits(messages) for manager in self.managers)

    def default_counter(self) -> TokenCounter | None:
        counters = (manager.default_counter() for manager in self.managers if isinstance(manager, ContextualManager))
        return next((counter for counter in counters if counter is not None), None)


class _DerivedTranscript:
    """One manager's view as a transcript for the next manager. It is extended as long as the view only grows."""

    __slots__ = ("_generation", "_transcript", "_view", "repairs")

    def __init__(self) -> None:
        self._view: IncrementalView | None = None
        self._generation = 0
        self._transcript: Transcript | None = None
        self.repairs: tuple[Repair, ...] = ()
        """How the manager's last result was repaired. Only results of managers outside minutebook need repairs."""

    def update(
        self,
        manager: HistoryManager,
        source: Transcript,
        session: SessionProtocol | None,
        context: CurationContext,
    ) -> tuple[Transcript, tuple[NoteChain | None, ...]]:
        """Return the manager's current view of `source` as a transcript, with the view's notes."""
        if not isinstance(manager, IncrementalManager):
            curated = curated_view(manager, source, session, context)
            transcript = source.derive(curated, source.indexes_of(curated.origins), is_view=True)
            repaired = transcript.coherent()
            self.repairs = curated.repairs + transcript.repairs
            return repaired, curated.note_chains
        view = manager.current_view(source, session, context).final()
        messages, indexes = view.rows()
        if self._transcript is None or self._view is not view or self._generation != view.generation:
            self._transcript = source.derive(messages, indexes, skip_checks=True, is_view=True)
            self._view, self._generation = view, view.generation
        else:
            for view_index in range(len(self._transcript), len(messages)):
                self._transcript.append_from(indexes[view_index], messages[view_index])
        return self._transcript, (view.note_chain,)


def curated_view(
    manager: HistoryManager, source: Transcript, session: SessionProtocol | None, context: CurationContext
) -> Curated:
    """Any manager's view of a transcript, with the origins of its messages.

    Raises:
        InvalidResult: the manager does not return a list of messages.
        PromptEvaluationError: the manager raised.
    """
    if isinstance(manager, ContextualManager):
        return manager.curate(source, session=session, context=context)
    read_only = _read_only_messages(source)
    try:
        messages = _require_messages(manager, list(read_only), session)
    except MinutebookError:
        raise
    except Exception as error:  # the manager is user code
        problem = f"{type(manager).__name__}.curate raised {type(error).__name__}: {error}"
        raise PromptEvaluationError("view_of", "request", problem) from error
    view = curated_of(read_only, messages)
    notes = {
        position: note for index, note in view.notes().items() if (position := source.position_of(index)) is not None
    }
    return Curated(
        [
            source[index] if index is not None and message == read_only[index] else message
            for message, index in zip(view, view.origins, strict=True)
        ],
        [None if index is None else source.position_of(index) for index in view.origins],
        (NoteChain(notes, None),) if notes else (),
    )


def _require_messages(
    manager: HistoryManager, messages: list[dict[str, Any]], session: SessionProtocol | None
) -> Sequence[Message]:
    """Call a manager that is user code, and return its result if that is a list of messages.

    Raises:
        InvalidResult: the result is something else.
    """
    view: Any = manager.curate(messages, session=cast("SessionProtocol", session))
    method = f"{type(manager).__name__}.curate"
    if isinstance(view, Coroutine):
        view.close()
        raise InvalidResult(method, "a coroutine", "write `def curate`, not `async def`, and return a list of messages")
    if isinstance(view, (str, Mapping)) or not isinstance(view, Iterable):
        raise InvalidResult(method, reprlib.repr(view), "return a list of messages")
    view = view if isinstance(view, Sequence) else list(view)
    input_ids = set(map(id, messages))
    for index, message in enumerate(view):
        if id(message) not in input_ids and (problem := _result_problem(message, messages)):
            raise InvalidResult(method, f"a list with {reprlib.repr(message)} at index {index}", problem)
    return cast("Sequence[Message]", view)


def _result_problem(message: Any, input_messages: Sequence[Message]) -> str | None:
    """Why a manager may not return this message. An invalid message of the input may be returned unchanged."""
    is_mapping = isinstance(message, Mapping) and all(isinstance(key, str) for key in message)
    if not is_mapping or not isinstance(message.get("role"), str):
        return "return a list of messages, which are dicts with a role"
    try:
        require_message(message)
    except InvalidMessage as error:
        return f"{error.path} {error.problem}"
    if FindingKind.BAD_CALLS in shape_problems(message) and message not in input_messages:
        return DESCRIPTIONS[FindingKind.BAD_CALLS]
    return None


def _read_only_messages(source: Transcript) -> list[dict[str, Any]]:
    """Read-only copies of the messages, for managers that are user code."""
    copies: list[dict[str, Any]] = source.cached_value(("read-only",), list)
    copies += map(frozen_copy, source.since(len(copies)))
    return copies


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True, frozen=True)
class ObservableManager(ContextualManager):
    """Publishes `HistoryCurated` for every view of another manager. The view is unchanged.

    `view_of`, conversations and the runner publish the event after the guard, so that it describes what is sent.
    """

    inner: HistoryManager
    bus: EventBus
    prompt_name: str
    strategy: str | None = None
    """The manager's name in the event. Default: its class in snake case, such as `sliding_window`."""
    clock: Callable[[], datetime] = _now

    def curate(
        self,
        messages: Sequence[Message],
        *,
        session: SessionProtocol | None = None,
        context: CurationContext | None = None,
    ) -> Curated:
        source = Transcript.of(messages, counter=self.default_counter())
        view = curated_view(self.inner, source, session, context or NO_CONTEXT)
        self.publish(len(messages), len(view), session)
        return view

    def publish(
        self,
        original_count: int,
        curated_count: int,
        session: SessionProtocol | None,
        *,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
        violations: tuple[Violation, ...] = (),
    ) -> Any:
        """Publish `HistoryCurated`, and return the result of the bus. Called after the guard, with the view that is sent."""
        return self.bus.publish(
            HistoryCurated(
                prompt_name=self.prompt_name,
                original_count=original_count,
                curated_count=curated_count,
                strategy=self.strategy or name_from_class(self.inner),
                session_id=getattr(session, "session_id", None),
                created_at=self.clock(),
                tokens_before=tokens_before,
                tokens_after=tokens_after,
                violations=violations,
            )
        )

    def fits(self, messages: Sequence[Message]) -> bool:
        return isinstance(self.inner, ContextualManager) and self.inner.fits(messages)

    def default_counter(self) -> TokenCounter | None:
        return self.inner.default_counter() if isinstance(self.inner, ContextualManager) else None


@dataclass(slots=True, frozen=True)
class ObservableSlidingWindowManager(ObservableManager):
    """Another name of `ObservableManager`. Pass a `SlidingWindowManager` as `inner`."""


def name_from_class(part: object) -> str:
    """The class of a manager or strategy in snake case: `sliding_window` for `SlidingWindowManager`."""
    name = type(part).__name__
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", re.sub("(?<=.)(Manager|Strategy)$", "", name))
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


def managers_in(manager: HistoryManager) -> Iterator[HistoryManager]:
    """The manager itself and, recursively, the managers that it applies."""
    yield manager
    parts = manager.managers if isinstance(manager, ComposedManager) else (getattr(manager, "inner", None),)
    for part in parts:
        if part is not None:
            yield from managers_in(part)


def composed(managers: Sequence[HistoryManager]) -> HistoryManager:
    """One manager that applies all of them in order."""
    if len(managers) == 1:
        return managers[0]
    return ComposedManager(tuple(managers)) if managers else PassthroughManager()
