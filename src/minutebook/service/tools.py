"""The tools that the configuration names, as tools that a model can call."""

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from minutebook.dsl.spec import BuiltinTools, McpProcess, McpServer, PythonFunction, Secret, ToolOrigin
from minutebook.dsl.tooling import Toolbox
from minutebook.errors import DuplicateName, InvalidSetting
from minutebook.prompt.tool import AnyTool
from minutebook.service.config import ToolConfig


class ConfiguredTools:
    """The tools of one configuration. Functions are imported when it is made, servers started when tools are asked for.

    Raises:
        InvalidSetting: a function cannot be imported, or a command cannot be read.
        DuplicateName: two functions go by one name.
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
            DuplicateName: two tools go by one name.
        """
        found = await self._toolbox.every()
        counts = Counter(tool.name for tool in found)
        for name, count in counts.items():
            if count > 1:
                raise DuplicateName("tool", name, ["tools of the configuration"])
        return found

    async def aclose(self) -> None:
        """End every server that was started."""
        await self._toolbox.aclose()


def origins(config: Sequence[ToolConfig]) -> dict[str, ToolOrigin]:
    """Where the tools come from, by their names: the same origins that the agent language has.

    Raises:
        InvalidSetting: a command cannot be read.
        DuplicateName: two go by one name.
    """
    found: dict[str, ToolOrigin] = {}
    for at, each in enumerate(config):
        name, origin = _named(each, at)
        if name in found:
            raise DuplicateName("tool", name, [f"tools[{list(found).index(name)}]", f"tools[{at}]"])
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
