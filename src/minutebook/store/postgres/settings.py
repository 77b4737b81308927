"""The settings of a PostgreSQL database that all its processes share. They are recorded when the database is created."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from psycopg import AsyncConnection

from minutebook.errors import InvalidSetting
from minutebook.store.encryption import marker
from minutebook.store.search import WORDS, require_mode

DEFAULT_ROLE: Final = "minutebook_app"
"""The role of transactions, unless another one was chosen when the database was created."""
MAX_CONNECTIONS: Final = 10_000
SEE_ALL_TENANTS: Final = "SELECT set_config('minutebook.all_tenants', 'on', true)"
"""Shows the owner of the tables the rows of all tenants, until the transaction ends."""
_ROLE_NAME: Final = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_IS_NEW: Final = (
    "SELECT CASE WHEN pg_has_role(relowner, 'USAGE') THEN NOT EXISTS (SELECT FROM minutebook.conversation)"
    " ELSE pg_relation_size(oid) = 0 END FROM pg_class WHERE oid = 'minutebook.conversation'::regclass"
)
"""Whether there is no conversation. Rows are hidden from users who are not the owner; the size shows whether there were any."""


class DatabaseSettings(NamedTuple):
    """Settings that are recorded in a database."""

    search_mode: str
    role: str
    """The role that transactions run as."""


def require_role_name(name: str) -> str:
    """Return the name of a role.

    Raises:
        InvalidSetting: it is not a plain name.
    """
    if not _ROLE_NAME.fullmatch(name):
        expected = "a name of 1 to 63 lower-case letters, digits and _, which does not start with a digit or pg_"
        raise InvalidSetting("role", name, expected)
    return name


class UrlOptions(NamedTuple):
    """The options of a store URL that are ours, not the driver's."""

    connections: int = 8
    """Maximum size of the pool of each event loop."""
    role: str | None = None
    """The role of transactions; None for the one of the database."""


def split_options(url: str) -> tuple[str, UrlOptions]:
    """Split a store URL into the driver's URL and the options `connections` and `role`.

    Raises:
        InvalidSetting: an option is invalid.
    """
    address, mark, query = url.partition("?")
    if not mark or "://" not in address:
        return url, UrlOptions()
    pairs = [option.partition("=") for option in query.split("&")]
    values = {name: value for name, _, value in pairs if name in UrlOptions._fields}
    others = "&".join("".join(pair) for pair in pairs if pair[0] not in UrlOptions._fields)
    connections, role = values.get("connections", "8"), values.get("role")
    if not (connections.isdecimal() and 0 < int(connections) <= MAX_CONNECTIONS):
        raise InvalidSetting("connections", connections, f"1 to {MAX_CONNECTIONS:,}")
    options = UrlOptions(int(connections), None if role is None else require_role_name(role))
    return (f"{address}?{others}" if others else address), options


def with_role(script: str, role: str) -> str:
    """A script of ours with another role instead of the default one. Names of roles need no escaping."""
    return re.sub(rf"(')?\b{DEFAULT_ROLE}\b", lambda match: f"'{role}" if match[1] else f'"{role}"', script)


@dataclass(slots=True)
class PostgresSettings:
    """The settings that a process expects of the database it opens."""

    store: str
    search_mode: str | None = None
    """None accepts any mode."""
    role: str | None = None
    """The role of transactions; None accepts any role."""
    key_ids: Sequence[str] = ()
    """The master keys, the current one first; empty if it must not be encrypted."""

    async def check(self, db: AsyncConnection) -> DatabaseSettings:
        """Record the settings in a new database, compare them with those of another one, and return those recorded.

        Raises:
            InvalidSetting: the database has another setting `search` or another role, or is not encrypted.
            MissingKey: it is encrypted, and no key was given.
            WrongKey: it is encrypted with another key.
        """
        recorded = await self._read(db)
        is_new = await _is_new(db)
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
        role = recorded.get("role", DEFAULT_ROLE)
        if self.role not in {None, role}:
            raise InvalidSetting("role", self.role, f"{role}, the role that was chosen when the database was created")
        return DatabaseSettings(mode, role)

    @staticmethod
    async def _read(db: AsyncConnection) -> dict[str, str]:
        return dict(await (await db.execute("SELECT name, value FROM minutebook.setting")).fetchall())


async def _is_new(db: AsyncConnection) -> bool:
    async with db.transaction():
        await db.execute(SEE_ALL_TENANTS)
        row = await (await db.execute(_IS_NEW)).fetchone()
    return bool(row and row[0])
