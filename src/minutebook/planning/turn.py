"""One thing that was said in the course of a step."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from minutebook.record.entry import ConversationEntry, ToolCall

TurnRole: TypeAlias = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Turn:
    """Single conversation turn associated with a plan step."""

    turn_id: int | None
    """Its number in the session; None lets the history give it the next one."""
    role: TurnRole
    content: str
    tool_name: str | None = None
    """Whose result it is, where it is one."""
    created_at: datetime | None = None
    """When it was said; the history's own clock, where nobody says."""
    tool_calls: tuple[ToolCall, ...] = ()
    """What the assistant called."""
    tool_call_id: str | None = None
    """The call that a result answers."""
    evaluation_id: UUID | None = None
    entry_sequence: int | None = None
    """With the evaluation: the entry of the record that this is."""
    position: int | None = None
    """Where it stands in the conversation that is going on; None where it does not, and only the history has it."""

    @classmethod
    def of(cls, entry: ConversationEntry, turn_id: int, position: int | None, tool_name: str | None) -> "Turn":
        """An entry of the record as a turn."""
        role: Any = entry.role.value
        return cls(
            turn_id,
            role,
            entry.content or "",
            tool_name,
            entry.created_at,
            entry.tool_calls or (),
            entry.tool_call_id,
            entry.evaluation_id,
            entry.sequence,
            position,
        )

    @property
    def told(self) -> str:
        """All that it says: its words, then its calls."""
        calls = [f"→ {call.name}({call.arguments})" for call in self.tool_calls]
        return "\n".join([*([self.content] if self.content or not calls else []), *calls])

    def render(self) -> str:
        """`[role] content`, or `[tool:name] content` for a result."""
        name = f":{self.tool_name}" if self.role == "tool" and self.tool_name else ""
        return f"[{self.role}{name}] {self.told}"

    def message(self) -> dict[str, Any]:
        """The turn as a message, for whoever sums it up."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        if self.role == "tool":
            message |= {"tool_call_id": self.tool_call_id or "", "name": self.tool_name or "tool"}
        return message
