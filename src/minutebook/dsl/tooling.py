"""From the tools that agents name to tools they can call."""

import asyncio
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from minutebook.dsl.builtin import builtin_tools
from minutebook.dsl.servers import ToolServer
from minutebook.dsl.spec import (
    BuiltinTools,
    McpProcess,
    McpServer,
    PythonFunction,
    ToolOrigin,
    ToolRef,
    WorkflowSpec,
)
from minutebook.errors import InvalidSetting
from minutebook.prompt.function import tool_from
from minutebook.prompt.tool import AnyTool, Tool

Externals: TypeAlias = Mapping[str, Sequence[AnyTool] | ToolOrigin]
"""What whoever runs a program brings for `name.member`: tools, or where they come from."""


class Toolbox:
    """Tools by the name of what brings them. Functions are imported when it is made, servers started when needed.

    Raises:
        InvalidSetting: a function cannot be imported.
    """

    def __init__(self, brought: Externals, environment: Mapping[str, str], root: Path) -> None:
        self._environment, self._root = environment, root
        self._names = tuple(brought)
        self._tools: dict[str, Sequence[AnyTool]] = {}
        self._servers: dict[str, ToolServer] = {}
        for name, each in brought.items():
            if isinstance(each, (McpServer, McpProcess, BuiltinTools, PythonFunction)):
                self._add(name, each)
            else:
                self._tools[name] = each

    async def every(self) -> list[AnyTool]:
        """All tools, in the order in which they were brought; servers are started, all at once.

        Raises:
            ToolServerFailed: a server does not start.
        """
        return await self.tools([ToolRef(name) for name in self._names])

    async def tools(self, refs: Sequence[ToolRef]) -> list[AnyTool]:
        """The tools that an agent may call; servers are started, all at once.

        Raises:
            ToolServerFailed: a server does not start.
            InvalidSetting: a server has no tool of that name.
        """
        servers = {ref.tool: self._servers[ref.tool] for ref in refs if ref.tool in self._servers}
        listed = await asyncio.gather(*(server.tools() for server in servers.values()))
        known = {**self._tools, **dict(zip(servers, listed, strict=True))}
        return [tool for ref in refs for tool in _members(ref, known[ref.tool])]

    async def aclose(self) -> None:
        """End every server that was started."""
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))

    def _add(self, name: str, origin: ToolOrigin) -> None:
        match origin:
            case McpServer() | McpProcess():
                self._servers[name] = ToolServer(name, origin, self._environment, self._root)
            case BuiltinTools():
                self._tools[name] = builtin_tools(origin.name, root=self._root)
            case PythonFunction():
                self._tools[name] = [_function(name, origin)]


def toolbox_of(spec: WorkflowSpec, externals: Externals, environment: Mapping[str, str], root: Path) -> Toolbox:
    """The tools of a program: those that it defines, and those that whoever runs it brings.

    Raises:
        InvalidSetting: a function cannot be imported, or an agent names a tool that nobody brings.
    """
    brought: Externals = {**{tool.name: tool.origin for tool in spec.tools}, **externals}
    toolbox = Toolbox(brought, environment, root)
    for agent in spec.agents:
        for ref in agent.tools:
            if ref.tool not in brought:
                wanted = f"{ref.tool}.{ref.member}" if ref.member else ref.tool
                raise InvalidSetting("externals", tuple(externals), f"{ref.tool!r}, for {wanted}")
    return toolbox


def _members(ref: ToolRef, tools: Sequence[AnyTool]) -> Sequence[AnyTool]:
    if ref.member is None:
        return tools
    found = [tool for tool in tools if tool.name == ref.member]
    if not found:
        known = ", ".join(tool.name for tool in tools) or "nothing"
        raise InvalidSetting(f"a tool of {ref.tool!r}", ref.member, f"one that it has: {known}")
    return found


def _function(name: str, origin: PythonFunction) -> AnyTool:
    where = f"{origin.module}:{origin.function}"
    try:
        function = getattr(importlib.import_module(origin.module), origin.function)
    except (ImportError, AttributeError) as error:
        raise InvalidSetting(f"tool {name!r}", where, f"a function that can be imported ({error})") from error
    if isinstance(function, Tool):
        return replace(function, name=name)
    return tool_from(function, name=name)
