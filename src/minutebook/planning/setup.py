"""The plan and the history of a session: registration of their reducers, and separate ones for nested evaluations."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from minutebook.history.protocol import SessionProtocol
from minutebook.planning.events import AddHistorySteps, InitializeTaskHistory, SetActiveStep
from minutebook.planning.plan import Plan
from minutebook.planning.reducers import REDUCERS
from minutebook.planning.task_history import TaskHistory
from minutebook.session.scope import NestedSession
from minutebook.session.state import Session

PLAN_SLICES: Final[tuple[type, ...]] = (Plan, TaskHistory)
"""The slices of which a nested evaluation has its own values."""


@contextmanager
def evaluation_session(session: SessionProtocol, evaluation_id: UUID) -> Iterator[SessionProtocol]:
    """Yield the session of an evaluation: this one, or a `NestedSession` with its own plan if another evaluation uses it.

    A tool may evaluate another prompt on the session of its run. Positions in the history are those of one conversation,
    so the two evaluations cannot share a history, nor the plan that it follows.
    """
    if not isinstance(session, Session):
        yield session
    elif session.outermost is session and session.evaluation_lock.acquire(blocking=False):
        try:
            yield session
        finally:
            session.evaluation_lock.release()
    else:
        with NestedSession(session, frozenset(PLAN_SLICES), evaluation_id) as nested:
            yield nested


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
    for event_type, reducer in REDUCERS[slice_type].items():
        session.register_reducer(event_type, reducer, slice_type=slice_type)


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
    missing_steps = tuple(step for step in plan.steps if step.step_id not in step_ids)
    if missing_steps:
        session.dispatch(AddHistorySteps(missing_steps))
    in_progress_ids = [step.step_id for step in plan.steps if step.status == "in_progress"]
    if in_progress_ids and history.active_step_id not in in_progress_ids:
        session.dispatch(SetActiveStep(in_progress_ids[-1]))
