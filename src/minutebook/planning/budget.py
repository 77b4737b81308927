"""The manager that leaves out the messages of folded steps, and the compactor that folds finished steps."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.manager import CompactionResult, HistoryCompacted
from minutebook.compaction.strategy import DEFAULT_THRESHOLD, require_thresholds
from minutebook.compaction.summarizer import Summarizer, SummaryRequest, require_summary
from minutebook.errors import InvalidSetting
from minutebook.history.curation import NoteStatus, ViewNote
from minutebook.history.incremental import IncrementalManager, IncrementalView, PreservedMessages
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.history.view import view_of
from minutebook.planning.events import SummarizeStep
from minutebook.planning.folds import fingerprint
from minutebook.planning.plan import Plan
from minutebook.planning.task_history import StepFold, StepHistory, TaskHistory, default_keep_tokens
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo


@dataclass(slots=True, frozen=True)
class StepHistoryManager(IncrementalManager):
    """Leaves out the messages of steps that the `TaskHistorySection` does not show in full.

    The session's `TaskHistory` determines which steps are folded. Without a history or a folded step, the view is the
    whole conversation. The messages of steps shown in full, such as the active step, are unchanged.
    """

    def view_input(self, session: SessionProtocol | None) -> Hashable:
        history = session.query(TaskHistory).latest() if isinstance(session, Session) else None
        return () if history is None else history.folds

    def new_view(self, source: Transcript, preserved: PreservedMessages, view_input: Hashable) -> IncrementalView:
        assert isinstance(view_input, tuple)
        return _StepView(source, preserved, view_input)

    def fits(self, messages: Sequence[Message]) -> bool:  # noqa: ARG002 - depends on the session, which is not passed
        return False


class _StepView(IncrementalView):
    """All messages except the folded ones. Folds end before the last exchange, so new messages are never hidden."""

    __slots__ = ("_folds", "_folds_stop", "_hidden_step_ids")

    def __init__(self, source: Transcript, preserved: PreservedMessages, folds: Sequence[StepFold]) -> None:
        super().__init__(source, preserved)
        self._folds = folds
        self._folds_stop = max((fold.stop for fold in folds), default=0)
        self._hidden_step_ids: dict[int, int] = {}
        """Index in the source → id of the step, for the messages to hide."""

    def advance(self) -> None:
        source = self.source
        if self.preserved.last_count or self._seen_position() < self._folds_stop:
            # Build the view again: the preserved messages at the end change with every new message, and a fold that ends
            # after the seen messages may hide more of them now.
            self.messages, self.indexes, self.seen, self.note_chain = [], [], 0, None
            self.generation += 1
        if not self.seen:
            self._hidden_step_ids = self._find_hidden_messages()
        notes = {}
        for index, message in enumerate(source.since(self.seen), self.seen):
            step_id = self._hidden_step_ids.get(index)
            if step_id is None:
                self.messages.append(message)
                self.indexes.append(index)
            else:
                step = f"step {step_id}" if step_id else "a message outside any step"
                notes[index] = ViewNote(NoteStatus.FOLDED, f"{step} is shown in the task history")
        self.note(notes)
        self.seen = len(source)

    def _seen_position(self) -> int:
        """The record position after the last message that was seen.

        If there is no such position, it is the end of the folds, so that `advance` does not build the view again.
        """
        if not self.seen:
            return self._folds_stop
        position = self.source.position_of(self.seen - 1)
        return self._folds_stop if position is None else position + 1

    def _find_hidden_messages(self) -> dict[int, int]:
        """The value of `_hidden_step_ids`: whole exchanges that are folded and have no preserved message."""
        source, step_ids = self.source, dict[int, int]()
        for fold in self._folds:
            indexes = [
                index
                for index in source.indexes_of(range(fold.start, fold.stop))
                if index is not None and index < len(source)
            ]
            if not indexes or source.position_of(indexes[0]) != fold.start:
                continue
            if fingerprint(source[indexes[0]]) == fold.fingerprint:
                step_ids |= dict.fromkeys(indexes, fold.step_id)
        preserved = {
            *self.preserved.pinned(source),
            *range(self.preserved.leading_count(source)),
            *range(self.preserved.tail_start(source), len(source)),
        }
        return {
            index: step_id
            for index, step_id in step_ids.items()
            if all(member in step_ids and member not in preserved for member in source.exchange_of(index))
        }


class StepBudget:
    """Folds finished steps before a call that would fill more than `threshold` of the window, until it fills at most `target`.

    The oldest steps are folded first, starting with those of earlier tasks. Pinned steps and the active step are never
    folded. An existing summary is used if it covers all turns; otherwise the summarizer writes one. The last messages of the
    conversation (`default_keep_tokens`) are not hidden. Pass the `StepBudget` to `evaluate` as `compactor`, together with a
    `StepHistoryManager`.

    Raises:
        InvalidSetting: `threshold`, `target` or `max_summary_tokens` is out of range.
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
        self._max_summary_tokens, self._keep_tokens = max_summary_tokens, default_keep_tokens(model)
        self._bus = bus
        self._clock = clock

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol, overhead_tokens: int = 0
    ) -> CompactionResult:
        """Fold steps until the next call fills at most `target`. The folds are stored in the session, not in the record.

        A step whose summarizer fails is not folded.
        """
        if not isinstance(session, Session):
            return CompactionResult()
        tokens_before = tokens = _view_tokens(record, session) + overhead_tokens
        if tokens <= int(self._limit * self._threshold):
            return CompactionResult()
        fold_ids: list[str] = []
        failure: Exception | None = None
        for step in _foldable_steps(session):
            if tokens <= int(self._limit * self._target):
                break
            try:
                summary = await self._summarize(session, step)
            except Exception as error:  # noqa: BLE001 - the summarizer may be user code
                failure = error
                continue
            session.dispatch(SummarizeStep(step.step_id, summary, keep_tokens=self._keep_tokens))
            overhead_tokens += record.counter.count(summary)
            tokens = _view_tokens(record, session) + overhead_tokens
            fold_ids.append(f"step-{step.step_id}")
        if not fold_ids:
            return CompactionResult(outcome="nothing to fold" if failure is None else "failed", error=failure)
        event = HistoryCompacted(
            strategy="steps",
            folds=tuple(fold_ids),
            tokens_before=tokens_before,
            tokens_after=tokens,
            session_id=session.session_id,
            created_at=self._clock(),
        )
        if self._bus is not None:
            self._bus.publish(event)
        return CompactionResult(outcome="folded", event=event, error=failure)

    async def _summarize(self, session: Session, step: StepHistory) -> str:
        if step.summary is not None and not step.later_turns():
            return step.summary
        history = next(history for history in session.query(TaskHistory).all() if history.step(step.step_id))
        messages = [turn.message() for turn in history.turns_of(step.step_id)]
        request = SummaryRequest(messages, previous=step.summary, max_tokens=self._max_summary_tokens)
        return require_summary(await self._summarizer.summarize(request), request)


def _view_tokens(record: Transcript, session: Session) -> int:
    return view_of(record, StepHistoryManager(), session=session).tokens


def _foldable_steps(session: Session) -> Iterator[StepHistory]:
    """The finished steps that may be folded, oldest first."""
    statuses = {step.step_id: step.status for plan in session.query(Plan).all() for step in plan.steps}
    histories = session.query(TaskHistory).all()
    for history in histories:
        for step in history.steps:
            is_finished = statuses.get(step.step_id) == "done" and step.step_id != histories[-1].active_step_id
            if is_finished and step.level == "full" and not step.pinned and step.turns:
                yield step
