import json

from tests.cli.conftest import Run


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
