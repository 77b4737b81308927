"""Making a session keep a plan, and the history that follows it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from minutebook.planning import reducers
from minutebook.planning.events import (
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
from minutebook.planning.plan import Plan
from minutebook.planning.task_history import TaskHistory
from minutebook.record.entry import ConversationEntry, ConversationRecorded
from minutebook.session.reducers import Append, ReducerContext
from minutebook.session.snapshot import TypeRegistry
from minutebook.session.state import Session
from minutebook.wire.chat import entry_to_json

PROMPT: Final = "prompt"
PLACED: Final = "placed"
EVENTS: Final = TypeRegistry(
    SetupPlan,
    AddStep,
    UpdateStep,
    InitializeTaskHistory,
    AddHistorySteps,
    SetActiveStep,
    AppendTurn,
    SummarizeStep,
    NoteSummary,
    ExpandStep,
    PinStep,
    TaskHistory,
)
"""What can happen to plans and histories, by name."""
_PLANS: Final[dict[type, Any]] = {SetupPlan: reducers.set_up, AddStep: reducers.add, UpdateStep: reducers.update}
_HISTORIES: Final[dict[type, Any]] = {
    SetupPlan: reducers.begun,
    InitializeTaskHistory: reducers.begun,
    TaskHistory: reducers.replaced,
    AddStep: reducers.extended,
    AddHistorySteps: reducers.extended,
    UpdateStep: reducers.updated,
    SetActiveStep: reducers.activated,
    SummarizeStep: reducers.summarized,
    NoteSummary: reducers.noted,
    ExpandStep: reducers.expanded,
    PinStep: reducers.pinned,
    AppendTurn: reducers.appended,
    ConversationRecorded: reducers.recorded,
}


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
    for event_type, reducer in _PLANS.items():
        session.register_reducer(event_type, reducer, slice_type=Plan)
    _install_log(session, _PLANS)


def install_history(session: Session) -> None:
    """Let a session keep the history of its plans, and catch up with a plan that is there. Again changes nothing."""
    for event_type, reducer in _HISTORIES.items():
        session.register_reducer(event_type, reducer, slice_type=TaskHistory)
    _install_log(session, _HISTORIES)
    if session.query(TaskHistory).latest() is None:
        sync_plan_to_history(session)


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


def _install_log(session: Session, events: dict[type, Any]) -> None:
    session.log(PlanningNote)
    for event_type in events:
        if event_type is ConversationRecorded:
            session.register_reducer(event_type, _noted_entry, slice_type=PlanningNote)
        else:
            session.register_reducer(event_type, _noted, slice_type=PlanningNote)


def _noted(values: Sequence[PlanningNote], event: Any, *, context: ReducerContext) -> Append[PlanningNote]:  # noqa: ARG001
    data = EVENTS.to_data(type(event), [event])[0]
    return Append(PlanningNote(_entries(context), EVENTS.name_of(type(event)), _dumps(data)))


def _noted_entry(
    values: Sequence[PlanningNote], event: ConversationRecorded, *, context: ReducerContext
) -> Sequence[PlanningNote] | Append[PlanningNote]:
    """What the entries alone do not tell: prompts, and those that do not stand right after the one before."""
    after, at = _entries(context), event.position
    if at is None and event.is_prompt:
        return Append(PlanningNote(after, PROMPT, entry_to_json(event.entry)))
    history = context.session.query(TaskHistory).latest()
    expected = 0 if history is None else history.reach.length
    if at != expected or event.is_prompt:
        return Append(PlanningNote(after, PLACED, _dumps({"position": at, "is_prompt": event.is_prompt})))
    return values


def _entries(context: ReducerContext) -> int:
    return len(context.session.query(ConversationEntry).slice())


_dumps = partial(json.dumps, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
