"""An automatic context budget: when the window gets full, the oldest finished steps are folded first."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from minutebook.compaction.events import HistoryCompacted
from minutebook.compaction.extract import ExtractiveSummarizer
from minutebook.compaction.manager import Compaction
from minutebook.compaction.strategy import THRESHOLD, require_shares
from minutebook.compaction.summarizer import Summarizer, SummaryRequest, accepted
from minutebook.errors import InvalidSetting
from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.history.view import view_of
from minutebook.planning.events import SummarizeStep
from minutebook.planning.level import kept_of
from minutebook.planning.manager import StepHistoryManager
from minutebook.planning.plan import Plan
from minutebook.planning.task import StepHistory, TaskHistory
from minutebook.record.transcript import Transcript
from minutebook.session.session import Session
from minutebook.tokens.models import ModelInfo


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
        threshold: float = THRESHOLD,
        target: float = 0.5,
        max_summary_tokens: int = 300,
        bus: EventBus | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        require_shares(threshold, target)
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
    ) -> Compaction:
        """Fold what must be folded before the next call. The folds are the session's; none are added to the record.

        A summarizer that fails changes nothing, and the step stays as it was.
        """
        if not isinstance(session, Session):
            return Compaction(())
        before = used = _tokens(record, session) + overhead_tokens
        if used <= int(self._limit * self._threshold):
            return Compaction(())
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
        return self._told(session, folded, before, used, failure)

    async def _summary(self, session: Session, step: StepHistory) -> str:
        if step.summary is not None and not step.newer():
            return step.summary
        history = next(one for one in session.query(TaskHistory).all() if one.step(step.step_id))
        messages = [turn.message() for turn in history.turns_of(step.step_id)]
        request = SummaryRequest(messages, previous=step.summary, max_tokens=self._max_summary_tokens)
        return accepted(await self._summarizer.summarize(request), request)

    def _told(
        self, session: Session, folded: list[str], before: int, after: int, failure: Exception | None
    ) -> Compaction:
        if not folded:
            return Compaction((), failure=failure)
        event = HistoryCompacted(
            strategy="steps",
            folds=tuple(folded),
            tokens_before=before,
            tokens_after=after,
            session_id=session.session_id,
            created_at=self._clock(),
        )
        if self._bus is not None:
            self._bus.publish(event)
        return Compaction((), event=event, failure=failure)


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
