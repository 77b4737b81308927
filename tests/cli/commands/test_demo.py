import json

import pytest

from minutebook.testing import coding_session
from tests.cli.conftest import Run


def test_the_demo_fits_a_log_of_100_columns(run: Run) -> None:
    result = run("demo")

    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "267 messages" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_budget_holds_costs_less_and_keeps_the_requests(run: Run) -> None:
    everything, window, budget = json.loads(run("demo", "--json").stdout)["managers"]

    assert everything["over_budget"] > 50
    assert budget["over_budget"] == budget["invalid"] == budget["refused"] == 0
    assert budget["peak_tokens"] <= 16_000
    assert budget["first_request_kept"] == budget["newest_request_kept"] == budget["calls"]
    assert budget["dollars"] < everything["dollars"] < window["dollars"]


def test_everything_is_the_record_without_the_last_answer(run: Run) -> None:
    told = json.loads(run("demo", "--json").stdout)

    last_answer = 90
    assert told["managers"][0]["peak_tokens"] == told["record"]["tokens"] - last_answer


def test_every_command_it_suggests_works(run: Run) -> None:
    suggested = run("demo").stdout.split("Next steps")[1].split("\n")
    commands = [line.split("minutebook ", 1)[1].split(" # ")[0].strip() for line in suggested if "minutebook " in line]
    session = run("demo", "--session").stdout

    assert commands[0] == "demo --session > session.json"
    for command in commands[1:]:
        assert run(*command.replace("session.json", "-").split(), stdin=session).exit_code == 0


def test_the_session_is_the_simulators(run: Run) -> None:
    assert json.loads(run("demo", "--session", "--seed", "4", "--turns", "2").stdout)["messages"] == coding_session(
        4, 2
    )


@pytest.mark.parametrize("arguments", [("--turns", "1"), ("--turns", "3", "--max-tokens", "2000"), ("--seed", "9")])
def test_other_sessions_look_right_too(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("demo", *arguments)

    assert result.exit_code == 0
    assert "Next steps" in result.stdout
