"""What happens while a program runs, and to whom."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from uuid import UUID

from minutebook.agent.events import RunEvent


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something happened in the run of an agent, or in a call of a prompt."""

    kind: Literal["agent", "prompt"]
    name: str
    """Of the agent or the prompt; empty for the agent without a name."""
    event: RunEvent
    session_id: UUID
    """The session that records it."""
    depth: int = 0
    """0 for what the program itself runs, 1 for an agent that such an agent calls, and so on."""


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """The program is done; always the last event."""

    result: Any


WorkflowEvent: TypeAlias = AgentEvent | WorkflowFinished
Tell: TypeAlias = Callable[[AgentEvent], None]


def untold(_event: AgentEvent) -> None:
    """Nobody watches."""
