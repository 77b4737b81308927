"""What happens to a plan and to its history, and the names of the planning tools.

Each event is folded into the session, and is all that must be kept of it.
"""

from dataclasses import dataclass
from typing import Final

from minutebook.planning.plan import PlanStep, StepStatus
from minutebook.planning.task_history import StepVisibility, Turn


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """There is a new plan; the one before it, if any, becomes history."""

    objective: str
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True)
class AddStep:
    """The plan has more steps."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class UpdateStep:
    """A step has another status, or is called something else."""

    step_id: int
    status: StepStatus | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True)
class InitializeTaskHistory:
    """A history begins for a plan that was there before it."""

    objective: str
    steps: tuple[PlanStep, ...] = ()


@dataclass(frozen=True, slots=True)
class AddHistorySteps:
    """The history has these steps too."""

    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True)
class SetActiveStep:
    """What is said from now on belongs to this step; None for no step."""

    step_id: int | None


@dataclass(frozen=True, slots=True)
class AppendTurn:
    """Something was said, in the active step or in the one that is named."""

    turn: Turn
    step_id: int | None = None


@dataclass(frozen=True, slots=True)
class SummarizeStep:
    """A step has this summary, and is shown by it from now on."""

    step_id: int
    summary: str
    visibility: StepVisibility | None = "summary"
    """None leaves the step as it is shown; the summary is then used when room is needed."""
    keep_tokens: int = 0
    """How much of the end of the conversation stays all the same, whatever step it is of."""


@dataclass(frozen=True, slots=True)
class ExpandStep:
    """A step is shown in full again, byte for byte. Its summary is kept for another time."""

    step_id: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class PinStep:
    """A step stays in full until it is unpinned."""

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

BOOKKEEPING: Final = frozenset(
    {SETUP_PLAN, ADD_STEP, UPDATE_STEP, READ_PLAN, SUMMARIZE_STEP, CONTEXT_PRESSURE, PIN_STEP}
)
"""Tools whose results say nothing that the plan and the history do not show as well."""
