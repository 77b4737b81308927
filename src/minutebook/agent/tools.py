"""Running the tools that a model calls, side by side."""

import asyncio
import logging
from collections.abc import Sequence
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
class Outcome:
    """What became of a call."""

    call: ToolCall
    content: str
    success: bool
    raised: Exception | None = None
    """What is not for the model but for whoever runs it."""

    @property
    def message(self) -> dict[str, Any]:
        message = {"role": "tool", "tool_call_id": self.call.id, "name": self.call.name, "content": self.content}
        return message if self.success else {**message, "is_error": True}


def calls_of(message: Message) -> list[ToolCall]:
    """The calls of an assistant message, in order."""
    calls = []
    for call_id, call in zip(call_ids(message), message.get("tool_calls") or (), strict=False):
        function = call.get("function") or call.get("custom") or {}
        arguments = function.get("arguments", function.get("input"))
        calls.append(ToolCall(call_id, str(function.get("name") or ""), str(arguments or "")))
    return calls


@dataclass(slots=True)
class Workbench:
    """Where tools are run, and what has come out of them so far."""

    emit: Emit
    telemetry: Telemetry
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    async def use(self, calls: Sequence[ToolCall], context: ToolContext) -> None:
        """Run the tools at the same time; `outcomes` has each one's as soon as it is there, also when this is cancelled."""
        self.outcomes.clear()
        for call in calls:
            self.emit(ToolCalled(call))
        async with asyncio.TaskGroup() as together:
            for call in calls:
                together.create_task(self._answer(call, replace(context, call_id=call.id)))

    async def _answer(self, call: ToolCall, context: ToolContext) -> None:
        with self.telemetry.tool(call):
            outcome = await _outcome(call, context)
        self.outcomes[call.id] = outcome
        self.emit(ToolAnswered(call, outcome.content, outcome.success))


async def _outcome(call: ToolCall, context: ToolContext) -> Outcome:
    tool = context.rendered_prompt.tool(call.name)
    if tool is None:
        known = ", ".join(each.name for each in context.rendered_prompt.tools) or "none"
        return Outcome(call, f"There is no tool {call.name!r}. Tools: {known}.", success=False)
    try:
        result = await _called(tool, call, context)
        return Outcome(call, result.render(), result.success)
    except ToolValidationError as error:
        return Outcome(call, str(error), success=False)
    except VisibilityExpansionRequired as error:
        return Outcome(call, f"Now shown in full: {', '.join(error.section_keys)}.", success=True, raised=error)
    except (DeadlineExceeded, BudgetExceeded) as error:
        return Outcome(call, str(error), success=False, raised=error)
    except Exception as error:  # noqa: BLE001 - a tool is anybody's code, and the model may know another way
        _LOG.warning("tool %s failed", call.name, exc_info=error)
        return Outcome(call, f"The tool failed: {type(error).__name__}: {error}", success=False)


async def _called(tool: AnyTool, call: ToolCall, context: ToolContext) -> ToolResult[Any]:
    """The tool's result. A handler that is not async runs in a thread, so that it holds up nobody."""
    try:
        async with asyncio.timeout(tool.timeout_seconds) as limit:
            if tool.is_async:
                given: Any = tool.call(call.arguments, context=context)
            else:
                given = await asyncio.to_thread(tool.call, call.arguments, context=context)
            result = await given if isawaitable(given) else given
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise ToolValidationError(f"{tool.name} took longer than {tool.timeout_seconds:g} seconds.") from error
    if not isinstance(result, ToolResult):
        raise TypeError(f"the handler returned a {type(result).__name__}; it must return a ToolResult")
    return result
