"""Runs a program of the agent language: its agents in the agent loop, its flows statement by statement."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minutebook.agent.events import RunEvent, stream_events
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.agent.toolbox import ExternalTools, Toolbox
from minutebook.compaction.summarizer import Summarizer
from minutebook.dsl.agents import (
    OUTPUT_ATTEMPTS,
    AgentEvent,
    AgentInstance,
    AgentPool,
    EmitEvent,
    EventEmitter,
    WorkflowEvent,
    WorkflowFinished,
    ignore_event,
)
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.interpreter import Interpreter
from minutebook.dsl.models import Adapters, provider_adapters
from minutebook.dsl.spec import INPUT, Entry, WorkflowSpec
from minutebook.errors import InvalidSetting, MissingSetting
from minutebook.prompt.markdown import text_in_prompt
from minutebook.session.bus import InProcessEventBus
from minutebook.session.state import Session
from minutebook.tokens.models import MODELS_FILE_VARIABLE, load_models


def toolbox_of(spec: WorkflowSpec, externals: ExternalTools, environment: Mapping[str, str], root: Path) -> Toolbox:
    """The tools that the program defines, and the external tools.

    Raises:
        InvalidSetting: a function cannot be imported, or an external tool is missing.
    """
    tools: ExternalTools = {**{tool.name: tool.origin for tool in spec.tools}, **externals}
    toolbox = Toolbox(tools, environment, root)
    for agent in spec.agents:
        for ref in agent.tools:
            if ref.tool not in tools:
                name = f"{ref.tool}.{ref.member}" if ref.member else ref.tool
                raise InvalidSetting(
                    "externals",
                    tuple(externals),
                    f"a mapping that has {ref.tool!r} too, because agent {agent.name!r} uses {name}",
                )
    return toolbox


class DslWorkflow:
    """A program and everything it needs to run: `async with DslWorkflow(spec) as workflow: await workflow.run("…")`.

    Agents continue their conversations from one run to the next, until the workflow is closed. Each agent has a separate
    session on the same bus; the first agent has `session`. `adapters` creates the adapter for each model, `externals` are the tools
    that the program uses but does not define, `summarizer` writes summaries instead of the program's models, and `root` is
    the folder whose files agents may read. MINUTEBOOK_MODELS_FILE in `environment` is a file with limits of your own models.

    Raises:
        UnreadableInput: the file with models cannot be read.
        ProgramInvalid: `program` is a text that does not compile.
        InvalidSetting: a tool cannot be found, or a setting has no effect.
        UnknownName: a strategy of the program is not registered.
    """

    def __init__(
        self,
        program: WorkflowSpec | str,
        *,
        adapters: Adapters | None = None,
        session: Session | None = None,
        bus: InProcessEventBus | None = None,
        summarizer: Summarizer | None = None,
        externals: ExternalTools | None = None,
        environment: Mapping[str, str] | None = None,
        root: Path | None = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        if isinstance(program, str):
            from minutebook.compaction.registry import strategy_names

            program = compile_agents(program, strategies=strategy_names(), externals=tuple(externals or ()))
        if session is not None and bus is not None and session.bus is not bus:
            raise InvalidSetting("bus", bus, "the bus of the session, or None")
        self.spec = program
        self.session = Session(bus=bus) if session is None else session
        self._owns_session = session is None
        self._pool = AgentPool(
            program,
            adapters=adapters or provider_adapters(environment=environment),
            toolbox=toolbox_of(program, externals or {}, environment, root or Path.cwd()),
            session=self.session,
            summarizer=summarizer,
            run_flow=self._run_summary_flow,
            models=load_models(path) if (path := environment.get(MODELS_FILE_VARIABLE)) else {},
        )

    @property
    def instances(self) -> tuple[AgentInstance, ...]:
        """Every agent in every conversation so far, in the order of their start, with its session and conversation."""
        return tuple(self._pool.instances)

    async def run(
        self,
        input_value: Any = "",
        *,
        agent: str | None = None,
        flow: str | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the program and return its result: a text, a dataclass of a schema, or the value that a flow returns.

        The program starts at its entry, or with this `agent` or `flow`. `values` are the flow's arguments by name.

        Raises:
            MissingSetting: the program has no entry.
            InvalidSetting: there is no such agent or flow, or `values` does not match the flow's parameters.
            FlowFailed: a statement of a flow got a value that it cannot use.
            Whatever `ProviderAdapter.evaluate` raises.
        """
        return await self._run(input_value, self._entry(agent, flow), values or {}, ignore_event)

    def stream(
        self,
        input_value: Any = "",
        *,
        agent: str | None = None,
        flow: str | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[WorkflowEvent, None]:
        """Run the program and yield its events: an `AgentEvent` for each event of an agent, then `WorkflowFinished`.

        Close the generator (`contextlib.aclosing`) if you stop early: the run is cancelled, and its records are completed.
        """

        async def run(emit: Callable[[WorkflowEvent], None]) -> None:
            emit(WorkflowFinished(await self._run(input_value, self._entry(agent, flow), values or {}, emit)))

        return stream_events(run)

    async def aclose(self) -> None:
        """Close connections and servers. The conversations can still be read."""
        await self._pool.aclose()
        if self._owns_session:
            self.session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, input_value: Any, entry: Entry, values: Mapping[str, Any], emit: EmitEvent) -> Any:
        actions = WorkflowActions(self._pool, EventEmitter(emit))
        if entry.kind == "flow":
            return await actions.run_flow(entry.name, self._arguments(entry.name, values), input_value)
        if values:
            raise InvalidSetting("values", dict(values), f"no values: agent {entry.name!r} takes only an input")
        return await actions.run_agent(entry.name, input_value)

    async def _run_summary_flow(self, flow: str, text: str) -> Any:
        """Run a flow that writes summaries. Its events are not emitted, as those of other summarizers are not."""
        return await WorkflowActions(self._pool, EventEmitter()).run_flow(flow, [text], text)

    def _entry(self, agent: str | None, flow: str | None) -> Entry:
        if agent is not None and flow is not None:
            raise InvalidSetting("agent and flow", (agent, flow), "only one of them")
        if agent is not None:
            return Entry("agent", self.spec.agent(agent).name)
        if flow is not None:
            return Entry("flow", self.spec.flow(flow).name)
        if self.spec.entry is None:
            agents = [f"agent {agent.name}" for agent in self.spec.agents]
            names = ", ".join([*agents, *(f"flow {flow.name}" for flow in self.spec.flows)])
            raise MissingSetting("the entry of the program", f"pass agent= or flow= (defined: {names or 'none'})")
        return self.spec.entry

    def _arguments(self, flow: str, values: Mapping[str, Any]) -> list[Any]:
        parameters = self.spec.flow(flow).parameters
        if set(values) != set(parameters):
            expected = f"exactly the parameters of flow {flow!r}: {', '.join(parameters) or 'none'}"
            raise InvalidSetting("values", dict(values), expected)
        return [values[name] for name in parameters]


@dataclass(frozen=True, slots=True)
class WorkflowActions:
    """Runs the agents, prompts and flows of one run."""

    pool: AgentPool
    events: EventEmitter

    async def run_agent(self, name: str, input_value: Any) -> Any:
        async with self.pool.acquire(self.pool.spec.agent(name), None, reuse=True) as instance:
            return await instance.run(input_value, events=self.events)

    async def call_prompt(self, name: str, input_value: Any, variables: Mapping[str, Any]) -> Any:
        spec = self.pool.spec
        prompt = spec.prompt(name)
        assert prompt.model is not None
        values = {
            **{key: text_in_prompt(value) for key, value in variables.items()},
            INPUT: text_in_prompt(input_value),
        }
        output = spec.output_type(prompt.expecting) if prompt.expecting else None
        with Session(bus=self.pool.session.bus) as session:

            def emit(event: RunEvent) -> None:
                self.events.emit(AgentEvent("prompt", name, event, session.session_id, self.events.depth))

            runner = ConversationRunner(
                adapter=self.pool.adapter(prompt.model),
                prompt=text_prompt(name, prompt.fill(values), output=output),
                session=session,
                max_output_attempts=OUTPUT_ATTEMPTS,
            )
            return (await runner.run(emit, streaming=self.events.streaming)).output

    async def run_flow(self, name: str, arguments: Sequence[Any], input_value: Any) -> Any:
        spec = self.pool.spec
        return await Interpreter(spec.flow(name), self, spec.source).run(arguments, input_value)
