"""A TCP proxy that adds a round-trip time: `python -m bench.proxy HOST PORT MILLISECONDS`. Prints its own port."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic


@contextmanager
def run_proxy(host: str, port: int, rtt_milliseconds: float) -> Iterator[int]:
    """Run the proxy as a process for this block; yields its port on loopback."""
    command = [sys.executable, "-m", "bench.proxy", host, str(port), str(rtt_milliseconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def serve(host: str, port: int, rtt_seconds: float) -> asyncio.Server:
    """Start the proxy on a free port. Data is delayed by half of the round-trip time in each direction."""

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(host, port)
        try:
            await asyncio.gather(
                _forward(reader, server_writer, rtt_seconds / 2), _forward(server_reader, writer, rtt_seconds / 2)
            )
        finally:
            writer.close()
            server_writer.close()

    return await asyncio.start_server(connect, "127.0.0.1", 0)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float) -> None:
    """Copy one direction of a connection. Later data does not wait for earlier data, as on a network."""
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def send() -> None:
        while True:
            due, data = await queue.get()
            if due > monotonic():
                await asyncio.sleep(due - monotonic())
            if not data:
                break
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    sender = asyncio.create_task(send())
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            queue.put_nowait((monotonic() + delay_seconds, data))
    queue.put_nowait((monotonic() + delay_seconds, b""))
    with suppress(OSError):  # the other side has closed the connection
        await sender


async def _main(host: str, port: int, rtt_seconds: float) -> None:
    server = await serve(host, port, rtt_seconds)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000))
