"""The events of a run, for display. To store messages, subscribe to `ConversationRecorded` on the bus instead."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from minutebook.agent.messages import PromptResponse, TextDelta, ThinkingDelta, Usage
from minutebook.compaction.manager import HistoryCompacted
from minutebook.history.view import View
from minutebook.record.entry import ToolCall


@dataclass(frozen=True, slots=True)
class ViewBuilt:
    """A view was built and is about to be sent to the model."""

    view: View


@dataclass(frozen=True, slots=True)
class AnswerRestarted:
    """The answer was interrupted, and the request is sent again: discard the deltas since the last `ViewBuilt`."""

    problem: str


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model has answered with text, tool calls or both."""

    usage: Usage
    finish: str
    """The finish reason: stop, tool_calls, length or content_filter."""


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model called a tool, which starts to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A tool has finished. Parallel tools are reported in the order in which they finish."""

    call: ToolCall
    content: str
    success: bool


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run has ended with an answer; always the last event."""

    response: PromptResponse[Any]


RunEvent: TypeAlias = (
    HistoryCompacted
    | ViewBuilt
    | TextDelta
    | ThinkingDelta
    | AnswerRestarted
    | ModelAnswered
    | ToolCalled
    | ToolAnswered
    | RunFinished
)
Emit: TypeAlias = Callable[[RunEvent], None]
