"""The tools of agents by name: builtins (`tool fs = builtin files`), Python functions and MCP servers."""

import asyncio
import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from minutebook.agent.mcp import BuiltinTools, McpProcess, McpServer, PythonFunction, ToolOrigin, ToolRef, ToolServer
from minutebook.errors import InvalidSetting, ToolValidationError
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, tool
from minutebook.record.message import text_of

MAX_FILE_CHARACTERS: Final = 200_000
"""Maximum characters of a file that the model gets."""
RECALLED_CHARACTERS: Final = 8_000
"""Maximum characters of an earlier message that the model gets per call of `recall`."""

BUILTINS: Final[Mapping[str, tuple[str, ...]]] = {
    "clock": ("current_time",),
    "files": ("list_directory", "read_file"),
    "recall": ("recall",),
}
"""The name of a builtin → the names of its tools."""


def builtin_tools(name: str, *, root: Path, hidden: Collection[Path] = ()) -> Sequence[AnyTool]:
    """The tools of a builtin. Those for files can only read files under `root`, and not the `hidden` ones.

    Raises:
        InvalidSetting: no builtin has that name.
    """
    match name:
        case "clock":
            functions: tuple[Callable[..., Any], ...] = (current_time,)
        case "recall":
            functions = (recall,)
        case "files":
            functions = _file_functions(root.resolve(), hidden)
        case _:
            raise InvalidSetting("builtin", name, f"one of {', '.join(BUILTINS)}")
    return [tool(function, idempotent=True) for function in functions]


def current_time() -> str:
    """The current date and time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def recall(
    message: Annotated[int, "the number of the message, as its marker says"],
    page: Annotated[int, "the part of a long text, from 1"] = 1,
    *,
    context: ToolContext,
) -> str:
    """Return the text of an earlier message that was cleared or clipped, such as "[cleared: 5000 characters, message 12]"."""
    if not 0 <= message < len(context.record):
        raise ToolValidationError(f"there is no message {message}; the numbers are 0 to {len(context.record) - 1}.")
    text = text_of(context.record[message])
    pages = max(1, -(-len(text) // RECALLED_CHARACTERS))
    if not 1 <= page <= pages:
        raise ToolValidationError(f"there is no page {page}; message {message} has {pages}.")
    part = text[(page - 1) * RECALLED_CHARACTERS : page * RECALLED_CHARACTERS]
    if not part:
        return f"[message {message} has no text]"
    return part if pages == 1 else f"{part}\n[page {page} of {pages} of message {message}]"


def _file_functions(root: Path, hidden: Collection[Path]) -> tuple[Callable[..., Any], ...]:
    def is_hidden(path: Path) -> bool:
        return any(file.exists() and path.exists() and path.samefile(file) for file in hidden)

    def existing_path(path: str) -> Path:
        target = (root / path).resolve()
        if not target.is_relative_to(root):
            raise ToolValidationError(f"{path} is outside the working folder, which is the only one that can be read.")
        if not target.exists() or is_hidden(target):
            raise ToolValidationError(f"{path} does not exist.")
        return target

    def list_directory(path: Annotated[str, "relative to the working folder"] = ".") -> str:
        """List the files and folders in a folder; the names of folders end with /."""
        target = existing_path(path)
        if not target.is_dir():
            raise ToolValidationError(f"{path} is a file, not a folder.")
        items = [item for item in target.iterdir() if not is_hidden(item)]
        return "\n".join(sorted(f"{item.name}/" if item.is_dir() else item.name for item in items))

    def read_file(path: Annotated[str, "relative to the working folder"]) -> str:
        """Read a text file."""
        target = existing_path(path)
        if not target.is_file():
            raise ToolValidationError(f"{path} is a folder, not a file.")
        text = target.read_text(encoding="utf-8", errors="replace")
        if len(text) <= MAX_FILE_CHARACTERS:
            return text
        return f"{text[:MAX_FILE_CHARACTERS]}\n[{len(text) - MAX_FILE_CHARACTERS:,} more characters are not shown]"

    return list_directory, read_file


ExternalTools: TypeAlias = Mapping[str, Sequence[AnyTool] | ToolOrigin]
"""Tools that the caller supplies, by name: the tools themselves, or where they come from."""


class Toolbox:
    """The tools of several named sources. Functions are imported here; servers are started on first use.

    Raises:
        InvalidSetting: a function cannot be imported, or no builtin has that name.
    """

    def __init__(
        self,
        sources: ExternalTools,
        environment: Mapping[str, str],
        root: Path,
        *,
        hidden: Collection[Path] = (),
        on_restart: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`hidden` are files that the builtin tools do not read.

        `on_restart` is called with the name of a server before it is started again.
        """
        self._names = tuple(sources)
        self._tools: dict[str, Sequence[AnyTool]] = {}
        self._servers: dict[str, ToolServer] = {}
        for name, source in sources.items():
            match source:
                case McpServer() | McpProcess():
                    self._servers[name] = ToolServer(name, source, environment, root, on_restart=on_restart)
                case BuiltinTools():
                    self._tools[name] = builtin_tools(source.name, root=root, hidden=hidden)
                case PythonFunction():
                    self._tools[name] = [_function_tool(name, source)]
                case _:
                    self._tools[name] = source

    @property
    def servers(self) -> Collection[ToolServer]:
        """The MCP servers, also those that are not started yet."""
        return self._servers.values()

    async def all_tools(self) -> list[AnyTool]:
        """All tools, in the order of their sources. Servers are started in parallel.

        Raises:
            ToolServerFailed: a server does not start.
        """
        return await self.tools([ToolRef(name) for name in self._names])

    async def tools(self, refs: Sequence[ToolRef]) -> list[AnyTool]:
        """The tools that an agent may call. Their servers are started in parallel.

        Raises:
            ToolServerFailed: a server does not start.
            InvalidSetting: a source has no tool with that name.
        """
        servers = {ref.tool: self._servers[ref.tool] for ref in refs if ref.tool in self._servers}
        server_tools = await asyncio.gather(*(server.tools() for server in servers.values()))
        tools_by_source = {**self._tools, **dict(zip(servers, server_tools, strict=True))}
        return [tool for ref in refs for tool in _tools_of_ref(ref, tools_by_source[ref.tool])]

    async def aclose(self) -> None:
        """Close every server that was started."""
        await asyncio.gather(*(server.aclose() for server in self._servers.values()))


def _tools_of_ref(ref: ToolRef, tools: Sequence[AnyTool]) -> Sequence[AnyTool]:
    if ref.member is None:
        return tools
    members = [tool for tool in tools if tool.name == ref.member]
    if not members:
        names = ", ".join(tool.name for tool in tools)
        raise InvalidSetting(
            f"tool of {ref.tool!r}", ref.member, f"one of {names}" if names else "no member: the source has no tools"
        )
    return members


def _function_tool(name: str, origin: PythonFunction) -> AnyTool:
    path = f"{origin.module}:{origin.function}"
    try:
        function = getattr(importlib.import_module(origin.module), origin.function)
    except (ImportError, AttributeError) as error:
        raise InvalidSetting(f"tool {name!r}", path, f"a function that can be imported ({error})") from error
    if isinstance(function, Tool):
        return replace(function, name=name)
    return tool(function, name=name)
