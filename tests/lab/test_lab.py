"""The lab's figures on a session small enough to count by hand, and on real ones."""

import asyncio
import json
import os
import re
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench import corpus
from minutebook import Message, SlidingWindowManager, TokenBudgetManager
from minutebook.errors import InvalidSetting, PromptEvaluationError, UnreadableInput
from minutebook.lab import (
    FULL,
    TYPICAL_BILLING,
    RecordedSession,
    ReplayInterrupted,
    SessionOutcome,
    evaluate,
    load_sessions,
    open_conversations,
    replay_requests,
    replay_session,
)
from minutebook.lab.outcome import PairingCheck
from minutebook.lab.page import html_page
from minutebook.lab.plot import svg
from minutebook.store import open_store
from minutebook.testing import coding_session
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


class LastMessage:
    """A peer that sends only the newest message."""

    def select(self, messages: Sequence[Message]) -> list[tuple[Message, int | None]]:
        return [(messages[-1], len(messages) - 1)]


class WithoutResults:
    """A policy that empties every tool result."""

    def curate(self, messages: Sequence[Message], *, session: Any) -> list[Message]:
        return [{**message, "content": "[cleared]"} if message["role"] == "tool" else message for message in messages]


def _window(size: int, _budget: int) -> SlidingWindowManager:
    return SlidingWindowManager(size)


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


def test_the_line_of_a_plot_connects_what_no_policy_beats_in_this_plot() -> None:
    plot = svg({"full": (1.0, 1.0), "worse": (0.5, 0.5), "cheap": (0.3, 0.6)}, {}, frontier=True)

    (line,) = re.findall(r'<polyline class="frontier" points="(.*)"/>', plot)
    (cheap_x, cheap_y), (full_x, full_y) = (map(float, point.split(",")) for point in line.split())
    assert cheap_x < full_x
    assert cheap_y > full_y


def test_goals_are_the_requests_constraints_and_decisions_so_far() -> None:
    asked: Message = {"role": "user", "content": "Change the parser. You must never change the public API."}
    decided: Message = {"role": "assistant", "content": "We will use a table of handlers here. It is short."}
    chat: list[Message] = [asked, decided, MORE, END, MORE, END]
    kept = replay_session(session(chat), None, 10_000)
    last = replay_session(session(chat), lambda _: LastMessage(), 10_000)

    # At the three calls there are 1, 2 and 3 requests, 1 constraint each, and 0, 1 and 1 decisions.
    assert (kept.requests_found, kept.requests) == (6, 6)
    assert (kept.constraints_found, kept.constraints) == (3, 3)
    assert (kept.decisions_found, kept.decisions) == (2, 2)
    assert (last.requests_found, last.constraints_found, last.decisions_found) == (3, 1, 0)


def test_the_views_of_a_peer_are_measured_without_repairs() -> None:
    outcome = replay_session(session(), lambda _: LastMessage(), 10_000)

    assert (outcome.views, outcome.invalid) == (3, 1)  # the second view is a result without its call
    assert outcome.essentials_lost == 3
    assert outcome.cuts == 2
    assert outcome.cached == 0


def test_a_problem_of_the_record_itself_does_not_count_as_the_policys() -> None:
    broken = [TASK, CALL, MORE, END]

    assert replay_session(session(broken), None, 10_000).invalid == 0


def test_policies_of_which_no_view_was_built_are_not_on_the_frontier() -> None:
    report = evaluate({"too small": TokenBudgetManager}, [session()], budget=12, jobs=1)

    assert report.pareto() == {FULL}
    assert "<td>-</td>" in html_page(report)


def test_a_strategy_is_replayed_in_a_program_that_runs_an_event_loop(tmp_path: Path) -> None:
    async def in_a_notebook() -> int:
        database = tmp_path / "empty.db"
        with open_conversations(open_store(database)) as stored:
            assert list(stored.headers()) == []
        return evaluate("turns", [session()], jobs=1).sessions

    assert asyncio.run(in_a_notebook()) == 1


def test_a_policy_that_other_processes_cannot_load_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="jobs=1"):
        evaluate({"mine": lambda _: TokenBudgetManager(8_000)}, [session()], jobs=2)


def _killed(_budget: int) -> TokenBudgetManager:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_process_that_is_killed_ends_the_run_with_advice() -> None:
    with pytest.raises(ReplayInterrupted, match="fewer jobs"):
        evaluate({"mine": _killed}, [session()], jobs=2)


@pytest.mark.parametrize(
    ("messages", "problems"),
    [
        ([TASK, CALL, FILE, ANSWER], set()),
        ([TASK, FILE], {"orphan"}),
        ([TASK, CALL], {"dangling"}),
        ([TASK, CALL, MORE], {"dangling"}),
        ([TASK, CALL, FILE, FILE], {"duplicate"}),
        ([SYSTEM], {"empty"}),
        ([], {"empty"}),
    ],
)
def test_finds_what_a_provider_would_reject(messages: list[Message], problems: set[str]) -> None:
    assert PairingCheck().problems(messages) == problems


def test_the_requests_of_a_session_say_what_was_sent_and_what_it_cost() -> None:
    rows = list(replay_requests(session(), lambda _: WithoutResults(), 10_000))

    assert [row.record_length for row in rows] == [2, 4, 6]
    assert [row.is_cut for row in rows] == [False, False, False]
    assert rows[1].charge.tokens == tokens(SYSTEM, TASK, CALL, {**FILE, "content": "[cleared]"})
    assert rows[1].charge.cached == tokens(SYSTEM, TASK)
    assert rows[1].full.tokens == tokens(SYSTEM, TASK, CALL, FILE)
    assert rows[1].view is not None
    assert rows[1].view.messages[-1]["content"] == "[cleared]"


def test_a_session_says_which_answers_use_a_message() -> None:
    uses = session().later_uses()

    assert [(use.call, use.names, use.lines) for use in uses[3]] == [(4, ["handle_failure"], [LINE.strip()])]
    assert [(use.call, use.names) for use in uses[4]] == [(6, ["handle_failure"])]


def test_one_policy_is_compared_with_the_full_history() -> None:
    for policy in ("token_budget", TokenBudgetManager, TokenBudgetManager(32_000)):
        report = evaluate(policy, [session()], jobs=1)

        assert report.results[0].name == FULL
        assert report.results[1].measure("cost") == 1.0


def test_finished_sessions_are_not_replayed_again(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"

    class Unchanged:
        is_broken = False

        def curate(self, messages: Sequence[Message], *, session: Any) -> Sequence[Message]:
            assert not self.is_broken, "replayed again"
            return messages

    first = evaluate({"mine": Unchanged()}, [session()], jobs=1, progress_file=file)
    Unchanged.is_broken = True

    again = evaluate({"mine": Unchanged()}, [session()], jobs=1, progress_file=file)
    assert again.results[1].outcomes == first.results[1].outcomes
    with pytest.raises(PromptEvaluationError, match="replayed again") as caught:
        evaluate({"mine": Unchanged()}, [session(MESSAGES[:5])], jobs=1, progress_file=file)
    assert caught.value.__notes__ == ["policy mine, session by hand"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("sliding_window:6", "sliding_window:2"),
        (SlidingWindowManager(6), SlidingWindowManager(2)),
        (partial(_window, 6), partial(_window, 2)),
    ],
)
def test_other_settings_under_the_same_name_are_replayed(before: Any, after: Any, tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    evaluate({"mine": before}, [session()], jobs=1, progress_file=file)

    report = evaluate({"mine": after}, [session()], jobs=1, progress_file=file)

    assert report.results[1].measure("cost") != 1.0


def test_a_run_that_was_killed_while_it_wrote_is_continued_more_than_once(tmp_path: Path) -> None:
    file = tmp_path / "progress.jsonl"
    evaluate("token_budget", [session()], jobs=1, progress_file=file)
    complete = file.read_text()
    for length in (len(complete) - 20, len(complete) - 1, 3):
        file.write_text(complete + complete[:length])

        assert evaluate("token_budget", [session(), session(MESSAGES[:5])], jobs=1, progress_file=file).sessions == 2
        assert evaluate("token_budget", [session()], jobs=1, progress_file=file).sessions == 1
        assert file.read_text().startswith(complete + '{"key": "')


@pytest.mark.parametrize("content", ["buy milk\n", "buy milk"])
def test_another_file_is_not_taken_for_a_file_of_progress(content: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text(content)

    with pytest.raises(UnreadableInput, match="another file"):
        evaluate("token_budget", [session()], jobs=1, progress_file=file)
    assert file.read_text() == content


def test_the_same_figures_with_one_process_and_with_two() -> None:
    sessions = [RecordedSession(f"{seed}", coding_session(seed=seed, turns=4), ExactCounter()) for seed in range(4)]
    one, two = (evaluate("token_budget", sessions, budget=3_000, jobs=jobs) for jobs in (1, 2))

    for left, right in zip(one.results, two.results, strict=True):
        assert [outcome.cost for outcome in left.outcomes] == [outcome.cost for outcome in right.outcomes]
    assert one.results[1].total("cuts") > 0


@needs_corpus
@pytest.mark.slow
def test_the_lab_on_recorded_sessions_of_coding_agents() -> None:
    folder = corpus.folder()
    assert folder is not None
    sessions = load_sessions([folder / "codex_responses.jsonl.gz"], min_messages=60)
    policies = {"budget": "token_budget", "window": "sliding_window:40"}
    report = evaluate(policies, sessions, budget=64_000, billing=TYPICAL_BILLING)

    full, budget, window = report.results
    assert report.sessions == 9
    assert (full.measure("cost"), full.measure("names"), full.measure("quotes")) == (1.0, 1.0, 1.0)
    assert (budget.total("invalid"), budget.total("over"), budget.total("essentials_lost")) == (0, 0, 0)
    assert budget.measure("cost") < 0.4
    assert window.measure("cost") > 1.0
    assert report.pareto() == {FULL, "budget"}


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
