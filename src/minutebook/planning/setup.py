"""Registration of the plan's and the history's reducers in a session, and the session's log of their events."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from minutebook.planning.events import AddHistorySteps, InitializeTaskHistory, SetActiveStep
from minutebook.planning.plan import Plan
from minutebook.planning.reducers import REDUCERS
from minutebook.planning.task_history import TaskHistory
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.session.reducers import Append, ReducerContext
from minutebook.session.snapshot import TypeRegistry
from minutebook.session.state import Session
from minutebook.wire.chat import entry_to_json

PROMPT: Final = "prompt"
POSITION: Final = "position"
EVENTS: Final = TypeRegistry(*(event for event in REDUCERS[TaskHistory] if event is not ConversationRecorded))
"""The events of plans and histories by name. Every event of a plan is also an event of its history."""


@dataclass(frozen=True, slots=True)
class PlanningEvent:
    """An event of the plan or its history as JSON. Together with the entries, the log of these rebuilds both."""

    after: int
    """The number of entries that the session had recorded before."""
    kind: str
    """The name of the event, `prompt` for a prompt that was rendered again, or `position` for the next entry's position."""
    data: str
    """The event as JSON."""


def install_plan(session: Session) -> None:
    """Register the plan's reducers in a session, unless they are registered already."""
    _register(session, Plan)


def install_history(session: Session) -> None:
    """Register the history's reducers in a session, unless they are registered already.

    If the session has a plan but no history, the history starts with the steps of the plan.
    """
    _register(session, TaskHistory)
    if session.query(TaskHistory).latest() is None:
        sync_plan_to_history(session)


def _register(session: Session, slice_type: type) -> None:
    session.log(PlanningEvent)
    for event_type, reducer in REDUCERS[slice_type].items():
        session.register_reducer(event_type, reducer, slice_type=slice_type)
        log_event = _with_entry if event_type is ConversationRecorded else _with_event
        session.register_reducer(event_type, log_event, slice_type=PlanningEvent)


def sync_plan_to_history(session: Session) -> None:
    """Add the steps of the plan that the history does not have, and set the active step."""
    plan, history = session.query(Plan).latest(), session.query(TaskHistory).latest()
    if plan is None:
        return
    if history is None or not history.objective:
        session.dispatch(InitializeTaskHistory(plan.objective, plan.steps))
        history = session.query(TaskHistory).latest()
        assert history is not None
    step_ids = {step.step_id for step in history.steps}
    missing = tuple(step for step in plan.steps if step.step_id not in step_ids)
    if missing:
        session.dispatch(AddHistorySteps(missing))
    in_progress = [step.step_id for step in plan.steps if step.status == "in_progress"]
    if in_progress and history.active_step_id not in in_progress:
        session.dispatch(SetActiveStep(in_progress[-1]))


def _with_event(log: Sequence[PlanningEvent], event: Any, *, context: ReducerContext) -> Append[PlanningEvent]:  # noqa: ARG001
    data = EVENTS.to_data(type(event), [event])[0]
    return Append(PlanningEvent(_entry_count(context), EVENTS.name_of(type(event)), _dumps(data)))


def _with_entry(
    log: Sequence[PlanningEvent], event: ConversationRecorded, *, context: ReducerContext
) -> Sequence[PlanningEvent] | Append[PlanningEvent]:
    """Log what the entries alone do not show: prompts, and entries that do not directly follow the previous one."""
    after, position = _entry_count(context), event.position
    if position is None and event.is_prompt:
        return Append(PlanningEvent(after, PROMPT, entry_to_json(event.entry)))
    history = context.session.query(TaskHistory).latest()
    next_position = 0 if history is None else history.extent.length
    if position != next_position or event.is_prompt:
        return Append(PlanningEvent(after, POSITION, _dumps({"position": position, "is_prompt": event.is_prompt})))
    return log


def _entry_count(context: ReducerContext) -> int:
    return len(context.session.query(ConversationEntry).slice())


_dumps = partial(json.dumps, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
