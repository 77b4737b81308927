"""The model that `minutebook serve` starts when it is told of no provider: it says what it was sent.

The life of `minutebook serve`: open what it needs, listen, reload, and close everything again.
"""

import asyncio
import gc
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import uvicorn

from minutebook.cli.options import own_database_url, state_folder
from minutebook.errors import InvalidSetting, StoreUnavailable
from minutebook.service.access.api_keys import Caller
from minutebook.service.app import create_app, service_from
from minutebook.service.config.loader import ConfigHolder, Flag, config_path
from minutebook.service.http.requests import require_guarded
from minutebook.service.observability.logs import logging_to
from minutebook.service.state import Service
from minutebook.testing import LoopbackProvider, ScriptedModel
from minutebook.testing.script import ReceivedRequest

NAME: Final = "demo"


def demo_provider() -> LoopbackProvider:
    """A server on loopback that plays the demo model. Whoever starts it closes it."""
    return LoopbackProvider(ScriptedModel(otherwise=_answer), models=(NAME,), remember=100)


def _answer(request: ReceivedRequest) -> str:
    said = request.last_text.strip()
    words = " ".join(said.split()[:12]) or "nothing"
    sent = len(request.messages)
    return f"You said: {words!r}. I was sent {sent} message{'s' * (sent != 1)}. (This is the demo model.)"


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
            state_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            flags["database.url"] = Flag("the folder for state", own_database_url())
        holder = ConfigHolder(path, flags=flags)
        about["database"] = _without_password(holder.current.config.database.url or "")
        about["policy"] = holder.current.config.conversation.policy
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_served(service_from(holder), about, tell))


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


class _Announced(uvicorn.Server):
    """A server that says where it listens as soon as it does."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        gc.collect()
        gc.freeze()  # modules, routes and tables live as long as the process: searching them stops every request for 80 ms
        if self.started:
            self._announce()


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def _reload(service: Service) -> None:
    """Read the configuration again, and say so in the audit log."""
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


def _host(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    return url if parts.password is None else parts._replace(netloc=_host(url)).geturl()
