"""What the handlers of the planning tools share: the session, and what to say when a call cannot be meant."""

from typing import Final

from minutebook.errors import ToolValidationError
from minutebook.history.protocol import SessionProtocol
from minutebook.planning.following import find_history
from minutebook.planning.names import SETUP_PLAN
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task import UNASSIGNED, StepHistory, TaskHistory
from minutebook.prompt.context import RenderContext, ToolContext
from minutebook.session.session import Session

MAX_SUMMARY: Final = 1000
MAX_TITLE: Final = 200
NO_PLAN: Final = f"There is no plan yet. Call `{SETUP_PLAN}` with an objective and its steps first."


def session_of(context: RenderContext | ToolContext, own: Session | None) -> Session | None:
    """The session that a rendering or a call is for, or else the one that the section was made with."""
    found: SessionProtocol | None = context.session
    return found if isinstance(found, Session) else own


def require_session(context: ToolContext, own: Session | None) -> Session:
    session = session_of(context, own)
    if session is None:
        raise ToolValidationError("There is no session here that could keep a plan; go on without one.")
    return session


def require_plan(session: Session) -> Plan:
    plan = session.query(Plan).latest()
    if plan is None:
        raise ToolValidationError(NO_PLAN)
    return plan


def require_plan_step(plan: Plan, step_id: int) -> PlanStep:
    step = plan.step(step_id)
    if step is None:
        raise ToolValidationError(f"The plan has no step {step_id}. {_ids([one.step_id for one in plan.steps])}")
    return step


def require_step(session: Session, step_id: int) -> tuple[TaskHistory, StepHistory]:
    """The step that a call names, and the history it is in."""
    histories = session.query(TaskHistory).all()
    if not histories:
        raise ToolValidationError(f"There is no task history yet. {NO_PLAN}")
    history = find_history(histories, step_id)
    step = None if history is None else history.step(step_id)
    if history is None or step is None:
        if step_id == UNASSIGNED:
            raise ToolValidationError("Nothing was said outside of the steps.")
        known = [one.step_id for history in histories for one in history.steps]
        raise ToolValidationError(f"There is no step {step_id}. {_ids(known) if known else NO_PLAN}")
    return history, step


def one_line(name: str, text: str, longest: int) -> str:
    """A title or an objective, if it is one line of a bearable length."""
    stripped = text.strip()
    if not stripped:
        raise ToolValidationError(f"The {name} is empty. Say in a few words what it is.")
    if "\n" in stripped or "\r" in stripped:
        raise ToolValidationError(f"The {name} has several lines. Give one.")
    if len(stripped) > longest:
        raise ToolValidationError(f"The {name} has {len(stripped)} characters. Give at most {longest}.")
    return stripped


def require_summary(text: str) -> str:
    """A summary of 1 to 1,000 characters."""
    summary = text.strip()
    if not summary:
        raise ToolValidationError("Summary must not be empty. Say in 1-3 sentences what was done and what was found.")
    if len(summary) > MAX_SUMMARY:
        raise ToolValidationError(
            f"Summary must be <= {MAX_SUMMARY} characters, and has {len(summary)}. Say it in 1-3 sentences."
        )
    return summary


def _ids(known: list[int]) -> str:
    return f"Steps: {', '.join(map(str, known))}." if known else "It has no steps; add some first."
