"""The settings of a PostgreSQL database that all its processes share. They are recorded when the database is created."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import AsyncConnection

from minutebook.store.encryption import marker
from minutebook.store.search import WORDS, require_mode

_IS_NEW: Final = (
    "SELECT CASE WHEN row_security_active('minutebook.conversation') THEN pg_relation_size('minutebook.conversation') = 0"
    " ELSE NOT EXISTS (SELECT FROM minutebook.conversation) END"
)
"""Whether there is no conversation. If row-level security hides the rows from the owner, the size shows whether there were any."""


@dataclass(slots=True)
class PostgresSettings:
    """The settings that a process expects of the database it opens."""

    store: str
    search_mode: str | None = None
    """None accepts any mode."""
    key_ids: Sequence[str] = ()
    """The master keys, the current one first; empty if it must not be encrypted."""

    async def check(self, db: AsyncConnection) -> str:
        """Record the settings in a new database, or compare them with those of an existing one; return its search mode.

        Raises:
            InvalidSetting: the database has another setting `search`, or is not encrypted.
            MissingKey: it is encrypted, and no key was given.
            WrongKey: it is encrypted with another key.
        """
        recorded = await self._read(db)
        is_new = (await (await db.execute(_IS_NEW)).fetchone() or (False,))[0]
        encryption = marker.value_to_record(self.store, recorded.get(marker.SETTING), self.key_ids, is_new=is_new)
        new_values = {} if encryption is None else {marker.SETTING: encryption}
        if self.search_mode is not None and is_new and "search" not in recorded:
            new_values["search"] = self.search_mode
        for name, value in new_values.items():
            await db.execute("INSERT INTO minutebook.setting VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, value))
        if new_values:  # another process may have recorded others meanwhile
            recorded = await self._read(db)
            marker.value_to_record(self.store, recorded.get(marker.SETTING), self.key_ids, is_new=False)
        mode = recorded.get("search", WORDS)
        require_mode(self.search_mode or mode, mode)
        return mode

    @staticmethod
    async def _read(db: AsyncConnection) -> dict[str, str]:
        return dict(await (await db.execute("SELECT name, value FROM minutebook.setting")).fetchall())
