"""Calls of server functions: one round trip each, which is a transaction by itself if none is open.

The functions set the role, the tenant and the timeouts for their transaction, so nothing else is sent. They use libpq
directly: the driver's cursor takes longer than everything else.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from psycopg import AsyncConnection, adapters
from psycopg.errors import error_from_result
from psycopg.generators import execute, fetch_many, send
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult

_BYTEA: Final = adapters.types["bytea"].oid


class ServerFunction:
    """A function of the schema `minutebook`, with the types of its parameters."""

    def __init__(self, name: str, *types: str, result_format: Format = Format.BINARY) -> None:
        parameters = ", ".join(f"${number}" for number in range(1, len(types) + 1))
        self._statement = f"SELECT * FROM minutebook.{name}({parameters})".encode()  # noqa: S608 - names of ours
        self._types = [adapters.types[name].oid for name in types]
        self._formats = [Format.BINARY if oid == _BYTEA else Format.TEXT for oid in self._types]
        self._result_format = result_format

    async def call(self, db: AsyncConnection, *values: str | bytes | float | None) -> PGresult:
        """Call the function; return its rows.

        Raises:
            psycopg.Error: the server reported an error, or the connection is lost.
        """
        try:
            self._send(db, values)
            result = await _read_result(db)
        except BaseException:  # a result may be unread, so the connection cannot be used again
            db.pgconn.finish()
            raise
        return _require_success(result)

    async def call_and_commit(self, db: AsyncConnection, *values: str | bytes | float | None) -> PGresult:
        """Call the function and commit the open transaction, in one round trip; return the function's rows."""
        pgconn = db.pgconn
        try:
            pgconn.enter_pipeline_mode()
            self._send(db, values)
            pgconn.send_query_params(b"COMMIT", None)
            pgconn.pipeline_sync()
            await db.wait(send(pgconn))
            result, *_ = [(await db.wait(fetch_many(pgconn)))[0] for _ in ("call", "commit", "sync")]
            pgconn.exit_pipeline_mode()
        except BaseException:
            pgconn.finish()
            raise
        return _require_success(result)

    def _send(self, db: AsyncConnection, values: Sequence[str | bytes | float | None]) -> None:
        encoded = [value if value is None or isinstance(value, bytes) else str(value).encode() for value in values]
        db.pgconn.send_query_params(
            self._statement, encoded, self._types, self._formats, result_format=self._result_format
        )


def _require_success(result: PGresult) -> PGresult:
    if result.status != ExecStatus.TUPLES_OK:
        raise error_from_result(result)
    return result


def result_rows(result: PGresult) -> list[list[Any]]:
    """The rows of a result, each value as bytes or None."""
    columns = range(result.nfields)
    return [[result.get_value(row, column) for column in columns] for row in range(result.ntuples)]


async def _read_result(db: AsyncConnection) -> PGresult:
    """Wait for the server's result. If the statement is already sent, waiting on the socket is faster than the driver."""
    pgconn, loop = db.pgconn, asyncio.get_running_loop()
    if pgconn.flush():
        driver_results: list[PGresult] = await db.wait(execute(pgconn))
        return driver_results[0]
    results: list[PGresult] = []
    while True:
        while pgconn.is_busy():  # otherwise `get_result` would block the event loop
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(pgconn.socket, _resolve, readable)
            try:
                await readable
            finally:
                loop.remove_reader(pgconn.socket)
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            return results[0]
        results.append(result)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
