"""A database that is a server: what it says of itself."""

from typing import Any, Final

from minutebook.cli.database import Database

PATIENCE_SECONDS: Final = 10.0
_SIZE: Final = "SELECT current_setting('server_version'), pg_database_size(current_database())"


def server_facts(database: Database, url: str) -> dict[str, Any]:
    """The version and the size of a PostgreSQL database; of another server, nothing."""
    if not url.startswith("postgres"):
        return {}
    from minutebook.store.postgres_open import steps

    version, size = database.run(_asked(url))
    newest = steps()[-1][0]  # opening it has brought it there
    return {"postgresql": version, "step": newest, "newest_step": newest, "bytes": size}


async def _asked(url: str) -> tuple[str, int]:
    from minutebook.store.postgres_errors import errors_of
    from minutebook.store.postgres_open import connected

    db = await connected(url, "postgresql", PATIENCE_SECONDS)
    async with db:
        with errors_of("postgresql"):
            row = await (await db.execute(_SIZE)).fetchone()
    assert row is not None
    return str(row[0]), int(row[1])
