"""A provider's client for every event loop that asks for one: open connections belong to the loop that made them."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary


class Client(Protocol):
    """What all official async clients have."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


class Clients(Generic[C]):
    """Makes a client the first time one is asked for in an event loop; one that was given serves all."""

    def __init__(self, make: Callable[[], C], given: C | None) -> None:
        self._make = make
        self._given = given
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, C] = WeakKeyDictionary()

    def here(self) -> C:
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            self._made[loop] = self._make()
        return self._made[loop]

    async def close(self) -> None:
        """Close the one that was made in this event loop; one that was given is its owner's to close."""
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            await made.close()
