"""Runs a program of the agent language: its agents on our loop, its flows statement by statement."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from minutebook.agent.events import RunEvent
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.agent.toolbox import ExternalTools, Toolbox
from minutebook.compaction.summarizer import Summarizer
from minutebook.dsl.agents import (
    OUTPUT_ATTEMPTS,
    Actor,
    AgentEvent,
    Cast,
    Tell,
    Watch,
    WorkflowEvent,
    WorkflowFinished,
    untold,
)
from minutebook.dsl.compiler import compile_agents
from minutebook.dsl.interpreter import Interpreter
from minutebook.dsl.models import Adapters, provider_adapters
from minutebook.dsl.spec import INPUT, Entry, WorkflowSpec
from minutebook.errors import InvalidSetting
from minutebook.prompt.markdown import rendered_value
from minutebook.session.bus import InProcessEventBus
from minutebook.session.state import Session


def toolbox_of(spec: WorkflowSpec, externals: ExternalTools, environment: Mapping[str, str], root: Path) -> Toolbox:
    """The tools of a program: those that it defines, and those that whoever runs it brings.

    Raises:
        InvalidSetting: a function cannot be imported, or an agent names a tool that nobody brings.
    """
    brought: ExternalTools = {**{tool.name: tool.origin for tool in spec.tools}, **externals}
    toolbox = Toolbox(brought, environment, root)
    for agent in spec.agents:
        for ref in agent.tools:
            if ref.tool not in brought:
                wanted = f"{ref.tool}.{ref.member}" if ref.member else ref.tool
                raise InvalidSetting("externals", tuple(externals), f"{ref.tool!r}, for {wanted}")
    return toolbox


class DslWorkflow:
    """A program and everything it needs to run: `async with DslWorkflow(spec) as workflow: await workflow.run("…")`.

    Agents go on with their conversations from one run to the next, for as long as the workflow lives. Each has a session
    of its own on one bus; the first has `session`. `adapters` makes the adapter for each model, `externals` are the tools
    that the program names and does not define, `summarizer` writes summaries in place of the program's models, `root`
    is the folder whose files agents may see.

    Raises:
        ProgramInvalid: `program` is a text that cannot be compiled.
        InvalidSetting: a tool cannot be found, or a setting has no effect.
        UnknownName: nobody registered a strategy that the program names.
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
            raise InvalidSetting("bus", bus, "the session's own, or leave it out")
        self.spec = program
        self.session = Session(bus=bus) if session is None else session
        self._own_session = session is None
        self._cast = Cast(
            program,
            adapters=adapters or provider_adapters(environment=environment),
            toolbox=toolbox_of(program, externals or {}, environment, root or Path.cwd()),
            session=self.session,
            summarizer=summarizer,
            run_flow=self._shorten,
        )

    @property
    def actors(self) -> tuple[Actor, ...]:
        """Every agent in every conversation so far, in the order in which they began: its session, and what was said."""
        return tuple(self._cast.actors)

    async def run(
        self,
        given: Any = "",
        *,
        agent: str | None = None,
        flow: str | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Any:
        """What the program answers: a text, a dataclass of a schema, or whatever value a flow returns.

        It begins where the program says, or with an `agent` or a `flow` of it; `values` are for that flow's parameters.

        Raises:
            InvalidSetting: there is nothing to begin with, or a parameter has no value.
            FlowFailed: a flow came upon a value that it cannot use.
            Whatever `ProviderAdapter.evaluate` raises.
        """
        return await self._run(given, self._entry(agent, flow), values or {}, untold)

    async def stream(
        self,
        given: Any = "",
        *,
        agent: str | None = None,
        flow: str | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[WorkflowEvent, None]:
        """`run` as it happens: an `AgentEvent` for everything an agent does, and at last `WorkflowFinished`.

        Close it (`contextlib.aclosing`) when you leave early: the run is then cancelled, and all records settled.
        """
        events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()
        work = self._run(given, self._entry(agent, flow), values or {}, events.put_nowait)
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            yield WorkflowFinished(await task)
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def aclose(self) -> None:
        """Close connections and servers. What was said can still be read."""
        await self._cast.aclose()
        if self._own_session:
            self.session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, given: Any, entry: Entry, values: Mapping[str, Any], tell: Tell) -> Any:
        stage = _Stage(self._cast, Watch(tell))
        if entry.kind == "flow":
            return await stage.run_flow(entry.name, self._arguments(entry.name, values), given)
        if values:
            raise InvalidSetting("values", dict(values), f"none: agent {entry.name!r} takes an input and nothing else")
        return await stage.run_agent(entry.name, given)

    async def _shorten(self, flow: str, text: str) -> Any:
        """Run a flow that writes summaries; who watches the program is not told of it, as of no other summary."""
        return await _Stage(self._cast, Watch()).run_flow(flow, [text], text)

    def _entry(self, agent: str | None, flow: str | None) -> Entry:
        if agent is not None and flow is not None:
            raise InvalidSetting("agent and flow", (agent, flow), "one of them")
        if agent is not None:
            return Entry("agent", self.spec.agent(agent).name)
        if flow is not None:
            return Entry("flow", self.spec.flow(flow).name)
        if self.spec.entry is None:
            names = [*(f"agent {each.name}" for each in self.spec.agents), *(f"flow {f.name}" for f in self.spec.flows)]
            expected = f"an agent or a flow to begin with: {', '.join(names) or 'there is none'}"
            raise InvalidSetting("where to begin", None, expected)
        return self.spec.entry

    def _arguments(self, flow: str, values: Mapping[str, Any]) -> list[Any]:
        wanted = self.spec.flow(flow).parameters
        for name in (*values, *wanted):
            if (name in values) != (name in wanted):
                expected = f"a value for each parameter of flow {flow!r}: {', '.join(wanted) or 'it has none'}"
                raise InvalidSetting(f"value {name!r}", values.get(name), expected)
        return [values[name] for name in wanted]


@dataclass(frozen=True, slots=True)
class _Stage:
    """Where the agents, prompts and flows of one run are run."""

    cast: Cast
    watch: Watch

    async def run_agent(self, name: str, given: Any) -> Any:
        async with self.cast.on_stage(self.cast.spec.agent(name), None, lasting=True) as actor:
            return await actor.run(given, watch=self.watch)

    async def call_prompt(self, name: str, given: Any, variables: Mapping[str, Any]) -> Any:
        spec = self.cast.spec
        prompt = spec.prompt(name)
        assert prompt.model is not None
        values = {**{key: rendered_value(value) for key, value in variables.items()}, INPUT: rendered_value(given)}
        output = spec.output_type(prompt.expecting) if prompt.expecting else None
        with Session(bus=self.cast.session.bus) as session:

            def emit(event: RunEvent) -> None:
                self.watch.tell(AgentEvent("prompt", name, event, session.session_id, self.watch.depth))

            runner = ConversationRunner(
                adapter=self.cast.adapter(prompt.model),
                prompt=text_prompt(name, prompt.fill(values), output=output),
                session=session,
                max_output_attempts=OUTPUT_ATTEMPTS,
            )
            return (await runner.run(emit, streaming=self.watch.streaming)).output

    async def run_flow(self, name: str, arguments: Sequence[Any], given: Any) -> Any:
        spec = self.cast.spec
        return await Interpreter(spec.flow(name), self, spec.source).run(arguments, given)
