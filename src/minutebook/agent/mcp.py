"""Where tools come from (MCP servers, processes, builtins, functions), and the client for MCP servers.

A server is started or connected to on first use, and closed with the workflow.
"""

import asyncio
import base64
import json
import re
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from minutebook.errors import MissingExtra, MissingSetting, ToolServerFailed, ToolValidationError, UnsupportedType
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.prompt.validation import load_json

if TYPE_CHECKING:
    from mcp import Client


@dataclass(frozen=True)
class JsonArguments:
    """The arguments of a tool that is described by a JSON schema only."""

    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JsonTool(Tool[JsonArguments, Any]):
    """A tool with a given JSON schema. Its arguments are not validated here: the server that owns the tool does that."""

    parameters: Mapping[str, Any]
    """The JSON schema of the arguments, which are an object."""

    def parse(self, arguments: str | Mapping[str, Any], *, coerce: bool = False) -> JsonArguments:  # noqa: ARG002 - no types to coerce to
        data: Any = arguments
        if isinstance(arguments, str):
            try:
                data = load_json(arguments) if arguments.strip() else {}
            except ValueError as error:
                raise ToolValidationError(f"The arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(data, Mapping):
            raise ToolValidationError(f"The arguments of {self.name} must be a JSON object.")
        return JsonArguments(dict(data))

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        if strict:
            raise UnsupportedType(
                f"tool {self.name!r}",
                "MCP tool with strict=True",
                "use strict=False: its MCP server defines the schema",
            )
        return {"type": "object", "properties": {}, **cast("dict[str, Any]", self.parameters)}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret value, or the name of the environment variable that holds it."""

    env: str | None = None
    value: str | None = field(default=None, repr=False)

    def reveal(self, environment: Mapping[str, str]) -> str:
        """The secret value.

        Raises:
            MissingSetting: the environment variable is not set.
        """
        if self.env is None:
            return self.value or ""
        if self.env not in environment:
            raise MissingSetting(f"environment variable {self.env}", "set it; a tool needs its value")
        return environment[self.env]


@dataclass(frozen=True, slots=True)
class McpServer:
    """An MCP server at a URL."""

    url: str
    auth: Literal["bearer", "basic"] | None = None
    secret: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class McpProcess:
    """An MCP server that is started as a process and connected through its stdin and stdout."""

    command: tuple[str, ...]
    env: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltinTools:
    """Tools that are part of minutebook; see `builtin_tools`."""

    name: str


@dataclass(frozen=True, slots=True)
class PythonFunction:
    module: str
    function: str


ToolOrigin: TypeAlias = McpServer | McpProcess | BuiltinTools | PythonFunction


@dataclass(frozen=True, slots=True)
class ToolRef:
    """A tool that an agent may call."""

    tool: str
    """The name of the tool definition, or of an external source if `external`."""
    member: str | None = None
    """The name of one tool of that source; None means all its tools."""
    external: bool = False
    """The source is supplied by the caller at run time, not defined in the program."""


_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0
_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")


class ToolServer:
    """A client of one MCP server. A separate task opens and closes the connection: MCP requires the same task for both."""

    def __init__(self, name: str, origin: McpServer | McpProcess, environment: Mapping[str, str], root: Path) -> None:
        self.name, self._origin, self._environment, self._root = name, origin, environment, root
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[tuple[Client, list[AnyTool]]] | None = None
        self._stop = asyncio.Event()

    @property
    def address(self) -> str:
        return self._origin.url if isinstance(self._origin, McpServer) else self._origin.command[0]

    async def tools(self) -> list[AnyTool]:
        """The server's tools. Connects first if there is no connection in this event loop.

        Raises:
            MissingExtra: the package mcp is not installed.
            ToolServerFailed: the server does not start, or is not an MCP server.
            MissingSetting: a secret is not in the environment.
        """
        _, tools = await self._connect()
        return tools

    async def aclose(self) -> None:
        """Close the connection, and stop the process if there is one."""
        task, self._task, self._ready = self._task, None, None
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        self._stop.set()
        await asyncio.wait([task])

    async def _connect(self) -> "tuple[Client, list[AnyTool]]":
        """The client and the tools of the open connection, which is opened if needed."""
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._task = loop.create_task(self._hold_connection(self._ready, self._stop))
        assert self._ready is not None
        return await asyncio.shield(self._ready)  # cancelling one caller must not cancel the others

    async def _hold_connection(
        self, ready: "asyncio.Future[tuple[Client, list[AnyTool]]]", stop: asyncio.Event
    ) -> None:
        """Open the connection, set `ready`, and close the connection when `stop` is set."""
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._new_client(stack))
                ready.set_result((client, await self._list_tools(client)))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - any error must reach the callers that wait for `ready`
            if not ready.done():
                ready.set_exception(self._error_for_callers(error))
            # An error after `ready` only ends the connection; the next call opens a new one.
        finally:
            ready.cancel()

    async def _new_client(self, stack: AsyncExitStack) -> "Client":
        try:
            import httpx2
            from mcp import Client, StdioServerParameters, stdio_client
            from mcp.client.streamable_http import streamable_http_client
        except ImportError as error:
            raise MissingExtra("mcp", "mcp") from error
        origin = self._origin
        if isinstance(origin, McpServer):
            timeout = httpx2.Timeout(_CONNECT_SECONDS, read=_READ_SECONDS)
            http = httpx2.AsyncClient(headers=self._headers(origin), timeout=timeout)
            await stack.enter_async_context(http)
            return Client(streamable_http_client(origin.url, http_client=http))
        program, *arguments = origin.command
        secrets = {name: secret.reveal(self._environment) for name, secret in origin.env}
        parameters = StdioServerParameters(command=program, args=arguments, env=secrets, cwd=self._root)
        return Client(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr))

    def _headers(self, origin: McpServer) -> dict[str, str]:
        headers = {name: secret.reveal(self._environment) for name, secret in origin.headers}
        if origin.auth is not None and origin.secret is not None:
            secret = origin.secret.reveal(self._environment)
            if origin.auth == "basic":
                secret = base64.b64encode(secret.encode()).decode()
            headers["Authorization"] = f"{origin.auth.capitalize()} {secret}"
        return headers

    async def _list_tools(self, client: "Client") -> list[AnyTool]:
        page = await client.list_tools()
        definitions = list(page.tools)
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor)
            definitions += page.tools
        return [self._tool(tool.name, tool.description, tool.input_schema) for tool in definitions]

    def _tool(self, name: str, description: str | None, schema: Mapping[str, Any]) -> AnyTool:
        async def handler(params: JsonArguments, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - handlers get a context
            client, _ = await self._connect()
            result = await client.call_tool(name, dict(params.values))
            return ToolResult(_text(result), success=not result.is_error)

        return JsonTool(
            name=_INVALID_NAME_CHARACTERS.sub("_", name)[:64],
            description=(description or "").strip() or f"Tool {name} of {self.name}.",
            handler=handler,
            parameters=schema,
        )

    def _error_for_callers(self, error: BaseException) -> BaseException:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if type(error).__module__.startswith("minutebook."):
            return error
        return ToolServerFailed(self.name, self.address, f"{type(error).__name__}: {error}")


def _text(result: Any) -> str:
    """The text of a tool result; an image or file becomes a placeholder such as "[image]"."""
    parts = [getattr(block, "text", None) or _resource_text(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n\n".join(parts) or "Done."


def _resource_text(block: Any) -> str:
    text = getattr(getattr(block, "resource", None), "text", None)
    return text or f"[{block.type}]"
