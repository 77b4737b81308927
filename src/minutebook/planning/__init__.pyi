from minutebook.planning.budget import (
    StepBudget as StepBudget,
    StepHistoryManager as StepHistoryManager,
)
from minutebook.planning.events import (
    AddHistorySteps as AddHistorySteps,
    AddStep as AddStep,
    AppendTurn as AppendTurn,
    ExpandStep as ExpandStep,
    InitializeTaskHistory as InitializeTaskHistory,
    PinStep as PinStep,
    SetActiveStep as SetActiveStep,
    SetupPlan as SetupPlan,
    SummarizeStep as SummarizeStep,
    UpdateStep as UpdateStep,
)
from minutebook.planning.history_section import (
    TaskHistorySection as TaskHistorySection,
)
from minutebook.planning.plan import (
    Plan as Plan,
    PlanStep as PlanStep,
    StepStatus as StepStatus,
)
from minutebook.planning.plan_section import (
    PlanningToolsSection as PlanningToolsSection,
)
from minutebook.planning.setup import (
    install_history as install_history,
    install_plan as install_plan,
)
from minutebook.planning.summaries import (
    auto_summarize_step as auto_summarize_step,
)
from minutebook.planning.task_history import (
    StepHistory as StepHistory,
    StepVisibility as StepVisibility,
    StepVisibilityResolver as StepVisibilityResolver,
    TaskHistory as TaskHistory,
    Turn as Turn,
    extractive_summary as extractive_summary,
)
from minutebook.planning.tools import (
    ContextPressure as ContextPressure,
)

__all__ = [
    "AddHistorySteps",
    "AddStep",
    "AppendTurn",
    "ContextPressure",
    "ExpandStep",
    "InitializeTaskHistory",
    "PinStep",
    "Plan",
    "PlanStep",
    "PlanningToolsSection",
    "SetActiveStep",
    "SetupPlan",
    "StepBudget",
    "StepHistory",
    "StepHistoryManager",
    "StepStatus",
    "StepVisibility",
    "StepVisibilityResolver",
    "SummarizeStep",
    "TaskHistory",
    "TaskHistorySection",
    "Turn",
    "UpdateStep",
    "auto_summarize_step",
    "extractive_summary",
    "install_history",
    "install_plan",
]
