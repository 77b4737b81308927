from importlib import import_module
from pathlib import Path

import pytest

from minutebook.cli.main import COMMANDS


@pytest.fixture
def text(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs")
    return import_module("cli_reference").command_reference()


def test_every_command_and_option_is_in_the_reference(text):
    assert all(f"## minutebook {name}\n" in text for name in COMMANDS)
    for option in ("--provider", "--manager", "--max-tokens", "--conversation", "--keep-open", "--write", "--seed"):
        assert f"`{option}" in text or f", {option}" in text


def test_the_reference_explains_the_exit_codes(text):
    assert "| 6 | success, with findings |" in text


def test_table_cells_do_not_break_the_table(text):
    rows = [line for line in text.splitlines() if line.startswith("| `")]

    assert rows
    assert all(row.replace(r"\|", "").count("|") == 3 for row in rows)
