"""What happens in a run, for those who watch it; `ConversationRecorded` and the bus are for those who keep it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from minutebook.agent.messages import PromptResponse, TextDelta, ThinkingDelta, Usage
from minutebook.compaction.manager import HistoryCompacted
from minutebook.history.view import View
from minutebook.record.entry import ToolCall


@dataclass(frozen=True, slots=True)
class ViewMade:
    """This is what the model is about to be sent."""

    view: View


@dataclass(frozen=True, slots=True)
class AnswerRestarted:
    """The answer broke off and is asked for again: forget the deltas since the last view."""

    problem: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model has answered, with words, calls or both."""

    usage: Usage
    finish: str


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool, which now runs."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A tool is done; parallel ones in the order in which they are done."""

    call: ToolCall
    content: str
    success: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over; always the last event."""

    response: PromptResponse[Any]


RunEvent: TypeAlias = (
    HistoryCompacted
    | ViewMade
    | TextDelta
    | ThinkingDelta
    | AnswerRestarted
    | ModelAnswered
    | ToolCalled
    | ToolAnswered
    | Finished
)
Emit: TypeAlias = Callable[[RunEvent], None]
