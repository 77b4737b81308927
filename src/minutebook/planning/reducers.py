"""Reducers of the plan and of the task history, by slice and event.

A plan changes by `SetupPlan`, `AddStep` and `UpdateStep`; the newest value of its slice is the current plan. The task
history follows these events and takes its turns from `ConversationRecorded` and `AppendTurn`. `SummarizeStep`,
`ExpandStep` and `PinStep` change how a step is shown.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, Final, TypeAlias, TypeVar

from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.planning.events import (
    REDUNDANT_RESULT_TOOLS,
    AddHistorySteps,
    AddStep,
    AppendTurn,
    ExpandStep,
    InitializeTaskHistory,
    PinStep,
    SetActiveStep,
    SetupPlan,
    SummarizeStep,
    UpdateStep,
)
from minutebook.planning.folds import fold_end_of, with_folds, with_moved_fold_ends
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task_history import (
    UNASSIGNED,
    UNASSIGNED_TITLE,
    ConversationExtent,
    OpenCall,
    StepHistory,
    TaskHistory,
    Turn,
)
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.record.message import MessageRole
from minutebook.session.reducers import Append, Reducer, ReducerContext

Histories: TypeAlias = tuple[TaskHistory, ...]
ReducerFunction = TypeVar("ReducerFunction", bound=Callable[..., Any])

REDUCERS: Final[dict[type, dict[type, Reducer[Any, Any]]]] = {Plan: {}, TaskHistory: {}}
"""Slice → event → the reducer of that event."""
_REQUIRED: Final = {
    Plan: ("the plan", "dispatch SetupPlan first"),
    TaskHistory: ("the task history", "dispatch SetupPlan or InitializeTaskHistory first"),
}
"""Slice → the arguments of `MissingSetting`, which a reducer raises if it needs a value and the slice is empty."""


def reducer_of(
    *events: type, slice_type: type = TaskHistory, allows_empty: bool = False
) -> Callable[[ReducerFunction], ReducerFunction]:
    """Register a function as the reducer of these events. It takes the values of the slice and the event.

    It also gets the context if it has a parameter for it. Unless `allows_empty` is set, the slice must have a value.
    """

    def register(reduce: ReducerFunction) -> ReducerFunction:
        takes_context = "context" in signature(reduce).parameters

        @wraps(reduce)  # errors name the function
        def reducer(values: Sequence[Any], event: Any, *, context: ReducerContext) -> Any:
            if not values and not allows_empty:
                raise MissingSetting(*_REQUIRED[slice_type])
            return reduce(values, event, context=context) if takes_context else reduce(values, event)

        REDUCERS[slice_type].update(dict.fromkeys(events, reducer))
        return reduce

    return register


@reducer_of(SetupPlan, slice_type=Plan, allows_empty=True)
def with_new_plan(plans: Sequence[Plan], event: SetupPlan) -> Append[Plan]:
    if not event.objective.strip():
        raise InvalidSetting("objective", event.objective, "a text that is not empty")
    used_ids = {step.step_id for plan in plans for step in plan.steps}
    for step in event.steps:
        if step.step_id in used_ids:
            raise InvalidSetting("step_id", step.step_id, "an id that no step of an earlier plan has")
    return Append(Plan(event.objective, event.steps))


@reducer_of(AddStep, slice_type=Plan)
def with_added_plan_steps(plans: Sequence[Plan], event: AddStep) -> Sequence[Plan]:
    *earlier, plan = plans
    return (*earlier, replace(plan, steps=(*plan.steps, *event.steps)))


@reducer_of(UpdateStep, slice_type=Plan)
def with_updated_plan_step(plans: Sequence[Plan], event: UpdateStep) -> Sequence[Plan]:
    *earlier, plan = plans
    if plan.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the plan")

    def update(step: PlanStep) -> PlanStep:
        return replace(step, status=event.status or step.status, title=event.title or step.title)

    return (
        *earlier,
        replace(plan, steps=tuple(update(step) if step.step_id == event.step_id else step for step in plan.steps)),
    )


def next_step_id(plans: Sequence[Plan]) -> int:
    """The id of the next new step; it is in none of these plans."""
    return 1 + max((step.step_id for plan in plans for step in plan.steps), default=0)


@reducer_of(SetupPlan, InitializeTaskHistory, allows_empty=True)
def with_new_history(histories: Sequence[TaskHistory], event: SetupPlan | InitializeTaskHistory) -> Histories:
    """Start a history for the plan, or add its steps to the newest history if that has no plan yet.

    `InitializeTaskHistory` also adds the steps to the newest history if that has the same objective.
    """
    *earlier, latest = histories or (TaskHistory(""),)
    if isinstance(event, InitializeTaskHistory) and latest.objective == event.objective:
        return (*earlier, _with_plan_steps(latest, event.steps))
    if not latest.objective:
        return (*earlier, _with_plan_steps(replace(latest, objective=event.objective), event.steps))
    task = replace(latest, objective=event.objective, active_step_id=None, steps=())
    previous = replace(latest, active_step_id=None, open_calls=(), folds=())
    return with_moved_fold_ends([*earlier, previous, _with_plan_steps(task, event.steps)])


@reducer_of(TaskHistory, allows_empty=True)
def with_replaced_history(histories: Sequence[TaskHistory], event: TaskHistory) -> Histories:
    """Replace the newest history."""
    return (*histories[:-1], event)


@reducer_of(AddStep, AddHistorySteps)
def with_added_steps(histories: Sequence[TaskHistory], event: AddStep | AddHistorySteps) -> Histories:
    *earlier, latest = histories
    return with_moved_fold_ends([*earlier, _with_plan_steps(latest, event.steps)])


@reducer_of(UpdateStep)
def with_updated_step(histories: Sequence[TaskHistory], event: UpdateStep, *, context: ReducerContext) -> Histories:
    """Update the title and the active step, which is the last one that was set to `in_progress` and is not done.

    When a substep is done and its parent is in progress, the parent becomes active again.
    """
    *earlier, latest = histories
    active_step_id = latest.active_step_id
    if event.status == "in_progress":
        active_step_id = event.step_id
    elif event.status is not None and active_step_id == event.step_id:
        active_step_id = _parent_in_progress(context.session.query(Plan).latest(), event.step_id)
    if title := event.title:
        latest = _with_changes(latest, {event.step_id}, lambda step: replace(step, step_title=title))
    return with_moved_fold_ends([*earlier, replace(latest, active_step_id=active_step_id)])


@reducer_of(SetActiveStep)
def with_active_step(histories: Sequence[TaskHistory], event: SetActiveStep) -> Histories:
    *earlier, latest = histories
    if event.step_id is not None and latest.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the history, or None")
    return (*earlier, replace(latest, active_step_id=event.step_id))


@reducer_of(SummarizeStep)
def with_summary(histories: Sequence[TaskHistory], event: SummarizeStep) -> Histories:
    if not event.summary.strip():
        raise InvalidSetting("summary", event.summary, "a text that is not empty")
    if event.visibility == "full":
        raise InvalidSetting(
            "visibility", event.visibility, "condensed, summary or title; dispatch ExpandStep for full"
        )
    if event.keep_tokens < 0:
        raise InvalidSetting("keep_tokens", event.keep_tokens, "0 or more")
    latest = histories[-1]

    def change(step: StepHistory) -> StepHistory:
        step = replace(step, summary=event.summary, summarized_through=_last_seen_turn(latest))
        if event.visibility is None:
            return step
        if step.pinned:
            raise InvalidSetting("step_id", step.step_id, "a step that is not pinned")
        return replace(
            step,
            visibility=event.visibility,
            keep_tokens=event.keep_tokens,
            fold_end=fold_end_of(histories, event.keep_tokens),
            kept_positions=latest.extent.requests,
        )

    return _with_step(histories, event.step_id, change)


@reducer_of(ExpandStep)
def with_expanded_step(histories: Sequence[TaskHistory], event: ExpandStep) -> Histories:
    return _with_step(histories, event.step_id, lambda step: replace(step, visibility="full"))


@reducer_of(PinStep)
def with_pin(histories: Sequence[TaskHistory], event: PinStep) -> Histories:
    def change(step: StepHistory) -> StepHistory:
        return replace(step, pinned=event.pinned, visibility="full" if event.pinned else step.visibility)

    return _with_step(histories, event.step_id, change)


@reducer_of(AppendTurn, allows_empty=True)
def with_turn(histories: Sequence[TaskHistory], event: AppendTurn, *, context: ReducerContext) -> Sequence[TaskHistory]:
    """Add a turn that was not recorded in this session, unless the history has it already.

    A turn is identified by its number, or by its entry: the evaluation and the sequence number.
    """
    *earlier, latest = histories or (TaskHistory(""),)
    turn = event.turn
    existing = _existing_turn(histories, turn)
    if existing is not None:
        if (existing.role, existing.content) != (turn.role, turn.content):
            raise InvalidSetting("turn_id", turn.turn_id, "a number that no other turn has, or None for the next one")
        owners = [step.step_id for history in histories for step in history.steps if existing in step.turns]
        if event.step_id is not None and event.step_id not in owners:
            raise InvalidSetting("step_id", event.step_id, f"{owners[0]}, the step that this turn belongs to already")
        return histories
    if event.step_id is not None and latest.step(event.step_id) is None:
        raise InvalidSetting("step_id", event.step_id, "the id of a step of the history, or None for the active one")
    step_id = _current_step_id(latest) if event.step_id is None else event.step_id
    covered = max((step.summarized_through for step in latest.step_and_parents(step_id)), default=0)
    if turn.turn_id is not None and turn.turn_id <= covered:
        reason = f", because a summary covers the turns up to {covered}" if covered else ""
        raise InvalidSetting("turn_id", turn.turn_id, f"a number above {covered}{reason}, or None for the next one")
    highest_id = max(latest.next_turn_id, turn.turn_id or 0)
    turn = replace(turn, turn_id=turn.turn_id or highest_id, created_at=turn.created_at or context.now)
    latest = replace(latest, next_turn_id=highest_id + 1)
    return (*earlier, _with_turn(latest, step_id, turn))


@reducer_of(ConversationRecorded, allows_empty=True)
def with_recorded_message(
    values: Sequence[TaskHistory], event: ConversationRecorded, *, context: ReducerContext
) -> Sequence[TaskHistory]:
    """Add a recorded message to the active step; a tool result goes to the step that made the call.

    Messages of a nested or an outer evaluation belong to another conversation and another history. Prompts and other system
    messages are not turns. A message at a position that is already in use starts a different
    conversation from there on: the turns after it stay in the history and lose their position.
    """
    if event.scope != context.session.scope:
        return values
    entry, position = event.entry, event.position
    histories: Histories = tuple(values) or (TaskHistory(""),)
    if position is not None:
        if position < histories[-1].extent.length:
            histories = _without_positions_from(histories, position)
        histories = _with_extent(histories, position, entry, is_prompt=event.is_prompt)
    if event.is_prompt or entry.role is MessageRole.SYSTEM:
        return values if position is None else histories
    return _with_entry(histories, entry, position)


def _with_entry(histories: Histories, entry: ConversationEntry, position: int | None) -> Histories:
    """The histories with a turn for the entry, and with the tool calls that are open after it."""
    latest = histories[-1]
    turn_id = latest.next_turn_id
    answered_call = next((call for call in latest.open_calls if call.call_id == entry.tool_call_id), None)
    if answered_call is None:
        history_index, step_id, tool_name = len(histories) - 1, _current_step_id(latest), entry.tool_name
    else:
        history_index, step_id, tool_name = (
            answered_call.task,
            answered_call.step_id,
            entry.tool_name or answered_call.tool_name,
        )
    turn = Turn.of(entry, turn_id, position, tool_name)
    if entry.role is MessageRole.TOOL:
        open_calls = tuple(call for call in latest.open_calls if call is not answered_call)
    else:
        open_calls = tuple(
            OpenCall(call.id, call.name, history_index, step_id, turn_id) for call in entry.tool_calls or ()
        )
    histories = (*histories[:-1], replace(latest, next_turn_id=turn_id + 1, open_calls=open_calls))
    history = _with_turn(histories[history_index], step_id, turn)
    if answered_call is not None:
        history = _with_result_covered(history, answered_call, turn_id)
    return (*histories[:history_index], history, *histories[history_index + 1 :])


def _existing_turn(histories: Sequence[TaskHistory], turn: Turn) -> Turn | None:
    """The turn of the histories with the same number or the same entry."""
    entry = (turn.evaluation_id, turn.entry_sequence)
    for history in histories:
        for step in history.steps:
            for existing in step.turns:
                is_same_entry = None not in entry and entry == (existing.evaluation_id, existing.entry_sequence)
                if is_same_entry or (turn.turn_id is not None and turn.turn_id == existing.turn_id):
                    return existing
    return None


def _current_step_id(latest: TaskHistory) -> int:
    """The id of the active step, or `UNASSIGNED` if no step is active."""
    step_id = latest.active_step_id
    return UNASSIGNED if step_id is None or latest.step(step_id) is None else step_id


def _with_turn(history: TaskHistory, step_id: int, turn: Turn) -> TaskHistory:
    """The history with the turn in this step. The step for turns outside any step is created if it does not exist."""
    if history.step(step_id) is None:
        history = replace(history, steps=(StepHistory(step_id, UNASSIGNED_TITLE), *history.steps))

    def change(step: StepHistory) -> StepHistory:
        return replace(step, turns=(*step.turns, turn), detached=step.detached or turn.position is None)

    return _with_changes(history, {step_id}, change)


def _with_result_covered(history: TaskHistory, call: OpenCall, result_turn_id: int) -> TaskHistory:
    """The history in which every summary that covers this call also covers its result."""
    covering_step_ids = {
        step.step_id
        for step in history.step_and_parents(call.step_id)
        if step.summary is not None and step.summarized_through >= call.turn_id
    }

    def change(step: StepHistory) -> StepHistory:
        return replace(step, summarized_through=max(step.summarized_through, result_turn_id))

    return _with_changes(history, covering_step_ids, change) if covering_step_ids else history


def _with_extent(histories: Histories, position: int, entry: ConversationEntry, *, is_prompt: bool) -> Histories:
    """The histories with the extent of the conversation after this message."""
    *earlier, latest = histories
    extent = replace(latest.extent, length=position + 1)
    if entry.role is MessageRole.USER:
        first_request = position if extent.first_request is None else extent.first_request
        extent = replace(extent, newest_request=position, first_request=first_request)
    if entry.role is not MessageRole.TOOL and not (is_prompt and entry.role is MessageRole.SYSTEM):
        extent = replace(extent, last_exchange_start=position)
    return (*earlier, replace(latest, extent=extent))


def _without_positions_from(histories: Histories, position: int) -> Histories:
    """The histories after another conversation has started at this position: later turns lose their position."""

    def is_after(turn: Turn) -> bool:
        return turn.position is not None and turn.position >= position

    def change(step: StepHistory) -> StepHistory:
        if not any(map(is_after, step.turns)):
            return step
        turns = tuple(replace(turn, position=None) if is_after(turn) else turn for turn in step.turns)
        return replace(step, turns=turns, detached=True, fold_end=min(step.fold_end, position))

    *earlier, latest = [replace(history, steps=tuple(map(change, history.steps))) for history in histories]
    requests = (
        turn.position
        for history in (*earlier, latest)
        for step in history.steps
        for turn in step.turns
        if turn.role == "user" and turn.position is not None
    )
    first_request = latest.extent.first_request
    extent = ConversationExtent(
        length=position,
        first_request=first_request if first_request is not None and first_request < position else None,
        newest_request=max(requests, default=None),
    )
    return with_folds([*earlier, replace(latest, extent=extent, open_calls=())])


def history_with_step(histories: Sequence[TaskHistory], step_id: int) -> TaskHistory | None:
    """The history that contains the step: the current one or an earlier one."""
    return next((history for history in reversed(histories) if history.step(step_id)), None)


def _with_step(
    histories: Sequence[TaskHistory], step_id: int, change: Callable[[StepHistory], StepHistory]
) -> Histories:
    """The histories with one step changed and the folds updated."""
    owner = history_with_step(histories, step_id)
    if owner is None:
        raise InvalidSetting("step_id", step_id, "the id of a step of the history")
    changed = _with_changes(owner, {step_id}, change)
    return with_folds([changed if history is owner else history for history in histories])


def _with_changes(
    history: TaskHistory, step_ids: Collection[int], change: Callable[[StepHistory], StepHistory]
) -> TaskHistory:
    return replace(history, steps=tuple(change(step) if step.step_id in step_ids else step for step in history.steps))


def _with_plan_steps(history: TaskHistory, steps: Sequence[PlanStep]) -> TaskHistory:
    """The history with the plan's steps that it does not have yet."""
    step_ids = {step.step_id for step in history.steps}
    new_steps = (
        StepHistory(step.step_id, step.title, parent_id=step.parent_id)
        for step in steps
        if step.step_id not in step_ids
    )
    return replace(history, steps=(*history.steps, *new_steps))


def _last_seen_turn(latest: TaskHistory) -> int:
    """The id of the last turn that the model has seen completely when it writes a summary.

    The model has not seen the results of open calls, so a summary cannot cover these calls. The results of planning tools
    do not matter: the plan and the history show the same.
    """
    newest_turn_id = latest.next_turn_id - 1
    open_turn_ids = [call.turn_id for call in latest.open_calls if call.tool_name not in REDUNDANT_RESULT_TOOLS]
    return min([newest_turn_id, *(turn_id - 1 for turn_id in open_turn_ids)])


def _parent_in_progress(plan: Plan | None, step_id: int) -> int | None:
    """The id of the step's parent if the parent is in progress, else None."""
    step = None if plan is None else plan.step(step_id)
    parent = None if plan is None or step is None or step.parent_id is None else plan.step(step.parent_id)
    return parent.step_id if parent is not None and parent.status == "in_progress" else None
