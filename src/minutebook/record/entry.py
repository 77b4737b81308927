"""Entries of the record, and the event that is emitted when an entry is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from minutebook.errors import InvalidMessage
from minutebook.record.message import FrozenDict, MessageRole, frozen_copy


@dataclass(slots=True, frozen=True)
class ToolCall:
    """A tool invocation requested by the assistant."""

    id: str
    """Provider-assigned identifier for correlating with tool results."""
    name: str
    """Name of the tool being invoked."""
    arguments: str
    """JSON-encoded arguments as the model wrote them, even if they are not valid JSON."""
    extras: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    """Other keys of the call in the provider's message. They are sent back to the provider unchanged."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "extras", frozen_copy(self.extras))


@dataclass(slots=True, frozen=True)
class ConversationEntry:
    """A single entry in the conversation history.

    Raises:
        InvalidMessage: a field is invalid, or fields contradict each other, such as tool calls on a user message.
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
    """The provider, if known. Reasoning blocks cannot be sent to a different provider."""
    model: str | None = None
    """The model, if known."""
    extras: Mapping[str, Any] = field(default_factory=FrozenDict, hash=False)
    """Other keys of the provider's message. They are sent back to the provider unchanged."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__  # the dataclass is frozen
        if type(self.role) is not MessageRole:
            set_field(self, "role", MessageRole(self.role))
        if self.tool_calls is not None:
            set_field(self, "tool_calls", tuple(self.tool_calls) or None)
        if self.content is None and self.role is MessageRole.ASSISTANT and not self.tool_calls:
            set_field(self, "content", "")
        if self.extras or type(self.extras) is not FrozenDict:
            set_field(self, "extras", frozen_copy(self.extras))
        self._check_fields()
        if self.created_at.tzinfo is not UTC:
            set_field(self, "created_at", self.created_at.astimezone(UTC))

    def _check_fields(self) -> None:
        if self.content is None and not self.tool_calls:
            raise InvalidMessage("content", "is None; that is allowed only for an assistant message with tool calls")
        if self.sequence < 0:
            raise InvalidMessage("sequence", f"is {self.sequence}; entries are counted from 0")
        if self.created_at.tzinfo is None:
            raise InvalidMessage("created_at", "has no time zone; pass an aware datetime, such as datetime.now(UTC)")
        if self.tool_calls and self.role is not MessageRole.ASSISTANT:
            raise InvalidMessage(
                "tool_calls", f"are set on a {self.role.value} message; only the assistant calls tools"
            )
        if self.role is MessageRole.TOOL and not self.tool_call_id:
            raise InvalidMessage("tool_call_id", "is missing; a tool message names the call it answers")
        if self.role is not MessageRole.TOOL and self.tool_call_id is not None:
            raise InvalidMessage("tool_call_id", f"is set on a {self.role.value} message; only results have one")


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
    """Position of the message in the current conversation; None for a message outside the conversation."""
    is_prompt: bool = False
    """The entry is the rendered prompt, not a message of the conversation."""
    scope: UUID | None = None
    """The evaluation's id if it runs inside another evaluation of the same session, else None."""
