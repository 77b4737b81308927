"""Tools by name for agents: built-in ones (`tool fs = builtin files`), Python functions and MCP servers."""

import asyncio
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, ToolOrigin, ToolRef, ToolServer
from minutebook.errors import InvalidSetting, ToolValidationError
from minutebook.prompt.tools import AnyTool, Tool, tool

LONGEST_FILE: Final = 200_000
"""Characters of a file that a model is given at most."""

BUILTINS: Final[Mapping[str, tuple[str, ...]]] = {
    "clock": ("current_time",),
    "files": ("list_directory", "read_file"),
}
"""Name → the tools it stands for."""


def builtin_tools(name: str, *, root: Path) -> Sequence[AnyTool]:
    """The tools of a builtin; those for files see what is under `root` and nothing else.

    Raises:
        InvalidSetting: there is no such builtin.
    """
    match name:
        case "clock":
            functions: tuple[Callable[..., Any], ...] = (current_time,)
        case "files":
            functions = _files(root.resolve())
        case _:
            raise InvalidSetting("a builtin tool", name, f"one of {', '.join(BUILTINS)}")
    return [tool(function) for function in functions]


def current_time() -> str:
    """The date and time now, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _files(root: Path) -> tuple[Callable[..., Any], ...]:
    def inside(path: str) -> Path:
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise ToolValidationError(f"{path} is outside of the folder that may be read.")
        if not target.exists():
            raise ToolValidationError(f"There is no {path}.")
        return target

    def list_directory(path: Annotated[str, "relative to the working folder"] = ".") -> str:
        """List the files and folders in a folder; the names of folders end with /."""
        target = inside(path)
        if not target.is_dir():
            raise ToolValidationError(f"{path} is a file, not a folder.")
        return "\n".join(sorted(f"{each.name}/" if each.is_dir() else each.name for each in target.iterdir()))

    def read_file(path: Annotated[str, "relative to the working folder"]) -> str:
        """Read a text file."""
        target = inside(path)
        if not target.is_file():
            raise ToolValidationError(f"{path} is a folder, not a file.")
        text = target.read_text(encoding="utf-8", errors="replace")
        if len(text) <= LONGEST_FILE:
            return text
        return f"{text[:LONGEST_FILE]}\n[{len(text) - LONGEST_FILE:,} more characters are not shown]"

    return list_directory, read_file


Externals: TypeAlias = Mapping[str, Sequence[AnyTool] | ToolOrigin]
"""What whoever runs a program brings for `name.member`: tools, or where they come from."""


class Toolbox:
    """Tools by the name of what brings them. Functions are imported when it is made, servers started when needed.

    Raises:
        InvalidSetting: a function cannot be imported.
    """

    def __init__(self, brought: Externals, environment: Mapping[str, str], root: Path) -> None:
        self._names = tuple(brought)
        self._tools: dict[str, Sequence[AnyTool]] = {}
        self._servers: dict[str, ToolServer] = {}
        for name, each in brought.items():
            match each:
                case McpServer() | McpProcess():
                    self._servers[name] = ToolServer(name, each, environment, root)
                case BuiltinTools():
                    self._tools[name] = builtin_tools(each.name, root=root)
                case PythonFunction():
                    self._tools[name] = [_function(name, each)]
                case _:
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
    return tool(function, name=name)
