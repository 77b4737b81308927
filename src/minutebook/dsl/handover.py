"""Agents that an agent calls, as its tools."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.request import ModelReply, ModelRequest, OnDelta, TextDelta
from minutebook.dsl.spec import AgentSpec
from minutebook.errors import DeadlineExceeded
from minutebook.prompt.context import ToolContext
from minutebook.prompt.markdown import shown
from minutebook.prompt.result import ToolResult
from minutebook.prompt.tool import AnyTool, Tool
from minutebook.record.message import is_result

if TYPE_CHECKING:
    from minutebook.dsl.actor import Actor, Watch


@dataclass(frozen=True)
class Asked:  # what a helper is told; a docstring would be told to the model
    request: Annotated[str, "what it is to do, with all it must know: it sees nothing else of this conversation"]


class Relay(ProviderAdapter):
    """The adapter of an agent that may hand over: what it handed over to has answered for it, and no model is asked."""

    def __init__(self, inner: ProviderAdapter) -> None:
        super().__init__(inner.model, throttle=inner.throttle, telemetry=inner.telemetry, counter=inner.counter)
        self._inner = inner
        self.provider = inner.provider  # type: ignore[misc]  # it speaks for whomever it relays to
        self.name = inner.name  # type: ignore[misc]  # same
        self.answer: str | None = None

    @property
    def native_output(self) -> bool:
        return self._inner.native_output

    @property
    def strict_tools(self) -> bool:
        return self._inner.strict_tools

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        answer, self.answer = self.answer, None
        # One of several calls is an opinion among others: then it is the model that answers.
        alone = is_result(request.messages[-1]) and not is_result(request.messages[-2])
        if answer is None or not alone:
            return await self._inner.ask(request, on_delta=on_delta)
        if on_delta is not None:
            on_delta(TextDelta(answer))
        return ModelReply({"role": "assistant", "content": answer})


def helper_tools(actor: "Actor", relay: Relay, watch: "Watch") -> list[AnyTool]:
    """A tool for each agent that this one may hand over to or ask."""
    spec = actor.cast.spec
    handed = [_tool(actor, spec.agent(name), watch, relay) for name in actor.agent.delegate]
    return [*handed, *(_tool(actor, spec.agent(name), watch, None) for name in actor.agent.use)]


def _tool(actor: "Actor", helper: AgentSpec, watch: "Watch", relay: Relay | None) -> AnyTool:
    """`delegate` goes on with one conversation and answers for the caller; `use` is asked anew each time."""

    async def handler(params: Asked, *, context: ToolContext) -> ToolResult[Any]:
        lasting = relay is not None
        try:
            async with actor.cast.on_stage(helper, actor, lasting=lasting) as child:
                said = await child.run(
                    params.request, watch=watch.deeper(), deadline=context.deadline, told=actor.shared_summary()
                )
        except DeadlineExceeded as error:
            if context.deadline is not None and not context.deadline.remaining_seconds():
                raise
            return ToolResult.error(f"{helper.name} had no more time: {error}")
        answer = shown(said)
        if relay is not None and actor.agent.produces in {None, helper.produces}:
            relay.answer = answer
        return ToolResult.ok(answer)

    description = helper.description or f"The agent {helper.name}."
    if relay is not None:
        description += " It takes over: its answer goes to the user as it is."
    return Tool[Asked, Any](name=helper.name, description=description, handler=handler)
