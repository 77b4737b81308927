"""A plan that the model keeps, and a history organised by its steps.

The plan and its events are session state; the section and its tools are shown to the model. Start with `plan`, then
`task_history`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "budget": ("StepBudget", "StepHistoryManager"),
    "events": (
        "AddHistorySteps",
        "AddStep",
        "AppendTurn",
        "ExpandStep",
        "InitializeTaskHistory",
        "PinStep",
        "SetActiveStep",
        "SetupPlan",
        "SummarizeStep",
        "UpdateStep",
    ),
    "history_section": ("TaskHistorySection",),
    "journal": ("TaskJournal",),
    "plan": ("Plan", "PlanStep", "StepStatus"),
    "plan_section": ("PlanningToolsSection",),
    "setup": ("install_history", "install_plan"),
    "summaries": ("auto_summarize_step",),
    "task_history": (
        "StepHistory",
        "StepVisibility",
        "StepVisibilityResolver",
        "TaskHistory",
        "Turn",
        "extractive_summary",
    ),
    "tools": ("ContextPressure",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
