"""The agent language: grammar, syntax tree, checks, compiler, formatter, and the workflow that runs a program.

Start with `parser`, then `compiler` and `workflow`.
"""

from minutebook._lazy import exports

_EXPORTS = {
    "agents": ("AgentEvent", "WorkflowFinished"),
    "checks.program": ("check_agents",),
    "compiler": ("compile_agents",),
    "diagnostics": ("Diagnostic",),
    "formatter": ("format_agents",),
    "models": ("provider_adapters",),
    "parser": ("parse_agents",),
    "spec": ("AgentSpec", "ModelSpec", "WorkflowSpec"),
    "syntax": ("Program",),
    "workflow": ("DslWorkflow",),
}
__all__, __getattr__, __dir__ = exports(__name__, _EXPORTS)
