"""A TCP proxy on the loopback that counts the round trips through it, and can delay each of them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from minutebook.store.loop_thread import LoopThread, run_sync


@dataclass
class Proxy:
    """A running proxy. The delay may be changed at any time."""

    host: str
    port: int
    delay_seconds: float = 0.0
    """Added to each round trip."""
    round_trips: int = 0
    """The number of times that a client sent something after the server had answered."""
    address: tuple[str, int] = ("", 0)
    """Where the proxy listens."""
    _connections: set[object] = field(default_factory=set)
    """The tasks of open connections: an event loop has only weak references to tasks."""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()[:2]
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_connection(self.host, self.port)
        has_answered = True

        async def pass_requests() -> None:
            nonlocal has_answered
            while data := await reader.read(1 << 16):
                self.round_trips += has_answered
                has_answered = False
                await asyncio.sleep(self.delay_seconds)
                server_writer.write(data)
            server_writer.write_eof()

        async def pass_answers() -> None:
            nonlocal has_answered
            while data := await server_reader.read(1 << 16):
                has_answered = True
                writer.write(data)

        try:
            await asyncio.gather(pass_requests(), pass_answers(), return_exceptions=True)
        except asyncio.CancelledError:
            pass  # `run_proxy` stops: asyncio would log a traceback for a task of a stream server that is cancelled
        finally:
            self._connections.discard(asyncio.current_task())
            server_writer.close()
            writer.close()


@contextmanager
def run_proxy(host: str, port: int, delay_seconds: float = 0.0) -> Iterator[Proxy]:
    """Run a proxy to a server for this block."""
    thread, proxy = LoopThread("proxy"), Proxy(host, port, delay_seconds)
    server = thread.wait(proxy.start())

    async def stop() -> None:
        server.close()
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    try:
        yield proxy
    finally:
        run_sync(thread.close(stop()))
