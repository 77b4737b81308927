"""Serve the inspector on loopback, or write a conversation as one HTML file."""

import asyncio
import json
import os
import socket
import webbrowser
from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path

import click
import uvicorn

from minutebook.cli.files import FileConversation
from minutebook.cli.options import is_json
from minutebook.cli.server import AnnouncingServer, listener_on, url_of
from minutebook.service.inspector.app import LocalAccess, create_inspector
from minutebook.service.inspector.policy import ReplayPolicy, replay
from minutebook.service.inspector.share.export import export_html
from minutebook.service.inspector.source import InspectorSource
from minutebook.service.inspector.sources.files import file_conversation
from minutebook.store.base import ConversationStore
from minutebook.tokens.models import MODELS_FILE_VARIABLE, load_models


def policy_of_options(managers: tuple[str, ...], max_tokens: int | None, model: str | None) -> ReplayPolicy:
    """The policy of replays, with the user's own models in $MINUTEBOOK_MODELS_FILE.

    Raises:
        OSError, UnreadableInput: that file cannot be read.
        InvalidSetting, MissingSetting: a manager cannot be built.
    """
    models_file = os.environ.get(MODELS_FILE_VARIABLE)
    policy = ReplayPolicy(managers, max_tokens, model, load_models(models_file) if models_file else {})
    policy.manager(model)
    return policy


def serve_inspector(
    source: InspectorSource, *, port: int, opens_browser: bool, store: ConversationStore | None = None
) -> None:
    """Serve the pages until the command is interrupted. `store` is open meanwhile.

    Raises:
        OSError: the port is in use.
    """
    access = LocalAccess()
    with listener_on("127.0.0.1", port) as listener:
        address = f"{url_of(listener)}{access.sign_in_path}"

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


def write_html(selected: FileConversation, path: str, policy: ReplayPolicy, redact: Collection[str]) -> int:
    """Replay a conversation and write the file. Returns the number of bytes.

    Raises:
        OSError: the file cannot be written.
    """
    conversation = file_conversation(selected.id or Path(selected.file).name, selected.conversation, policy)
    replay(conversation, policy)
    if conversation.failure is not None:
        raise conversation.failure
    return Path(path).write_bytes(export_html(conversation, redact=redact).encode("utf-8", "backslashreplace"))
