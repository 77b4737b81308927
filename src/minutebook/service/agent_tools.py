"""What the agents of all threads share: the tools that are configured, and the adapters that ask the provider.

The tools that the configuration names, as tools that a model can call.
"""

import asyncio
import os
import shlex
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import Depends, Request

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, Secret, ToolOrigin
from minutebook.agent.messages import ModelRequest
from minutebook.agent.telemetry import Span, Telemetry
from minutebook.agent.toolbox import Toolbox
from minutebook.errors import InvalidSetting
from minutebook.prompt.template import duplicate
from minutebook.prompt.tools import AnyTool
from minutebook.service.config.schema import ToolConfig
from minutebook.service.state import Service, counter_of
from minutebook.service.upstream import UpstreamAdapter


class ConfiguredTools:
    """The tools of one configuration. Functions are imported when it is made, servers started when tools are asked for.

    Raises:
        InvalidSetting: a function cannot be imported, or a command cannot be read.
        InvalidPrompt: two functions go by one name.
    """

    def __init__(
        self,
        config: Sequence[ToolConfig],
        *,
        environment: Mapping[str, str] = os.environ,
        root: Path | None = None,
    ) -> None:
        self._toolbox = Toolbox(origins(config), environment, Path.cwd() if root is None else root)

    async def tools(self) -> list[AnyTool]:
        """Every tool, in the order of the configuration; servers are started, all at once.

        Raises:
            ToolServerFailed: a server does not start.
            MissingExtra: there is a server, and the package mcp is not installed.
            InvalidPrompt: two tools go by one name.
        """
        found = await self._toolbox.every()
        counts = Counter(tool.name for tool in found)
        for name, count in counts.items():
            if count > 1:
                raise duplicate("tool", name, ["tools of the configuration"])
        return found

    async def aclose(self) -> None:
        """End every server that was started."""
        await self._toolbox.aclose()


def origins(config: Sequence[ToolConfig]) -> dict[str, ToolOrigin]:
    """Where the tools come from, by their names: the same origins that the agent language has.

    Raises:
        InvalidSetting: a command cannot be read.
        InvalidPrompt: two go by one name.
    """
    found: dict[str, ToolOrigin] = {}
    for at, each in enumerate(config):
        name, origin = _named(each, at)
        if name in found:
            raise duplicate("tool", name, [f"tools[{list(found).index(name)}]", f"tools[{at}]"])
        found[name] = origin
    return found


def _named(config: ToolConfig, at: int) -> tuple[str, ToolOrigin]:
    if config.python is not None:
        module, _, function = config.python.partition(":")
        return config.name or function, PythonFunction(module, function)
    if config.builtin is not None:
        return config.builtin, BuiltinTools(config.builtin)
    assert config.mcp is not None
    name = config.name or f"mcp{at}"
    if config.is_url:
        bearer = None if config.bearer_env is None else Secret(env=config.bearer_env)
        return name, McpServer(config.mcp, None if bearer is None else "bearer", bearer, _secrets(config.headers_env))
    try:
        command = tuple(shlex.split(config.mcp))
    except ValueError as error:
        raise InvalidSetting(f"tools[{at}].mcp", config.mcp, f"a command that a shell could read ({error})") from error
    return name, McpProcess(command, _secrets(config.env))


def _secrets(variables: Mapping[str, str]) -> tuple[tuple[str, Secret], ...]:
    return tuple((name, Secret(env=variable)) for name, variable in variables.items())


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
            InvalidSetting, InvalidPrompt: they cannot be had.
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
            telemetry=AgentTelemetry(self._service),
        )

    async def aclose(self) -> None:
        """End the servers of tools."""
        tools, self._tools = self._tools, []
        for _, each in tools:
            await each.aclose()


def _load(model: str) -> None:
    counter_of(model).count("word")
    import_module("openai")


class AgentTelemetry(Telemetry):
    """The calls of an agent, traced as the service traces all calls."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def call(
        self,
        provider: str,
        model: str,
        request: ModelRequest,  # noqa: ARG002 - the protocol's names
        sizes: Mapping[str, int],  # noqa: ARG002
    ) -> AbstractContextManager[Span]:
        return self._service.telemetry.chat(model, None, provider=provider)


async def agents_of(request: Request) -> Agents:
    """The agents of the service that a request came to."""
    agents: Agents = request.app.state.agents
    return agents


Shared = Annotated[Agents, Depends(agents_of)]
"""A handler's parameter: the agents."""
