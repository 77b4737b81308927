"""What the tools of planning are called."""

from typing import Final

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
