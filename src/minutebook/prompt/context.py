"""What sections see when they are rendered, and tools when they are called."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from minutebook.history.protocol import EventBus, SessionProtocol
from minutebook.prompt.visibility import SectionPath, SectionVisibility

if TYPE_CHECKING:
    from minutebook.prompt.prompt import Prompt
    from minutebook.prompt.rendered import RenderedPrompt


@dataclass(frozen=True)
class RenderContext:
    """What a section may know of the rendering it is part of.

    A section that shows session state reads it from here, so that one prompt serves many sessions. Overrides may name
    paths below a section that only the section itself knows, such as the steps of a plan.
    """

    session: SessionProtocol | None = None
    visibility_overrides: Mapping[SectionPath, SectionVisibility] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolContext:
    """What a tool's handler may know of the call."""

    prompt: "Prompt[Any]"
    rendered_prompt: "RenderedPrompt[Any]"
    session: SessionProtocol | None
    deadline: Any = None
    """When the evaluation must be done; the agent's own type."""
    bus: EventBus | None = None
    call_id: str | None = None
    """The id by which the provider knows this call."""
    next_tokens: Callable[[], int] | None = None
    """Counts what the next call of the model would send, as things stand: its messages, and the tools it is offered."""
