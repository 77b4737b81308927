"""Registration of the reducers of the plan and of its history in a session."""

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
PLACED: Final = "placed"
EVENTS: Final = TypeRegistry(*(event for event in REDUCERS[TaskHistory] if event is not ConversationRecorded))
"""What can happen to plans and histories, by name. Every event of a plan is one of its history too."""


@dataclass(frozen=True, slots=True)
class PlanningNote:
    """Something that happened to the plan or its history, as it is kept: the session's log of these is all of it."""

    after: int
    """How many entries the session had recorded by then."""
    kind: str
    """The name of the event; `prompt` for a prompt that was rendered again, `placed` for where the next entry stands."""
    data: str
    """The event as JSON."""


def install_plan(session: Session) -> None:
    """Let a session keep plans. Doing it again changes nothing."""
    _register(session, Plan)


def install_history(session: Session) -> None:
    """Let a session keep the history of its plans, and catch up with a plan that is there. Again changes nothing."""
    _register(session, TaskHistory)
    if session.query(TaskHistory).latest() is None:
        sync_plan_to_history(session)


def _register(session: Session, slice_type: type) -> None:
    session.log(PlanningNote)
    for event_type, reducer in REDUCERS[slice_type].items():
        session.register_reducer(event_type, reducer, slice_type=slice_type)
        log_event = _with_entry if event_type is ConversationRecorded else _with_event
        session.register_reducer(event_type, log_event, slice_type=PlanningNote)


def sync_plan_to_history(session: Session) -> None:
    """Have the history know the steps of the plan, and which of them is active; for a plan that was there first."""
    plan, history = session.query(Plan).latest(), session.query(TaskHistory).latest()
    if plan is None:
        return
    if history is None or not history.objective:
        session.dispatch(InitializeTaskHistory(plan.objective, plan.steps))
        history = session.query(TaskHistory).latest()
        assert history is not None
    known = {step.step_id for step in history.steps}
    missing = tuple(step for step in plan.steps if step.step_id not in known)
    if missing:
        session.dispatch(AddHistorySteps(missing))
    under_way = [step.step_id for step in plan.steps if step.status == "in_progress"]
    if under_way and history.active_step_id not in under_way:
        session.dispatch(SetActiveStep(under_way[-1]))


def _with_event(notes: Sequence[PlanningNote], event: Any, *, context: ReducerContext) -> Append[PlanningNote]:  # noqa: ARG001
    data = EVENTS.to_data(type(event), [event])[0]
    return Append(PlanningNote(_entries(context), EVENTS.name_of(type(event)), _dumps(data)))


def _with_entry(
    notes: Sequence[PlanningNote], event: ConversationRecorded, *, context: ReducerContext
) -> Sequence[PlanningNote] | Append[PlanningNote]:
    """What the entries alone do not tell: prompts, and those that do not stand right after the one before."""
    after, at = _entries(context), event.position
    if at is None and event.is_prompt:
        return Append(PlanningNote(after, PROMPT, entry_to_json(event.entry)))
    history = context.session.query(TaskHistory).latest()
    expected = 0 if history is None else history.reach.length
    if at != expected or event.is_prompt:
        return Append(PlanningNote(after, PLACED, _dumps({"position": at, "is_prompt": event.is_prompt})))
    return notes


def _entries(context: ReducerContext) -> int:
    return len(context.session.query(ConversationEntry).slice())


_dumps = partial(json.dumps, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
