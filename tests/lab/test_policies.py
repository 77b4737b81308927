"""Policies of the user: texts, files, configurations and other libraries."""

from pathlib import Path

import pytest

from minutebook import Message, SlidingWindowManager, TokenBudgetManager
from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.lab import FULL, RecordedSession, replay_session
from minutebook.lab.peers import MissingPeer, peer_policies, plain
from minutebook.lab.policies import file_policies, policies_of
from minutebook.testing import coding_session
from minutebook.tokens import ExactCounter


def session() -> RecordedSession:
    return RecordedSession("simulated", coding_session(seed=1, turns=8), ExactCounter())


def test_the_full_history_is_always_the_first_policy() -> None:
    assert list(policies_of({"mine": TokenBudgetManager, FULL: None}, 1_000)) == [FULL, "mine"]
    assert list(policies_of("sliding_window:4", 1_000)) == [FULL, "sliding_window:4"]


def test_a_wrong_name_or_setting_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InvalidSetting, match="token_budget"):
        policies_of("token_buget", 1_000)
    with pytest.raises(InvalidSetting, match="target"):
        policies_of("token_budget:taget=1", 1_000)
    with pytest.raises(InvalidSetting, match="returns one"):
        policies_of({"mine": 5}, 1_000)  # type: ignore[dict-item]
    with pytest.raises(InvalidSetting, match="another name"):
        policies_of({FULL: TokenBudgetManager}, 1_000)


@pytest.mark.parametrize("strategy", ["truncate", "turns"])
def test_a_strategy_is_replayed_with_its_folds(strategy: str) -> None:
    (make,) = (make for name, make in policies_of(strategy, 4_000).items() if name != FULL)
    outcome = replay_session(session(), make, 4_000)

    assert outcome.cuts > 0
    assert (outcome.over, outcome.invalid) == (0, 0)
    assert outcome.peak <= 4_000


def test_a_python_file_names_its_policies(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from minutebook import SlidingWindowManager\n"
        "POLICIES = {'two': lambda budget: SlidingWindowManager(2), 'text': 'sliding_window:3'}\n"
        "window = SlidingWindowManager(5)\n"
    )

    assert file_policies(str(file), 100)["two"](100) == SlidingWindowManager(2)
    assert file_policies(str(file), 100)["text"](100) == SlidingWindowManager(3)
    assert file_policies(f"{file}:window", 100)["window"](100) == SlidingWindowManager(5)
    with pytest.raises(InvalidSetting, match="other"):
        file_policies(f"{file}:other", 100)
    with pytest.raises(UnreadableInput, match="no such file"):
        file_policies(str(tmp_path / "none.py"), 100)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = 1\nPOLICIES = (", ":2: SyntaxError"),
        ("\nimport no_such_module", ":2: ModuleNotFoundError"),
        ("1 / 0", ":1: Zero"),
        ("\nPOLICIES = {'mine': lambda budget: budget / 0}", ":2: Zero"),
        ("class POLICIES:\n    pass", ": TypeError"),
    ],
)
def test_an_error_in_a_python_file_is_reported_with_its_line(code: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)

    with pytest.raises(UnreadableInput, match=f"mine.py{problem}"):
        file_policies(str(file), 100)


def test_a_function_that_returns_no_manager_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="returns a history manager"):
        replay_session(session(), lambda _: None, 4_000)  # type: ignore[arg-type, return-value]


def test_a_library_that_is_not_installed_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(MissingPeer, match="pip install strands-agents"):
        peer_policies("strands")


def test_an_unknown_library_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="langchain"):
        peer_policies("langchian")


def test_the_window_of_messages_keeps_the_system_message_and_no_result_without_its_call() -> None:
    (make,) = peer_policies("window").values()
    outcome = replay_session(session(), make, 4_000)

    assert (outcome.invalid, outcome.views) == (0, len(session().calls))
    assert outcome.cuts > 0
    assert outcome.ratio > 1  # a window that moves with every message has no stable prefix


def test_a_message_for_a_peer_has_text_and_common_keys_only() -> None:
    parts: Message = {"role": "developer", "content": [{"type": "text", "text": "Hi"}], "extra": 1}

    assert plain(parts) == {"role": "system", "content": "Hi"}
    assert plain({"role": "assistant", "content": None, "tool_calls": []}) == {"role": "assistant", "content": ""}
