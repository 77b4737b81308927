"""The events of a run, for display: `str(event)` is one line.

To store messages, subscribe to `ConversationRecorded` on the bus instead.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from minutebook.agent.messages import PromptResponse, TextDelta, ThinkingDelta, Usage, one_line
from minutebook.compaction.manager import HistoryCompacted
from minutebook.history.view import View
from minutebook.record.entry import ToolCall


@dataclass(frozen=True, slots=True)
class ViewBuilt:
    """A view was built and is about to be sent to the model."""

    view: View

    def __str__(self) -> str:
        return f"request: {self.view!r}"


@dataclass(frozen=True, slots=True)
class AnswerRestarted:
    """A request failed or its answer was interrupted. The same request is sent again.

    Discard the deltas since the last `ViewBuilt`.
    """

    problem: str

    def __str__(self) -> str:
        return f"answer restarted: {one_line(self.problem)}"


@dataclass(frozen=True, slots=True)
class ModelAnswered:
    """The model has answered with text, tool calls or both."""

    usage: Usage
    finish: str
    """The finish reason: stop, tool_calls, length or content_filter."""

    def __str__(self) -> str:
        usage = self.usage
        return f"answer: {self.finish}, {usage.input_tokens:,} input tokens, {usage.output_tokens:,} output tokens"


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model called a tool, which starts to run."""

    call: ToolCall

    def __str__(self) -> str:
        return f"call {one_line(self.call.name)}: {one_line(self.call.arguments)}"


@dataclass(frozen=True, slots=True)
class ToolAnswered:
    """A tool has finished. Parallel tools are reported in the order in which they finish."""

    call: ToolCall
    content: str
    success: bool

    def __str__(self) -> str:
        return f"{'result' if self.success else 'error'} of {one_line(self.call.name)}: {one_line(self.content)}"


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run has ended with an answer. No event follows."""

    response: PromptResponse[Any]

    def __str__(self) -> str:
        calls = self.response.calls
        return f"finished after {calls} model call{'' if calls == 1 else 's'}: {one_line(self.response.text)}"


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
E = TypeVar("E")


async def stream_events(
    run: Callable[[Callable[[E], None]], Coroutine[Any, Any, object]],
) -> AsyncGenerator[E, None]:
    """Call `run` in a task with the function that emits events, and yield them. Closing the generator cancels the task."""
    events: asyncio.Queue[E | None] = asyncio.Queue()
    task = asyncio.create_task(run(events.put_nowait))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
