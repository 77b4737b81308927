import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import click
import pytest
from click.testing import CliRunner

from minutebook.cli import database
from minutebook.cli.commands.db import command
from minutebook.cli.main import cli
from tests.cli.conftest import Chat, OnDatabase, Run


@pytest.fixture
def file(kept: OnDatabase, tmp_path: Path) -> Iterator[apsw.Connection]:
    """The file of the database, for whoever would damage it."""
    with closing(apsw.Connection(str(tmp_path / "chat.db"))) as db:
        yield db


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_command_and_option_has_help_with_an_example(name: str) -> None:
    inner = command.commands[name]

    assert "Example: minutebook db" in (inner.help or "")
    for option in inner.params:
        assert isinstance(option, click.Argument) or "Example: " in getattr(option, "help", "")


def test_init_makes_a_database_and_may_be_repeated(on: OnDatabase, tmp_path: Path) -> None:
    for _ in range(2):
        result = on("db", "init")
        assert result.exit_code == 0
        assert result.stdout == f"{tmp_path / 'chat.db'} is ready\n"
    assert on("ls").exit_code == 0


def test_migrate_brings_an_older_file_up_to_date_and_status_does_not(on: OnDatabase, tmp_path: Path) -> None:
    on("db", "init")
    newest = json.loads(on("db", "status", "--json").stdout)["newest_schema_version"]
    assert on("db", "migrate").stdout == f"{tmp_path / 'chat.db'} is up to date, at schema version {newest}\n"
    (tmp_path / "chat.db").unlink()
    with closing(apsw.Connection(str(tmp_path / "chat.db"))) as empty:  # as it is before the first step
        empty.execute("PRAGMA application_id = 0x6D626B31")

    assert json.loads(on("db", "status", "--json").stdout)["schema_version"] == 0
    assert on("db", "migrate").stdout == f"{tmp_path / 'chat.db'} was migrated from schema version 0 to {newest}\n"


def test_status_counts_what_there_is(kept: OnDatabase, tmp_path: Path) -> None:
    kept("compact", "order-17")
    kept("erase", "hello", "--yes")

    found = json.loads(kept("db", "status", "--json").stdout)
    said = kept("db", "status").stdout

    wanted = {"tenants": 1, "conversations": 2, "entries": 58, "folds": 1, "pins": 0, "erased": 1}
    assert wanted.items() <= found.items()
    assert found["bytes"] == (tmp_path / "chat.db").stat().st_size
    assert f"file                   {tmp_path / 'chat.db'}\n" in said
    assert "conversations          2\n" in said


def test_check_reads_everything_and_finds_nothing_wrong(kept: OnDatabase) -> None:
    kept("fork", "order-17", "again", "--at", "5")

    result = kept("db", "check")

    assert result.exit_code == 0
    assert result.stdout == "4 conversations with 64 messages checked: 0 findings\n"


def test_check_finds_messages_that_are_gone(kept: OnDatabase, file: apsw.Connection) -> None:
    for where in ("key & 0xffffffff = 3", "key & 0xffffffff > 45"):
        file.execute(f"DELETE FROM entry WHERE key >> 32 = 1 AND {where}")

    result = kept("db", "check")

    assert result.exit_code == 6
    assert "'order-17': message 3 is missing\n" in result.stdout
    assert "'order-17': messages 46-48 are missing\n" in result.stdout
    assert "'order-17': message 2: a tool call has no result ('call_0')\n" in result.stdout
    assert "'order-18'" not in result.stdout


def test_check_finds_a_header_that_is_wrong(kept: OnDatabase, file: apsw.Connection) -> None:
    file.execute("UPDATE conversation SET turns = 5 WHERE id = 'order-18'")
    file.execute("""UPDATE conversation SET open_calls = '["a"]', open_at = 8 WHERE id = 'order-18'""")

    problems = [each["problem"] for each in json.loads(kept("db", "check", "--json").stdout)["findings"]]

    assert problems == [
        "the header counts 5 turns, but the conversation has 2",
        "the header counts 1 open calls, but the conversation has 0",
    ]


def test_check_finds_records_that_came_broken(on: OnDatabase, broken: Chat) -> None:
    on("import", "-", stdin=json.dumps(broken))

    result = on("db", "check")

    assert result.exit_code == 6
    assert "'stdin': message 2: a tool call has no result ('a')" in result.stdout


def test_check_finds_an_index_that_does_not_match(kept: OnDatabase, file: apsw.Connection) -> None:
    file.execute("PRAGMA writable_schema = ON")
    file.execute("UPDATE sqlite_schema SET sql = replace(sql, 'recipient,', 'id,') WHERE name LIKE '%by_recipient'")
    file.close()

    result = kept("db", "check")

    assert result.exit_code == 6
    assert "the database: " in result.stdout


def test_a_backup_is_the_whole_database_while_others_write(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with closing(apsw.Connection(str(tmp_path / "chat.db"))) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM conversation")
        result = kept("db", "backup", copy)
        other.execute("ROLLBACK")

    assert result.exit_code == 0
    assert kept("export", "--all").stdout == run("export", "--all", "--db", f"sqlite:///{copy}").stdout
    assert run("db", "check", "--db", f"sqlite:///{copy}").exit_code == 0
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_backup_overwrites_nothing(kept: OnDatabase, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")

    assert kept("db", "backup", tmp_path / "mine").exit_code == 2
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("operation", ["backup", "restore"])
def test_a_redis_server_is_copied_by_its_own_snapshots(run: Run, tmp_path: Path, operation: str) -> None:
    file = tmp_path / "copy.db"
    if operation == "restore":
        file.write_bytes(b"")

    result = run("db", operation, file, "--db", "redis://127.0.0.1:1")

    assert result.exit_code == 2
    assert "use the snapshots of the server" in result.stderr


def test_a_backup_is_restored_into_a_new_file(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy.db", tmp_path / "new.db"
    kept("db", "backup", copy)

    result = run("db", "restore", copy, "--db", new)

    assert result.stdout == f"{new} restored from {copy}: {new.stat().st_size:,} bytes\n"
    assert run("export", "--all", "--db", new).stdout == kept("export", "--all").stdout
    assert new.stat().st_mode & 0o077 == 0
    assert run("db", "restore", copy, "--db", new).exit_code == 2  # nothing is overwritten


def test_a_damaged_backup_is_not_restored(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy.db", tmp_path / "new.db"
    kept("db", "backup", copy)
    with copy.open("r+b") as damaged:
        damaged.seek(5 * 1024)
        damaged.write(b"x" * 4096)

    assert run("db", "restore", copy, "--db", new).exit_code == 1
    assert not new.exists()


@pytest.mark.parametrize("url", ["postgresql://bob:secret@127.0.0.1:1/none", "redis://bob:secret@127.0.0.1:1"])
def test_a_server_that_is_away_is_an_error_that_keeps_the_password(run: Run, url: str) -> None:
    result = run("ls", "--db", url)

    assert result.exit_code == 1
    assert "secret" not in result.output


def test_a_database_is_encrypted_in_place_and_needs_its_key(kept: OnDatabase, run: Run, tmp_path: Path) -> None:
    key_file = tmp_path / "chat.key"
    key_file.write_bytes(bytes(range(32)))
    with_key = ("--db", f"sqlite:///{tmp_path / 'chat.db'}?encryption_key_file={key_file}")
    before = kept("show", "order-17", "--all").stdout

    assert "3 conversations were encrypted" in kept("db", "encrypt", "--key-file", key_file).stdout
    status = json.loads(kept("db", "status", "--json").stdout)
    assert (status["tenants"], status["conversations"]) == (1, 3)

    for arguments in (("compact", "order-17"), ("show", "order-17"), ("db", "check"), ("ls",), ("search", "order")):
        result = kept(*arguments)
        assert result.exit_code == 2
        assert "MINUTEBOOK_ENCRYPTION_KEY_FILE" in result.stderr
    assert run("show", "order-17", "--all", *with_key).stdout == before
    assert run("db", "check", *with_key).exit_code == 0
    assert "0 conversations were encrypted" in kept("db", "encrypt", "--key-file", key_file).stdout
    assert run("compact", "order-17", *with_key).exit_code == 0
    environment = {"MINUTEBOOK_ENCRYPTION_KEY_FILE": str(key_file)}
    shell = CliRunner(env=environment)
    assert shell.invoke(cli, ["ls", "--db", f"sqlite:///{tmp_path / 'chat.db'}"]).exit_code == 0
    key_file.write_bytes(bytes(range(1, 33)))
    assert "the key given is" in run("show", "order-17", *with_key).stderr


def test_status_does_not_count_all_rows_of_a_large_database(
    kept: OnDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_COUNT", 2)

    found = database.file_status(tmp_path / "chat.db")

    assert (found["conversations"], found["entries"]) == (2, 2)
    assert found["more_than"] == ["conversations", "entries", "indexed", "tenants"]
    assert "entries                more than 2" in database.status_lines(found)
