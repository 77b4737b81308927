"""The steps of a plan: which messages belong to each, and what the model is shown instead of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from minutebook.planning.plan import Plan
from minutebook.planning.task_history import UNASSIGNED, StepHistory, StepVisibility, TaskHistory
from minutebook.record.message import is_result
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.heads import MessageHead, head_of

MAX_EXCHANGES: Final = 200
"""Exchanges of a step that are listed."""
STATUS_WORDS: Final = {"pending": "to do", "in_progress": "in progress", "done": "done", "": ""}
LEVEL_WORDS: Final[dict[StepVisibility, str]] = {
    "full": "sent in full",
    "condensed": "its key messages are shown instead",
    "summary": "its summary is shown instead",
    "title": "only its title is shown",
}


@dataclass(frozen=True, slots=True)
class StepExchange:
    """Messages of a step that are sent or left out together: a call with its results, or another single message."""

    positions: Sequence[int]
    head: MessageHead
    """Of the first message."""
    tokens: int
    is_left_out: bool


@dataclass(frozen=True, slots=True)
class PlanLane:
    """A step, for the page."""

    step: StepHistory
    depth: int
    status: Literal["pending", "in_progress", "done", ""]
    """Empty for the messages outside any step, and for a step of an earlier task."""
    is_active: bool
    exchanges: Sequence[StepExchange]
    bars: Sequence[tuple[float, float, bool]]
    """Of neighbouring messages: x and width in a lane of width 1000, and whether they are left out."""
    tokens: int
    left_out_tokens: int
    earlier_turns: int
    """Messages that are not in this conversation; only the history has them."""

    @property
    def messages(self) -> int:
        return sum(len(exchange.positions) for exchange in self.exchanges)


@dataclass(frozen=True, slots=True)
class PlanTask:
    """An objective with its steps, for the page."""

    objective: str
    lanes: Sequence[PlanLane]
    done: int
    """Number of steps that are done."""
    steps: int


def plan_tasks(conversation: InspectedConversation) -> list[PlanTask]:
    """The tasks of the conversation's plan, the newest first. Without a history there are no messages."""
    stored = conversation.plan
    if stored is None:
        return []
    histories = stored.histories or (
        () if stored.plan is None else (TaskHistory(stored.plan.objective, None, _steps_without_turns(stored.plan)),)
    )
    folds = histories[-1].folds if histories else ()
    left_out = frozenset(position for fold in folds for position in range(fold.start, fold.stop))
    return [
        _task(conversation, history, stored.plan if history is histories[-1] else None, left_out)
        for history in reversed(histories)
    ]


def _steps_without_turns(plan: Plan) -> tuple[StepHistory, ...]:
    return tuple(StepHistory(step.step_id, step.title, parent_id=step.parent_id) for step in plan.steps)


def _task(
    conversation: InspectedConversation, history: TaskHistory, plan: Plan | None, left_out: frozenset[int]
) -> PlanTask:
    lanes = [
        _lane(conversation, history, plan, step, left_out)
        for step in history.in_order()
        if step.turns or step.step_id != UNASSIGNED
    ]
    statuses = [lane.status for lane in lanes if lane.status]
    return PlanTask(history.objective, lanes, statuses.count("done"), len(statuses))


def _lane(
    conversation: InspectedConversation,
    history: TaskHistory,
    plan: Plan | None,
    step: StepHistory,
    left_out: frozenset[int],
) -> PlanLane:
    count = len(conversation.messages)
    positions = sorted(turn.position for turn in step.turns if turn.position is not None and turn.position < count)
    planned = None if plan is None else plan.step(step.step_id)
    tokens = {position: conversation.tokens_of(position) for position in positions}
    scale = 1000 / max(1, count)
    return PlanLane(
        step,
        sum(1 for _ in history.step_and_parents(step.step_id)) - 1,
        "" if planned is None else planned.status,
        step.step_id == history.active_step_id,
        [
            StepExchange(
                exchange,
                head_of(conversation.messages[exchange[0]]),
                sum(tokens[position] for position in exchange),
                all(position in left_out for position in exchange),
            )
            for exchange in _exchanges(conversation, positions)
        ],
        [(start * scale, (stop - start) * scale, is_out) for start, stop, is_out in _runs(positions, left_out)],
        sum(tokens.values()),
        sum(tokens[position] for position in positions if position in left_out),
        sum(turn.position is None for turn in step.turns),
    )


def _exchanges(conversation: InspectedConversation, positions: Sequence[int]) -> Iterator[list[int]]:
    exchange: list[int] = []
    for position in positions:
        if exchange and not (is_result(conversation.messages[position]) and position == exchange[-1] + 1):
            yield exchange
            exchange = []
        exchange.append(position)
    if exchange:
        yield exchange


def _runs(positions: Sequence[int], left_out: frozenset[int]) -> list[tuple[int, int, bool]]:
    """Neighbouring positions: start, stop, and whether they are left out."""
    runs: list[tuple[int, int, bool]] = []
    for position in positions:
        is_out = position in left_out
        if runs and runs[-1][1] == position and runs[-1][2] == is_out:
            runs[-1] = (runs[-1][0], position + 1, is_out)
        else:
            runs.append((position, position + 1, is_out))
    return runs
