"""The tables of the background job queue. `minutebook.conversation.jobs` runs the workers."""

from importlib.resources import files
from typing import Final

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection

from minutebook.store.postgres.settings import with_role

_EXISTS: Final = "SELECT to_regprocedure('minutebook_jobs.enqueue_own(text)') IS NOT NULL"


async def create_job_tables(db: AsyncConnection, lock: int, role: str) -> None:
    """Create the tables of the queue, if they do not exist.

    `lock` is the advisory lock for schema changes, and `role` the role of transactions, which may add jobs.
    """
    if await _exists(db):
        return
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        if await _exists(db):
            return
        await db.execute("CREATE SCHEMA minutebook_jobs")
        await db.execute("SET LOCAL search_path = minutebook_jobs")
        await db.execute(SchemaManager.get_schema().encode())
        script = files("minutebook.store.postgres").joinpath("jobs.sql").read_text(encoding="utf-8")
        await db.execute(with_role(script, role).encode())


async def _exists(db: AsyncConnection) -> bool:
    row = await (await db.execute(_EXISTS)).fetchone()
    return bool(row and row[0])
