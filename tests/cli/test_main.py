import gzip
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from minutebook import __version__
from minutebook.cli.exits import exit_code
from minutebook.cli.main import COMMANDS, cli
from tests.cli.conftest import PROGRAM, Chat, Launch, Run, inherited
from tests.test_errors import EXAMPLES


def test_the_version_is_the_packages(launch: Launch) -> None:
    assert launch("--version").stdout.decode() == f"minutebook {__version__}\n"


def test_help_names_every_command_and_the_exit_codes(launch: Launch) -> None:
    text = launch("--help").stdout.decode()

    assert all(f"  {name} " in text for name in COMMANDS)
    assert "6 success with findings" in text
    assert "..." not in text.split("Commands:")[1]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_help_with_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.get_short_help_str(200) == COMMANDS[name]
    assert "Example: minutebook" in (command.help or "") or name == "completion"
    for option in command.params:
        assert isinstance(option, click.Argument) or "Example: " in getattr(option, "help", "")


def test_it_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "minutebook", "--version"], capture_output=True, check=True, text=True)

    assert done.stdout == f"minutebook {__version__}\n"


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom minutebook.cli.main import cli\ntry: cli(['--help'])\nexcept SystemExit: print(*sys.modules)"
    )

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout.split()

    assert not {"rich", "splintr", "tiktoken", "minutebook.history.view", "minutebook.testing"} & set(loaded)


def test_a_mistyped_command_gets_a_hint(run: Run) -> None:
    result = run("chek")

    assert result.exit_code == 2
    assert "Did you mean 'check'?" in result.stderr


def test_a_whole_file_ends_with_0_and_a_broken_one_with_6(
    launch: Launch, whole: Chat, broken: Chat, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json.gz"
    good.write_text(json.dumps(whole))
    bad.write_bytes(gzip.compress(json.dumps(broken).encode()))

    assert launch("check", good).returncode == 0
    assert launch("check", bad).returncode == 6


@pytest.mark.parametrize("command", ["check", "repair", "tokens", "view"])
def test_a_missing_file_ends_with_3_and_one_line(run: Run, command: str) -> None:
    result = run(command, "nowhere.jsonl")

    assert result.exit_code == 3
    assert result.stderr == "error: nowhere.jsonl: No such file or directory\n"
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["check", "repair", "tokens", "view"])
def test_input_that_is_no_conversation_ends_with_5(run: Run, command: str) -> None:
    plain, as_json = run(command, "-", stdin="nonsense"), run(command, "-", "--json", stdin="nonsense")

    assert plain.exit_code == as_json.exit_code == 5
    assert plain.stderr.startswith("error: stdin: is in no known format: it begins with text; supported: ")
    assert json.loads(as_json.stderr)["error"]["type"] == "UnreadableInput"
    assert plain.stdout == as_json.stdout == ""


def test_an_empty_folder_is_an_error_and_no_traceback(run: Run, tmp_path: Path) -> None:
    result = run("check", tmp_path)

    assert result.exit_code == 3
    assert result.stderr.startswith(
        f"error: {tmp_path}: the folder has no conversation files; supported extensions: .json, "
    )


def test_every_error_has_an_exit_code() -> None:
    assert {exit_code(error) for error, _ in EXAMPLES} == {1, 2, 3, 5}


@pytest.mark.parametrize("name", ["check", "repair"])
def test_a_reader_that_stops_early_ends_it_quietly(broken: Chat, tmp_path: Path, name: str) -> None:
    path = tmp_path / "big.jsonl"
    path.write_text(f"{json.dumps(broken)}\n" * 3000)
    command = subprocess.Popen(
        [*PROGRAM, name, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=inherited()
    )
    assert command.stdout is not None
    assert command.stderr is not None

    first = command.stdout.readline()
    command.stdout.close()

    assert first.endswith(b"\n")
    assert command.stderr.read() == b""
    assert command.wait() == 141
    command.stderr.close()


def test_what_nobody_read_is_forgotten_at_the_end() -> None:
    code = (
        "import click\nfrom minutebook.cli.exits import Command\n"
        "@click.command(cls=Command)\ndef command():\n    print('nobody reads this')\ncommand()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=inherited()
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        command.stdout.close()

        assert command.stderr.read() == b""
        assert command.wait() == 141


def test_an_interrupt_ends_with_130_and_no_traceback(broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "many.jsonl"
    path.write_text(f"{json.dumps(broken)}\n" * 5_000)  # the findings are more than the pipe holds
    # A shell has what it runs in the background ignore interrupts, and that is passed on.
    hear = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    with subprocess.Popen(
        [sys.executable, "-c", f"{hear}; {PROGRAM[-1]}", "check", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=inherited(),
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        # It has checked the first line, so it is at work.
        assert command.stdout.readline() == b"conversation 0, line 1\n"
        command.send_signal(signal.SIGINT)
        command.stdout.read()

        assert command.wait(timeout=60) == 130
        assert command.stderr.read() == b""


def terminal_output(*arguments: str, **environment: str) -> bytes:
    """What the command writes when its output is a terminal."""
    ours, theirs = pty.openpty()
    subprocess.run([*PROGRAM, *arguments], stdout=theirs, stderr=theirs, check=False, env=inherited() | environment)
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 65_536):
            said += more
    except OSError:
        pass
    finally:
        os.close(ours)
    return said


def test_colours_are_for_terminals_that_want_them(broken: Chat, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(broken))
    terminal = {"TERM": "xterm-256color", "COLUMNS": "100"}

    for command in ("check", "view"):
        assert b"\x1b[31m" in terminal_output(command, str(path), **terminal)
        assert b"\x1b[31m" not in terminal_output(command, str(path), NO_COLOR="1", **terminal)


def test_a_console_that_cannot_show_a_character_is_no_reason_to_fail(launch: Launch, whole: Chat) -> None:
    result = launch("view", "-", stdin=json.dumps(whole).encode(), PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert result.returncode == 0
    assert b"caf?" in result.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_completion_for(run: Run, shell: str) -> None:
    assert "_MINUTEBOOK_COMPLETE" in run("completion", shell).stdout
