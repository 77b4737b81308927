"""The manager that leaves out what the task history tells, and the budget that folds finished steps, oldest first."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.manager import CompactionResult, HistoryCompacted
from minutebook.compaction.strategy import DEFAULT_THRESHOLD, require_thresholds
from minutebook.compaction.summarizer import Summarizer, SummaryRequest, require_summary
from minutebook.errors import InvalidSetting
from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, KeepSet
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.history.view import view_of
from minutebook.planning.events import SummarizeStep
from minutebook.planning.folds import mark
from minutebook.planning.plan import Plan
from minutebook.planning.task_history import StepFold, StepHistory, TaskHistory, kept_of
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo


@dataclass(slots=True, frozen=True)
class StepHistoryManager(IncrementalManager):
    """Leave out the messages of steps that the `TaskHistorySection` shows as something shorter.

    It decides nothing: the session's `TaskHistory` says which steps are folded. Without one, or with none folded, the view
    is the conversation. Steps in full, the active one among them, stay word for word.
    """

    def basis(self, session: SessionProtocol | None) -> Hashable:
        history = session.query(TaskHistory).latest() if isinstance(session, Session) else None
        return () if history is None else history.folds

    def new_view(self, source: Transcript, keep: KeepSet, basis: Hashable) -> IncrementalView:
        assert isinstance(basis, tuple)
        return _StepDraft(source, keep, basis)

    def fits(self, messages: Sequence[Message]) -> bool:  # noqa: ARG002 - the session decides, and is not asked here
        return False


class _StepDraft(IncrementalView):
    """All messages but those that folds hide. Folds end before the last exchange, so what is new is never hidden."""

    __slots__ = ("_folds", "_hidden", "_stop")

    def __init__(self, source: Transcript, keep: KeepSet, folds: Sequence[StepFold]) -> None:
        super().__init__(source, keep)
        self._folds = folds
        self._stop = max((fold.stop for fold in folds), default=0)
        self._hidden: dict[int, int] = {}

    def advance(self) -> None:
        source = self.source
        if self.keep.last or self._reached() < self._stop:  # what is hidden may change with what has come
            self.messages, self.indexes, self.seen, self.note_chain = [], [], 0, None
            self.generation += 1
        if not self.seen:
            self._hidden = self._places()
        notes = {}
        for place, message in enumerate(source.since(self.seen), self.seen):
            step_id = self._hidden.get(place)
            if step_id is None:
                self.messages.append(message)
                self.indexes.append(place)
            else:
                what = f"step {step_id}" if step_id else "what was outside any step"
                notes[place] = ViewNote(NoteStatus.FOLDED, f"{what} is told in the task history")
        self.note(notes)
        self.seen = len(source)

    def _reached(self) -> int:
        """How much of the record was seen so far; everything, where a fold shows the end of it."""
        if not self.seen:
            return self._stop
        root = self.source.position_of(self.seen - 1)
        return self._stop if root is None else root + 1

    def _places(self) -> dict[int, int]:
        """Which places of the source are hidden, each with its step: whole exchanges, and nothing that must stay."""
        source, found = self.source, dict[int, int]()
        for fold in self._folds:
            places = [place for place in source.indexes_of(range(fold.start, fold.stop)) if place is not None]
            places = [place for place in places if place < len(source)]
            if places and source.position_of(places[0]) == fold.start and mark(source[places[0]]) == fold.mark:
                found |= dict.fromkeys(places, fold.step_id)
        staying = {
            *self.keep.pinned(source),
            *range(self.keep.leading_count(source)),
            *range(self.keep.tail_start(source), len(source)),
        }
        return {
            place: step_id
            for place, step_id in found.items()
            if all(other in found and other not in staying for other in source.exchange_of(place))
        }


class StepBudget:
    """Before every call: if it would fill more than `threshold` of the window, fold finished steps down to `target`.

    The oldest go first, those of earlier tasks before those of this one; never a pinned step, and never the active one.
    A step that has a summary is shown as that. The end of the conversation stays, as when the model sums up. Give it to
    `evaluate` as `compactor`, beside a `StepHistoryManager`.

    Raises:
        InvalidSetting: the shares or `max_summary_tokens` cannot be meant.
    """

    def __init__(
        self,
        model: ModelInfo,
        summarizer: Summarizer | None = None,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        target: float = 0.5,
        max_summary_tokens: int = 300,
        bus: EventBus | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        require_thresholds(threshold, target)
        if max_summary_tokens < 1:
            raise InvalidSetting("max_summary_tokens", max_summary_tokens, "1 or more")
        self._limit = model.room()
        self._summarizer: Summarizer = summarizer or ExtractiveSummarizer()
        self._threshold, self._target = threshold, target
        self._max_summary_tokens, self._keep_tokens = max_summary_tokens, kept_of(model)
        self._bus = bus
        self._clock = clock

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol, overhead_tokens: int = 0
    ) -> CompactionResult:
        """Fold what must be folded before the next call. The folds are the session's; none are added to the record.

        A summarizer that fails changes nothing, and the step stays as it was.
        """
        if not isinstance(session, Session):
            return CompactionResult()
        before = used = _tokens(record, session) + overhead_tokens
        if used <= int(self._limit * self._threshold):
            return CompactionResult()
        folded: list[str] = []
        failure: Exception | None = None
        for step in _finished(session):
            if used <= int(self._limit * self._target):
                break
            try:
                summary = await self._summary(session, step)
            except Exception as error:  # noqa: BLE001 - a summarizer is anybody's code
                failure = error
                continue
            session.dispatch(SummarizeStep(step.step_id, summary, keep_tokens=self._keep_tokens))
            overhead_tokens += record.counter.count(summary)
            used = _tokens(record, session) + overhead_tokens
            folded.append(f"step-{step.step_id}")
        if not folded:
            return CompactionResult(outcome="nothing to fold" if failure is None else "failed", error=failure)
        event = HistoryCompacted(
            strategy="steps",
            folds=tuple(folded),
            tokens_before=before,
            tokens_after=used,
            session_id=session.session_id,
            created_at=self._clock(),
        )
        if self._bus is not None:
            self._bus.publish(event)
        return CompactionResult(outcome="folded", event=event, error=failure)

    async def _summary(self, session: Session, step: StepHistory) -> str:
        if step.summary is not None and not step.newer():
            return step.summary
        history = next(one for one in session.query(TaskHistory).all() if one.step(step.step_id))
        messages = [turn.message() for turn in history.turns_of(step.step_id)]
        request = SummaryRequest(messages, previous=step.summary, max_tokens=self._max_summary_tokens)
        return require_summary(await self._summarizer.summarize(request), request)


def _tokens(record: Transcript, session: Session) -> int:
    return view_of(record, StepHistoryManager(), session=session).tokens


def _finished(session: Session) -> Iterator[StepHistory]:
    """The steps that may be folded, oldest first."""
    status = {step.step_id: step.status for plan in session.query(Plan).all() for step in plan.steps}
    histories = session.query(TaskHistory).all()
    for history in histories:
        for step in history.steps:
            is_over = status.get(step.step_id) == "done" and step.step_id != histories[-1].active_step_id
            if is_over and step.level == "full" and not step.pinned and step.turns:
                yield step
