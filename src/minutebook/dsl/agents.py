"""A program's agents at run time: their conversations, delegation to each other, and the events of a run.

An agent in one conversation.

Agents that an agent calls, as its tools.

What happens while a program runs, and to whom.

The text of a program's prompt, as a prompt of ours.

All who act in a workflow: models, tools, and agents in their conversations.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.events import RunEvent
from minutebook.agent.limits import Deadline
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.agent.summarizer import ModelSummarizer
from minutebook.agent.toolbox import Toolbox
from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import SETTING_FIELDS
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.dsl.flow_strategy import FlowSummarizer, strategy_of
from minutebook.dsl.models import Adapters, patient
from minutebook.dsl.spec import INPUT, AgentSpec, RetrySpec, WorkflowSpec
from minutebook.errors import DeadlineExceeded, InvalidSetting
from minutebook.prompt.markdown import prompt_text
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.record.message import is_result, text_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo, model_info


@dataclass(frozen=True)
class Asked:  # what a helper is told; a docstring would be told to the model
    request: Annotated[str, "what it is to do, with all it must know: it sees nothing else of this conversation"]


class Relay(ProviderAdapter):
    """The adapter of an agent that may hand over: what it handed over to has answered for it, and no model is asked."""

    def __init__(self, inner: ProviderAdapter) -> None:
        super().__init__(inner.model, retry_policy=inner.retry_policy, telemetry=inner.telemetry, counter=inner.counter)
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
        answer = prompt_text(said)
        if relay is not None and actor.agent.produces in {None, helper.produces}:
            relay.answer = answer
        return ToolResult.ok(answer)

    description = helper.description or f"The agent {helper.name}."
    if relay is not None:
        description += " It takes over: its answer goes to the user as it is."
    return Tool[Asked, Any](name=helper.name, description=description, handler=handler)


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """Something happened in the run of an agent, or in a call of a prompt."""

    kind: Literal["agent", "prompt"]
    name: str
    """Of the agent or the prompt; empty for the agent without a name."""
    event: RunEvent
    session_id: UUID
    """The session that records it."""
    depth: int = 0
    """0 for what the program itself runs, 1 for an agent that such an agent calls, and so on."""


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """The program is done; always the last event."""

    result: Any


WorkflowEvent: TypeAlias = AgentEvent | WorkflowFinished
Tell: TypeAlias = Callable[[AgentEvent], None]


def untold(_event: AgentEvent) -> None:
    """Nobody watches."""


OUTPUT_ATTEMPTS = 3
"""How often an answer that is not of its schema is asked for."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Who watches a run, and from how far above."""

    tell: Tell = untold
    depth: int = 0

    @property
    def streaming(self) -> bool:
        return self.tell is not untold

    def deeper(self) -> "Watch":
        return replace(self, depth=self.depth + 1)


class Actor:
    """An agent, its session, and what was said in it so far. It does one run at a time."""

    def __init__(self, agent: AgentSpec, cast: "Cast", session: Session, parent: "Actor | None" = None) -> None:
        self.agent, self.cast, self.session, self.parent = agent, cast, session, parent
        self.adapter = cast.adapter(agent.model, agent.retry)
        self.conversation = Transcript(counter=self.adapter.counter)
        self.compactor: CompactionManager | None = cast.compactor(agent, session)
        self.busy = False

    async def run(self, given: Any, *, watch: Watch, deadline: Deadline | None = None, told: str = "") -> Any:
        """The agent's answer to an input: a text, or what it produces. `told` is what another agent shares with it.

        Raises:
            InvalidSetting: there is nothing to answer.
        """
        agent, spec = self.agent, self.cast.spec
        values = {INPUT: prompt_text(given)}
        asked = spec.prompt(agent.prompt).fill(values) if agent.prompt else values[INPUT]
        if not asked.strip():
            expected = "something to answer, or the agent a `prompt` that says what to do"
            raise InvalidSetting(f"the input of agent {agent.name!r}", given, expected)
        relay = Relay(self.adapter)
        tools = [*await self.cast.toolbox.tools(agent.tools), *helper_tools(self, relay, watch)]
        runner = ConversationRunner(
            adapter=relay if agent.delegate else self.adapter,
            prompt=text_prompt(
                agent.name,
                spec.prompt(agent.instruction).fill(values),
                tools,
                spec.output_type(agent.produces) if agent.produces else None,
            ),
            session=self.session,
            request=f"{told}\n\n{asked}" if told else asked,
            conversation=self.conversation,
            deadline=self._deadline(deadline),
            compactor=self.compactor,
            max_output_attempts=OUTPUT_ATTEMPTS,
        )

        def emit(event: RunEvent) -> None:
            watch.tell(AgentEvent("agent", agent.name, event, self.session.session_id, watch.depth))

        response = await runner.run(emit, streaming=watch.streaming)
        return response.output

    def shared_summary(self) -> str:
        """The summary that stands for the old part of the conversation, where the policy shares it with helpers."""
        if self.compactor is None or not self.cast.spec.compaction.share:
            return ""
        fold = self.compactor.compaction_input(self.conversation).summary
        return "\n\n".join(text_of(message) for message in fold.shown if is_summary(message)) if fold else ""

    def _deadline(self, given: Deadline | None) -> Deadline | None:
        if self.agent.timeout_seconds is None:
            return given
        own = Deadline.after(self.agent.timeout_seconds)
        return own if given is None or own.expires_at < given.expires_at else given


_LONGEST_PIECE = 16_000
"""Tokens of a record that a model sums up at once, at most."""

RunFlow = Callable[[str, str], Awaitable[Any]]
"""Runs a flow of one parameter."""


class Cast:
    """Makes everything that a program names, once, and keeps it for as long as the workflow is open.

    Raises:
        InvalidSetting: the policy has a setting that none of the strategies knows.
        UnknownName: nobody registered a strategy that an agent names.
    """

    def __init__(
        self,
        spec: WorkflowSpec,
        *,
        adapters: Adapters,
        toolbox: Toolbox,
        session: Session,
        summarizer: Summarizer | None,
        run_flow: RunFlow,
    ) -> None:
        self.spec, self.toolbox, self.session = spec, toolbox, session
        self._make, self._summarizer, self._run_flow = adapters, summarizer, run_flow
        self._adapters: dict[str, ProviderAdapter] = {}
        self._strategies = self._all_strategies()
        self.actors: list[Actor] = []
        self._lasting: dict[tuple[int, str], list[Actor]] = {}

    def adapter(self, model: str, retry: RetrySpec | None = None) -> ProviderAdapter:
        """The adapter for a model of the program, as patient as a policy says."""
        if model not in self._adapters:
            self._adapters[model] = self._make(self.spec.model(model))
        return patient(self._adapters[model], retry)

    def compactor(self, agent: AgentSpec, session: Session) -> CompactionManager | None:
        """What keeps one conversation of an agent short; None where it keeps all of it."""
        if agent.history is None:
            return None
        model = self.spec.model(agent.model)
        info = self._info(agent.model)
        return CompactionManager(
            self._strategies[agent.name],
            info,
            self._summarizer_of(agent, info),
            bus=session.bus,
            reply_tokens=model.max_tokens,
        )

    @asynccontextmanager
    async def on_stage(self, agent: AgentSpec, parent: Actor | None, *, lasting: bool) -> AsyncIterator[Actor]:
        """The agent in the conversation that it goes on with, or in a new one.

        Where that conversation is taken, because the agent runs beside itself, there is another for the second run.
        """
        actor = self._free(agent, parent) if lasting else self._new(agent, parent)
        actor.busy = True
        try:
            yield actor
        finally:
            actor.busy = False
            if not lasting:
                actor.session.close()

    async def aclose(self) -> None:
        """Close connections, servers and sessions; the sessions can still be read."""
        for actor in self.actors:
            if actor.session is not self.session:
                actor.session.close()
        await asyncio.gather(self.toolbox.aclose(), *(adapter.aclose() for adapter in self._adapters.values()))

    def _free(self, agent: AgentSpec, parent: Actor | None) -> Actor:
        group = self._lasting.setdefault((id(parent), agent.name), [])
        for actor in group:
            if not actor.busy:
                return actor
        group.append(self._new(agent, parent))
        return group[-1]

    def _new(self, agent: AgentSpec, parent: Actor | None) -> Actor:
        # The first to act, if nobody called it, has the workflow's own session.
        own = self.session if parent is None and not self.actors else Session(bus=self.session.bus)
        actor = Actor(agent, self, own, parent)
        self.actors.append(actor)
        return actor

    def _all_strategies(self) -> dict[str, HistoryStrategy]:
        policy = self.spec.compaction
        made = {
            agent.name: strategy_of(agent.history, policy) for agent in self.spec.agents if agent.history is not None
        }
        taken = {name for _, names in made.values() for name in names}
        for name in SETTING_FIELDS:
            if getattr(policy, name) is not None and name not in taken:
                expected = (
                    f"a strategy that knows it: none of {', '.join(s.name for s, _ in made.values()) or 'no'} does"
                )
                raise InvalidSetting(f"{name} of policy compaction", getattr(policy, name), expected)
        return {name: strategy for name, (strategy, _) in made.items()}

    def _summarizer_of(self, agent: AgentSpec, info: ModelInfo) -> Summarizer:
        assert agent.history is not None
        flow = agent.history.flow
        if flow is not None:
            windows = [each.max_input_tokens for each in self.spec.models if each.max_input_tokens is not None]
            return FlowSummarizer(
                lambda text: self._run_flow(flow, text),
                min(_LONGEST_PIECE, info.max_input_tokens // 2, *(window // 2 for window in windows)),
            )
        if self._summarizer is not None:
            return self._summarizer
        model = self.spec.compaction.model or agent.model
        window = self._info(model).max_input_tokens
        return ModelSummarizer(
            self.adapter(model, agent.retry), max_input_tokens=min(_LONGEST_PIECE, window * 3 // 4), tool_details=True
        )

    def _info(self, model: str) -> ModelInfo:
        spec = self.spec.model(model)
        return model_info(spec.id, max_input_tokens=spec.max_input_tokens, max_output_tokens=spec.max_tokens)
