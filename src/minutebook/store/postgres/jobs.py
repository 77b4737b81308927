"""The schema of the background job queue. `minutebook.conversation.jobs` runs the workers.

It has its own migrations, in the folder `job_migrations`, because only databases with background jobs have it. The first
one also creates procrastinate's tables. A change of these in a later version of procrastinate needs a migration too.
"""

from collections.abc import Sequence
from typing import Final

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection

from minutebook.store.postgres.connection import SCHEMA_LOCK, schema_version
from minutebook.store.postgres.settings import with_role
from minutebook.store.sql.migrations import Migration, load_migrations

SCHEMA: Final = "minutebook_jobs"


def job_migrations() -> Sequence[Migration]:
    """The migrations of the queue, in order."""
    return load_migrations("minutebook.store.postgres", "job_migrations")


async def migrate_jobs(db: AsyncConnection, store: str, role: str) -> None:
    """Run the migrations that the queue of this database does not have yet. `role` is the role that may add jobs.

    Raises:
        StoreRejected: the queue is of a newer version.
    """
    newest = job_migrations()[-1].number
    if await schema_version(db, store, SCHEMA, newest=newest) == newest:
        return
    async with db.transaction():
        await db.execute("SELECT pg_advisory_xact_lock(%s)", (SCHEMA_LOCK,))
        version = await schema_version(db, store, SCHEMA, newest=newest)
        if not version:
            await db.execute(f"CREATE SCHEMA {SCHEMA}")
            await db.execute(f"SET LOCAL search_path = {SCHEMA}")
            await db.execute(SchemaManager.get_schema().encode())
        for migration in job_migrations():
            if migration.number > version:
                await db.execute(with_role(migration.script, role).encode())
        await db.execute(f"COMMENT ON SCHEMA {SCHEMA} IS '{SCHEMA} schema {newest}'")
