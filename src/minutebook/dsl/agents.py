"""A program's agents at run time: their conversations, the calls between them, and the events of a run.

An `AgentInstance` is an agent in one conversation; the `AgentPool` creates them. The agents that an agent may call are
tools of its conversation.
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
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, TextDelta, ToolsAndSchema
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.agent.summarizer import ModelSummarizer
from minutebook.agent.toolbox import Toolbox
from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.registry import SETTING_FIELDS
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer, is_summary
from minutebook.dsl.flow_strategy import PRESET_SETTINGS, FlowSummarizer, budget_manager_of, strategy_of
from minutebook.dsl.models import Adapters, with_retry_policy
from minutebook.dsl.spec import INPUT, AgentSpec, RetrySpec, WorkflowSpec
from minutebook.errors import DeadlineExceeded, InvalidSetting
from minutebook.history.budget import PRESETS
from minutebook.history.protocol import HistoryManager
from minutebook.prompt.markdown import text_in_prompt
from minutebook.prompt.template import Prompt
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.record.message import is_result, text_of
from minutebook.record.transcript import Transcript
from minutebook.session.state import Session
from minutebook.tokens.models import ModelInfo, ModelTable, model_info


@dataclass(frozen=True)
class HelperRequest:  # without a docstring, which would become part of the tool's schema
    request: Annotated[str, "what it is to do, with all it must know: it sees nothing else of this conversation"]


class HandoverAdapter(ProviderAdapter):
    """The adapter of an agent that may delegate.

    When a delegate has answered, the next call returns that answer instead of calling the model.
    """

    def __init__(self, inner: ProviderAdapter) -> None:
        super().__init__(inner.model, retry_policy=inner.retry_policy, telemetry=inner.telemetry, counter=inner.counter)
        self._inner = inner
        self.provider = inner.provider  # type: ignore[misc]  # that of the wrapped adapter
        self.name = inner.name  # type: ignore[misc]  # same
        self.answer: str | None = None
        """The answer of the delegate; the next call returns it."""

    @property
    def native_output(self) -> bool:
        return self._inner.native_output

    @property
    def strict_tools(self) -> bool:
        return self._inner.strict_tools

    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        answer, self.answer = self.answer, None
        # If the agent made several calls at once, the model answers from all of their results.
        is_only_result = is_result(request.messages[-1]) and not is_result(request.messages[-2])
        if answer is None or not is_only_result:
            return await self._inner.ask(request, on_delta=on_delta)
        if on_delta is not None:
            on_delta(TextDelta(answer))
        return ModelReply({"role": "assistant", "content": answer})


def _helper_tools(caller: "AgentInstance", handover: HandoverAdapter, events: "EventEmitter") -> list[AnyTool]:
    """A tool for each agent that the caller may delegate to or use."""
    spec = caller.pool.spec
    delegates = [_helper_tool(caller, spec.agent(name), events, handover) for name in caller.agent.delegate]
    return [*delegates, *(_helper_tool(caller, spec.agent(name), events, None) for name in caller.agent.use)]


def _helper_tool(
    caller: "AgentInstance", helper: AgentSpec, events: "EventEmitter", handover: HandoverAdapter | None
) -> AnyTool:
    """The tool that calls an agent.

    With `handover` the helper is a delegate: it continues its conversation, and its answer becomes the caller's answer.
    Otherwise each call starts a new conversation.
    """

    async def handler(params: HelperRequest, *, context: ToolContext) -> ToolResult[Any]:
        try:
            async with caller.pool.acquire(helper, caller, reuse=handover is not None) as instance:
                output = await instance.run(
                    params.request,
                    events=events.nested(),
                    deadline=context.deadline,
                    shared_summary=caller.shared_summary(),
                )
        except DeadlineExceeded as error:
            if context.deadline is not None and not context.deadline.remaining_seconds():
                raise
            return ToolResult.error(f"{helper.name} had no more time: {error}")
        answer = text_in_prompt(output)
        if handover is not None and caller.agent.produces in {None, helper.produces}:
            handover.answer = answer
        return ToolResult.ok(answer)

    description = helper.description or f"The agent {helper.name}."
    if handover is not None:
        description += " It takes over: its answer goes to the user unchanged."
    return Tool[HelperRequest, Any](name=helper.name, description=description, handler=handler)


@dataclass(frozen=True, slots=True)
class AgentEvent:
    """An event in the run of an agent or in the call of a prompt."""

    kind: Literal["agent", "prompt"]
    name: str
    """The name of the agent or the prompt; empty for the agent without a name."""
    event: RunEvent
    session_id: UUID
    """The session that records the conversation."""
    depth: int = 0
    """0 for an agent that the program runs, 1 for an agent that such an agent calls, and so on."""


@dataclass(frozen=True, slots=True)
class WorkflowFinished:
    """The last event of a program, with its result."""

    result: Any


WorkflowEvent: TypeAlias = AgentEvent | WorkflowFinished
EmitEvent: TypeAlias = Callable[[AgentEvent], None]


def ignore_event(_event: AgentEvent) -> None:
    """Do nothing. A run without a caller that reads its events passes this function."""


OUTPUT_ATTEMPTS = 3
"""Maximum number of answers that an agent or a prompt may give until one matches the schema."""


@dataclass(frozen=True, slots=True)
class EventEmitter:
    """The function that receives the events of a run, and the depth of the agents that run in it."""

    emit: EmitEvent = ignore_event
    depth: int = 0

    @property
    def streaming(self) -> bool:
        return self.emit is not ignore_event

    def nested(self) -> "EventEmitter":
        """The emitter for an agent that is called from this one."""
        return replace(self, depth=self.depth + 1)


class AgentInstance:
    """An agent in one conversation, with its session. It runs once at a time."""

    def __init__(
        self, agent: AgentSpec, pool: "AgentPool", session: Session, parent: "AgentInstance | None" = None
    ) -> None:
        self.agent, self.pool, self.session, self.parent = agent, pool, session, parent
        self.adapter = pool.adapter(agent.model, agent.retry)
        self.conversation = Transcript(counter=self.adapter.counter)
        self.compactor: CompactionManager | None = pool.compactor(agent, session)
        self.is_busy = False

    async def run(
        self, value: Any, *, events: EventEmitter, deadline: Deadline | None = None, shared_summary: str = ""
    ) -> Any:
        """Run the agent with an input, and return its answer: a text, or a dataclass of the schema that it produces.

        `shared_summary` is the summary of the caller's conversation.

        Raises:
            InvalidSetting: the input is empty, and so is the request to the model.
        """
        agent, spec = self.agent, self.pool.spec
        values = {INPUT: text_in_prompt(value)}
        request = spec.prompt(agent.prompt).fill(values) if agent.prompt else values[INPUT]
        if not request.strip():
            expected = "a text that is not empty, or an agent with a `prompt`"
            raise InvalidSetting(f"the input of agent {agent.name!r}", value, expected)
        handover = HandoverAdapter(self.adapter)
        tools = [*await self.pool.toolbox.tools(agent.tools), *_helper_tools(self, handover, events)]
        prompt = text_prompt(
            agent.name,
            spec.prompt(agent.instruction).fill(values),
            tools,
            spec.output_type(agent.produces) if agent.produces else None,
        )
        runner = ConversationRunner(
            adapter=handover if agent.delegate else self.adapter,
            prompt=prompt,
            session=self.session,
            request=f"{shared_summary}\n\n{request}" if shared_summary else request,
            conversation=self.conversation,
            deadline=self._deadline(deadline),
            compactor=self.compactor,
            history_manager=self._manager(prompt),
            max_output_attempts=OUTPUT_ATTEMPTS,
        )

        def emit(event: RunEvent) -> None:
            events.emit(AgentEvent("agent", agent.name, event, self.session.session_id, events.depth))

        response = await runner.run(emit, streaming=events.streaming)
        return response.output

    def _manager(self, prompt: Prompt[Any]) -> HistoryManager | None:
        """The manager of a history that is a preset of the token budget."""
        if self.agent.history is None or self.agent.history.strategy not in PRESETS:
            return None
        rendered = prompt.render(session=self.session, native_output=self.adapter.native_output)
        tools = ToolsAndSchema(rendered, strict_tools=self.adapter.strict_tools)
        return budget_manager_of(
            self.agent.history,
            self.pool.spec.compaction,
            self.pool.room(self.agent.model),
            tools.tokens(self.adapter.counter),
        )

    def shared_summary(self) -> str:
        """The summary of the compacted part of the conversation, if the policy shares it with helpers."""
        if self.compactor is None or not self.pool.spec.compaction.share:
            return ""
        fold = self.compactor.compaction_input(self.conversation).summary
        return "\n\n".join(text_of(message) for message in fold.shown if is_summary(message)) if fold else ""

    def _deadline(self, caller_deadline: Deadline | None) -> Deadline | None:
        """The earlier of the agent's deadline and the caller's."""
        if self.agent.timeout_seconds is None:
            return caller_deadline
        own_deadline = Deadline.after(self.agent.timeout_seconds)
        return (
            own_deadline
            if caller_deadline is None or own_deadline.expires_at < caller_deadline.expires_at
            else caller_deadline
        )


_MAX_CHUNK_TOKENS = 16_000
"""Maximum tokens of the record that a model summarizes in one call."""

RunFlow = Callable[[str, str], Awaitable[Any]]
"""Runs a flow of one parameter."""


class AgentPool:
    """The adapters, tools and agent instances of a workflow. Each is created on first use and kept until `aclose`.

    Raises:
        InvalidSetting: the policy has a setting that none of the strategies uses.
        UnknownName: a strategy of an agent is not registered.
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
        models: ModelTable,
    ) -> None:
        self.spec, self.toolbox, self.session = spec, toolbox, session
        self._create_adapter, self._summarizer, self._run_flow = adapters, summarizer, run_flow
        self._models = models
        self._adapters: dict[str, ProviderAdapter] = {}
        self._strategies = self._all_strategies()
        self.instances: list[AgentInstance] = []
        self._reusable_instances: dict[tuple[int, str], list[AgentInstance]] = {}
        """The id of the parent and the name of an agent → the instances that later runs may continue."""

    def adapter(self, model: str, retry: RetrySpec | None = None) -> ProviderAdapter:
        """The adapter for a model of the program, with a retry policy."""
        if model not in self._adapters:
            self._adapters[model] = self._create_adapter(self.spec.model(model))
        return with_retry_policy(self._adapters[model], retry)

    def compactor(self, agent: AgentSpec, session: Session) -> CompactionManager | None:
        """The compaction manager for one conversation of an agent; None if no strategy compacts its history."""
        if agent.name not in self._strategies:
            return None
        model = self.spec.model(agent.model)
        info = self._model_info(agent.model)
        return CompactionManager(
            self._strategies[agent.name],
            info,
            self._summarizer_of(agent, info),
            bus=session.bus,
            reply_tokens=model.max_tokens,
        )

    @asynccontextmanager
    async def acquire(
        self, agent: AgentSpec, parent: AgentInstance | None, *, reuse: bool
    ) -> AsyncIterator[AgentInstance]:
        """Yield an instance of the agent for one run: with `reuse` that of an earlier run, else a new one.

        If all earlier instances are busy, because the agent runs several times in parallel, a new one is created.
        """
        instance = self._find_or_create_instance(agent, parent) if reuse else self._create_instance(agent, parent)
        instance.is_busy = True
        try:
            yield instance
        finally:
            instance.is_busy = False
            if not reuse:
                instance.session.close()

    async def aclose(self) -> None:
        """Close connections, servers and sessions; the sessions can still be read."""
        for instance in self.instances:
            if instance.session is not self.session:
                instance.session.close()
        await asyncio.gather(self.toolbox.aclose(), *(adapter.aclose() for adapter in self._adapters.values()))

    def _find_or_create_instance(self, agent: AgentSpec, parent: AgentInstance | None) -> AgentInstance:
        instances = self._reusable_instances.setdefault((id(parent), agent.name), [])
        for instance in instances:
            if not instance.is_busy:
                return instance
        instances.append(self._create_instance(agent, parent))
        return instances[-1]

    def _create_instance(self, agent: AgentSpec, parent: AgentInstance | None) -> AgentInstance:
        # The first agent that the program runs has the workflow's own session.
        session = self.session if parent is None and not self.instances else Session(bus=self.session.bus)
        instance = AgentInstance(agent, self, session, parent)
        self.instances.append(instance)
        return instance

    def _all_strategies(self) -> dict[str, HistoryStrategy]:
        """Name of an agent → its history strategy, with the settings of the policy."""
        policy = self.spec.compaction
        strategies: dict[str, HistoryStrategy] = {}
        used_settings: set[str] = set()
        for agent in self.spec.agents:
            if agent.history is not None and agent.history.strategy in PRESETS:
                used_settings |= PRESET_SETTINGS
            elif agent.history is not None:
                strategies[agent.name], used_by_strategy = strategy_of(agent.history, policy)
                used_settings |= used_by_strategy
        for name in SETTING_FIELDS:
            if getattr(policy, name) is not None and name not in used_settings:
                names = ", ".join(strategy.name for strategy in strategies.values()) or "no strategy is used"
                expected = f"a setting that a strategy of the program uses ({names})"
                raise InvalidSetting(f"{name} of policy compaction", getattr(policy, name), expected)
        return strategies

    def _summarizer_of(self, agent: AgentSpec, info: ModelInfo) -> Summarizer:
        assert agent.history is not None
        flow = agent.history.flow
        if flow is not None:
            windows = [model.max_input_tokens for model in self.spec.models if model.max_input_tokens is not None]
            return FlowSummarizer(
                lambda text: self._run_flow(flow, text),
                min(_MAX_CHUNK_TOKENS, info.max_input_tokens // 2, *(window // 2 for window in windows)),
            )
        if self._summarizer is not None:
            return self._summarizer
        model_name = self.spec.compaction.model or agent.model
        window = self._model_info(model_name).max_input_tokens
        return ModelSummarizer(
            self.adapter(model_name, agent.retry),
            max_input_tokens=min(_MAX_CHUNK_TOKENS, window * 3 // 4),
            tool_details=True,
        )

    def room(self, model: str) -> int:
        """Maximum tokens of a request to a model of the program."""
        return self._model_info(model).room(reply_tokens=self.spec.model(model).max_tokens)

    def _model_info(self, model: str) -> ModelInfo:
        spec = self.spec.model(model)
        return model_info(
            spec.id, max_input_tokens=spec.max_input_tokens, max_output_tokens=spec.max_tokens, own=self._models
        )
