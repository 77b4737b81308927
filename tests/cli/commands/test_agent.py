import json
from pathlib import Path

import click
import pytest

from minutebook.cli.commands.agent import command
from tests.cli.conftest import Launch, Run

GOOD = "model main = openai/o3\n\nprompt p:\n    Be brief.  # text\n\n# why\nagent a:\n    instruction p\n    tools mcp.x\n"
BAD = GOOD + "    history banana\n"


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.sr"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.sr"
    path.write_text(BAD)
    return path


def test_errors_end_with_6_and_warnings_alone_with_0(run: Run, good: Path, bad: Path) -> None:
    assert run("agent", "check", good).exit_code == 0
    assert run("agent", "check", good, bad).exit_code == 6


def test_what_is_wrong_is_shown_with_a_caret(run: Run, bad: Path) -> None:
    lines = run("agent", "check", bad, "--external", "mcp").stdout.splitlines()

    assert lines == [
        (
            f"{bad}:10:13: error[unknown-strategy]: no history strategy 'banana'; "
            "choose one of summarize, truncate, turns, hybrid, balanced, economy, quality, none"
        ),
        " 10 |     history banana",
        "    |             ^^^^^^",
        "1 file, 1 error, 0 warnings",
    ]


def test_a_strategy_that_is_registered_elsewhere_is_taken(run: Run, bad: Path) -> None:
    assert run("agent", "check", bad, "--strategy", "banana").exit_code == 0


def test_json_has_every_diagnostic(run: Run, bad: Path) -> None:
    result = run("agent", "check", bad, "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == 6
    assert told["summary"] == {"files": 1, "errors": 1, "warnings": 1}
    assert told["diagnostics"][1] == {
        "code": "unknown-strategy",
        "severity": "error",
        "message": "no history strategy 'banana'; choose one of summarize, truncate, turns, hybrid, balanced, economy, quality, none",
        "suggestion": None,
        "file": str(bad),
        "line": 10,
        "column": 13,
        "width": 6,
    }


def test_stdin_can_be_checked_and_formatted(run: Run) -> None:
    assert run("agent", "check", "-", stdin=GOOD).exit_code == 0
    result = run("agent", "fmt", "-", stdin=GOOD.replace("    ", "\t"))

    assert (result.exit_code, result.stdout, result.stderr) == (0, GOOD, "")


def test_a_file_is_formatted_in_place_and_keeps_its_permissions_and_comments(run: Run, good: Path) -> None:
    good.write_text(GOOD.replace("    ", "  ").replace("\n\n", "\n"))
    good.chmod(0o640)

    result = run("agent", "fmt", good)

    assert result.exit_code == 0
    assert result.stderr == f"changed {good}\n"
    assert good.read_text() == GOOD
    assert good.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in good.parent.iterdir()] == ["good.sr"]


def test_a_file_that_needs_nothing_is_not_touched(run: Run, good: Path) -> None:
    before = good.stat()

    result = run("agent", "fmt", good)

    assert (result.exit_code, result.stderr) == (0, "")
    assert (good.stat().st_ino, good.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_check_writes_nothing_and_ends_with_6_if_something_would_change(run: Run, good: Path) -> None:
    assert run("agent", "fmt", "--dry-run", good).exit_code == 0
    good.write_text(GOOD.replace("\n", "\r\n"), newline="")
    before = good.read_bytes()

    result = run("agent", "fmt", "--dry-run", good)

    assert (result.exit_code, result.stderr) == (6, f"would change {good}\n")
    assert good.read_bytes() == before


@pytest.mark.parametrize("text", ["agnet a:\n", "agent a:\n  instruction p\n"], ids=["syntax", "meaning"])
def test_a_file_with_errors_is_left_alone_and_the_others_are_formatted(run: Run, good: Path, text: str) -> None:
    broken = good.with_name("broken.sr")
    broken.write_text(text)
    good.write_text(GOOD.replace("    ", "  "))

    result = run("agent", "fmt", broken, good)

    assert result.exit_code == 5
    assert result.stderr.startswith(f"{broken}:")
    assert broken.read_text() == text
    assert good.read_text() == GOOD


def test_a_strategy_that_is_registered_elsewhere_does_not_keep_it_from_being_formatted(run: Run, bad: Path) -> None:
    assert run("agent", "fmt", bad).exit_code == 0


@pytest.mark.parametrize("name", ["check", "fmt"])
def test_what_cannot_be_read_is_said_in_one_line(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.sr"
    path.write_bytes(b"# fine\n# \xff\n")

    missing, binary = run("agent", name, "nowhere.sr"), run("agent", name, path)

    assert (missing.exit_code, missing.stderr) == (3, "error: nowhere.sr: No such file or directory\n")
    assert (binary.exit_code, binary.stderr) == (
        5,
        f"error: {path}:2: not UTF-8 (invalid start byte); save it as UTF-8\n",
    )


def test_every_option_has_help_with_an_example() -> None:
    assert isinstance(command, click.Group)
    for each in command.commands.values():
        assert "Example: minutebook agent" in (each.help or "")
        assert all("Example: " in option.help for option in each.params if isinstance(option, click.Option))


def test_help_of_the_group_names_its_commands(launch: Launch) -> None:
    said = launch("agent", "--help").stdout.decode()

    assert "  check  Check programs for errors." in said
    assert "  fmt    Format programs." in said
