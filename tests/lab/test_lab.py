"""The lab's figures on a session small enough to count by hand, and on real ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bench import corpus
from minutebook import Message, TokenBudgetManager
from minutebook.cli.main import cli
from minutebook.lab import FULL, RecordedSession, SessionOutcome, evaluate, load_sessions, replay_session
from minutebook.lab.page import html_page
from minutebook.tokens import ExactCounter
from tests.transcripts import needs_corpus

LINE = "    return handle_failure(request, retries=3)"
SYSTEM: Message = {"role": "system", "content": "Be brief."}
TASK: Message = {"role": "user", "content": "Fix src/app.py"}
CALL: Message = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "src/app.py"}'}}
    ],
}
FILE: Message = {"role": "tool", "tool_call_id": "1", "content": f"def run():\n{LINE}"}
ANSWER: Message = {"role": "assistant", "content": f"This line is wrong:\n{LINE}"}
MORE: Message = {"role": "user", "content": "And the tests?"}
END: Message = {"role": "assistant", "content": "They use handle_failure too."}
MESSAGES = [SYSTEM, TASK, CALL, FILE, ANSWER, MORE, END]


def session(messages: Sequence[Message] = MESSAGES) -> RecordedSession:
    return RecordedSession("by hand", list(messages), ExactCounter())


def tokens(*messages: Message) -> int:
    return sum(map(ExactCounter().message, messages))


class WithoutResults:
    """A policy that empties every tool result."""

    def curate(self, messages: Sequence[Message], *, session: Any) -> list[Message]:
        return [{**message, "content": "[cleared]"} if message["role"] == "tool" else message for message in messages]


def test_the_model_was_called_where_an_answer_follows_a_request_or_all_results() -> None:
    assert [call.index for call in session().calls] == [2, 4, 6]


def test_what_an_answer_uses_is_found_with_its_sources() -> None:
    first, second, third = session().calls

    assert [(use.text, use.sources) for use in first.names] == [("src/app.py", [1])]
    assert [(use.text, use.sources) for use in second.names] == [("handle_failure", [3])]
    assert [(use.text, use.sources) for use in second.lines] == [(LINE.strip(), [3])]
    assert [(use.text, use.sources) for use in third.names] == [("handle_failure", [3, 4])]


def test_a_policy_that_keeps_everything_finds_everything_at_the_full_cost() -> None:
    outcome = replay_session(session(), None, 10_000)
    sent = [tokens(*MESSAGES[:count]) for count in (2, 4, 6)]

    assert (outcome.views, outcome.cuts, outcome.invalid, outcome.over) == (3, 0, 0, 0)
    assert (outcome.names_found, outcome.names) == (3, 3)
    assert (outcome.lines_found, outcome.lines) == (1, 1)
    assert outcome.tokens == sum(sent)
    assert outcome.cached == sent[0] + sent[1]
    assert outcome.cost == outcome.full_cost == pytest.approx(0.1 * (sent[0] + sent[1]) + 1.25 * sent[2])
    assert outcome.ratio == 1.0


def test_a_policy_that_drops_what_is_used_misses_it() -> None:
    outcome = replay_session(session(), lambda _: WithoutResults(), 10_000)

    assert (outcome.names_found, outcome.names) == (2, 3)  # the answer repeats the name, so only one call misses it
    assert (outcome.lines_found, outcome.lines) == (0, 1)
    assert [(miss.call, miss.source, miss.text) for miss in outcome.misses] == [(4, 3, LINE.strip())]
    view = tokens(SYSTEM, TASK, CALL, {**FILE, "content": "[cleared]"})
    reread = 1.25 * tokens(FILE) + 0.1 * view  # before the second answer
    carried = 0.1 * tokens(FILE)  # in the third request, which makes no cut
    assert outcome.reread_cost == pytest.approx(outcome.cost + reread + carried)


def test_a_call_whose_essentials_exceed_the_budget_is_refused_and_counts_nowhere_else() -> None:
    outcome = replay_session(session(), TokenBudgetManager, 12)

    assert outcome.refused == 3
    assert outcome.full_cost == outcome.cost == 0.0


def test_policies_that_give_the_same_views_cannot_be_told_apart() -> None:
    policies = {FULL: None, "budget": TokenBudgetManager, "again": TokenBudgetManager}
    report = evaluate(policies, [session(), session()], budget=10_000, jobs=1)

    low, high = report.difference("budget", "again", "cost")
    assert low <= 0 <= high
    assert report.result("budget").measure("cost") == 1.0
    assert report.pareto() == {FULL, "budget", "again"}


def test_the_page_escapes_what_the_sessions_say() -> None:
    script = "<script>alert('a long line of code')</script>"
    messages = [TASK, {**CALL}, {**FILE, "content": script}, {"role": "assistant", "content": script}]
    report = evaluate({FULL: None, "<b>": lambda _: WithoutResults()}, [session(messages)], budget=10_000, jobs=1)

    page = html_page(report)

    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;" in page


def test_the_command_prints_a_row_per_policy_and_writes_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "chat.json", tmp_path / "report.html"
    file.write_text(json.dumps(MESSAGES))
    options = ["--policy", "token_budget", "--policy", "sliding_window:4", "--html", str(page), "--jobs", "1"]

    result = CliRunner().invoke(cli, ["lab", str(tmp_path / "chat.json"), *options])

    assert result.exit_code == 0, result.output
    assert "1 sessions, 7 messages" in result.output
    assert "sliding_window:4" in result.output
    assert "<svg" in page.read_text()


def test_the_command_prints_json_with_intervals(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(MESSAGES))

    result = CliRunner().invoke(cli, ["lab", str(tmp_path), "--policy", "token_budget", "--jobs", "1", "--json"])

    full, budget = json.loads(result.stdout)["policies"]
    assert full["policy"] == FULL
    assert budget["cost"] == 1.0
    assert budget["intervals"]["names"] == [1.0, 1.0]


def test_a_policy_of_a_file_is_replayed(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(MESSAGES))
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from minutebook import SlidingWindowManager\nPOLICIES = {'last two': lambda budget: SlidingWindowManager(2)}\n"
    )

    result = CliRunner().invoke(cli, ["lab", str(tmp_path / "chat.json"), "--policy", str(policy), "--json"])

    assert [row["policy"] for row in json.loads(result.stdout)["policies"]] == [FULL, "last two"]


def test_a_wrong_policy_is_reported_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text("not even JSON")

    result = CliRunner().invoke(cli, ["lab", str(tmp_path / "chat.json"), "--policy", "token_buget"])

    assert result.exit_code != 0
    assert "token_budget" in result.output


@needs_corpus
def test_no_view_of_a_real_session_is_invalid_or_over_the_budget() -> None:
    folder = corpus.folder()
    assert folder is not None
    sessions = list(load_sessions([folder / "terminal.jsonl.gz"], min_messages=10))[:10]
    report = evaluate({FULL: None, "budget": TokenBudgetManager}, sessions, budget=500, jobs=1)

    budget = report.result("budget")
    assert (budget.total("invalid"), budget.total("over"), budget.total("essentials_lost")) == (0, 0, 0)
    assert report.result(FULL).measure("names") == 1.0


def test_an_outcome_is_json() -> None:
    assert json.loads(json.dumps(SessionOutcome("a", 1).to_json()))["ratio"] == 1.0
