from minutebook.cli.main import COMMANDS
from minutebook.cli.reference import command_reference


def test_every_command_and_option_is_in_the_reference() -> None:
    text = command_reference()

    assert all(f"## minutebook {name}\n" in text for name in COMMANDS)
    for option in ("--provider", "--manager", "--max-tokens", "--conversation", "--keep-open", "--write", "--seed"):
        assert f"`{option}" in text or f", {option}" in text


def test_the_reference_is_the_same_every_time() -> None:
    assert command_reference() == command_reference()


def test_the_reference_explains_the_exit_codes() -> None:
    assert "| 6 | success, with findings |" in command_reference()


def test_table_cells_do_not_break_the_table() -> None:
    rows = [line for line in command_reference().splitlines() if line.startswith("| `")]

    assert rows
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)
