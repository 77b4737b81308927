"""Every version opens the databases of all released versions."""

import asyncio
import shutil
from pathlib import Path

import psycopg
import pytest

from minutebook.errors import ConversationErased, RecipientBlocked, StoreRejected
from minutebook.store import MemoryStore, open_store
from minutebook.store.postgres.jobs import job_migrations
from minutebook.store.sql import migrations as sql_migrations
from minutebook.store.sqlite.connection import migrations
from minutebook.testing.contract.samples import expect_error, text_entries
from tests.servers import require_postgres, shared
from tests.store.redis.servers import new_url
from tests.store.released import FOLDER, KEY, TIME, contents, fill, restore_postgres, restore_redis

DATABASES = sorted(path.name for path in FOLDER.iterdir())
RELEASED = [
    ("sqlite", "0001_first", "2f4245e43fdc97cf9684bec5f3dc320b9afe4614324b4d47e78974e74a248600"),
    ("postgres", "0001_first", "596fdb4e3680e7bda49e768eb7c6cba79ee103bf75be22272f6167c5b4001579"),
]
"""Engine, name and checksum, without comments, of each migration that was released."""
RELEASED_JOBS = {"migration 0001_first": "6e462795b4db56475db690f0dc7f0660b3782ebff2db4e5e135a0a32e2806358"}
"""The same of the migrations of the job queue."""


@pytest.fixture
def new_database():
    """The URL of a new, empty PostgreSQL database."""
    require_postgres()
    url, root_url = shared.url(), shared.root_url()
    parts = psycopg.conninfo.conninfo_to_dict(url)
    name = f"{parts['dbname']}_released"  # each process of a test run has its own
    with psycopg.connect(root_url, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name}")
        db.execute(f"CREATE DATABASE {name} OWNER {parts['user']}")
    yield psycopg.conninfo.make_conninfo(url, dbname=name)
    with psycopg.connect(root_url, autocommit=True) as db:
        db.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def restored(request, tmp_path):
    """The URL of a copy of a stored database."""
    name = request.param
    if name.endswith(".redis.json"):
        url = new_url()
        restore_redis(url, FOLDER / name)
        return url
    if name.endswith(".sqlite"):
        shutil.copy(FOLDER / name, tmp_path / "chat.db")
        if name.endswith(".encrypted.sqlite"):
            (tmp_path / "key").write_bytes(KEY)
            return f"sqlite:///{tmp_path / 'chat.db'}?encryption_key_file={tmp_path / 'key'}"
        return f"sqlite:///{tmp_path / 'chat.db'}"
    conninfo = request.getfixturevalue("new_database")
    restore_postgres(conninfo, FOLDER / name)
    parts = psycopg.conninfo.conninfo_to_dict(conninfo)
    return f"postgresql://{parts['user']}@{parts['host']}:{parts['port']}/{parts['dbname']}"


@pytest.mark.parametrize(("package", "name", "checksum"), RELEASED)
def test_a_released_migration_is_never_changed(package, name, checksum):
    """To change the schema, add a migration, and its checksum to `RELEASED`."""
    settings = [migration.setting for migration in sql_migrations.load_migrations(f"minutebook.store.{package}")]

    assert (f"migration {name}", checksum) in settings


def test_each_migration_is_in_the_list_of_released_ones():
    for package in ("sqlite", "postgres"):
        names = [migration.name for migration in sql_migrations.load_migrations(f"minutebook.store.{package}")]
        assert names == [name for released_package, name, _ in RELEASED if released_package == package]


def test_a_released_migration_of_the_job_queue_is_never_changed():
    """To change its tables or functions, add a migration, also for new tables of procrastinate."""
    assert dict(migration.setting for migration in job_migrations()) == RELEASED_JOBS


def test_each_schema_version_has_stored_databases():
    numbers = [f"{migration.number:04}" for migration in migrations()]

    engines = ("encrypted.sqlite", "postgres.sql", "redis.json", "sqlite")
    assert sorted(f"{number}.{engine}" for number in numbers for engine in engines) == DATABASES


@pytest.mark.parametrize("restored", DATABASES, indirect=True)
def test_a_stored_database_of_each_released_version_is_opened(restored):
    async def expected():
        async with MemoryStore(clock=lambda: TIME) as store:
            await fill(store)
            return await contents(store)

    async def scenario():
        async with open_store(restored) as store:
            found = await contents(store)
            assert await store.append("order-1", text_entries("more"), expected_version=1) == 2
            assert await store.append("order-1", text_entries("again"), idempotency_key="k") == 3
            await expect_error(ConversationErased, store.append("gone", text_entries("late")))
            await expect_error(RecipientBlocked, store.append("new", text_entries("late"), recipient="bob"))
            assert [hit.position for hit in (await store.search("more")).items] == [15]
            await store.erase(recipient="alice")
            return found

    assert asyncio.run(scenario()) == asyncio.run(expected())


@pytest.mark.parametrize("restored", [name for name in DATABASES if "redis" not in name], indirect=True)
def test_a_modified_migration_is_refused_by_name(restored, monkeypatch):
    package = "minutebook.store.postgres" if restored.startswith("postgresql") else "minutebook.store.sqlite"
    first, *others = sql_migrations.load_migrations(package)
    modified = [first._replace(script=f"{first.script}\nSELECT 1;"), *others]
    monkeypatch.setattr(f"{package}.connection.load_migrations", lambda _package: modified)

    async def scenario():
        async with open_store(restored):
            pass

    with pytest.raises(StoreRejected, match=f"has run another version of migration {first.name}"):
        asyncio.run(scenario())


def test_the_stored_databases_are_small():
    assert max(Path(FOLDER / name).stat().st_size for name in DATABASES) < 250_000
