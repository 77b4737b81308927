"""Serve the inspector of `minutebook inspect` on loopback, and open it in the browser."""

import asyncio
import json
import socket
import webbrowser
from contextlib import nullcontext

import click
import uvicorn

from minutebook.cli.options import is_json
from minutebook.cli.server import AnnouncingServer, listener_on, url_of
from minutebook.service.inspector.app import LocalAccess, create_inspector
from minutebook.service.inspector.source import InspectorSource
from minutebook.store.base import ConversationStore


def serve_inspector(
    source: InspectorSource, *, port: int, opens_browser: bool, store: ConversationStore | None = None
) -> None:
    """Serve the pages until the command is interrupted. `store` is open meanwhile.

    Raises:
        OSError: the port is in use.
    """
    access = LocalAccess()
    with listener_on("127.0.0.1", port) as listener:
        address = f"{url_of(listener)}{access.first_path}"

        def announce() -> None:
            click.echo(json.dumps({"url": address}) if is_json() else f"minutebook inspects {source.name}\n  {address}")
            if opens_browser:
                webbrowser.open(address)

        config = uvicorn.Config(
            create_inspector(source, access), log_config=None, access_log=False, proxy_headers=False, lifespan="off",
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        asyncio.run(_serve(AnnouncingServer(config, announce), listener, store))


async def _serve(server: AnnouncingServer, listener: socket.socket, store: ConversationStore | None) -> None:
    async with store or nullcontext():
        await server.serve([listener])
