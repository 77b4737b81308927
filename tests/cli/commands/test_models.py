import json
from pathlib import Path

import pytest

from tests.cli.conftest import OnDatabase, Run


def test_a_model_by_its_name(run: Run) -> None:
    result = run("models", "openai/gpt-5")

    assert result.exit_code == 0
    assert "272,000" in result.stdout
    assert "400,000" in result.stdout


def test_all_models_with_a_word_in_their_name(run: Run) -> None:
    found = json.loads(run("models", "sonnet", "--json").stdout)

    assert len(found) > 10
    assert all("sonnet" in info["name"].lower() for info in found)


def test_a_long_list_is_cut_and_says_so(run: Run) -> None:
    result = run("models")

    assert "30 of" in result.stderr
    assert len(run("models", "--all").stdout.splitlines()) > 4_000


def test_a_long_name_goes_on_below_and_the_figures_stay_in_their_columns(run: Run) -> None:
    head, *lines = run("models", "sonnet-4-5").stdout.splitlines()
    input_end = head.index("max input") + len("max input")
    figures = [line[input_end - 9 : input_end].strip() for line in lines]
    names = "".join(line.split()[0] for line in lines)

    assert max(map(len, lines)) <= 100
    assert "" in figures
    assert all(figure == "" or figure.replace(",", "").isdigit() for figure in figures)
    assert "302ai/claude-sonnet-4-5-20250929-thinking" in names


def test_a_model_that_nobody_knows_is_a_finding(run: Run) -> None:
    result = run("models", "no-such-thing")

    assert result.exit_code == 6
    assert "unknown model 'no-such-thing'" in result.stderr


@pytest.mark.parametrize("by_variable", [True, False])
def test_the_users_own_models_are_listed_and_used(
    run: Run, kept: OnDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    path = tmp_path / "models.json"
    path.write_text('{"my-model": {"max_input_tokens": 700, "input": 0.25}}')
    option = () if by_variable else ("--models-file", path)
    if by_variable:
        monkeypatch.setenv("MINUTEBOOK_MODELS_FILE", str(path))

    (info,) = json.loads(run("models", "my-model", "--json", *option).stdout)
    compacted = kept("compact", "order-17", "--strategy", "truncate", "--model", "my-model", "--dry-run", *option)

    assert (info["max_input_tokens"], info["prices"]["input"], info["source"]) == (700, 0.25, "own table")
    assert "my-model" in run("models", *option).stdout
    assert compacted.exit_code == 0
    assert "would be folded" in compacted.stdout


def test_a_models_file_that_is_wrong_is_named_with_its_field(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    path.write_text('{"my-model": {"max_tokens": 700}}')

    result = run("models", "--models-file", path)

    assert result.exit_code == 5
    assert f"{path}: key of model 'my-model'='max_tokens'" in result.stderr
    assert run("models", "--models-file", tmp_path / "missing.json").exit_code == 3
