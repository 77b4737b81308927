"""Runs the tools that a model calls, in parallel."""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, Final

from minutebook.agent.events import Emit, ToolAnswered, ToolCalled
from minutebook.agent.telemetry import Telemetry
from minutebook.errors import BudgetExceeded, DeadlineExceeded, ToolValidationError, VisibilityExpansionRequired
from minutebook.prompt.tools import AnyTool, ToolContext, ToolResult
from minutebook.record.entry import ToolCall
from minutebook.record.message import Message, call_ids

_LOG: Final = logging.getLogger("minutebook.agent")


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool call, for the model and for the runner."""

    call: ToolCall
    content: str
    success: bool
    error: Exception | None = None
    """An error that the runner must handle or raise. The model only gets `content`."""

    @property
    def message(self) -> dict[str, Any]:
        message = {"role": "tool", "tool_call_id": self.call.id, "name": self.call.name, "content": self.content}
        return message if self.success else {**message, "is_error": True}


def tool_calls_of(message: Message) -> list[ToolCall]:
    """The tool calls of an assistant message, in order."""
    calls = []
    for call_id, call in zip(call_ids(message), message.get("tool_calls") or (), strict=False):
        function = call.get("function") or call.get("custom") or {}
        arguments = function.get("arguments", function.get("input"))
        calls.append(ToolCall(call_id, str(function.get("name") or ""), str(arguments or "")))
    return calls


@dataclass(slots=True)
class ToolRunner:
    """Runs the tool calls of one model answer at a time."""

    emit: Emit
    telemetry: Telemetry
    outcomes: dict[str, ToolOutcome] = field(default_factory=dict)
    """Call id → outcome, for the calls that have finished, even if `run` was cancelled before the others finished."""

    async def run(self, calls: Sequence[ToolCall], context: ToolContext) -> None:
        """Run the tools in parallel, and put their results into `outcomes`."""
        self.outcomes.clear()
        for call in calls:
            self.emit(ToolCalled(call))
        # Not the event loop's own threads: these are few, and a tool that waits for a nested evaluation would block one.
        threads = ThreadPoolExecutor(max(1, len(calls)), thread_name_prefix="minutebook-tool")
        try:
            async with asyncio.TaskGroup() as group:
                for call in calls:
                    group.create_task(self._run_call(call, replace(context, call_id=call.id), threads))
        finally:
            threads.shutdown(wait=False)

    async def _run_call(self, call: ToolCall, context: ToolContext, threads: ThreadPoolExecutor) -> None:
        with self.telemetry.tool(call):
            outcome = await _run_tool(call, context, threads)
        self.outcomes[call.id] = outcome
        self.emit(ToolAnswered(call, outcome.content, outcome.success))


async def _run_tool(call: ToolCall, context: ToolContext, threads: ThreadPoolExecutor) -> ToolOutcome:
    tool = context.rendered_prompt.tool(call.name)
    if tool is None:
        names = ", ".join(tool.name for tool in context.rendered_prompt.tools) or "none"
        return ToolOutcome(call, f"Unknown tool {call.name!r}. Available tools: {names}.", success=False)
    try:
        result = await _call_handler(tool, call, context, threads)
        return ToolOutcome(call, result.render(), result.success)
    except ToolValidationError as error:
        return ToolOutcome(call, str(error), success=False)
    except VisibilityExpansionRequired as error:
        content = f"Now shown in full: {', '.join(error.section_keys)}."
        return ToolOutcome(call, content, success=True, error=error)
    except (DeadlineExceeded, BudgetExceeded) as error:
        return ToolOutcome(call, str(error), success=False, error=error)
    except (
        Exception,
        SystemExit,
        asyncio.CancelledError,
    ) as error:  # a tool is user code; the model may try something else
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the run was cancelled; otherwise the tool awaited something that was cancelled
        _LOG.warning("tool %s failed", call.name, exc_info=error)
        return ToolOutcome(call, f"The tool failed: {type(error).__name__}: {error}", success=False)


async def _call_handler(
    tool: AnyTool, call: ToolCall, context: ToolContext, threads: ThreadPoolExecutor
) -> ToolResult[Any]:
    """Call the tool's handler within its timeout. A sync handler runs in a thread, to keep the event loop free."""
    try:
        async with asyncio.timeout(tool.timeout_seconds) as timeout:
            if tool.is_async:
                returned: Any = tool.call(call.arguments, context=context)
            else:
                loop, variables = asyncio.get_running_loop(), copy_context()
                returned = await loop.run_in_executor(threads, variables.run, _call, tool, call.arguments, context)
            result = await returned if isawaitable(returned) else returned
    except TimeoutError as error:
        if not timeout.expired():
            raise
        # The error whose text the model gets unchanged: it may call the tool again with other arguments.
        raise ToolValidationError(f"{tool.name} exceeded its timeout of {tool.timeout_seconds:g} seconds.") from error
    if not isinstance(result, ToolResult):
        raise TypeError(f"the handler returned a {type(result).__name__}; it must return a ToolResult")
    return result


def _call(tool: AnyTool, arguments: str, context: ToolContext) -> Any:
    try:
        return tool.call(arguments, context=context)
    except (
        StopIteration
    ) as error:  # a future cannot have this exception: before Python 3.12, the run would wait forever
        raise RuntimeError("the tool raised StopIteration") from error
