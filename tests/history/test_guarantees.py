import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import (
    CannotFit,
    CurationContext,
    PassthroughManager,
    SlidingWindowManager,
    TokenBudgetManager,
    Transcript,
    check,
    view_of,
)
from minutebook.errors import GuaranteeViolated, InvalidSetting, RecordIsReadOnly
from minutebook.history import Guarantee, guard
from minutebook.record import is_valid
from minutebook.record.finding import errors
from tests.history.test_managers import SYSTEM, assistant, call_message, result_message, texts, turn, user
from tests.strategies import conversations

CHAT = [SYSTEM, *turn(1), *turn(2), user("now")]


class Manager:
    """A manager made of a function."""

    def __init__(self, function):
        self.function = function

    def curate(self, messages, *, session):
        return self.function(messages)


def violations(view):
    return [violation.guarantee for violation in view.violations]


def test_a_valid_view_is_unchanged():
    view = view_of(CHAT, SlidingWindowManager(4), strict=True)

    assert view.violations == ()
    assert view.curated == SlidingWindowManager(4).curate(CHAT)


def test_the_view_of_a_repaired_record_is_checked_as_fast_as_that_of_a_whole_one():
    whole = [SYSTEM, *(message for number in range(100) for message in turn(number))]
    interrupted = [message for message in whole if message.get("tool_call_id") != "50a"]
    assert len(interrupted) < len(whole)

    assert function_calls(interrupted) < 1.5 * function_calls(whole)


def function_calls(messages):
    """The number of function calls for a view of a record that has one new message."""
    record, manager = Transcript(messages, broken="mark"), TokenBudgetManager(100_000)
    view_of(record, manager)
    record.append(user("go on"))
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    previous = sys.getprofile()
    sys.setprofile(count)
    try:
        view_of(record, manager)
    finally:
        sys.setprofile(previous)
    return calls


def test_a_lost_system_message_and_request_are_restored_in_their_position():
    view = view_of(CHAT, Manager(lambda messages: messages[1:5]))

    assert texts(view.curated) == ["be brief", "request 1", "calls", "result", "answer 1", "now"]
    assert [str(violation) for violation in view.violations] == [
        "keeps what matters: a leading system message was missing or changed",
        "keeps what matters: the newest request was missing or changed",
    ]


def test_a_changed_request_is_restored_verbatim():
    view = view_of(CHAT, Manager(lambda messages: [*messages[:-1], {**messages[-1], "content": "now!"}]))

    assert view.curated == CHAT


def test_orphans_left_by_a_careless_manager_are_removed():
    view = view_of(CHAT, Manager(lambda messages: [messages[0], messages[3], *messages[4:]]))

    assert errors(check(view.curated)) == []
    assert violations(view) == [Guarantee.VALID]


def test_a_repair_between_composed_managers_is_reported():
    careless = Manager(lambda messages: [messages[0], messages[3], *messages[4:]])
    view = view_of(CHAT, [careless, TokenBudgetManager(10_000)])

    assert errors(check(view.curated)) == []
    assert [str(violation) for violation in view.violations] == ["valid: message 1: orphan result ('1a'): dropped"]
    with pytest.raises(GuaranteeViolated):
        view_of(CHAT, [careless, TokenBudgetManager(10_000)], strict=True)


def test_strict_raises_what_the_default_would_repair():
    with pytest.raises(GuaranteeViolated, match="the newest request was missing"):
        view_of(CHAT, Manager(lambda messages: messages[:2]), strict=True)


def test_an_over_large_view_is_cut_down_or_refused():
    view = view_of([*CHAT[:-1], assistant("word " * 300), user("now")], Manager(list), max_tokens=100)

    assert Guarantee.FITS in violations(view)
    assert sum(Transcript(view.curated).token_counts()) <= 100
    with pytest.raises(CannotFit):
        view_of([user("word " * 300)], Manager(list), max_tokens=100)


def test_what_is_added_after_a_budget_does_not_exceed_it():
    def with_added_text(messages):
        return [*messages[:-1], assistant("word " * 300), messages[-1]]

    view = view_of(CHAT, [TokenBudgetManager(100), Manager(with_added_text)])

    assert view.tokens <= 100
    assert Guarantee.FITS in violations(view)


def test_a_user_message_that_a_manager_adds_is_not_the_newest_request():
    chat = [*CHAT, call_message("c9"), result_message("c9", "word " * 400)]
    reminder = user("Remember the rules. " * 5)
    add_reminder = Manager(lambda messages: [*messages[:-2], reminder, *messages[-2:]])

    view = view_of(chat, add_reminder, max_tokens=120)

    assert violations(view) == [Guarantee.FITS]
    assert user("now") in view.curated
    assert reminder not in view.curated


def test_a_manager_whose_own_limits_are_met_must_send_the_record():
    class Careless(TokenBudgetManager):
        __slots__ = ()

        def curate(self, messages, *, session=None, context=None):
            view = super().curate(messages, session=session, context=context)
            del view[1]
            view.origins = [origin for at, origin in enumerate(view.origins) if at != 1]
            return view

    view = view_of(CHAT, Careless(10_000))

    assert view.curated == CHAT
    assert violations(view) == [Guarantee.UNTOUCHED]


def test_a_manager_cannot_change_the_record():
    def vandal(messages):
        messages[0]["content"] = "ha"
        return messages

    with pytest.raises(RecordIsReadOnly, match="return a changed copy"):
        view_of(CHAT, Manager(vandal))
    assert CHAT[0]["content"] == "be brief"


def test_problems_of_the_record_are_no_violations():
    for manager in (None, SlidingWindowManager(9), Manager(list)):
        view = view_of([user("go"), call_message("a"), user("hello?"), result_message("zz")], manager, strict=True)
        assert is_valid(view.curated)


def test_an_open_call_gets_a_placeholder_result():
    view = view_of([user("go"), call_message("a")], SlidingWindowManager(1), strict=True)

    assert is_valid(view.curated)
    assert view.curated[1] == call_message("a")


def test_a_view_starts_with_a_user_message_if_the_provider_requires_it():
    view = view_of([SYSTEM, assistant("hello"), user("hi")], provider="anthropic", strict=True)

    assert [message["role"] for message in view.curated] == ["system", "user", "assistant", "user"]


def test_pins_and_last_messages_are_restored():
    context = CurationContext(pins=frozenset({3}), preserve_last_n=2)
    view = view_of(CHAT, Manager(lambda messages: [messages[0], messages[-1]]), context=context)

    assert texts(view.curated) == ["be brief", "calls", "result", "answer 2", "now"]


def test_a_plain_list_can_be_guarded_by_itself():
    guarded = guard(CHAT, CHAT[-1:])

    assert texts(guarded.view) == ["be brief", "now"]
    assert len(guarded.violations) == 1


@given(conversations(user_first=True), st.data())
def test_any_subset_and_order_a_manager_returns_becomes_a_valid_view(chat, data):
    picks = data.draw(st.lists(st.integers(0, len(chat) - 1), max_size=12))

    view = view_of(chat, Manager(lambda messages: [messages[pick] for pick in picks]))

    assert errors(check(view.curated)) == []
    newest = max(at for at, message in enumerate(chat) if message["role"] == "user")
    assert chat[newest] in view.curated


def test_the_first_request_is_dropped_last():
    long = "word " * 300
    chat = [{"role": "user", "content": f"first {long}"}, {"role": "assistant", "content": "yes"}]
    chat += [{"role": "user", "content": f"newest {long}"}]

    view = view_of(chat, max_tokens=400).curated

    assert [message["content"][:6] for message in view] == ["newest"]


@pytest.mark.fuzz
@given(conversations(), st.integers(30, 2_000))
def test_the_first_request_is_never_the_reason_for_cannot_fit(chat, budget):
    def fits(manager):
        try:
            return manager.curate(chat).tokens is not None
        except CannotFit:
            return False

    with_first = TokenBudgetManager(budget)

    assert fits(with_first) == fits(replace(with_first, preserve_first_request=False))


ORDER_FAULTS = {
    "twice": lambda messages: [*messages, *messages],
    "reversed": lambda messages: list(messages)[::-1],
    "system message last": lambda messages: [*messages[1:], messages[0]],
    "copies twice": lambda messages: [*messages, *(dict(message) for message in messages)],
    "a user message before the system message": lambda messages: [{"role": "user", "content": "new"}, *messages],
}


@pytest.mark.parametrize("function", ORDER_FAULTS.values(), ids=ORDER_FAULTS)
@pytest.mark.parametrize("source", ["manager", "list"])
def test_order_and_duplicates_are_violations_that_are_repaired(function, source):
    def view(*, strict):
        if source == "list":
            return guard(CHAT, function(CHAT), strict=strict)
        return view_of(CHAT, Manager(function), strict=strict)

    repaired = view(strict=False)

    curated = repaired.view if source == "list" else repaired.curated
    assert [message for message in curated if message in CHAT] == CHAT
    assert violations(repaired) == [Guarantee.VALID]
    with pytest.raises(GuaranteeViolated, match=r"order|twice|before a leading"):
        view(strict=True)


def test_equal_messages_and_one_object_at_two_positions_are_not_duplicates():
    again = user("again")
    chat = [SYSTEM, again, assistant("ok"), again, assistant("ok"), user("again")]

    assert view_of(chat, Manager(list), strict=True).curated == chat
    assert guard(chat, list(chat), strict=True).view.origins == list(range(6))


@pytest.mark.fuzz
@given(conversations(user_first=True), st.data())
def test_record_messages_are_in_order_and_at_most_once_in_every_view(chat, data):
    picks = data.draw(st.lists(st.integers(0, len(chat) - 1), max_size=12))
    added_at = data.draw(st.integers(0, len(picks)))

    def function(messages):
        view = [messages[pick] for pick in picks]
        return [*view[:added_at], {"role": "user", "content": "added by the manager"}, *view[added_at:]]

    view = view_of(chat, Manager(function)).curated

    positions = [origin for origin in view.origins if origin is not None]
    assert positions == sorted(set(positions))
    system_count = next((at for at, message in enumerate(chat) if message["role"] != "system"), len(chat))
    assert view[:system_count] == chat[:system_count]
    assert errors(check(view)) == []


@pytest.mark.fuzz
@given(conversations(user_first=True, max_steps=16), st.integers(1, 60))
def test_cannot_fit_names_the_smallest_budget_that_works(chat, budget):
    try:
        view_of(chat, budget)
    except CannotFit as error:
        assert view_of(chat, error.needed).tokens <= error.needed
        with pytest.raises(CannotFit):
            view_of(chat, error.needed - 1)


def test_a_view_has_one_line_for_each_position_of_the_record():
    view = view_of(CHAT[1:], SlidingWindowManager(2), system="be brief")

    assert len(view) == len(CHAT) - 1
    assert list(view) == [view[position] for position in range(len(view))]
    with pytest.raises(InvalidSetting, match=r"view\.messages"):
        view[1:3]


def test_parallel_calls_with_the_same_id_are_cut_like_others():
    long_result = result_message("b", "line\n" * 60)
    calls = [call_message("a", "b", "b"), result_message("b", "line\n" * 3), result_message("b", "line\n" * 3)]
    record = Transcript(
        [user("Review."), call_message("b"), long_result, *calls, call_message("a", "b")], broken="mark"
    )

    view = view_of(record, TokenBudgetManager(100))

    assert is_valid(view.curated)
    assert view.tokens <= 100


@pytest.mark.parametrize("max_tokens", range(40, 160, 5))
def test_a_message_that_a_repair_adds_counts_towards_the_limit(max_tokens):
    calls = [{"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
    messages = [
        *({"role": role, "content": "earlier " * 20} for role in ("user", "assistant") * 3),
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": "line " * 300},
        {"role": "assistant", "content": "Done. " * 5},
        {"role": "user", "content": "Thanks. " * 5},
    ]

    try:
        view = view_of(messages, SlidingWindowManager(4), provider="anthropic", max_tokens=max_tokens)
    except CannotFit:
        return

    assert view.tokens <= max_tokens
    assert check(view.curated, provider="anthropic") == []


def test_a_result_before_its_call_is_an_orphan_for_every_manager():
    def result(call_id):
        return {"role": "tool", "tool_call_id": call_id, "content": f"result {call_id}"}

    calls = [{"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}} for name in ("a", "b")]
    record = [
        {"role": "user", "content": "wait"},
        result("a"),
        {"role": "user", "content": "ok"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        result("b"),
        {"role": "user", "content": "more"},
    ]

    views = [list(view_of(record, manager).messages) for manager in (PassthroughManager(), TokenBudgetManager(5_000))]

    assert views[0] == views[1]
    assert "result a" not in [message["content"] for message in views[0]]
