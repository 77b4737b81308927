"""The life of `minutebook serve`: open what it needs, listen, reload, and close everything again."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.types import Message, Scope

from minutebook.cli.demomodel import NAME, demo_provider
from minutebook.cli.state import state_folder
from minutebook.errors import InvalidSetting, StoreUnavailable
from minutebook.service.app import create_app
from minutebook.service.auth import require_guarded
from minutebook.service.caller import Caller
from minutebook.service.configfile import ConfigHolder, Flag, config_path
from minutebook.service.logs import logging_to
from minutebook.service.opening import service_from
from minutebook.service.state import Service

Tell = Callable[[str, dict[str, str]], None]


def serve(config_file: Path | None, flags: Mapping[str, Flag], *, log_level: str, tell: Tell) -> None:
    """Serve until somebody says stop.

    Raises:
        InvalidConfig, InvalidSetting: it cannot be served so.
        OSError: the address is taken.
    """
    with ExitStack() as stack:
        stack.enter_context(logging_to(level=log_level))
        path = config_file or config_path()
        holder = ConfigHolder(path, flags=flags)
        flags = dict(flags)
        config = holder.current.config
        about: dict[str, str] = {}
        if config.upstream.url is None:
            provider = stack.enter_context(demo_provider())
            flags["upstream.url"] = Flag("the demo model", provider.base_url)
            flags["upstream.model"] = Flag("the demo model", NAME)
            about["model"] = "a demo model that says what it was sent; --upstream names a real one"
        else:
            about["model"] = f"{config.upstream.model or 'as asked for'}, at {_host(config.upstream.url)}"
        if config.database.url is None:
            flags["database.url"] = Flag("the folder for state", _own_database())
        holder = ConfigHolder(path, flags=flags)
        about["database"] = _without_password(holder.current.config.database.url or "")
        about["policy"] = holder.current.config.conversation.policy
        stack.enter_context(_tuned())
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_served(service_from(holder), about, tell))


@contextmanager
def _tuned() -> Iterator[None]:
    """An interpreter for a server: it holds large tables that never change, and much that lives for one request.

    What is there at the beginning is not searched for garbage again and again: that was a third of all work. And a thread
    that has waited for the disk need not wait five milliseconds more for its turn.
    """
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 100)
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """A faster event loop, where there is one."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


async def _served(service: Service, about: dict[str, str], tell: Tell) -> None:
    server = service.config.server
    await _require_guarded(service, server.host)
    app = create_app(service)
    await _built(app)
    with _listener(server.host, server.port) as listener:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,  # what is forwarded is not from here, whoever says so
            lifespan="on",
            timeout_graceful_shutdown=40,
        )
        running = _Announced(config, lambda: tell(_address(listener), about))
        loop = asyncio.get_running_loop()
        reloads: set[asyncio.Task[None]] = set()
        if hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(asyncio.create_task(_reload(service))))
        await running.serve([listener])


async def _built(app: FastAPI) -> None:
    """Have the routes built, as they are for the first request: it would take a tenth of a second, and others wait."""
    scope: Scope = {"type": "http", "method": "GET", "path": "/nowhere", "root_path": "", "headers": [], "app": app}

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_message: Message) -> None: ...

    with suppress(HTTPException):  # it is not found, of course
        await app.router(scope, receive, send)


class _Announced(uvicorn.Server):
    """A server that says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _reload(service: Service) -> None:
    """Read the configuration again, and say so in the audit trail."""
    if service.reload():
        with suppress(StoreUnavailable):
            await service.audit.note(
                Caller(service.config.database.tenant), "config.reload", str(service.holder.current.path)
            )


async def _require_guarded(service: Service, host: str) -> None:
    try:
        has_keys = await service.keys.any()
    except StoreUnavailable:
        if not service.config.database.optional:
            raise
        has_keys = False
    require_guarded(host, has_keys=has_keys)


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. Without it the second piece of an answer waits 40 ms for the client's word on the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if isinstance(error, PermissionError | socket.gaierror):
            raise InvalidSetting("--host and --port", f"{host}:{port}", "an address of this machine") from error
        raise
    return listener


def _own_database() -> str:
    folder = state_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{quote(str(folder / 'minutebook.db'))}"


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url if parts.password is None else parts._replace(netloc=_host(url)).geturl()
