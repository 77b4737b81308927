import json
from pathlib import Path

import pytest

from minutebook import Conversation
from minutebook.store.scan import MAX_SCANNED_ENTRIES
from tests.cli.conftest import OnDatabase, Run, rows


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("show", "a"),
        ("search", "a"),
        ("export", "a"),
        ("compact", "a"),
        ("undo", "a", "b"),
        ("fork", "a", "b"),
        ("erase", "a", "--yes"),
        ("db", "migrate"),
        ("db", "status"),
        ("db", "check"),
        ("db", "backup", "copy.db"),
    ],
    ids=" ".join,
)
def test_a_database_that_is_not_there_is_not_made_by(
    on: OnDatabase, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    result = on(*arguments)

    assert result.exit_code == 3
    assert "chat.db: no such database" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [("show", "order-1"), ("export", "order-1"), ("compact", "order-1"), ("compact", "order-1", "--dry-run"),
     ("undo", "order-1", "b"), ("fork", "order-1", "b"), ("erase", "order-1", "--yes"),
     ("search", "a", "--id", "order-1")],
    ids=" ".join,
)  # fmt: skip
def test_a_conversation_that_is_not_there_ends_with_3_and_a_hint(kept: OnDatabase, arguments: tuple[str, ...]) -> None:
    result = kept(*arguments)

    assert result.exit_code == 3
    assert "conversation 'order-1' does not exist" in result.stderr
    assert "did you mean 'order-18'?" in result.stderr
    assert result.stdout == ""


def test_where_nobody_says_where_it_is_in_the_folder_for_state(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "50% of my state?"))

    assert run("ls").exit_code == 3
    assert run("db", "init").exit_code == 0
    assert run("ls").exit_code == 0
    file = tmp_path / "50% of my state?" / "minutebook" / "minutebook.db"
    assert file.exists()
    assert file.parent.stat().st_mode & 0o077 == 0


def test_the_environment_names_the_database_and_the_tenant(run: Run, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from minutebook.cli.main import cli

    told = {"MINUTEBOOK_DB": f"sqlite:///{tmp_path / 'told.db'}", "MINUTEBOOK_TENANT": "acme"}
    shell = CliRunner(env=told)

    made = shell.invoke(cli, ["import", "-"], input=json.dumps([{"role": "user", "content": "Hello"}]))

    assert made.exit_code == 0
    assert [row["tenant"] for row in rows(shell.invoke(cli, ["ls", "--json"]))] == ["acme"]
    assert rows(run("ls", "--json", "--db", told["MINUTEBOOK_DB"])) == []


@pytest.mark.parametrize("url", ["memory:", "mysql://x", "postgres//x", "sqlite:chat.db"])
def test_a_database_that_cannot_be_meant_is_wrong_usage(run: Run, url: str) -> None:
    assert run("ls", "--db", url).exit_code == 2


def test_a_file_name_is_a_database(run: Run, kept: OnDatabase, tmp_path: Path) -> None:
    assert rows(run("ls", "--json", "--db", tmp_path / "chat.db")) == rows(kept("ls", "--json"))

    missing = run("ls", "--db", tmp_path / "other.db")

    assert missing.exit_code == 3
    assert "other.db: no such database" in missing.stderr


def test_a_file_that_is_no_database_is_an_error_and_no_traceback(on: OnDatabase, tmp_path: Path) -> None:
    (tmp_path / "chat.db").write_text("not a database at all" * 100)

    for arguments in (["ls"], ["db", "status"], ["db", "check"], ["db", "backup", str(tmp_path / "copy.db")]):
        result = on(*arguments)
        assert result.exit_code == 1, arguments
        assert "file is not a database" in result.stderr
    assert not (tmp_path / "copy.db").exists()


def test_ls_shows_the_newest_first_and_says_when_there_are_more(kept: OnDatabase) -> None:
    result = kept("ls", "--limit", "2")

    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:5] for line in lines] == [
        ["id", "recipient", "status", "turns", "messages"],
        ["hello", "alice", "idle", "1", "1"],
        ["order-18", "alice", "idle", "2", "9"],
    ]
    assert result.stderr == "only the newest 2 conversations are shown; --all shows all\n"
    assert "order-17" in kept("ls", "--limit", "2", "--all").stdout


def test_ls_chooses_by_recipient_and_status(kept: OnDatabase) -> None:
    assert [row["id"] for row in rows(kept("ls", "--json"))] == ["hello", "order-18", "order-17"]
    assert [row["id"] for row in rows(kept("ls", "--json", "--limit", "1"))] == ["hello"]
    assert rows(kept("ls", "--json", "--recipient", "bob")) == []
    assert rows(kept("ls", "--json", "--status", "closed")) == []
    assert kept("ls", "--status", "closed").stderr == "no conversations\n"
    assert kept("ls", "--status", "sleeping").exit_code == 2


def test_show_has_the_last_turns_to_read(kept: OnDatabase) -> None:
    result = kept("show", "order-18", "--turns", "1")

    assert "order-18 with alice: 2 turns, 9 messages, idle" in result.stdout
    assert "5 user      Where is order 1001?" in result.stdout
    assert "→ find_order()" in result.stdout
    assert "1000" not in result.stdout
    assert result.stderr == "the last 1 of 2 turns; --all shows all\n"
    assert "Where is order 1000?" in kept("show", "order-18", "--all").stdout


def test_show_marks_what_is_folded_and_shows_what_stands_for_it(kept: OnDatabase) -> None:
    fold = json.loads(kept("compact", "order-17", "--json").stdout)["folds"][0]

    whole = kept("show", "order-17", "--all").stdout
    folded = kept("show", "order-17", "--all", "--folded").stdout

    assert f"1-36 folded as {fold['id']}" in whole
    assert f"1-36 folded as {fold['id']}" in folded
    assert "│ 36 assistant Order 1008" in whole
    assert "\n  37 user      Where is order 1009" in whole
    assert "Earlier conversation summary" not in whole
    assert "Earlier conversation summary" in folded
    assert " 36 " not in folded


def test_long_ids_leave_room_for_the_rest(on: OnDatabase) -> None:
    name = "a-conversation-with-a-very-long-id-that-does-not-fit-into-half-a-line-of-80-columns"
    text = "first line\r\nsecond line with parcel"
    on("import", "-", stdin=json.dumps({"id": name, "messages": [{"role": "user", "content": text}]}))

    found, listed, shown = on("search", "parcel"), on("ls"), on("show", name)

    assert ":0" in found.stdout
    assert "".join(line.split()[0] for line in listed.stdout.splitlines()[1:] if line.strip()).count(name) <= 1
    assert shown.stdout.count(name) == 1
    assert "\N{REPLACEMENT CHARACTER}" not in shown.stdout


def test_why_without_a_recorded_request_says_what_records_one(kept: OnDatabase) -> None:
    result = kept("why", "order-17", "--json")

    assert result.exit_code == 3
    assert "has no recorded request; chat, serve" in json.loads(result.stderr)["error"]["message"]


def test_why_names_a_request_that_does_not_exist(tmp_path: Path, run: Run) -> None:
    with Conversation("order-19", store=tmp_path / "chat.db") as chat:
        chat.append("Where is my order?")
        chat.view()
        chat.view()

    result = run("why", "order-19", "--request", 9, "--db", tmp_path / "chat.db")

    assert result.exit_code == 3
    assert result.stderr == "error: conversation 'order-19' has no request 9; its newest request is 2\n"


def test_show_as_json_has_every_message_whole(kept: OnDatabase) -> None:
    document = json.loads(kept("show", "order-18", "--all", "--json").stdout)

    assert document["conversation"]["turns"] == 2
    assert [row["position"] for row in document["messages"]] == list(range(9))
    assert document["messages"][3]["message"]["content"] == "order 1000 is packed"


def test_what_was_said_cannot_steer_the_terminal(on: OnDatabase) -> None:
    said = [{"role": "user", "content": "red \x1b[31m alert\nsecond line [bold]"}]
    on("import", "-", stdin=json.dumps({"id": "evil\x1b[2J", "messages": said}))

    for result in (on("show", "evil\x1b[2J"), on("search", "alert"), on("ls")):
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
    assert "second line [bold]" in on("show", "evil\x1b[2J").stdout


def test_search_finds_all_words_in_any_order_and_shows_where(kept: OnDatabase) -> None:
    result = kept("search", "TODAY order 1001")

    assert "order-17:8" in result.stdout
    assert "order-18:8" in result.stdout
    assert "Order 1001 leaves today." in result.stdout
    found = rows(kept("search", "today order 1001", "--id", "order-18", "--json"))
    assert [(row["conversation"], row["position"], row["snippet"]) for row in found] == [
        ("order-18", 8, "Order 1001 leaves today.")
    ]
    assert rows(kept("search", "today", "--recipient", "bob", "--json")) == []


def test_search_says_when_there_is_nothing_and_when_there_is_more(kept: OnDatabase) -> None:
    assert kept("search", "unicorn").stderr == "no message matches\n"
    assert (
        kept("search", "today", "--limit", "3").stderr == "only the first 3 hits are shown; use --limit N to see more\n"
    )
    assert kept("search", "?!").exit_code == 2
    assert "supported: words" in kept("search", "role:user").stderr


def test_search_without_an_index_reads_on_until_it_finds_something(run: Run, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("ab" * 32)
    db = ("--db", f"sqlite:///{tmp_path / 'chat.db'}?encryption_key_file={tmp_path / 'key'}")
    texts = ["the first unicorn", *(f"line {number}" for number in range(MAX_SCANNED_ENTRIES + 1)), "a second unicorn"]
    messages = [{"role": "user", "content": text} for text in texts]
    run("import", "-", *db, stdin=json.dumps({"id": "long", "messages": messages}))

    first, none, limited = run("search", "first", *db), run("search", "dragon", *db), run("search", "line", *db)

    assert "long:0" in first.stdout
    assert first.stderr == ""
    assert none.stderr == "no message matches\n"
    assert limited.stderr == "only the first 20 hits are shown; use --limit N to see more\n"
    assert [row["position"] for row in rows(run("search", "unicorn", "--json", *db))] == [len(texts) - 1, 0]


def test_search_selects_by_role_and_date(kept: OnDatabase) -> None:
    everything = rows(kept("search", "today OR order", "--json"))
    users = rows(kept("search", "today OR order", "--role", "user", "--json"))

    assert {row["role"] for row in users} == {"user"}
    assert len(users) < len(everything)
    assert rows(kept("search", "today OR order", "--since", "2999-01-01", "--json")) == []
    assert rows(kept("search", "today OR order", "--until", "2999-01-01", "--json")) == everything
