"""How the history follows the plan: the reducers of `TaskHistory` for what happens to steps."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from minutebook.errors import InvalidSetting
from minutebook.planning.events import (
    AddHistorySteps,
    AddStep,
    ExpandStep,
    InitializeTaskHistory,
    NoteSummary,
    PinStep,
    SetActiveStep,
    SetupPlan,
    SummarizeStep,
    UpdateStep,
)
from minutebook.planning.folding import cut_of, refolded, swept
from minutebook.planning.names import BOOKKEEPING
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task import StepHistory, TaskHistory
from minutebook.session.reducer import ReducerContext

Histories: TypeAlias = tuple[TaskHistory, ...]
Change: TypeAlias = Callable[[StepHistory], StepHistory]


def begun(
    values: Sequence[TaskHistory],
    event: SetupPlan | InitializeTaskHistory,
    *,
    context: ReducerContext,  # noqa: ARG001 - a reducer's shape
) -> Histories:
    """A history for the plan. The one before it stays, unless it never had a plan: then it becomes this one."""
    steps = tuple(map(_history_of, event.steps))
    if not values:
        return (TaskHistory(event.objective, steps=steps),)
    *before, latest = values
    if isinstance(event, InitializeTaskHistory) and latest.objective == event.objective:
        known = {step.step_id for step in latest.steps}
        return (*before, replace(latest, steps=(*latest.steps, *(one for one in steps if one.step_id not in known))))
    if not latest.objective:
        return (*before, replace(latest, objective=event.objective, steps=(*latest.steps, *steps)))
    fresh = TaskHistory(
        event.objective, None, steps, latest.next_turn_id, latest.open_calls, latest.reach, latest.folds
    )
    return swept([*before, replace(latest, active_step_id=None, open_calls=(), folds=()), fresh])


def replaced(
    values: Sequence[TaskHistory],
    event: TaskHistory,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    """A whole history in place of the newest."""
    return (*values[:-1], event)


def extended(
    values: Sequence[TaskHistory],
    event: AddStep | AddHistorySteps,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    *before, latest = _with_a_history(values)
    known = {step.step_id for step in latest.steps}
    steps = tuple(_history_of(step) for step in event.steps if step.step_id not in known)
    return swept([*before, replace(latest, steps=(*latest.steps, *steps))])


def updated(values: Sequence[TaskHistory], event: UpdateStep, *, context: ReducerContext) -> Histories:
    """The title goes along, and the active step is the one that was last begun and is not finished.

    When a part of a step is finished and that step is under way, it is active again.
    """
    *before, latest = _with_a_history(values)
    active = latest.active_step_id
    if event.status == "in_progress":
        active = event.step_id
    elif event.status is not None and active == event.step_id:
        active = _parent_under_way(context.session.query(Plan).latest(), event.step_id)
    steps = tuple(
        replace(step, step_title=event.title) if event.title and step.step_id == event.step_id else step
        for step in latest.steps
    )
    return swept([*before, replace(latest, active_step_id=active, steps=steps)])


def activated(
    values: Sequence[TaskHistory],
    event: SetActiveStep,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    *before, latest = _with_a_history(values)
    if event.step_id is not None and latest.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the history, or None")
    return (*before, replace(latest, active_step_id=event.step_id))


def summarized(
    values: Sequence[TaskHistory],
    event: SummarizeStep,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    if not event.summary.strip():
        raise InvalidSetting("summary", event.summary, "some text")
    if event.visibility == "full":
        raise InvalidSetting("visibility", event.visibility, "less than full, or dispatch ExpandStep")
    if event.keep_tokens < 0:
        raise InvalidSetting("keep_tokens", event.keep_tokens, "0 or more")
    latest = _with_a_history(values)[-1]
    through, cut = _seen_through(latest), cut_of(values, event.keep_tokens)

    def change(step: StepHistory) -> StepHistory:
        if step.pinned:
            raise InvalidSetting("step_id", step.step_id, "a step that is not pinned")
        return replace(
            step,
            summary=event.summary,
            visibility=event.visibility,
            summarized_through=through,
            keep_tokens=event.keep_tokens,
            cut=cut,
            spared=latest.reach.requests,
        )

    return refolded(_with_step(values, event.step_id, change))


def noted(
    values: Sequence[TaskHistory],
    event: NoteSummary,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    if not event.summary.strip():
        raise InvalidSetting("summary", event.summary, "some text")
    through = _seen_through(_with_a_history(values)[-1])

    def change(step: StepHistory) -> StepHistory:
        return replace(step, summary=event.summary, summarized_through=through)

    return refolded(_with_step(values, event.step_id, change))


def expanded(
    values: Sequence[TaskHistory],
    event: ExpandStep,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    return refolded(_with_step(values, event.step_id, lambda step: replace(step, visibility="full")))


def pinned(
    values: Sequence[TaskHistory],
    event: PinStep,
    *,
    context: ReducerContext,  # noqa: ARG001 - same
) -> Histories:
    def change(step: StepHistory) -> StepHistory:
        return replace(step, pinned=event.pinned, visibility="full" if event.pinned else step.visibility)

    return refolded(_with_step(values, event.step_id, change))


def find_history(histories: Sequence[TaskHistory], step_id: int) -> TaskHistory | None:
    """The task that a step is of: the one that is going on, or one before it."""
    return next((history for history in reversed(histories) if history.step(step_id)), None)


def _with_step(values: Sequence[TaskHistory], step_id: int, change: Change) -> Histories:
    histories = list(_with_a_history(values))
    for place in reversed(range(len(histories))):
        history = histories[place]
        if history.step(step_id) is not None:
            steps = tuple(change(step) if step.step_id == step_id else step for step in history.steps)
            histories[place] = replace(history, steps=steps)
            return tuple(histories)
    raise InvalidSetting("step_id", step_id, "the id of a step of the history")


def _seen_through(latest: TaskHistory) -> int:
    """The last turn whose maker may be taken to have seen all of it.

    Results that are still to come have been seen by nobody, so the calls they answer do not count; unless all that they
    can say is what the plan and the history show anyway.
    """
    last = latest.next_turn_id - 1
    unseen = [call.turn_id for call in latest.open_calls if call.tool_name not in BOOKKEEPING]
    return min([last, *(turn_id - 1 for turn_id in unseen)])


def _history_of(step: PlanStep) -> StepHistory:
    return StepHistory(step.step_id, step.title, parent_id=step.parent_id)


def _parent_under_way(plan: Plan | None, step_id: int) -> int | None:
    step = None if plan is None else plan.step(step_id)
    parent = None if plan is None or step is None or step.parent_id is None else plan.step(step.parent_id)
    return parent.step_id if parent is not None and parent.status == "in_progress" else None


def _with_a_history(values: Sequence[TaskHistory]) -> Sequence[TaskHistory]:
    if not values:
        raise InvalidSetting("the task history", None, "one first: dispatch SetupPlan or InitializeTaskHistory")
    return values
