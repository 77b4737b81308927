"""A real server of ours on loopback, in front of a real server that plays the provider."""

import asyncio
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx2
import openai
import uvicorn

from minutebook.service.app import create_app
from minutebook.service.configfile import ConfigHolder
from minutebook.service.opening import service_from
from minutebook.service.state import Service
from minutebook.testing import LoopbackProvider, ScriptedModel


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
        made = openai.OpenAI(base_url=self.base_url, api_key="none", **{"max_retries": 0, **options})
        self.clients.append(made)
        return made

    def http(self, **options):
        made = httpx2.Client(base_url=self.url, trust_env=False, timeout=30, **options)
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
        service = service_from(ConfigHolder(path, environment=variables), store=store)
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


@contextmanager
def listening(app):
    """The app behind a real port, in a thread of its own."""
    with socket.socket() as listener:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_config=None, lifespan="on", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.005)
            assert server.started, "the server did not start"
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(20)
