from minutebook.dsl.agents import (
    AgentEvent as AgentEvent,
    WorkflowFinished as WorkflowFinished,
)
from minutebook.dsl.checks.program import (
    check_agents as check_agents,
)
from minutebook.dsl.compiler import (
    compile_agents as compile_agents,
)
from minutebook.dsl.diagnostics import (
    Diagnostic as Diagnostic,
)
from minutebook.dsl.formatter import (
    format_agents as format_agents,
)
from minutebook.dsl.models import (
    provider_adapters as provider_adapters,
)
from minutebook.dsl.parser import (
    parse_agents as parse_agents,
)
from minutebook.dsl.spec import (
    AgentSpec as AgentSpec,
    ModelSpec as ModelSpec,
    WorkflowSpec as WorkflowSpec,
)
from minutebook.dsl.syntax import (
    Program as Program,
)
from minutebook.dsl.workflow import (
    DslWorkflow as DslWorkflow,
)

__all__ = [
    "AgentEvent",
    "AgentSpec",
    "Diagnostic",
    "DslWorkflow",
    "ModelSpec",
    "Program",
    "WorkflowFinished",
    "WorkflowSpec",
    "check_agents",
    "compile_agents",
    "format_agents",
    "parse_agents",
    "provider_adapters",
]
