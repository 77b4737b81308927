"""A plan that the model maintains, and a conversation history organised by the steps of the plan.

The plan and its history are session state; the sections and their tools are part of the prompt. Start with `plan`, then
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
