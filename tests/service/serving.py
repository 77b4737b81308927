"""A real server of ours on loopback, in front of a real server that plays the provider."""

import asyncio
import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
import openai
import uvicorn

from minutebook.service.app import build_service, create_app
from minutebook.service.config.loader import ConfigHolder
from minutebook.service.http.protocol import server_options
from minutebook.service.state import Service
from minutebook.testing import LoopbackProvider, ScriptedModel

TRUST = ssl.create_default_context()
"""Made once: a client that makes its own reads all certificates, which takes longer than most requests."""


@dataclass
class Served:
    """A running service: its address, its parts, and the provider behind it."""

    url: str
    service: Service
    provider: LoopbackProvider
    clients: list = field(default_factory=list)

    @property
    def base_url(self):
        return f"{self.url}/v1"

    def client(self, **options):
        """OpenAI's own client, pointed here."""
        http = openai.DefaultHttpxClient(verify=TRUST)
        made = openai.OpenAI(base_url=self.base_url, api_key="none", http_client=http, **{"max_retries": 0, **options})
        self.clients.append(made)
        return made

    def http(self, **options):
        made = httpx2.Client(base_url=self.url, trust_env=False, timeout=30, verify=TRUST, **options)
        self.clients.append(made)
        return made


@contextmanager
def served(
    model=None,
    *,
    db="memory:",
    config="",
    environment=None,
    store=None,
    folder=None,
    provider=None,
    kind=Served,
    **options,
):
    """A service, from a configuration in YAML; `options` are the provider's, `kind` is what it is seen as."""
    own = provider or LoopbackProvider(model or ScriptedModel(otherwise="Yes."), **options)
    variables = {"MINUTEBOOK_DB": db, "MINUTEBOOK_UPSTREAM_URL": own.base_url, **(environment or {})}
    path = None
    if config:
        path = folder / "llm_config.yaml"
        path.write_text(config)
    try:
        service = build_service(ConfigHolder(path, environment=variables), store=store)
        with listening(create_app(service)) as url:
            here = kind(url, service, own)
            try:
                yield here
            finally:
                for client in here.clients:
                    client.close()
    finally:
        if provider is None:
            own.close()


class _Server(uvicorn.Server):
    """Stops when it is told to, where uvicorn's own looks ten times a second."""

    def __init__(self, config):
        super().__init__(config)
        self._loop, self._stopping = None, asyncio.Event()

    async def main_loop(self):
        await self.on_tick(0)
        self._loop = asyncio.get_running_loop()
        if not self.should_exit:
            await self._stopping.wait()

    def stop(self):
        self.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)


@contextmanager
def listening(app):
    """The app behind a real port, in a thread of its own."""
    with socket.socket() as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", 0))
        options = server_options(app.state.service.config)
        config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5, **options)
        server = _Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.005)
            assert server.started, "the server did not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.stop()
            thread.join(20)
