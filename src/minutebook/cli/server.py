"""Start, reload and stop the service of `minutebook serve`.

Without an upstream URL it also starts a demo model, which answers with a summary of the request.
"""

import asyncio
import errno
import gc
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import uvicorn

from minutebook.cli.options import default_database_url, state_folder
from minutebook.errors import InvalidConfig, InvalidPrompt, InvalidSetting, MissingExtra, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.agent_tools import ConfiguredTools
from minutebook.service.app import build_service, create_app
from minutebook.service.config.loader import CommandLineFlag, ConfigHolder, LoadedConfig, config_path
from minutebook.service.http.protocol import server_options
from minutebook.service.http.requests import require_keys_for_remote
from minutebook.service.observability.logs import write_logs_to
from minutebook.service.state import Service
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel
from minutebook.testing.script import ReceivedRequest

DEMO_MODEL: Final = "demo"


def demo_provider() -> LoopbackProvider:
    """A loopback server with the demo model, not yet started. The caller closes it."""
    return LoopbackProvider(ScriptedModel(otherwise=_demo_answer), models=(DEMO_MODEL,), remember=100)


def _demo_answer(request: ReceivedRequest) -> str:
    words = " ".join(request.last_text.split()[:12]) or "nothing"
    count = len(request.messages)
    return f"You said: {words!r}. I was sent {count} message{'s' * (count != 1)}. (This is the demo model.)"


Announce: TypeAlias = Callable[[str, dict[str, str]], None]
"""Called with the URL and a description (model, database, policy) when the service listens."""


def serve(
    config_file: Path | None, flags: Mapping[str, CommandLineFlag], *, log_level: str, announce: Announce
) -> None:
    """Run the service until it is stopped by a signal.

    Raises:
        InvalidConfig, InvalidSetting: the configuration is invalid.
        OSError: the address is in use.
    """
    with ExitStack() as stack:
        stack.enter_context(write_logs_to(level=log_level))
        path = config_file or config_path()
        holder = ConfigHolder(path, flags=flags)
        require_startable(holder.current)
        flags = dict(flags)
        config = holder.current.config
        description: dict[str, str] = {}
        if config.upstream.url is None:
            provider = stack.enter_context(demo_provider())
            flags["upstream.url"] = CommandLineFlag("the demo model", provider.base_url)
            flags["upstream.model"] = CommandLineFlag("the demo model", DEMO_MODEL)
            description["model"] = "a demo model; use --upstream to connect a real one"
        else:
            description["model"] = f"{config.upstream.model or 'as requested'} at {_host_of(config.upstream.url)}"
        if config.database.url is None:
            state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            flags["database.url"] = CommandLineFlag("the state folder", default_database_url())
        holder = ConfigHolder(path, flags=flags)
        description["database"] = _without_password(holder.current.config.database.url or "")
        description["policy"] = holder.current.config.conversation.policy
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(build_service(holder), description, announce))


def require_startable(loaded: LoadedConfig) -> None:
    """Check what the service would refuse when it starts: the database URL and the tools. Nothing is opened.

    Raises:
        InvalidConfig: one of them is invalid.
    """
    config = loaded.config

    def open_database(url: str | None) -> object:
        return None if url is None else open_store(url)

    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("database.url", lambda: open_database(config.database.url)),
        ("database.read_url", lambda: open_database(config.database.read_url)),
        ("tools", lambda: ConfiguredTools(config.tools)),
    )
    for key, check in checks:
        try:
            check()
        except (InvalidSetting, InvalidPrompt, MissingExtra) as error:
            origin = loaded.origin(key)
            source = str(loaded.path) if origin.kind == "default" else origin.name
            raise InvalidConfig(source, origin.line, origin.column, key, f"is invalid: {error}") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop if it is installed: it is faster."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _serve(service: Service, description: dict[str, str], announce: Announce) -> None:
    server = service.config.server
    await _require_keys_if_remote(service, server.host)
    app = create_app(service)
    with listener_on(server.host, server.port) as listener:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # clients could forge the headers
            lifespan="on",
            timeout_graceful_shutdown=40,
            **server_options(service.config),
        )
        uvicorn_server = AnnouncingServer(config, lambda: announce(url_of(listener), description))
        loop = asyncio.get_running_loop()
        reloads: set[asyncio.Task[None]] = set()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(asyncio.create_task(_reload(service))))
        await uvicorn_server.serve([listener])


class AnnouncingServer(uvicorn.Server):
    """A server that calls `announce` when it listens."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # permanent objects: a full collection over them would block all requests for 80 ms
        if self.started:
            self._announce()


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _reload(service: Service) -> None:
    """Reload the configuration and record it in the audit log."""
    if service.reload():
        with suppress(StoreUnavailable):
            await service.audit.note(
                Caller(service.config.database.tenant), "config.reload", str(service.holder.current.path)
            )


async def _require_keys_if_remote(service: Service, host: str) -> None:
    try:
        has_keys = await service.keys.any()
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        has_keys = False
    require_keys_for_remote(host, has_keys=has_keys)


def listener_on(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit the option. Without it the second chunk of a response waits 40 ms for the client's ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            problem = "the address is in use; stop the other program, or choose another port with --port"
            raise OSError(error.errno, problem, f"{host}:{port}") from None
        raise InvalidSetting(
            "--host and --port", f"{host}:{port}", "an address and port that this machine can listen on"
        ) from error
    return listener


def _host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url if parts.password is None else parts._replace(netloc=_host_of(url)).geturl()
