"""The events of a plan and of its history, and the names of the planning tools.

The session's reducers apply the events. Storing the events is enough to rebuild the plan and its history.
"""

from dataclasses import dataclass
from typing import Final

from minutebook.planning.plan import PlanStep, StepStatus
from minutebook.planning.task_history import StepVisibility, Turn


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """Start a new plan. The previous plan stays in the session as history."""

    objective: str
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True)
class AddStep:
    """Add steps to the plan and to its history."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """Change the status or the title of a step."""

    step_id: int
    status: StepStatus | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class InitializeTaskHistory:
    """Start a history for a plan that already exists."""

    objective: str
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True)
class AddHistorySteps:
    """Add steps to the history only."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class SetActiveStep:
    """Assign new turns to this step, or to no step if `step_id` is None."""

    step_id: int | None


@dataclass(frozen=True, slots=True)
class AppendTurn:
    """Add a turn to the step, or to the active step if `step_id` is None.

    A turn with the same number or the same entry as one in the history is not added again. A different turn with the same
    number or entry is refused, and so is a number that the step's summary covers already. A turn without a number and
    without an entry is added each time.
    """

    turn: Turn
    step_id: int | None = None


@dataclass(frozen=True, slots=True)
class SummarizeStep:
    """Store a summary of a step, and set the visibility of the step."""

    step_id: int
    summary: str
    visibility: StepVisibility | None = "summary"
    """None does not change the step's visibility; a `StepBudget` uses the summary later, if the window is full."""
    keep_tokens: int = 0
    """Tokens at the end of the conversation that stay in the view, even if they belong to this step."""


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """Show a step in full again. The step keeps its summary."""

    step_id: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PinStep:
    """Pin a step, so that it is shown in full, or unpin it."""

    step_id: int
    pinned: bool = True


SETUP_PLAN: Final = "planning_setup_plan"
ADD_STEP: Final = "planning_add_step"
UPDATE_STEP: Final = "planning_update_step"
READ_PLAN: Final = "planning_read_plan"
SUMMARIZE_STEP: Final = "summarize_step"
EXPAND_STEP: Final = "expand_step"
CONTEXT_PRESSURE: Final = "context_pressure"
PIN_STEP: Final = "pin_step"
REFERENCE_STEP: Final = "reference_step"

REDUNDANT_RESULT_TOOLS: Final = frozenset(
    {SETUP_PLAN, ADD_STEP, UPDATE_STEP, READ_PLAN, SUMMARIZE_STEP, CONTEXT_PRESSURE, PIN_STEP}
)
"""Tools whose results only repeat what the plan and the history show."""
