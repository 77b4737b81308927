"""What the agents of all threads share: the tools that are configured, and the adapters that ask the provider."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from minutebook.agent.request import ModelReply, ModelRequest
from minutebook.agent.telemetry import CallSpan, Unwatched
from minutebook.prompt.tool import AnyTool
from minutebook.service.adapter import UpstreamAdapter
from minutebook.service.config import ToolConfig
from minutebook.service.state import Service, counter_of
from minutebook.service.telemetry import ChatSpan
from minutebook.service.tools import ConfiguredTools

AWAY_SECONDS: Final = 1.0
"""How long a database that could not be reached, and can be done without, is not asked again."""
_MOST: Final = 64
"""Of so many models it is remembered that they are loaded."""


class Agents:
    """Makes what agents need when it is first needed, and ends it together."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tools: list[tuple[tuple[ToolConfig, ...], ConfiguredTools]] = []
        """Every list of tools that was configured; an answer may still use those of an older configuration."""
        self._starting = asyncio.Lock()
        self._away_until = 0.0
        self._ready: set[str] = set()

    @property
    def is_database_away(self) -> bool:
        """Whether the database was not to be reached a moment ago, so that it need not be waited for again."""
        return time.monotonic() < self._away_until

    def note_database_away(self) -> None:
        """Leave the database alone for a moment."""
        self._away_until = time.monotonic() + AWAY_SECONDS

    async def ready(self, model: str) -> None:
        """Load what a model needs, once and beside everything else: it takes longer than a lease may wait."""
        if model not in self._ready:
            await asyncio.to_thread(_load, model)
            if len(self._ready) < _MOST:
                self._ready.add(model)

    async def tools(self) -> list[AnyTool]:
        """The tools of the configuration as it is now.

        Raises:
            InvalidSetting, DuplicateName: they cannot be had.
            ToolServerFailed: a server does not start.
        """
        wanted = self._service.config.tools
        if not wanted:
            return []
        async with self._starting:
            made = next((tools for config, tools in self._tools if config == wanted), None)
            if made is None:
                made = ConfiguredTools(wanted)
                self._tools.append((wanted, made))
            return await made.tools()

    def adapter(self, model: str, options: Mapping[str, Any], authorization: str | None) -> UpstreamAdapter:
        """An adapter for a model; `authorization` is a caller's own key, where it may bring one."""
        return UpstreamAdapter(
            self._service.upstream,
            model,
            options=options,
            authorization=authorization,
            counter=counter_of(model),
            telemetry=Spans(self._service),
        )

    async def aclose(self) -> None:
        """End the servers of tools."""
        tools, self._tools = self._tools, []
        for _, each in tools:
            await each.aclose()


def _load(model: str) -> None:
    counter_of(model).count("word")
    import_module("openai")


class Spans(Unwatched):
    """The calls of an agent, traced as the service traces all calls."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def call(
        self,
        provider: str,
        model: str,
        request: ModelRequest,  # noqa: ARG002 - the protocol's names
        sizes: Mapping[str, int],  # noqa: ARG002
    ) -> AbstractContextManager[CallSpan]:
        return self._traced(provider, model)

    @contextmanager
    def _traced(self, provider: str, model: str) -> Iterator[CallSpan]:
        with self._service.telemetry.chat(model, None, provider=provider) as span:
            yield _Span(span)


class _Span:
    def __init__(self, span: ChatSpan) -> None:
        self._span = span

    def answered(self, reply: ModelReply) -> None:
        self._span.answered(reply.usage, finish=reply.finish, model=reply.model, response_id=reply.response_id)


async def agents_of(request: Request) -> Agents:
    """The agents of the service that a request came to."""
    agents: Agents = request.app.state.agents
    return agents


Shared = Annotated[Agents, Depends(agents_of)]
"""A handler's parameter: the agents."""
