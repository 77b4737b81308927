"""`minutebook lab` on the command line: run, tune, diff and shadow."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from minutebook.cli.main import cli
from minutebook.lab import FULL
from minutebook.lab.policies import _file_objects
from minutebook.store import open_store
from minutebook.testing import coding_session
from minutebook.wire.chat import new_entries
from tests.lab.test_lab import MESSAGES
from tests.service.talking import TOOLS, adding, talking


def lab(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["lab", *map(str, arguments)])


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(MESSAGES))
    return file


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    for seed in range(6):
        (folder / f"{seed}.json").write_text(json.dumps(coding_session(seed=seed, turns=5)))
    return folder


def test_prints_a_row_per_policy_and_writes_a_page(chat: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = lab(chat, "--policy", "token_budget", "--policy", "sliding_window:4", "--html", page, "--jobs", "1")

    assert result.exit_code == 0, result.output
    assert "1 sessions, 7 messages" in result.output
    assert "sliding_window:4" in result.output
    assert "token_budget would have saved 0% of the input cost" in result.output
    assert "<svg" in page.read_text()


def test_a_page_that_cannot_be_written_is_reported_before_the_replay(chat: Path, tmp_path: Path) -> None:
    progress = tmp_path / "progress.jsonl"
    result = lab(chat, "--html", tmp_path / "none" / "report.html", "--resume", progress, "--jobs", "1")

    assert result.exit_code == 3
    assert not progress.exists()


def test_a_long_name_of_a_policy_does_not_cut_figures(chat: Path) -> None:
    policy = "token_budget:target=0.15,names=0.03,keep_results=3,trigger=0.9"
    result = lab(chat, "--model", "gpt-4o", "--policy", policy, "--jobs", "1")

    assert result.exit_code == 0, result.output
    assert "100.0%" in result.output
    assert "…" not in result.output


def test_run_is_the_default_command(chat: Path) -> None:
    options = ("--policy", "token_budget", "--jobs", "1", "--json")
    short, long, options_first = lab(chat, *options), lab("run", chat, *options), lab(*options, chat)

    rows = [json.loads(result.stdout)["policies"] for result in (short, long, options_first)]
    assert [row["policy"] for row in rows[0]] == [FULL, "token_budget"]
    for other in rows[1:]:
        assert [row["cost"] for row in other] == [row["cost"] for row in rows[0]]


def test_json_has_intervals_and_the_frontier(chat: Path) -> None:
    report = json.loads(lab(chat, "--policy", "token_budget", "--jobs", "1", "--json").stdout)

    full, budget = report["policies"]
    assert (budget["cost"], budget["pareto"]) == (1.0, True)
    assert budget["intervals"]["names"] == [1.0, 1.0]
    assert full["policy"] == FULL


def test_the_prices_of_a_model_give_dollars(chat: Path) -> None:
    result = lab(chat, "--policy", "token_budget", "--model", "gpt-4o", "--jobs", "1")

    assert "dollars: input tokens with the prices of gpt-4o" in result.output


def test_the_prices_of_a_model_of_ones_own_give_dollars(chat: Path, tmp_path: Path) -> None:
    models = tmp_path / "models.json"
    models.write_text(json.dumps({"mine": {"max_input_tokens": 32_000, "input": 2.5}}))
    result = lab(chat, "--policy", "token_budget", "--model", "mine", "--models-file", models, "--jobs", "1")

    assert "dollars: input tokens with the prices of mine" in result.output


def test_the_prices_of_a_model_of_ones_own_that_the_recording_names_give_dollars(tmp_path: Path, monkeypatch) -> None:
    recording, models = tmp_path / "requests.jsonl", tmp_path / "models.json"
    recording.write_text(json.dumps({"model": "mine", "messages": MESSAGES}) + "\n")
    models.write_text(json.dumps({"mine": {"max_input_tokens": 32_000, "input": 2.5}}))
    without = lab(recording, "--policy", "token_budget", "--jobs", "1")
    monkeypatch.setenv("MINUTEBOOK_MODELS_FILE", str(models))
    result = lab(recording, "--policy", "token_budget", "--jobs", "1")

    assert "dollars" not in without.output
    assert "dollars: input tokens with the prices of mine" in result.output


def test_policies_of_a_python_file_and_of_a_configuration(chat: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from minutebook import SlidingWindowManager\nPOLICIES = {'last two': lambda budget: SlidingWindowManager(2)}\n"
    )
    (tmp_path / "mine.yaml").write_text("policies:\n  short: {manager: {name: sliding_window, window_size: 3}}\n")

    options = ("--policy", tmp_path / "mine.py", "--policy", tmp_path / "mine.yaml", "--json")
    report = json.loads(lab(chat, *options).stdout)

    assert [row["policy"] for row in report["policies"]] == [FULL, "last two", "short"]


def test_a_peer_is_replayed_or_its_package_is_named(chat: Path) -> None:
    window, missing = lab(chat, "--peer", "window", "--json"), lab(chat, "--peer", "llama-index")

    assert json.loads(window.stdout)["policies"][1]["policy"] == "last 40 messages"
    assert missing.exit_code != 0
    assert "pip install llama-index-core" in missing.output


def test_a_wrong_policy_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text("not even JSON")

    result = lab(tmp_path / "chat.json", "--policy", "token_buget")

    assert result.exit_code == 2
    assert "token_budget" in result.output


def test_a_format_that_is_not_detected_can_be_named(tmp_path: Path) -> None:
    file = tmp_path / "empty.json"
    file.write_text("[]")
    detected, named = lab(file), lab(file, "--from", "claude-code")

    assert "name the format with --from" in detected.output
    assert "no known format" not in named.output
    assert "expected one of" in lab(file, "--from", "claude").output


def test_a_budget_that_no_request_exceeds_is_reported(chat: Path, sessions: Path) -> None:
    below, above = (lab(path, "--max-tokens", "3000", "--jobs", "1") for path in (chat, sessions))

    assert "set a lower --max-tokens" in below.output
    assert "set a lower --max-tokens" not in above.output


@pytest.mark.parametrize("content", ['{"no": "conversation"}', ""])
def test_a_file_of_a_folder_that_cannot_be_read_is_skipped(chat: Path, content: str) -> None:
    (chat.parent / "other.json").write_text(content)

    result = lab(chat.parent, "--policy", "token_budget", "--jobs", "1")

    assert result.exit_code == 0
    assert "1 sessions" in result.output
    assert "skipped" in result.output
    assert lab(chat.parent / "other.json").exit_code == 5


def test_a_broken_line_of_a_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "sessions.jsonl"
    lines = [json.dumps({"id": name, "messages": MESSAGES}) for name in ("first", "last")]
    file.write_text("\n".join([lines[0], '{"id": "bro', lines[1]]))

    result = lab(file, "--policy", "token_budget", "--jobs", "1")

    assert result.exit_code == 0, result.output
    assert "2 sessions" in result.output
    assert f"skipped {file}: " in result.output
    assert "line 2" in result.output


def test_no_session_is_long_enough(chat: Path) -> None:
    result = lab(chat, "--min-messages", "60", "--jobs", "1")

    assert result.exit_code == 2
    assert "--min-messages" in result.output


def test_a_run_continues_with_its_file(chat: Path, tmp_path: Path) -> None:
    options = ("--policy", "token_budget", "--resume", tmp_path / "lab.jsonl", "--json", "--jobs", "1")

    assert lab(chat, *options).stdout == lab(chat, *options).stdout


def test_a_run_does_not_continue_with_the_results_of_a_policy_that_was_changed(chat: Path, tmp_path: Path) -> None:
    python, yaml = tmp_path / "mine.py", tmp_path / "mine.yaml"
    options = ("--policy", python, "--policy", yaml, "--resume", tmp_path / "lab.jsonl", "--json", "--jobs", "1")
    tokens = []
    for size in (6, 2):
        python.write_text(
            f"from minutebook import SlidingWindowManager\nPOLICIES = {{'mine': lambda _: SlidingWindowManager({size})}}\n"
        )
        yaml.write_text(f"policies:\n  short: {{manager: {{name: sliding_window, window_size: {size + 2}}}}}\n")
        _file_objects.cache_clear()  # as in a new process
        tokens.append([row["tokens"] for row in json.loads(lab(chat, *options).stdout)["policies"][1:]])

    assert tokens[0][0] > tokens[1][0]
    assert len((tmp_path / "lab.jsonl").read_text().splitlines()) == 2


def test_a_database_is_replayed(tmp_path: Path) -> None:
    file = tmp_path / "chat.db"

    async def fill() -> None:
        async with open_store(file) as store:
            await store.append("order-17", new_entries(MESSAGES), expected_version=0)

    asyncio.run(fill())
    for path in (file, f"sqlite:///{file}", tmp_path):
        report = json.loads(lab(path, "--policy", "token_budget", "--jobs", "1", "--json").stdout)

        assert (report["sessions"], report["messages"]) == (1, 7)


def test_tuning_reports_on_sessions_that_it_did_not_search(sessions: Path) -> None:
    result = lab("tune", sessions, "--goal", "rereads", "--max-tokens", "3000", "--jobs", "1", "--json")

    tuning = json.loads(result.stdout)
    search, test = tuning["search"], tuning["test"]
    assert search["sessions"] + test["sessions"] == 6
    best = [row for row in search["policies"] if row["policy"] == tuning["policy"]]
    default = [row for row in search["policies"] if row["policy"] == "token_budget"]
    assert best[0]["cost with re-reads"] <= default[0]["cost with re-reads"]
    assert [row["policy"] for row in test["policies"]][:2] == [FULL, "token_budget"]


def test_tuning_prints_the_settings_for_the_configuration(sessions: Path) -> None:
    result = lab("tune", sessions, "--goal", "cost", "--max-tokens", "3000", "--jobs", "1")

    assert result.exit_code == 0, result.output
    assert "tried" in result.output
    assert "on the other" in result.output


def test_tuning_needs_several_sessions(chat: Path) -> None:
    result = lab("tune", chat, "--jobs", "1")

    assert result.exit_code == 2
    assert "at least two sessions" in result.output


def test_the_savings_of_a_policy_that_refuses_or_adds_are_said_as_they_are(sessions: Path) -> None:
    refused, added = (
        " ".join(lab(sessions, "--max-tokens", tokens, "--policy", policy, "--jobs", "1").output.split())
        for tokens, policy in (("30", "token_budget"), ("3000", "sliding_window:40"))
    )

    assert "token_budget refused all" in refused
    assert "100.0%" not in refused.split("token_budget")[1]
    added_share, low, high = re.search(r"added (\d+)% .* interval (\d+)% to (\d+)%", added).groups()
    assert int(low) <= int(added_share) <= int(high)


def test_a_difference_names_the_lines_that_only_one_policy_missed(sessions: Path) -> None:
    policies = ("token_budget", "sliding_window:6")
    options = ("--max-tokens", "3000", "--jobs", "1")
    text, data = lab("diff", *policies, sessions, *options), lab("diff", *policies, sessions, *options, "--json")

    assert text.exit_code == 0, text.output
    assert "missed only by sliding_window:6: message" in text.output
    first = json.loads(data.stdout)[0]
    assert first["a"]["lines_found"] - first["b"]["lines_found"] == len(first["missed only by b"]) - len(
        first["missed only by a"]
    )


def test_equal_policies_do_not_differ(sessions: Path) -> None:
    result = lab("diff", "token_budget", "token_budget:target=0.5", sessions, "--max-tokens", "3000", "--jobs", "1")

    assert "have the same cost and misses in every session" in result.output


def test_one_policy_cannot_be_compared_with_itself(chat: Path) -> None:
    result = lab("diff", "token_budget", "token_budget", chat)

    assert result.exit_code == 2
    assert "two different policies" in result.output


def test_what_a_service_recorded_in_shadow_mode(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'service.db'}"
    retention = 'conversation: {retention: {"mode": "shadow", "preserve_turns": 1, "max_loaded_messages": 4}}\n'
    with talking(adding(5), db=database, config=TOOLS + retention, folder=tmp_path) as here:
        thread = here.thread()
        for turn in range(5):
            assert thread.ask(f"Question {turn}").status_code == 200
        sent = len(here.sent())

    (group,) = json.loads(lab("shadow", database, "--json", "--jobs", "1").stdout)

    assert (group["policy"]["name"], group["conversations"], group["requests"]) == ("retention", [thread.id], sent)
    assert group["reported"] > group["tokens_sent"] > 0
    full, pruned = group["report"]["policies"]
    assert full["tokens"] == group["tokens_sent"]
    assert pruned["views"] == sent
    assert pruned["tokens"] < full["tokens"]
    assert pruned["cuts"] > 0
    text = lab("shadow", tmp_path / "service.db", "--jobs", "1").output
    assert f"1 conversations, {sent} requests in shadow mode" in text
    assert "with pruning would have" in text


def test_a_database_without_shadow_mode_says_how_to_set_it(tmp_path: Path) -> None:
    file = tmp_path / "chat.db"

    async def create() -> None:
        async with open_store(file):
            pass

    asyncio.run(create())
    result = lab("shadow", file)

    assert result.exit_code == 2
    assert "mode to shadow" in result.output


def test_a_database_that_does_not_exist_is_not_created(tmp_path: Path) -> None:
    result = lab("shadow", tmp_path / "none.db")

    assert result.exit_code == 3
    assert not (tmp_path / "none.db").exists()


def test_a_missing_path_has_the_exit_code_of_the_other_commands(tmp_path: Path) -> None:
    result = lab(tmp_path / "missing.jsonl")

    assert result.exit_code == 3
    assert "missing.jsonl: No such file or directory" in result.output
