"""The resources that the agents of all threads share: the configured tools, and the adapters that call the provider."""

import asyncio
import os
import shlex
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
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
from minutebook.prompt.template import duplicate_name_error
from minutebook.prompt.tools import AnyTool
from minutebook.service.config.schema import ToolConfig
from minutebook.service.state import Service, counter_of
from minutebook.service.upstream import SpendTokens, UpstreamAdapter
from minutebook.store.url import files_of_url


class ConfiguredTools:
    """The tools of one configuration. Functions are imported by the constructor, servers are started by `tools`.

    Raises:
        InvalidSetting: a function cannot be imported, or a command cannot be parsed.
        InvalidPrompt: two functions have the same name.
    """

    def __init__(
        self,
        config: Sequence[ToolConfig],
        *,
        environment: Mapping[str, str] | None = None,
        root: Path | None = None,
        hidden: Collection[Path] = (),
        on_restart: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`hidden` and `on_restart` are those of `Toolbox`."""
        self._toolbox = Toolbox(
            tool_origins(config),
            os.environ if environment is None else environment,
            Path.cwd() if root is None else root,
            hidden=hidden,
            on_restart=on_restart,
        )

    def server_states(self) -> dict[str, dict[str, Any]]:
        """The state of each tool server, and how many times it was started again."""
        return {server.name: {"state": server.state, "restarts": server.restarts} for server in self._toolbox.servers}

    async def tools(self) -> list[AnyTool]:
        """Start the servers, concurrently, and return every tool in the order of the configuration.

        Raises:
            ToolServerFailed: a server does not start.
            MissingSetting: the environment variable of a secret is not set.
            MissingExtra: a server is configured, and the package mcp is not installed.
            InvalidPrompt: two tools have the same name.
        """
        tools = await self._toolbox.all_tools()
        counts = Counter(tool.name for tool in tools)
        for name, count in counts.items():
            if count > 1:
                raise duplicate_name_error("tool", name, ["tools of the configuration"])
        return tools

    async def aclose(self) -> None:
        """Stop the servers."""
        await self._toolbox.aclose()


def tool_origins(config: Sequence[ToolConfig]) -> dict[str, ToolOrigin]:
    """The origin of each configured tool or tool server, by name.

    Raises:
        InvalidSetting: a command cannot be parsed.
        InvalidPrompt: two have the same name.
    """
    origins: dict[str, ToolOrigin] = {}
    for index, tool in enumerate(config):
        name, origin = _name_and_origin(tool, index)
        if name in origins:
            raise duplicate_name_error("tool", name, [f"tools[{list(origins).index(name)}]", f"tools[{index}]"])
        origins[name] = origin
    return origins


def _name_and_origin(config: ToolConfig, index: int) -> tuple[str, ToolOrigin]:
    if config.python is not None:
        module, _, function = config.python.partition(":")
        return config.name or function, PythonFunction(module, function)
    if config.builtin is not None:
        return config.builtin, BuiltinTools(config.builtin)
    assert config.mcp is not None
    name = config.name or f"mcp{index}"
    if config.is_url:
        bearer = None if config.bearer_env is None else Secret(env=config.bearer_env)
        return name, McpServer(config.mcp, None if bearer is None else "bearer", bearer, _secrets(config.headers_env))
    try:
        command = tuple(shlex.split(config.mcp))
    except ValueError as error:
        raise InvalidSetting(f"tools[{index}].mcp", config.mcp, f"a valid shell command ({error})") from error
    return name, McpProcess(command, _secrets(config.env))


def _secrets(variables: Mapping[str, str]) -> tuple[tuple[str, Secret], ...]:
    return tuple((name, Secret(env=variable)) for name, variable in variables.items())


def own_files(service: Service) -> list[Path]:
    """The files of the service, which no tool may read: its configuration, its SQLite databases and its master key."""
    loaded = service.holder.current
    database = loaded.config.database
    files = (loaded.path, loaded.config.models_file, database.encryption_key_file)
    urls = (database.url, database.read_url)
    return [Path(file) for file in files if file is not None] + [
        file for url in urls if url is not None for file in files_of_url(url)
    ]


UNAVAILABLE_SECONDS: Final = 1.0
"""How long an optional database is not used after it was unavailable."""
_MAX_LOADED_MODELS: Final = 64
"""Clients choose model names, so the set of loaded models is bounded."""


class Agents:
    """The resources that agents share: tools, tokenizers and adapters. They are loaded on first use."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tools: list[tuple[tuple[ToolConfig, ...], ConfiguredTools]] = []
        """The tools of every configuration so far: an answer in progress may use those of an older one."""
        self._tools_lock = asyncio.Lock()
        self._unavailable_until = 0.0
        self._loaded_models: set[str] = set()

    @property
    def is_database_unavailable(self) -> bool:
        """Whether the database was unavailable a moment ago, so that waiting for it again is not worthwhile."""
        return time.monotonic() < self._unavailable_until

    def note_database_unavailable(self) -> None:
        """Do not use the database for `UNAVAILABLE_SECONDS`."""
        self._unavailable_until = time.monotonic() + UNAVAILABLE_SECONDS

    async def load_model(self, model: str) -> None:
        """Load the model's tokenizer and the client library in a thread. It can take longer than a lease lasts."""
        if model not in self._loaded_models:
            await asyncio.to_thread(_load, model)
            if len(self._loaded_models) < _MAX_LOADED_MODELS:
                self._loaded_models.add(model)

    async def tools(self) -> list[AnyTool]:
        """The tools of the current configuration; their servers are started on first use.

        Raises:
            InvalidSetting, InvalidPrompt: a tool is configured wrongly.
            ToolServerFailed: a server does not start.
        """
        current_config = self._service.config.tools
        if not current_config:
            return []
        async with self._tools_lock:
            configured = next((tools for config, tools in self._tools if config == current_config), None)
            if configured is None:
                configured = ConfiguredTools(
                    current_config,
                    hidden=own_files(self._service),
                    on_restart=self._service.metrics.count_tool_server_restart,
                )
                self._tools.append((current_config, configured))
            return await configured.tools()

    def tool_server_states(self) -> dict[str, dict[str, Any]]:
        """The state of the tool servers of the configurations so far; the current one's come last."""
        return {name: state for _, tools in self._tools for name, state in tools.server_states().items()}

    def adapter(
        self, model: str, options: Mapping[str, Any], authorization: str | None, spend_tokens: SpendTokens
    ) -> UpstreamAdapter:
        """An adapter for a model. `authorization` is the caller's own header for the provider."""
        return UpstreamAdapter(
            self._service.upstream,
            model,
            options=options,
            authorization=authorization,
            spend_tokens=spend_tokens,
            counter=counter_of(model),
            telemetry=AgentTelemetry(self._service),
        )

    async def aclose(self) -> None:
        """Stop the tool servers."""
        tools, self._tools = self._tools, []
        for _, configured in tools:
            await configured.aclose()


def _load(model: str) -> None:
    counter_of(model).count("word")
    import_module("openai")


class AgentTelemetry(Telemetry):
    """Traces the model calls of agents with the service's telemetry."""

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
    """The shared agent resources of this app."""
    agents: Agents = request.app.state.agents
    return agents


CurrentAgents = Annotated[Agents, Depends(agents_of)]
"""Type of a handler parameter that receives the shared agent resources."""
