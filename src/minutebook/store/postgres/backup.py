"""Back up a PostgreSQL database to one file, and restore the file into a new database of any server.

The file is a ZIP archive with the rows of every table, in the binary format of COPY, and a manifest. Tables, functions and
the role are not in it: a restore creates them with the migrations, so that the other server may have other users. The
queue of background jobs is not in it either: the next append to a conversation adds its job again.
"""

import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from psycopg import AsyncConnection, sql

from minutebook.errors import StoreRejected, UnreadableInput
from minutebook.store.postgres.connection import address_of, connect, map_errors, migrate, migrations, schema_version
from minutebook.store.postgres.settings import DEFAULT_ROLE, SEE_ALL_TENANTS

FORMAT: Final = 1
CHUNK_BYTES: Final = 1 << 20
CONNECT_SECONDS: Final = 10.0
_MANIFEST: Final = "manifest.json"
_TABLES: Final = (
    "SELECT relname, array_agg(attname::text ORDER BY attnum), pg_has_role(relowner, 'USAGE')"
    " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
    " WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
    " AND attnum > 0 AND NOT attisdropped AND attgenerated = ''"
    " AND relname <> 'removed'"  # names tables by their numbers in this database
    " GROUP BY pg_class.oid, relname, relowner ORDER BY relname"
)
_SEQUENCES: Final = (
    "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'minutebook' AND last_value IS NOT NULL"
)
_FORCED: Final = "SELECT relname FROM pg_class WHERE relnamespace = 'minutebook'::regnamespace AND relforcerowsecurity"


class BackupTable(NamedTuple):
    """The rows of one table in a backup."""

    name: str
    columns: Sequence[str]
    rows: int

    @property
    def member(self) -> str:
        return f"{self.name}.copy"


class Backup(NamedTuple):
    """What a backup contains."""

    schema_version: int
    tables: Sequence[BackupTable]
    sequences: dict[str, int]

    @property
    def conversations(self) -> int:
        return sum(table.rows for table in self.tables if table.name == "conversation")

    def to_json(self) -> str:
        tables = [table._asdict() for table in self.tables]
        written_at = datetime.now(UTC).isoformat()
        return json.dumps({"format": FORMAT, "written_at": written_at, **self._asdict(), "tables": tables}, indent=1)

    @classmethod
    def from_json(cls, text: bytes) -> "Backup":
        """Raises ValueError, KeyError or TypeError for anything but a manifest."""
        manifest = json.loads(text)
        if manifest["format"] != FORMAT:
            raise ValueError(f"its format is {manifest['format']!r}")
        tables = [BackupTable(**table) for table in manifest["tables"]]
        return cls(int(manifest["schema_version"]), tables, dict(manifest["sequences"]))


async def write_backup(url: str, file: Path) -> Backup:
    """Write the rows of all tenants to a file, as of one moment. Other processes can use the database meanwhile.

    Raises:
        StoreRejected: this user does not own the tables, or there are none.
    """
    address = address_of(url)
    db = await connect(url, address, CONNECT_SECONDS)
    async with db:
        with map_errors(address):
            version = await schema_version(db, address)
            if not version:
                raise StoreRejected(address, "the database has no tables of minutebook")
            await db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            await db.execute(SEE_ALL_TENANTS)
            tables = await (await db.execute(_TABLES)).fetchall()
            if not all(is_owner for _, _, is_owner in tables):
                raise StoreRejected(address, "only the owner of the tables may back them up; connect as the owner")
            with ZipFile(file, "x", ZIP_DEFLATED, compresslevel=1) as archive:
                written = [await _write_table(db, archive, name, columns) for name, columns, _ in tables]
                sequences = await (await db.execute(_SEQUENCES)).fetchall()  # read last: numbers only grow
                backup = Backup(version, written, dict(sequences))
                archive.writestr(_MANIFEST, backup.to_json())
            await db.execute("COMMIT")
    return backup


async def _write_table(db: AsyncConnection, archive: ZipFile, name: str, columns: Sequence[str]) -> BackupTable:
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT binary)").format(*_names(name, columns))
    with archive.open(BackupTable(name, columns, 0).member, "w", force_zip64=True) as member:
        async with db.cursor() as cursor:
            async with cursor.copy(query) as copy:
                async for data in copy:
                    member.write(data)
            return BackupTable(name, columns, cursor.rowcount)


async def restore_backup(url: str, file: Path, role: str = DEFAULT_ROLE) -> Backup:
    """Create the tables in a database that has none, or only empty ones, and fill them. All or nothing is written.

    `role` is the role of transactions, if the tables are created now.

    Raises:
        UnreadableInput: the file is not a backup, or is damaged.
        StoreRejected: the database has conversations, or the backup is of a newer version.
    """
    address = address_of(url)
    try:
        with ZipFile(file) as archive:
            backup = Backup.from_json(archive.read(_MANIFEST))
            db = await connect(url, address, CONNECT_SECONDS)
            async with db:
                with map_errors(address):
                    await _restore(db, address, role, archive, backup)
    except (BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, UnreadableInput):
            raise
        raise UnreadableInput(str(file), f"not a backup of a PostgreSQL database, or damaged ({error})") from error
    return backup


async def _restore(db: AsyncConnection, address: str, role: str, archive: ZipFile, backup: Backup) -> None:
    newest = migrations()[-1].number
    if backup.schema_version > newest:
        problem = f"the backup has schema version {backup.schema_version}, but this version supports up to {newest}"
        raise StoreRejected(address, f"{problem}; upgrade minutebook")
    async with db.transaction():
        await migrate(db, address, role, last=backup.schema_version)
        if await schema_version(db, address) != backup.schema_version:
            raise StoreRejected(address, "the database has tables of a newer version; restore into a new database")
        forced = [name for (name,) in await (await db.execute(_FORCED)).fetchall()]
        await _force_row_security(db, forced, "NO FORCE")  # COPY refuses tables with row-level security
        (role,) = await _row(db, "SELECT value FROM minutebook.setting WHERE name = 'role'")
        await db.execute("DELETE FROM minutebook.setting")
        for table in backup.tables:
            await _restore_table(db, address, archive, table)
        await db.execute("UPDATE minutebook.setting SET value = %s WHERE name = 'role'", (role,))
        for name, value in backup.sequences.items():
            await db.execute("SELECT setval(%s::regclass, %s)", (f'minutebook."{name}"', value))
        await _force_row_security(db, forced, "FORCE")
    await migrate(db, address, role)
    for table in backup.tables:
        await db.execute(sql.SQL("ANALYZE {}").format(sql.Identifier("minutebook", table.name)))


async def _restore_table(db: AsyncConnection, address: str, archive: ZipFile, table: BackupTable) -> None:
    columns, name = _names(table.name, table.columns)
    is_used = await _row(db, sql.SQL("SELECT EXISTS (SELECT FROM {})").format(name))
    if is_used[0]:
        raise StoreRejected(address, f"the table {table.name} has rows; restore into a new database")
    with archive.open(table.member) as member:
        async with db.cursor() as cursor:
            async with cursor.copy(sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(name, columns)) as copy:
                while data := _read(member):
                    await copy.write(data)
            if cursor.rowcount != table.rows:
                problem = f"the table {table.name} has {cursor.rowcount} rows, but the manifest says {table.rows}"
                raise UnreadableInput(str(archive.filename), f"is damaged: {problem}")


def _read(member: IO[bytes]) -> bytes:
    return member.read(CHUNK_BYTES)


async def _force_row_security(db: AsyncConnection, tables: Sequence[str], state: str) -> None:
    for name in tables:
        statement = sql.SQL("ALTER TABLE {} " + state + " ROW LEVEL SECURITY")
        await db.execute(statement.format(sql.Identifier("minutebook", name)))


async def _row(db: AsyncConnection, query: Any) -> Any:
    return await (await db.execute(query)).fetchone()


def _names(table: str, columns: Sequence[str]) -> tuple[sql.Composed, sql.Identifier]:
    return sql.SQL(", ").join(map(sql.Identifier, columns)), sql.Identifier("minutebook", table)
