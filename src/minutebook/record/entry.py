"""One message in the record: immutable, numbered, timed.

Facts about the record.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from minutebook.errors import InvalidMessage
from minutebook.record.message import FrozenDict, MessageRole, frozen


@dataclass(slots=True, frozen=True)
class ToolCall:
    """A tool invocation requested by the assistant."""

    id: str
    """Provider-assigned identifier for correlating with tool results."""
    name: str
    """Name of the tool being invoked."""
    arguments: str
    """JSON-encoded arguments for the tool, as the model wrote them: kept even where they are not valid JSON."""
    extras: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    """What else the provider said about the call, for the way back."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extras", frozen(self.extras))


@dataclass(slots=True, frozen=True)
class ConversationEntry:
    """A single entry in the conversation history.

    Raises:
        InvalidMessage: its fields do not go together (calls on a user message, a result without an id, …).
    """

    role: MessageRole
    """The role of the message sender."""
    content: str | None
    """Text content of the message. None for an assistant message that only calls tools."""
    evaluation_id: UUID
    """Identifier correlating all entries from a single evaluate() call."""
    sequence: int
    """Zero-based position within the evaluation's conversation."""
    created_at: datetime
    """When the entry was created, in UTC."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """Tool calls requested by the assistant. Only present for assistant role."""
    tool_call_id: str | None = None
    """Identifier of the tool call this message responds to. Only for tool role."""
    tool_name: str | None = None
    """Name of the tool that produced this result. Only for tool role."""
    provider: str | None = None
    """Who was asked, where that is known: foreign reasoning cannot be sent to another provider."""
    model: str | None = None
    """The model that was asked, where that is known."""
    extras: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    """What the provider's message had besides, byte for byte, for the way back."""

    def __post_init__(self) -> None:
        change = object.__setattr__
        if type(self.role) is not MessageRole:
            change(self, "role", MessageRole(self.role))
        if self.tool_calls is not None:
            change(self, "tool_calls", tuple(self.tool_calls) or None)
        if self.content is None and self.role is MessageRole.ASSISTANT and not self.tool_calls:
            change(self, "content", "")
        if self.extras or type(self.extras) is not FrozenDict:
            change(self, "extras", frozen(self.extras))
        self._check()
        if self.created_at.tzinfo is not UTC:
            change(self, "created_at", self.created_at.astimezone(UTC))

    def _check(self) -> None:
        if self.content is None and not self.tool_calls:
            raise InvalidMessage("content", "is None; only an assistant message that calls tools may have none")
        if self.sequence < 0:
            raise InvalidMessage("sequence", f"is {self.sequence}; entries are counted from 0")
        if self.created_at.tzinfo is None:
            raise InvalidMessage("created_at", "has no time zone; give an aware datetime, such as datetime.now(UTC)")
        if self.tool_calls and self.role is not MessageRole.ASSISTANT:
            raise InvalidMessage("tool_calls", f"stand on a {self.role.value} message; only the assistant calls tools")
        if self.role is MessageRole.TOOL and not self.tool_call_id:
            raise InvalidMessage("tool_call_id", "is missing; a tool message names the call it answers")
        if self.role is not MessageRole.TOOL and self.tool_call_id is not None:
            raise InvalidMessage("tool_call_id", f"stands on a {self.role.value} message; only results have one")


@dataclass(slots=True, frozen=True)
class ConversationRecorded:
    """Emitted when a conversation entry is added to history."""

    entry: ConversationEntry
    """The recorded conversation entry."""
    session_id: UUID | None
    """Session that recorded this entry."""
    created_at: datetime
    """When the event was emitted."""
    position: int | None = None
    """Where its message stands in the conversation that is going on; None for what stands nowhere in it."""
    is_prompt: bool = False
    """Whether it is the prompt itself, as it was rendered, and nothing that anybody said."""
