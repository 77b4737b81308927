"""The benchmark of growing databases, on databases that are small, and its proxy."""

import asyncio

from bench import scale
from torture.proxy import run_proxy


def test_every_operation_is_measured_in_every_database(monkeypatch):
    monkeypatch.setattr(scale, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(scale.scale_length, "LENGTHS", (10, 50))
    monkeypatch.setattr(scale.scale_length, "REQUESTS", 10)
    part = scale.measure([200, 400], quick=True, engines=["SQLite"])

    figures = part.figures["SQLite"]
    assert [set(figures[size]["seconds"]) for size in ("200", "400")] == [set(scale.OPERATIONS)] * 2
    assert part.tables[0].columns == ["SQLite", "200", "400", "growth"]
    assert len(part.targets) == 8
    assert len(part.figures["SQLite, length"]["service, newest"]) == 2


def test_the_import_has_all_messages():
    async def scenario():
        async with scale.open_empty("SQLite") as (store, _):
            await scale.import_conversations(store, 400)
            pages = await store.list(limit=1000)
            return [header.length for header in pages.items], len((await store.search("order7")).items)

    assert asyncio.run(scenario()) == ([scale.MESSAGES] * 20, 1)


def test_the_proxy_forwards_both_directions_in_order():
    sent = [bytes([number]) * 50_000 for number in range(20)]

    async def echo(reader, writer):
        while data := await reader.read(1_000):
            writer.write(data)
        writer.close()

    async def scenario():
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        with run_proxy("127.0.0.1", server.sockets[0].getsockname()[1], 0.002) as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address)
            for data in sent:
                writer.write(data)
            writer.write_eof()
            received = await reader.read()
            writer.close()
        server.close()
        return received

    assert asyncio.run(scenario()) == b"".join(sent)
