"""Reducers of the plan and of the task history.

How turns come into the history: from the record by themselves, or from whoever has them.

How the history follows the plan: the reducers of `TaskHistory` for what happens to steps.

How a plan changes: the reducers of the slice `Plan`, whose newest value is the plan that stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from minutebook.errors import InvalidSetting
from minutebook.planning.events import (
    BOOKKEEPING,
    AddHistorySteps,
    AddStep,
    AppendTurn,
    ExpandStep,
    InitializeTaskHistory,
    NoteSummary,
    PinStep,
    SetActiveStep,
    SetupPlan,
    SummarizeStep,
    UpdateStep,
)
from minutebook.planning.folds import cut_of, refolded, swept
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task_history import (
    UNASSIGNED,
    UNASSIGNED_TITLE,
    OpenCall,
    Reach,
    StepHistory,
    TaskHistory,
    Turn,
)
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.record.message import MessageRole
from minutebook.session.reducers import Append, ReducerContext

Histories: TypeAlias = tuple[TaskHistory, ...]


def recorded(
    values: Sequence[TaskHistory],
    event: ConversationRecorded,
    *,
    context: ReducerContext,  # noqa: ARG001 - a reducer's shape
) -> Sequence[TaskHistory]:
    """What was said goes to the active step; a result, to the step its call was made in.

    Prompts and other system messages are no turns. A message that stands where another one stood belongs to a new
    conversation: from then on only the history has what was said there before.
    """
    entry, at = event.entry, event.position
    histories: Histories = tuple(values) or (TaskHistory(""),)
    if at is not None and at < histories[-1].reach.length:
        histories = _parted(histories, at)
    if at is not None:
        histories = _reached(histories, at, entry, is_prompt=event.is_prompt)
    if event.is_prompt or entry.role is MessageRole.SYSTEM:
        return histories if at is not None else values
    return _taken(histories, entry, at)


def appended(values: Sequence[TaskHistory], event: AppendTurn, *, context: ReducerContext) -> Sequence[TaskHistory]:
    """A turn from elsewhere; one whose number is known already is not taken twice."""
    histories: Histories = tuple(values) or (TaskHistory(""),)
    *before, latest = histories
    turn = event.turn
    if turn.turn_id is not None and any(turn.turn_id == old.turn_id for step in latest.steps for old in step.turns):
        return values
    if event.step_id is not None and latest.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the history, or None for the active one")
    number = max(latest.next_turn_id, turn.turn_id or 0)
    turn = replace(turn, turn_id=turn.turn_id or number, created_at=turn.created_at or context.now)
    latest = replace(latest, next_turn_id=number + 1)
    step_id = _home(latest) if event.step_id is None else event.step_id
    return (*before, _with_turn(latest, step_id, turn))


def _taken(histories: Histories, entry: ConversationEntry, at: int | None) -> Histories:
    latest = histories[-1]
    open_call = next((call for call in latest.open_calls if call.call_id == entry.tool_call_id), None)
    number = latest.next_turn_id
    name = entry.tool_name or (open_call.tool_name if open_call else None)
    turn = Turn.of(entry, number, at, name)
    step_id = open_call.step_id if open_call else _home(latest)
    place = open_call.task if open_call else len(histories) - 1
    still_open = tuple(call for call in latest.open_calls if call is not open_call)
    if entry.role is not MessageRole.TOOL:
        calls = [OpenCall(call.id, call.name, place, step_id, number) for call in entry.tool_calls or ()]
        still_open = tuple(calls)
    histories = (*histories[:-1], replace(latest, next_turn_id=number + 1, open_calls=still_open))
    changed = _with_turn(histories[place], step_id, turn)
    if open_call is not None:
        changed = _joined(changed, open_call, number)
    return (*histories[:place], changed, *histories[place + 1 :])


def _home(latest: TaskHistory) -> int:
    """Where turns go: to the active step, if there is one."""
    active = latest.active_step_id
    return UNASSIGNED if active is None or latest.step(active) is None else active


def _with_turn(history: TaskHistory, step_id: int, turn: Turn) -> TaskHistory:
    if history.step(step_id) is None:
        history = replace(history, steps=(StepHistory(step_id, UNASSIGNED_TITLE), *history.steps))
    steps = tuple(
        replace(step, turns=(*step.turns, turn), apart=step.apart or turn.position is None)
        if step.step_id == step_id
        else step
        for step in history.steps
    )
    return replace(history, steps=steps)


def _joined(history: TaskHistory, call: OpenCall, number: int) -> TaskHistory:
    """A result goes with its call: if something stands for the call, it stands for the result too."""
    covering = {
        step.step_id
        for step in history.chain(call.step_id)
        if step.summary is not None and step.summarized_through >= call.turn_id
    }
    if not covering:
        return history
    steps = tuple(
        replace(step, summarized_through=max(step.summarized_through, number)) if step.step_id in covering else step
        for step in history.steps
    )
    return replace(history, steps=steps)


def _reached(histories: Histories, at: int, entry: ConversationEntry, *, is_prompt: bool) -> Histories:
    *before, latest = histories
    reach = replace(latest.reach, length=at + 1)
    if entry.role is MessageRole.USER:
        first = reach.first_request
        reach = replace(reach, newest_request=at, first_request=at if first is None else first)
    if entry.role is not MessageRole.TOOL and not (is_prompt and entry.role is MessageRole.SYSTEM):
        reach = replace(reach, last_start=at)
    return (*before, replace(latest, reach=reach))


def _parted(histories: Histories, at: int) -> Histories:
    """The histories when the conversation is another one from this place on."""

    def apart(turn: Turn) -> bool:
        return turn.position is not None and turn.position >= at

    kept = [
        replace(
            history,
            steps=tuple(
                replace(
                    step,
                    turns=tuple(replace(turn, position=None) if apart(turn) else turn for turn in step.turns),
                    apart=True,
                    cut=min(step.cut, at),
                )
                if any(map(apart, step.turns))
                else step
                for step in history.steps
            ),
        )
        for history in histories
    ]
    asked = [
        turn.position
        for history in kept
        for step in history.steps
        for turn in step.turns
        if turn.role == "user" and turn.position is not None
    ]
    first = histories[-1].reach.first_request
    reach = Reach(
        length=at,
        first_request=first if first is not None and first < at else None,
        newest_request=max(asked, default=None),
        last_start=None,
    )
    kept[-1] = replace(kept[-1], reach=reach, open_calls=())
    return refolded(kept)


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


def set_up(values: Sequence[Plan], event: SetupPlan, *, context: ReducerContext) -> Append[Plan]:  # noqa: ARG001
    if not event.objective.strip():
        raise InvalidSetting("objective", event.objective, "what the plan is to reach")
    taken = {step.step_id for plan in values for step in plan.steps}
    for step in event.steps:
        if step.step_id in taken:
            raise InvalidSetting("step_id", step.step_id, "one that no step of an earlier plan has")
    return Append(Plan(event.objective, event.steps))


def add(values: Sequence[Plan], event: AddStep, *, context: ReducerContext) -> Sequence[Plan]:  # noqa: ARG001
    *before, plan = _with_a_plan(values)
    return (*before, replace(plan, steps=(*plan.steps, *event.steps)))


def update(values: Sequence[Plan], event: UpdateStep, *, context: ReducerContext) -> Sequence[Plan]:  # noqa: ARG001
    *before, plan = _with_a_plan(values)
    if plan.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the plan")
    return (*before, replace(plan, steps=tuple(_updated(step, event) for step in plan.steps)))


def next_step_id(plans: Sequence[Plan]) -> int:
    """The id of the next new step: one that none of these plans has had."""
    return 1 + max((step.step_id for plan in plans for step in plan.steps), default=0)


def _updated(step: PlanStep, event: UpdateStep) -> PlanStep:
    if step.step_id != event.step_id:
        return step
    return replace(step, status=event.status or step.status, title=event.title or step.title)


def _with_a_plan(values: Sequence[Plan]) -> Sequence[Plan]:
    if not values:
        raise InvalidSetting("the plan", None, "one first: dispatch SetupPlan")
    return values
