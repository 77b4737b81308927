"""The commands of `minutebook db` on PostgreSQL, and backups that are restored on a second server."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import psycopg
import pytest

from minutebook import open_store
from minutebook.store import NewDocument
from minutebook.testing.contract.samples import summary_fold, text_entries, turns
from tests.cli.conftest import Run
from tests.servers import Postgres, require_postgres


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Postgres, Postgres]]:
    """Two servers with different owners."""
    require_postgres()
    both = Postgres.make(), Postgres.make()
    yield both
    for server in both:
        server.remove()


@pytest.fixture
def urls(servers: tuple[Postgres, Postgres]) -> tuple[str, str]:
    """A new database on each server, owned by a role without superuser rights."""
    return new_database(servers[0], "alice"), new_database(servers[1], "bob")


def new_database(server: Postgres, owner: str) -> str:
    with psycopg.connect(server.url(), autocommit=True) as db:
        if not db.execute("SELECT FROM pg_roles WHERE rolname = %s", (owner,)).fetchall():
            db.execute(f"CREATE ROLE {owner} LOGIN CREATEROLE")
        db.execute("DROP DATABASE IF EXISTS chat")
        db.execute(f"CREATE DATABASE chat OWNER {owner}")
    return str(server.url("chat", owner))


def fill(url: str) -> None:
    """Store conversations of two tenants, with every kind of row."""

    async def scenario() -> None:
        async with open_store(url, search="english") as store:
            for tenant in ("default", "other"):
                own = store.for_tenant(tenant)
                await own.append("a", [*turns(5), *text_entries("large " * 5_000)], idempotency_key="k")
                await own.add_fold("a", summary_fold("f", 0, 5))
                await own.pin("a", 1)
                await own.put_document("a", NewDocument("reply", "r", {"x": 1}))
                await own.fork("a", "b", at=10)
                await own.append("gone", text_entries("gone"))
                await own.erase(conversation="gone")

    asyncio.run(scenario())


def contents(url: str) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table, as the superuser sees them."""
    root = f"postgresql://postgres@{url.partition('@')[2]}"
    with psycopg.connect(root) as db:
        names = db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'minutebook'::regnamespace AND relkind IN ('r', 'p')"
            " AND relname <> 'removed' AND NOT relispartition"
        ).fetchall()
        return {name: sorted(db.execute(f"SELECT t::text FROM minutebook.{name} AS t").fetchall()) for (name,) in names}


def test_init_writes_reads_and_removes_a_conversation_before_it_reports_success(
    run: Run, servers: tuple[Postgres, Postgres], urls: tuple[str, str]
) -> None:
    url = urls[0]
    assert run("db", "init", "--db", url).stdout == "the database is ready\n"
    assert not any(rows for name, rows in contents(url).items() if name != "setting")
    assert run("ls", "--db", f"{url}?search=english").exit_code == 0  # still new: settings can be chosen

    with psycopg.connect(servers[0].url("chat"), autocommit=True) as db:
        db.execute("REVOKE INSERT ON minutebook.entry FROM minutebook_app")
    result = run("db", "init", "--db", url)

    assert result.exit_code == 1
    assert "permission denied for table entry" in result.stderr
    assert "ready" not in result.output


def test_init_fails_for_a_user_who_may_not_use_the_role(
    run: Run, servers: tuple[Postgres, Postgres], urls: tuple[str, str]
) -> None:
    run("db", "init", "--db", urls[0])
    with psycopg.connect(servers[0].url("chat"), autocommit=True) as db:
        if not db.execute("SELECT FROM pg_roles WHERE rolname = 'guest'").fetchall():
            db.execute("CREATE ROLE guest LOGIN")
        db.execute("GRANT minutebook_app TO guest WITH SET FALSE")  # a member, but not one who may SET ROLE

    result = run("db", "init", "--db", servers[0].url("chat", "guest"))

    assert result.exit_code == 1
    assert 'permission denied to set role "minutebook_app"' in result.stderr


def test_status_changes_nothing(run: Run, urls: tuple[str, str]) -> None:
    url = urls[0]
    before = json.loads(run("db", "status", "--db", url, "--json").stdout)
    assert (before["schema_version"], before.get("conversations")) == (0, None)
    with psycopg.connect(url) as db:
        assert not db.execute("SELECT FROM pg_namespace WHERE nspname = 'minutebook'").fetchall()

    fill(url)
    after = json.loads(run("db", "status", "--db", url, "--json").stdout)

    expected = {"conversations": 2, "entries": 36, "turns": 8, "tenant": "default"}
    assert expected.items() <= after.items()
    assert after["schema_version"] == after["newest_schema_version"]


def test_a_backup_is_restored_on_another_server_with_another_owner_and_role(
    run: Run, urls: tuple[str, str], tmp_path: Path
) -> None:
    source, target = urls
    file = tmp_path / "chat.backup"
    fill(source)

    assert run("db", "backup", file, "--db", source).exit_code == 0
    result = run("db", "restore", file, "--db", f"{target}?role=bobs_app")

    assert result.stdout == f"4 conversations restored from {file}\n"
    before, after = contents(source), contents(target)
    assert {row for row in after["setting"] if row not in before["setting"]} == {("(role,bobs_app)",)}
    del before["setting"], after["setting"]
    assert before == after
    assert len(before["word"]) > 0
    assert file.stat().st_mode & 0o077 == 0
    for tenant in ("default", "other"):
        exported = [run("export", "--all", "--tenant", tenant, "--db", url).stdout for url in urls]
        assert exported[0] == exported[1] != ""

    async def use() -> None:
        async with open_store(target) as store:
            assert await store.append("new", turns(1)) == 1  # numbers continue after those of the backup
            assert [hit.conversation for hit in (await store.search("questions")).items][:1] == ["new"]

    asyncio.run(use())
    assert run("db", "init", "--db", target).exit_code == 0


def test_a_restore_needs_an_empty_database_and_an_undamaged_file(
    run: Run, urls: tuple[str, str], tmp_path: Path
) -> None:
    source, target = urls
    file, damaged = tmp_path / "chat.backup", tmp_path / "damaged"
    fill(source)
    run("db", "backup", file, "--db", source)
    with ZipFile(file) as archive:
        entries = archive.getinfo("entry.copy")
    content = bytearray(file.read_bytes())
    content[entries.header_offset + 100 + entries.compress_size // 2] ^= 0xFF
    damaged.write_bytes(content)

    assert "has rows; restore into a new database" in run("db", "restore", file, "--db", source).stderr
    result = run("db", "restore", damaged, "--db", target)
    assert result.exit_code != 0
    assert "damaged" in result.stderr
    with psycopg.connect(target) as db:
        assert not db.execute("SELECT FROM pg_namespace WHERE nspname = 'minutebook'").fetchall()
    assert run("db", "restore", file, "--db", target).exit_code == 0


def test_only_the_owner_can_make_a_backup(
    run: Run, servers: tuple[Postgres, Postgres], urls: tuple[str, str], tmp_path: Path
) -> None:
    fill(urls[0])
    with psycopg.connect(servers[0].url("chat"), autocommit=True) as db:
        if not db.execute("SELECT FROM pg_roles WHERE rolname = 'reader'").fetchall():
            db.execute("CREATE ROLE reader LOGIN")
        db.execute("GRANT minutebook_app TO reader")

    result = run("db", "backup", tmp_path / "copy", "--db", servers[0].url("chat", "reader"))

    assert "only the owner of the tables may back them up" in result.stderr
    assert not (tmp_path / "copy").exists()


def test_a_backup_of_another_kind_of_database_is_refused(run: Run, urls: tuple[str, str], tmp_path: Path) -> None:
    fill(urls[0])
    run("db", "init", "--db", tmp_path / "chat.db")
    for url, file in ((urls[0], "server"), (str(tmp_path / "chat.db"), "file")):
        assert run("db", "backup", tmp_path / file, "--db", url).exit_code == 0

    assert "not a backup of a PostgreSQL database" in run("db", "restore", tmp_path / "file", "--db", urls[1]).stderr
    result = run("db", "restore", tmp_path / "server", "--db", tmp_path / "new.db")
    assert "not a backup of a SQLite database" in result.stderr
    assert not (tmp_path / "new.db").exists()
