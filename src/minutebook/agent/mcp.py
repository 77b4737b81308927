"""Where tools come from (MCP servers, processes, functions), and the client for MCP servers.

A server is started or connected to when it is first needed, and ended with the workflow.
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

from minutebook.errors import InvalidSetting, MissingExtra, ToolServerFailed, ToolValidationError, UnsupportedType
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.prompt.validation import load_json

if TYPE_CHECKING:
    from mcp import Client


@dataclass(frozen=True)
class JsonArguments:
    """What a model gives to a tool that we know only by its schema."""

    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class JsonTool(Tool[JsonArguments, Any]):
    """A tool that shows the model a schema as it is, and leaves it to the tool's owner to hold calls to it."""

    parameters: Mapping[str, Any]
    """The JSON Schema of an object."""

    def parse(self, arguments: str | Mapping[str, Any], *, coerce: bool = False) -> JsonArguments:  # noqa: ARG002 - there is nothing to coerce to
        data: Any = arguments
        if isinstance(arguments, str):
            try:
                data = load_json(arguments) if arguments.strip() else {}
            except ValueError as error:
                raise ToolValidationError(f"The arguments of {self.name} are not JSON: {error}") from error
        if not isinstance(data, Mapping):
            raise ToolValidationError(f"The arguments of {self.name} must be one JSON object.")
        return JsonArguments(dict(data))

    def schema(self, *, strict: bool = False) -> dict[str, Any]:
        if strict:
            raise UnsupportedType(f"tool {self.name!r}", "somebody else's schema", "use strict=False")
        return {"type": "object", "properties": {}, **cast("dict[str, Any]", self.parameters)}


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that must not be shown, or the environment variable that has it."""

    env: str | None = None
    value: str | None = field(default=None, repr=False)

    def reveal(self, environment: Mapping[str, str]) -> str:
        """The value itself.

        Raises:
            InvalidSetting: the environment variable is not set.
        """
        if self.env is None:
            return self.value or ""
        if self.env not in environment:
            raise InvalidSetting(f"the environment variable {self.env}", None, "it a value: a tool needs it")
        return environment[self.env]


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server of tools at a URL."""

    url: str
    auth: Literal["bearer", "basic"] | None = None
    secret: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class McpProcess:
    """A server of tools that is started as a program and spoken to through its stdin and stdout."""

    command: tuple[str, ...]
    env: tuple[tuple[str, Secret], ...] = ()


@dataclass(frozen=True, slots=True)
class BuiltinTools:
    """Tools that come with minutebook: see `builtin_tools`."""

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
    """The definition; where `external`, the name by which whoever runs the program brings the server."""
    member: str | None = None
    """One tool of the server; None for all of them."""
    external: bool = False


_CONNECT_SECONDS: Final = 30.0
_READ_SECONDS: Final = 300.0
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")


class ToolServer:
    """One server of a program. A task of its own holds the connection: what MCP opens, the same task must close."""

    def __init__(self, name: str, origin: McpServer | McpProcess, environment: Mapping[str, str], root: Path) -> None:
        self.name, self._origin, self._environment, self._root = name, origin, environment, root
        self._task: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[tuple[Client, list[AnyTool]]] | None = None
        self._stop = asyncio.Event()

    @property
    def where(self) -> str:
        return self._origin.url if isinstance(self._origin, McpServer) else self._origin.command[0]

    async def tools(self) -> list[AnyTool]:
        """The tools it has; it is started if it does not run in this event loop.

        Raises:
            MissingExtra: the package mcp is not installed.
            ToolServerFailed: it does not start, or is no such server.
            InvalidSetting: a secret that it needs is not in the environment.
        """
        return (await self._connected())[1]

    async def aclose(self) -> None:
        """End the connection, and the process where we started one."""
        task, self._task, self._ready = self._task, None, None
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            return
        self._stop.set()
        await asyncio.wait([task])

    async def _connected(self) -> "tuple[Client, list[AnyTool]]":
        loop = asyncio.get_running_loop()
        if self._task is None or self._task.done() or self._task.get_loop() is not loop:
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._task = loop.create_task(self._serve(self._ready, self._stop))
        assert self._ready is not None
        return await asyncio.shield(self._ready)  # others may wait for the same

    async def _serve(self, ready: "asyncio.Future[tuple[Client, list[AnyTool]]]", stop: asyncio.Event) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(await self._client(stack))
                ready.set_result((client, await self._listed(client)))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - a server is anybody's code, and whoever waits for it must hear
            if not ready.done():
                ready.set_exception(self._failure(error))
            # Once it has served, a connection that ends badly has ended all the same.
        finally:
            ready.cancel()

    async def _client(self, stack: AsyncExitStack) -> "Client":
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
        started = StdioServerParameters(command=program, args=arguments, env=secrets, cwd=self._root)
        return Client(stdio_client(started, errlog=sys.__stderr__ or sys.stderr))

    def _headers(self, origin: McpServer) -> dict[str, str]:
        headers = {name: secret.reveal(self._environment) for name, secret in origin.headers}
        if origin.auth is not None and origin.secret is not None:
            secret = origin.secret.reveal(self._environment)
            if origin.auth == "basic":
                secret = base64.b64encode(secret.encode()).decode()
            headers["Authorization"] = f"{origin.auth.capitalize()} {secret}"
        return headers

    async def _listed(self, client: "Client") -> list[AnyTool]:
        page = await client.list_tools()
        listed = list(page.tools)
        while page.next_cursor is not None:
            page = await client.list_tools(cursor=page.next_cursor)
            listed += page.tools
        return [self._tool(each.name, each.description, each.input_schema) for each in listed]

    def _tool(self, name: str, description: str | None, schema: Mapping[str, Any]) -> AnyTool:
        async def handler(params: JsonArguments, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - a handler's shape
            client, _ = await self._connected()
            result = await client.call_tool(name, dict(params.values))
            return ToolResult(_text(result), success=not result.is_error)

        return JsonTool(
            name=_NOT_IN_A_NAME.sub("_", name)[:64],
            description=(description or "").strip() or f"{name}, of {self.name}.",
            handler=handler,
            parameters=schema,
        )

    def _failure(self, error: BaseException) -> BaseException:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if type(error).__module__.startswith("minutebook."):
            return error
        return ToolServerFailed(self.name, self.where, f"{type(error).__name__}: {error}")


def _text(result: Any) -> str:
    """What a result says: its texts, and in place of pictures and files that there was one."""
    parts = [getattr(block, "text", None) or _other(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n\n".join(parts) or "Done."


def _other(block: Any) -> str:
    inner = getattr(getattr(block, "resource", None), "text", None)
    return inner or f"[{block.type}]"
