"""Where tools come from (MCP servers, processes, builtins, functions), and the client for MCP servers.

A server is started or connected to on first use, and closed with the workflow. A process that ends is started again by the
next call; see `ToolServer`.
"""

import asyncio
import base64
import json
import logging
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from minutebook.errors import MissingExtra, MissingSetting, ToolServerFailed, ToolValidationError, UnsupportedType
from minutebook.prompt.tools import AnyTool, Tool, ToolContext, ToolResult
from minutebook.prompt.validation import load_json

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import Tool as McpTool

_LOG: Final = logging.getLogger("minutebook.agent")


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
            raise MissingSetting(f"environment variable {self.env}", "set it, because a tool needs its value")
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
    """A function that is imported from a module."""

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
_START_SECONDS: Final = 60.0
"""Time limit for starting a server and listing its tools. Some commands install their server first."""
_CONNECTION_CLOSED: Final = (-32000, "Connection closed")
"""Code and message of the MCP client's error for calls on a connection that has ended."""
_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_DELAY_SECONDS: Final = 60.0
"""Maximum delay before a server that has ended several times is started again."""

ServerState: TypeAlias = Literal["not started", "running", "stopped"]


class ToolServer:
    """A client of one MCP server. A separate task opens and closes the connection: MCP requires the same task for both.

    A process that has ended is started again by the next call, once immediately, then after 1, 2, 4, … seconds until a call
    succeeds. Until then calls raise `ToolServerFailed`. So does a call that was in progress when the process ended: it may
    have had an effect, so it is not repeated.
    """

    def __init__(
        self,
        name: str,
        origin: McpServer | McpProcess,
        environment: Mapping[str, str],
        root: Path,
        *,
        on_restart: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`on_restart` is called with the server's name before each restart."""
        self.name, self._origin, self._environment, self._root = name, origin, environment, root
        self._on_restart, self._clock = on_restart, clock
        self._task: asyncio.Task[None] | None = None
        self._ended_tasks: set[asyncio.Task[None]] = set()
        """Tasks of connections that ended, which may still be closing them."""
        self._ready: asyncio.Future[tuple[Client, list[AnyTool]]] | None = None
        self._stop = asyncio.Event()
        self._has_ended: Callable[[], bool] = lambda: False
        """Replaced when a process is started. Always false for a server at a URL."""
        self._failures = 0
        """The number of times that the server has ended or failed to start since the last successful call."""
        self._next_start_time = 0.0
        """The earliest time of the next restart; 0 until a call finds that the server has ended."""
        self.restarts = 0

    @property
    def state(self) -> ServerState:
        if self._task is None:
            return "not started"
        return "stopped" if self._task.done() or self._has_ended() else "running"

    @property
    def address(self) -> str:
        return self._origin.url if isinstance(self._origin, McpServer) else self._origin.command[0]

    async def tools(self) -> list[AnyTool]:
        """The server's tools. Connects first if there is no connection in this event loop.

        Raises:
            MissingExtra: the package mcp is not installed.
            ToolServerFailed: the server does not start in time, or is not an MCP server.
            MissingSetting: a secret is not in the environment.
        """
        _, tools = await self._connect()
        return tools

    async def aclose(self) -> None:
        """Close the connection, also one that is being opened, and stop the process if there is one."""
        task, ready, self._task, self._ready = self._task, self._ready, None, None
        self._stop.set()
        if task is not None and ready is not None and not ready.done():
            task.cancel()
        tasks = {*self._ended_tasks, *([] if task is None else [task])}
        if tasks := {task for task in tasks if task.get_loop() is asyncio.get_running_loop()}:
            await asyncio.wait(tasks)

    async def _connect(self) -> "tuple[Client, list[AnyTool]]":
        """The client and the tools of the open connection, which is opened if needed."""
        loop = asyncio.get_running_loop()
        if self.state == "stopped" and self._task is not None and self._task.get_loop() is loop:
            self._prepare_restart(self._task)
        if self._task is None or self._task.get_loop() is not loop:
            self._stop, self._ready = asyncio.Event(), loop.create_future()
            self._has_ended = lambda: False
            self._task = loop.create_task(self._hold_connection(self._ready, self._stop))
        assert self._ready is not None
        return await asyncio.shield(self._ready)  # cancelling one caller must not cancel the others

    def _prepare_restart(self, task: asyncio.Task[None]) -> None:
        """Discard the connection that has ended, so that the caller opens a new one.

        Raises:
            ToolServerFailed: the server has ended several times, and the delay before its next start is not over.
        """
        now = self._clock()
        if not self._next_start_time:
            self._failures += 1
            delay = 0.0 if self._failures == 1 else min(2.0 ** (self._failures - 2), _MAX_DELAY_SECONDS)
            self._next_start_time = now + delay
        if now < self._next_start_time:
            seconds = self._next_start_time - now
            raise self._server_error(
                f"it has ended {self._failures} times; a call in {seconds:.0f} seconds or later starts it again"
            )
        self._stop.set()
        self._ended_tasks.add(task)
        task.add_done_callback(self._ended_tasks.discard)
        self._task, self._next_start_time = None, 0.0
        self.restarts += 1
        _LOG.warning("MCP server %s has ended and is started again", self.name)
        self._on_restart(self.name)

    async def _hold_connection(
        self, ready: "asyncio.Future[tuple[Client, list[AnyTool]]]", stop: asyncio.Event
    ) -> None:
        """Open the connection, set `ready`, and close the connection when `stop` is set."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(_START_SECONDS) as time_limit:
                    client = await stack.enter_async_context(await self._new_client(stack))
                    tools = await self._list_tools(client)
                ready.set_result((client, tools))
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - any error must reach the callers that wait for `ready`
            if not ready.done():
                problem = f"it did not list its tools within {_START_SECONDS:.0f} seconds"
                ready.set_exception(
                    self._server_error(problem) if time_limit.expired() else self._error_for_callers(error)
                )
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
        return Client(self._open_process(stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)))

    @asynccontextmanager
    async def _open_process(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Start the process for this block, and yield its streams. The client closes the read stream when the process ends."""
        async with transport as (read_stream, write_stream):
            self._has_ended = lambda: not read_stream.statistics().open_receive_streams
            yield read_stream, write_stream

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
        return [self._tool(definition) for definition in definitions]

    def _tool(self, definition: "McpTool") -> AnyTool:
        name, hints = definition.name, definition.annotations

        async def handler(params: JsonArguments, *, context: ToolContext) -> ToolResult[Any]:  # noqa: ARG001 - handlers get a context
            from mcp import MCPError

            client, _ = await self._connect()
            try:
                result = await client.call_tool(name, dict(params.values))
            except MCPError as error:
                if (error.code, error.message) != _CONNECTION_CLOSED:
                    raise
                raise self._server_error("it ended during the call, which may have had an effect") from error
            self._failures = 0
            return ToolResult(_result_text(result), success=not result.is_error)

        return JsonTool(
            name=_INVALID_NAME_CHARACTERS.sub("_", name)[:64],
            description=(definition.description or "").strip() or f"Tool {name} of {self.name}.",
            handler=handler,
            parameters=definition.input_schema,
            idempotent=hints is not None and bool(hints.read_only_hint or hints.idempotent_hint),
        )

    def _error_for_callers(self, error: BaseException) -> BaseException:
        """Our own errors unchanged, any other error as a `ToolServerFailed`."""
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if type(error).__module__.startswith("minutebook."):
            return error
        return self._server_error(f"{type(error).__name__}: {error}")

    def _server_error(self, problem: str) -> ToolServerFailed:
        return ToolServerFailed(self.name, self.address, problem)


def _result_text(result: Any) -> str:
    """The text of a tool result; an image or file becomes a placeholder such as "[image]"."""
    parts = [getattr(block, "text", None) or _resource_text(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return "\n\n".join(parts) or "Done."


def _resource_text(block: Any) -> str:
    text = getattr(getattr(block, "resource", None), "text", None)
    return text or f"[{block.type}]"
