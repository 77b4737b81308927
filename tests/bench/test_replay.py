"""The replay's figures on a recording small enough to check by hand, and our managers on a few real ones."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

from bench.corpus import conversations, folder
from bench.policies import BUDGETED, FULL, MANAGERS, ours
from bench.replay import Policy, Recording, ReplayResult, problems_of, recordings, replay
from minutebook import CannotFit, Message
from minutebook.tokens import ExactCounter

SYSTEM: Message = {"role": "system", "content": "Be brief."}
TASK: Message = {"role": "user", "content": "Fix src/app.py"}
ASKS: Message = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"p": "src/app.py"}'}}],
}
ANSWER: Message = {"role": "tool", "tool_call_id": "1", "content": "class RuntimeError_0: handle_failure()"}
SAYS: Message = {"role": "assistant", "content": "handle_failure is missing; it belongs in src/app.py"}
MORE: Message = {"role": "user", "content": "And the tests?"}
ENDS: Message = {"role": "assistant", "content": "They call handle_failure too."}
MESSAGES = [SYSTEM, TASK, ASKS, ANSWER, SAYS, MORE, ENDS]

BUDGET = 10_000


def recording() -> Recording:
    return Recording("by hand", list(MESSAGES))


def tokens(*messages: Message) -> int:
    return sum(map(ExactCounter().message, messages))


def replayed(policy: Policy, budget: int = BUDGET) -> ReplayResult:
    return replay([recording()], policy, budget)


def everything(messages: list[Message], _budget: int, _state: dict[str, Any]) -> Sequence[Message]:
    return messages


def last(count: int) -> Policy:
    return lambda messages, _budget, _state: messages[-count:]


def test_the_model_was_called_wherever_an_answer_follows_a_request_or_a_result() -> None:
    assert recording().calls == [2, 4, 6]


def test_a_call_is_not_made_while_results_are_missing() -> None:
    two = {**ASKS, "tool_calls": [{**ASKS["tool_calls"][0], "id": call} for call in ("1", "2")]}

    assert Recording("", [TASK, two, ANSWER, SAYS]).calls == [1]


def test_what_is_appended_to_is_read_from_the_cache() -> None:
    result = replayed(everything)
    sent = [tokens(SYSTEM, TASK), tokens(*MESSAGES[:4]), tokens(*MESSAGES[:6])]

    assert (result.views, result.busts, result.peak) == (3, 0, sent[2])
    assert result.tokens == sum(sent)
    assert result.cached == sent[0] + sent[1]
    assert result.cost == pytest.approx(0.1 * (sent[0] + sent[1]) + 1.25 * sent[2])


def test_a_view_that_does_not_begin_like_the_one_before_it_is_a_bust() -> None:
    result = replayed(last(2))

    assert result.busts == 2
    assert result.cached == 0
    assert result.cost == pytest.approx(1.25 * result.tokens)


def test_a_changed_message_ends_what_the_cache_holds() -> None:
    def numbered(messages: list[Message], _budget: int, state: dict[str, Any]) -> Sequence[Message]:
        state["views"] = state.get("views", 0) + 1
        return [SYSTEM, {**TASK, "content": f"{state['views']}"}, *messages[2:]]

    result = replayed(numbered)

    assert (result.busts, result.cached) == (2, 2 * tokens(SYSTEM))


def test_recall_is_the_share_of_known_identifiers_that_the_view_still_holds() -> None:
    # ASKS uses src/app.py of TASK; SAYS uses src/app.py and handle_failure of ANSWER; ENDS uses handle_failure.
    assert [sorted(word for word, _ in words) for words in recording().references.values()] == [
        ["src/app.py"],
        ["handle_failure", "src/app.py"],
        ["handle_failure"],
    ]

    whole, short = replayed(everything), replayed(last(1))

    assert (whole.recalled, whole.recallable) == (4, 4)
    assert (short.recalled, short.recallable) == (
        2,
        4,
    )  # TASK at the first call, handle_failure in ANSWER at the second
    assert short.share("recalled") == 0.5


def test_an_identifier_in_a_changed_message_counts_as_held() -> None:
    def note(_messages: list[Message], _budget: int, _state: dict[str, Any]) -> Sequence[Message]:
        return [{"role": "user", "content": "summary: handle_failure"}]

    assert replayed(note).recalled == 2


def test_what_the_view_holds_of_the_requests_and_the_system_message_is_counted() -> None:
    whole, short = replayed(everything), replayed(last(1))

    assert (whole.request, whole.goal, whole.system, whole.systems) == (3, 3, 3, 3)
    assert (short.request, short.goal, short.system, short.systems) == (2, 1, 0, 3)


def test_a_view_above_the_budget_is_over() -> None:
    assert replayed(everything, tokens(*MESSAGES[:4])).over == 1
    assert replayed(everything, tokens(*MESSAGES[:6])).over == 0


def test_a_policy_that_separates_a_result_from_its_call_is_invalid() -> None:
    assert replayed(last(1)).invalid == 1
    assert replayed(everything).invalid == 0


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ([TASK, ASKS, ANSWER, SAYS], set()),
        ([TASK, ANSWER], {"orphan"}),
        ([TASK, ASKS], {"dangling"}),
        ([TASK, ASKS, MORE], {"dangling"}),
        ([TASK, ASKS, ANSWER, ANSWER], {"duplicate"}),
        ([SYSTEM], {"empty"}),
        ([], {"empty"}),
    ],
)
def test_finds_what_a_provider_would_refuse(view: list[Message], found: set[str]) -> None:
    assert problems_of(view) == found


def test_a_fault_of_the_recording_itself_is_not_held_against_the_policy() -> None:
    broken = Recording("", [TASK, ASKS, MORE, SAYS])

    assert replay([broken], everything, BUDGET).invalid == 0


def test_a_refusal_is_counted_and_is_no_view() -> None:
    def picky(messages: list[Message], budget: int, _state: dict[str, Any]) -> Sequence[Message]:
        if len(messages) == 4:
            raise CannotFit(budget, budget + 1, [])
        return messages

    result = replayed(picky)

    assert (result.views, result.refused) == (2, 1)
    assert result.tokens == tokens(*MESSAGES[:2]) + tokens(*MESSAGES[:6])


def test_any_other_error_is_the_policys_own_and_is_not_swallowed() -> None:
    def failing(_messages: list[Message], _budget: int, _state: dict[str, Any]) -> Sequence[Message]:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        replayed(failing)


def test_recordings_are_spread_over_those_that_are_long_enough() -> None:
    generated = [{"id": f"{n}", "messages": [dict(TASK)] * n} for n in range(10)]

    assert [recorded.id for recorded in recordings(generated, max_conversations=3, min_messages=4)] == ["4", "6", "8"]


@cache
def real(name: str, max_conversations: int, min_messages: int) -> list[Recording]:
    if folder() is None:
        pytest.skip("no corpus: MINUTEBOOK_CORPUS is not set and there is none beside the repository")
    return recordings(conversations(name), max_conversations=max_conversations, min_messages=min_messages)


SUBSETS = [
    pytest.param("coding_agents", 8_000, marks=pytest.mark.slow),
    pytest.param("coding_agents", 32_000, marks=pytest.mark.slow),
    ("customer_service", 4_000),
]


@pytest.mark.parametrize(("name", "budget"), SUBSETS)
@pytest.mark.parametrize("manager", MANAGERS)
def test_every_manager_keeps_its_promises_on_real_conversations(manager: str, name: str, budget: int) -> None:
    make: Callable[[int], Any] = MANAGERS[manager]
    result = replay(real(name, 4, 40), ours(make), budget)

    assert result.views + result.refused > 50
    assert result.invalid == 0
    assert result.request == result.views
    assert result.system == result.systems


@pytest.mark.parametrize(("name", "budget"), SUBSETS)
@pytest.mark.parametrize("manager", [manager for manager in MANAGERS if BUDGETED in manager])
def test_a_budget_is_kept_or_refused_on_real_conversations(manager: str, name: str, budget: int) -> None:
    whole = replay(real(name, 4, 40), ours(MANAGERS[FULL]), budget)

    result = replay(real(name, 4, 40), ours(MANAGERS[manager]), budget)

    assert whole.over > 0
    assert result.over == 0
    assert result.peak <= budget
