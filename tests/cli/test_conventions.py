"""Conventions that hold for every command: help, previews, confirmation, completion, several files, exit codes."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from minutebook.cli.exits import __doc__ as exits_doc
from minutebook.cli.main import cli
from tests.cli.conftest import PROGRAM, Chat, Launch, OnDatabase, Run, inherited, talk


def all_commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


COMMANDS = {" ".join(path): command for path, command in all_commands()}
DELETING = {"erase", "gc", "keys revoke"}
"""Commands that delete data which cannot be restored."""
CHANGING = DELETING | {"compact", "undo", "repair", "agent fmt", "db migrate"}
"""Commands that change data which existed before."""
ADDING = {
    "import",
    "fork",
    "chat",
    "keys create",
    "keys rotate",
    "db init",
    "db backup",
    "export",
    "serve",
    "agent run",
    "convert",
}
"""Commands that only add data."""
FILE_COMMANDS = ("check", "repair", "tokens", "view", "import")


def option_names(name: str) -> set[str]:
    return {option for parameter in COMMANDS[name].params for option in parameter.opts}


@pytest.mark.parametrize("name", COMMANDS)
def test_h_shows_the_help_of_every_command(run: Run, name: str) -> None:
    short, long = run(*name.split(), "-h"), run(*name.split(), "--help")

    assert short.exit_code == long.exit_code == 0
    assert short.stdout == long.stdout
    assert short.stdout.startswith(f"Usage: minutebook {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_that_change_data_have_a_dry_run_and_those_that_delete_ask_first(name: str) -> None:
    options = option_names(name)

    assert ("--dry-run" in options) == (name in CHANGING)
    assert ("--yes" in options) == (name in DELETING)
    if name not in CHANGING | ADDING:
        assert not options & {"--write", "--force", "--overwrite"}


@pytest.mark.parametrize(
    "arguments", [("erase", "order-17"), ("gc",), ("gc", "--expire-after", "1m"), ("keys", "revoke")]
)
def test_what_would_be_deleted_stays_without_a_yes(
    kept: OnDatabase, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    if arguments[0] == "keys":
        arguments = (*arguments, json.loads(kept("keys", "create", "phone", "--json").stdout)["id"])
    kept("compact", "order-18")
    before = [kept("export", "--all").stdout, kept("keys", "list").stdout]

    dry, refused = kept(*arguments, "--dry-run"), kept(*arguments, stdin="n\n")

    assert dry.exit_code == 0
    assert "would" in dry.stdout
    assert refused.exit_code in {0, 1}  # 0 if there is nothing to delete
    assert [kept("export", "--all").stdout, kept("keys", "list").stdout] == before


def test_a_dry_run_of_undo_keeps_the_fold(kept: OnDatabase) -> None:
    fold = json.loads(kept("compact", "order-17", "--json").stdout)["folds"][0]["id"]

    dry = kept("undo", "order-17", fold, "--dry-run")

    assert dry.stdout == f"messages 1-36 of 'order-17' would no longer be folded (fold {fold})\n"
    assert json.loads(kept("show", "order-17", "--json").stdout)["folds"]


def test_a_dry_run_of_repair_reports_and_writes_nothing(run: Run, broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(broken))

    result = run("repair", path, "--write", "--dry-run")

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.endswith("1 of 1 conversations would be repaired, 2 repairs\n")
    assert json.loads(path.read_text()) == broken


def path_arguments() -> list[tuple[str, str]]:
    """Every argument and option that takes the name of a file."""
    return [
        (name, parameter.opts[0] if isinstance(parameter, click.Option) else "")
        for name, command in COMMANDS.items()
        for parameter in command.params
        if re.search(r"FILE|OUT", parameter.make_metavar(click.Context(command)))
    ]


@pytest.mark.parametrize(("name", "option"), path_arguments())
def test_file_names_complete_in_shells(name: str, option: str) -> None:
    words = " ".join(filter(None, ["minutebook", name, option]))
    variables = {
        "_MINUTEBOOK_COMPLETE": "bash_complete",
        "COMP_WORDS": f"{words} lo",
        "COMP_CWORD": str(len(words.split())),
    }

    result = subprocess.run(PROGRAM, capture_output=True, check=False, env=inherited() | variables, text=True)

    assert result.stdout.strip() == "file,lo"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with three files of a conversation each."""
    for number in range(3):
        (tmp_path / f"chat-{number}.json").write_text(json.dumps({"id": f"c{number}", "messages": talk(number + 1)}))
    return tmp_path


@pytest.mark.parametrize("name", FILE_COMMANDS)
def test_commands_accept_several_files_and_patterns(run: Run, files: Path, name: str) -> None:
    options = {"repair": ["--dry-run"], "import": ["--db", files / "chat.db"]}.get(name, [])

    several = run(name, *sorted(files.glob("*.json")), *options, "--json")
    pattern = run(name, files / "chat-*.json", *options, "--json")
    nothing = run(name, files / "nothing-*.json", *options)

    assert several.exit_code == pattern.exit_code == 0
    text = several.stdout if name != "import" else run("ls", "--json", *options).stdout
    assert all(f"c{number}" in text for number in range(3)) or name in {"check", "repair"}
    assert name == "import" or pattern.stdout == several.stdout
    assert nothing.exit_code == 3
    assert "nothing-*.json: no file matches this pattern" in nothing.stderr


def test_reports_over_several_files_name_the_file(run: Run, files: Path, broken: Chat) -> None:
    (files / "bad.json").write_text(json.dumps(broken))

    check, repair = run("check", files / "*.json"), run("repair", files / "*.json", "--write")

    assert check.stdout.startswith(f"{files}/bad.json: conversation 0\n")
    assert "4 conversations, 33 messages: " in check.stdout
    assert repair.stderr.startswith(f"{files}/bad.json: conversation 0\n")
    assert run("check", files / "*.json").exit_code == 0


@pytest.mark.parametrize("name", FILE_COMMANDS)
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_every_command_reads_an_export(kept: OnDatabase, run: Run, tmp_path: Path, name: str, suffix: str) -> None:
    kept("compact", "order-17")
    path = tmp_path / f"export{suffix}"
    assert kept("export", "--all", "-o", path).exit_code == 0
    options = ["--db", tmp_path / "other.db"] if name == "import" else []

    result = run(name, path, *options)

    assert result.exit_code == 0
    if name == "check":
        assert result.stdout == "3 conversations, 59 messages: nothing that openai would reject\n"
    if name == "tokens":
        assert "order-17" in result.stdout
    if name == "view":
        chosen = run(name, path, "--conversation", "order-18", "--messages")
        assert json.loads(chosen.stdout) == talk(2)


def test_a_repaired_export_can_be_imported(run: Run, tmp_path: Path, broken: Chat) -> None:
    source, export, target = tmp_path / "bad.json", tmp_path / "export.jsonl", ("--db", tmp_path / "new.db")
    source.write_text(
        "\n".join(
            json.dumps({"id": name, "messages": messages}) for name, messages in (("bad", broken), ("good", talk(2)))
        )
    )
    run("import", source, "--db", tmp_path / "old.db")
    run("export", "--all", "--db", tmp_path / "old.db", "-o", export)
    good_lines = [line for line in export.read_bytes().splitlines() if b"tea shop" in line or b"order 100" in line]

    assert run("repair", export, "--write").exit_code == 0
    assert run("import", export, *target).exit_code == 0

    shown = json.loads(run("show", "bad", "--all", "--json", *target).stdout)
    repaired = json.loads(run("repair", source, "--json").stdout.splitlines()[0])
    assert [row["message"] for row in shown["messages"]] == repaired["messages"]
    assert set(good_lines) <= set(export.read_bytes().splitlines())


def documented_exit_codes() -> set[int]:
    return {int(code) for code in re.findall(r"^\| (\d+) \|", exits_doc or "", re.MULTILINE)}


def test_every_documented_exit_code_is_produced(launch: Launch, tmp_path: Path, whole: Chat, broken: Chat) -> None:
    good, bad, taken = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "taken.jsonl"
    good.write_text(json.dumps(whole))
    bad.write_text(json.dumps(broken))
    taken.write_text("\n".join(json.dumps({"id": "same", "messages": messages}) for messages in (talk(2), whole)))
    runs = {
        0: ("check", good),
        1: ("import", taken, "--db", tmp_path / "chat.db"),
        2: ("check", good, "--provider", "nobody"),
        3: ("check", tmp_path / "missing.json"),
        5: ("check", os.devnull),
        6: ("check", bad),
    }
    signals = {130, 141, 143}  # in test_main.py and test_store_transfer.py

    assert {code: launch(*arguments).returncode for code, arguments in runs.items()} == {code: code for code in runs}
    assert documented_exit_codes() == runs.keys() | signals
