"""All who act in a workflow: models, tools, and agents in their conversations."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.summarizer import ModelSummarizer
from minutebook.compaction.manager import CompactionManager
from minutebook.compaction.strategy import HistoryStrategy
from minutebook.compaction.summarizer import Summarizer
from minutebook.dsl.actor import Actor
from minutebook.dsl.adapters import Adapters, patient
from minutebook.dsl.histories import FIELDS, FlowSummarizer, strategy_for
from minutebook.dsl.spec import AgentSpec, RetrySpec, WorkflowSpec
from minutebook.dsl.tooling import Toolbox
from minutebook.errors import InvalidSetting
from minutebook.session.session import Session
from minutebook.tokens.models import ModelInfo, model_info

_LONGEST_PIECE = 16_000
"""Tokens of a record that a model sums up at once, at most."""

RunFlow = Callable[[str, str], Awaitable[Any]]
"""Runs a flow of one parameter."""


class Cast:
    """Makes everything that a program names, once, and keeps it for as long as the workflow is open.

    Raises:
        InvalidSetting: the policy has a setting that none of the strategies knows.
        UnknownStrategy: nobody registered a strategy that an agent names.
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
            agent.name: strategy_for(agent.history, policy) for agent in self.spec.agents if agent.history is not None
        }
        taken = {name for _, names in made.values() for name in names}
        for name in FIELDS:
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
