"""How each manager behaves on small conversations that a person can read."""

import pytest

from minutebook import (
    CannotFit,
    ComposedManager,
    CurationContext,
    PassthroughManager,
    SlidingWindowManager,
    TokenBudgetManager,
    ToolResultClearer,
    ToolResultTruncator,
    Transcript,
    TurnWindowManager,
    check,
)
from minutebook.errors import InvalidSetting
from minutebook.history import ActiveToolsManager, ToolStripper
from minutebook.tokens import ExactCounter

SYSTEM = {"role": "system", "content": "be brief"}


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def call_message(*ids, text=None, name="read"):
    function = {"name": name, "arguments": "{}"}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call, "type": "function", "function": function} for call in ids],
    }


def result_message(call, text="result"):
    return {"role": "tool", "tool_call_id": call, "content": text}


def turn(number, *, tools=1):
    ids = [f"{number}{letter}" for letter in "abcdef"[:tools]]
    tooling = [call_message(*ids), *(result_message(call) for call in ids)] if tools else []
    return [user(f"request {number}"), *tooling, assistant(f"answer {number}")]


CHAT = [SYSTEM, *turn(1), *turn(2), *turn(3)]


def texts(view):
    return [message["content"] or "calls" for message in view]


def test_passthrough_returns_an_unchanged_copy():
    view = PassthroughManager().curate(CHAT)

    assert view == CHAT
    assert view is not CHAT


def test_a_window_keeps_the_system_message_and_the_last_n():
    assert SlidingWindowManager(4).curate(CHAT) == [SYSTEM, *turn(3)]


def test_a_window_works_without_a_system_message():
    assert SlidingWindowManager(1).curate([user("a"), user("b")]) == [user("b")]


def test_a_window_returns_everything_that_fits_it():
    assert SlidingWindowManager(12).curate(CHAT) == CHAT


def test_a_window_of_zero_keeps_the_system_messages_only():
    assert SlidingWindowManager(0).curate(CHAT) == [SYSTEM]
    assert SlidingWindowManager(0).curate(turn(1)) == []


@pytest.mark.parametrize(
    "make", [SlidingWindowManager, TurnWindowManager, ToolResultTruncator, ToolStripper, ToolResultClearer]
)
def test_a_negative_size_is_refused_when_the_manager_is_made(make):
    with pytest.raises(InvalidSetting, match="0 or more"):
        make(-1)


def test_a_window_starts_at_no_orphaned_result():
    assert SlidingWindowManager(2, preserve_request=False).curate(CHAT) == [SYSTEM, assistant("answer 3")]


def test_a_window_smaller_than_a_batch_of_parallel_calls_holds_the_whole_batch():
    running = [
        SYSTEM,
        user("go"),
        call_message("a", "b", "c"),
        result_message("a"),
        result_message("b"),
        result_message("c"),
    ]

    for size in (1, 2, 3):
        assert SlidingWindowManager(size).curate(running) == running


def test_a_window_keeps_the_newest_request_before_it():
    running = [
        SYSTEM,
        user("old"),
        assistant("ok"),
        user("new"),
        call_message("a"),
        result_message("a"),
        call_message("b"),
        result_message("b"),
    ]

    assert texts(SlidingWindowManager(2).curate(running)) == ["be brief", "new", "calls", "result"]
    assert texts(SlidingWindowManager(2, preserve_first_user=True).curate(running))[:3] == ["be brief", "old", "new"]
    assert texts(SlidingWindowManager(2, preserve_request=False).curate(running)) == ["be brief", "calls", "result"]


def test_a_window_may_be_aligned_to_turns():
    assert SlidingWindowManager(6, align="turn").curate(CHAT) == [SYSTEM, *turn(3)]
    with pytest.raises(InvalidSetting, match="'exchange' or 'turn'"):
        SlidingWindowManager(6, align="message")


def test_a_window_with_slack_moves_rarely():
    exact, slack = SlidingWindowManager(4), SlidingWindowManager(4, slack=4)
    transcript = Transcript()
    moves = {exact: 0, slack: 0}
    last = {exact: [], slack: []}
    for number in range(100):
        transcript.append(user(str(number)))
        for manager in moves:
            view = manager.curate(transcript)
            moves[manager] += view[: len(last[manager])] != last[manager]
            last[manager] = view
            assert 4 <= len(view) <= 8 or number < 4

    assert moves[exact] == 96
    assert moves[slack] == 19


def test_an_orphan_is_removed_even_where_everything_fits():
    assert SlidingWindowManager(10).curate([result_message("x")]) == []
    assert SlidingWindowManager(10).curate([user("a"), result_message("x"), assistant("b")]) == [
        user("a"),
        assistant("b"),
    ]


def test_an_empty_conversation_gives_an_empty_view():
    for manager in (PassthroughManager(), SlidingWindowManager(3), TurnWindowManager(1), TokenBudgetManager(100)):
        assert manager.curate([]) == []


def test_turns_are_counted_by_user_messages_and_kept_whole():
    tooled = [SYSTEM, *turn(1, tools=3), *turn(2, tools=3), *turn(3, tools=3)]

    assert TurnWindowManager(2).curate(tooled) == [SYSTEM, *turn(2, tools=3), *turn(3, tools=3)]
    assert TurnWindowManager(3).curate(tooled) == tooled
    assert TurnWindowManager(0).curate(tooled) == [SYSTEM]


def test_messages_before_the_first_turn_are_dropped_with_it():
    greeted = [SYSTEM, assistant("hello"), *turn(1), *turn(2)]

    assert TurnWindowManager(2).curate(greeted) == greeted
    assert TurnWindowManager(1).curate(greeted) == [SYSTEM, *turn(2)]
    assert TurnWindowManager(1).curate([SYSTEM, assistant("hello")]) == [SYSTEM, assistant("hello")]


@pytest.mark.parametrize("max_length", range(40))
@pytest.mark.parametrize("suffix", ["", "\n... [truncated]", "x" * 30])
def test_a_truncated_result_is_never_longer_than_asked(max_length, suffix):
    manager = ToolResultTruncator(max_length, suffix)
    parts = [
        {"type": "text", "text": "ab" * 30},
        {"type": "text", "text": "cd" * 30},
        {"type": "image_url", "image_url": {"url": "x"}},
    ]
    view = manager.curate(
        [user("u" * 99), call_message("a", "b"), result_message("a", "r" * 99), result_message("b", parts)]
    )

    assert len(view[2]["content"]) == max_length
    assert sum(len(part.get("text", "")) for part in view[3]["content"]) <= max_length
    assert view[3]["content"][-1]["type"] == "image_url"
    assert view[0]["content"] == "u" * 99
    assert view[2]["tool_call_id"] == "a"


def test_truncation_ends_with_the_suffix():
    assert (
        ToolResultTruncator(20).curate([user("x"), call_message("a"), result_message("a", "r" * 99)])[2]["content"]
        == "rrrr\n... [truncated]"
    )


def test_the_newest_results_can_stay_unchanged():
    chat = [user("x"), call_message("a", "b"), result_message("a", "r" * 99), result_message("b", "s" * 99)]
    view = ToolResultTruncator(20, keep_last=1).curate(chat)

    assert [len(message["content"]) for message in view[2:]] == [20, 99]


def test_old_results_are_cleared_in_batches_and_the_newest_are_exact():
    manager = ToolResultClearer(keep=2, slack=1)
    transcript = Transcript([user("go")])
    cleared = []
    for number in range(8):
        transcript.extend([call_message(str(number)), result_message(str(number), "r" * 500)])
        view = manager.curate(transcript)
        cleared.append(sum(message["content"] == "[cleared: 500 characters]" for message in view))

    assert cleared == [0, 0, 0, 2, 2, 4, 4, 6]


def test_a_result_shorter_than_its_marker_is_unchanged():
    chat = [user("go"), call_message("a"), result_message("a", "ok"), call_message("b"), result_message("b", "ok")]

    assert ToolResultClearer(keep=0, slack=0).curate(chat) == chat


def test_older_turns_are_shown_as_text_only():
    view = ToolStripper(preserve_turns=1).curate(
        [SYSTEM, *turn(1), user("and"), call_message("x", text="looking"), result_message("x"), *turn(2)]
    )

    assert texts(view) == [
        "be brief",
        "request 1",
        "answer 1",
        "and",
        "looking",
        "request 2",
        "calls",
        "result",
        "answer 2",
    ]
    assert "tool_calls" not in view[4]


def test_stripping_keeps_the_exchange_that_the_model_is_about_to_answer():
    assert ToolStripper(preserve_turns=0).curate([user("go"), call_message("a"), result_message("a")]) == [
        user("go"),
        call_message("a"),
        result_message("a"),
    ]


def test_calls_of_tools_that_are_no_longer_offered_are_removed_with_their_results():
    mixed = call_message("a", text="both")
    mixed["tool_calls"] += call_message("b", name="run")["tool_calls"]
    chat = [
        user("go"),
        mixed,
        result_message("a"),
        result_message("b"),
        call_message("c", name="run"),
        result_message("c"),
        assistant("done"),
    ]
    view = ActiveToolsManager(frozenset({"read"})).curate(chat)

    assert texts(view) == ["go", "both", "result", "done"]
    assert check(view) == []


def test_the_offered_tools_can_come_from_the_session():
    class Session:
        session_id = None
        tools = ("run",)

    chat = [user("go"), call_message("c", name="run"), result_message("c"), assistant("done")]
    manager = ActiveToolsManager(lambda session: session.tools)
    session = Session()

    transcript = Transcript(chat)
    assert manager.curate(transcript, session=session) == chat
    session.tools = ()
    assert texts(manager.curate(transcript, session=session)) == ["go", "done"]


def test_managers_are_applied_in_order():
    chat = [SYSTEM, *turn(1), user("go"), call_message("a"), result_message("a", "r" * 99)]
    both = ComposedManager((ToolResultTruncator(20), SlidingWindowManager(3)))

    assert both.curate(chat) == SlidingWindowManager(3).curate(ToolResultTruncator(20).curate(chat))
    assert texts(both.curate(chat)) == ["be brief", "go", "calls", "rrrr\n... [truncated]"]


def test_a_composition_takes_any_object_that_curates():
    class LastTen:
        def curate(self, messages, *, session):
            return messages[-10:]

    chat = [SYSTEM, *(user(str(number)) for number in range(30))]
    composed = ComposedManager([LastTen(), SlidingWindowManager(5)])

    assert texts(composed.curate(chat)) == ["25", "26", "27", "28", "29"]
    assert composed.curate(chat).origins == [26, 27, 28, 29, 30]


BUDGET = 150


def budget(**settings):
    return TokenBudgetManager(BUDGET, **{"names": 0, **settings})


def big(call, size=40):
    return result_message(call, "word " * size)


def test_over_budget_old_results_are_cleared_first():
    chat = [SYSTEM, user("go"), call_message("a"), big("a"), call_message("b"), big("b"), call_message("c"), big("c")]
    view = budget(target=0.9, preset="quality").curate(chat)

    assert [message["content"] for message in view if message["role"] == "tool"] == [
        "[cleared: 200 characters, message 3]",
        "[cleared: 200 characters, message 5]",
        "word " * 40,
    ]
    assert len(view) == len(chat)


def test_then_the_oldest_turns_are_dropped_but_not_the_first_request():
    chat = [
        SYSTEM,
        user("the task"),
        assistant("word " * 40),
        user("two"),
        assistant("word " * 40),
        user("three"),
        assistant("word " * 30),
        user("now"),
    ]
    view = budget(target=0.5, preset="quality").curate(chat)

    assert texts(view) == ["be brief", "the task", "three", "word " * 30, "now"]


def test_then_the_oldest_exchanges_of_the_current_turn_are_dropped():
    chat = [SYSTEM, user("go")]
    for number in range(12):
        chat += [call_message(str(number)), result_message(str(number), "ok")]
    view = budget().curate(chat)

    assert texts(view)[:2] == ["be brief", "go"]
    assert view[-1] == result_message("11", "ok")
    assert check(view) == []
    assert len(view) < len(chat)


def test_a_result_too_large_for_any_view_is_clipped_in_the_middle():
    chat = [SYSTEM, user("go"), call_message("a"), result_message("a", "begin " + "word " * 5_000 + " end")]
    view = budget().curate(chat)
    content = view[3]["content"]

    assert content.startswith("begin ")
    assert content.endswith(" end")
    assert "25,010 characters in all" in content
    assert sum(map(ExactCounter().message, view)) <= BUDGET


def test_messages_that_cannot_fit_are_named():
    with pytest.raises(CannotFit, match=r"the newest request \(message 1, [\d,]+ tokens\)") as caught:
        budget().curate([SYSTEM, user("word " * 500)])

    assert caught.value.max_tokens == BUDGET
    assert caught.value.needed > BUDGET


def test_after_cannot_fit_a_conversation_that_fits_again_is_accepted():
    transcript = Transcript([SYSTEM, user("start"), assistant("ok"), user("word " * 500)])
    manager = budget()
    with pytest.raises(CannotFit):
        manager.curate(transcript)
    transcript.extend([assistant("that is long"), user("sorry, shorter")])

    assert texts(manager.curate(transcript)) == ["be brief", "start", "sorry, shorter"]


def test_the_reserve_is_not_for_messages():
    chat = [user("word " * 100)]

    assert budget().curate(chat) == chat
    with pytest.raises(CannotFit):
        budget(reserve=60).curate(chat)
    with pytest.raises(InvalidSetting, match="more than the reserve"):
        budget(reserve=BUDGET)
    with pytest.raises(InvalidSetting, match="a share above 0"):
        budget(target=0)


def test_pins_stay_with_the_exchange_they_belong_to():
    chat = [
        SYSTEM,
        user("the task"),
        call_message("a"),
        result_message("a", "the key"),
        *(assistant("word " * 20) for _ in range(9)),
        user("now"),
    ]
    transcript = Transcript(chat)
    transcript.pin(3)

    for view in (budget().curate(transcript), budget().curate(chat, context=CurationContext(pins=frozenset({3})))):
        assert texts(view) == ["be brief", "the task", "calls", "the key", "now"]
    assert "the key" not in texts(budget().curate(chat))
    transcript.unpin(3)
    assert "the key" not in texts(budget().curate(transcript))


def test_a_context_can_require_the_last_messages():
    chat = [SYSTEM, *turn(1), *turn(2)]
    context = CurationContext(preserve_last_n=2)

    assert SlidingWindowManager(0).curate(chat, context=context)[1:] == [
        call_message("2a"),
        result_message("2a"),
        assistant("answer 2"),
    ]
    with pytest.raises(InvalidSetting, match="0 or more"):
        CurationContext(preserve_last_n=-1)


def test_a_context_can_give_up_the_system_messages():
    view = SlidingWindowManager(1).curate(
        [SYSTEM, user("a"), user("b")], context=CurationContext(preserve_system=False)
    )

    assert view == [user("b")]
