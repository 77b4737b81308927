"""Strategies of an application: the base class, coroutines and generators, and mistakes in them."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import (
    CompactionManager,
    Conversation,
    Fold,
    HistoryStrategy,
    ModelInfo,
    Transcript,
    register_strategy,
    view_of,
)
from minutebook.compaction import CompactionInput, unregister_strategy
from minutebook.errors import FoldConflict, InvalidMessage, InvalidResult, InvalidSetting
from tests.strategies import conversations

MODEL = ModelInfo("any", max_input_tokens=300)
CHAT = [
    {"role": "system", "content": "You run a bookshop."},
    *(
        {"role": role, "content": f"{role} {turn}: " + "the weather is lovely " * 6}
        for turn in range(6)
        for role in ("user", "assistant")
    ),
]


class FoldSmallTalk(HistoryStrategy):
    async def apply(self, history, summarizer):
        return [Fold.over(history.older_than(3), shown="[small talk]", reason="small talk")]


class YieldSmallTalk(HistoryStrategy):
    async def apply(self, history, summarizer):
        yield Fold.over(history.older_than(3), shown="[small talk]", reason="small talk")


class Delegating(HistoryStrategy):
    def apply(self, history, summarizer):
        return YieldSmallTalk().apply(history, summarizer)


def manager_of(strategy):
    return CompactionManager(strategy, MODEL)


@pytest.mark.parametrize("strategy", [FoldSmallTalk(), YieldSmallTalk(), Delegating()])
def test_apply_returns_a_list_or_yields_folds(strategy):
    result = asyncio.run(manager_of(strategy).check_and_apply(Transcript(CHAT)))

    assert result
    view = view_of(CHAT, folds=result.folds)
    assert [message["content"][:12] for message in view.messages[:3]] == [
        "You run a bo",
        "[small talk]",
        "user 3: the ",
    ]
    assert view.why(1).reason.endswith(": small talk")


def test_the_base_class_names_a_strategy_after_its_class():
    class HTTPLogStrategy(FoldSmallTalk): ...

    class Named(FoldSmallTalk):
        name = "chatter"

    assert [part.name for part in (FoldSmallTalk(), HTTPLogStrategy(), Named())] == [
        "fold_small_talk",
        "http_log",
        "chatter",
    ]


@pytest.mark.parametrize(("threshold", "is_due"), [(None, True), (0.5, True), (1.0, False)])
def test_the_base_class_is_due_above_a_threshold(threshold, is_due):
    strategy = FoldSmallTalk()
    if threshold is not None:
        strategy.threshold = threshold
    record = Transcript(CHAT)
    history = CompactionInput(record, (), ModelInfo("any", max_input_tokens=record.tokens * 10 // 9))

    assert strategy.should_trigger(history) is is_due


def test_a_conversation_takes_a_strategy_of_the_application():
    with Conversation(strategy=FoldSmallTalk(), max_tokens=300) as chat:
        chat.append(CHAT)
        view = chat.view()

        assert [fold.reason for fold in chat.folds()] == ["small talk"]
        assert {"role": "system", "content": "[small talk]"} in view.messages


class ReturnsNothing(HistoryStrategy):
    async def apply(self, history, summarizer):
        pass


class IsNotAsync(HistoryStrategy):
    def apply(self, history, summarizer):
        return [Fold.over(history.older_than(3), reason="small talk")]


class ReturnsOneFold(HistoryStrategy):
    async def apply(self, history, summarizer):
        return Fold.over(history.older_than(3), reason="small talk")


class YieldsRanges(HistoryStrategy):
    async def apply(self, history, summarizer):
        yield range(1, 3)


class ReturnsNone(HistoryStrategy):
    async def apply(self, history, summarizer):
        return [None]


class HasNoApply(HistoryStrategy): ...


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (ReturnsNothing(), "ReturnsNothing.apply returned None; return a list of folds, or yield each fold"),
        (IsNotAsync(), r"IsNotAsync.apply returned \[Fold.*; write `async def apply`, and return a list of folds"),
        (ReturnsOneFold(), "ReturnsOneFold.apply returned Fold.*; return a list of folds, or yield each fold"),
        (YieldsRanges(), r"YieldsRanges.apply returned range\(1, 3\) in place of a fold; make folds with Fold.over"),
        (ReturnsNone(), "ReturnsNone.apply returned None in place of a fold; make folds with Fold.over"),
    ],
)
def test_a_wrong_result_raises_at_once_and_says_the_fix(strategy, message):
    manager = manager_of(strategy)

    with pytest.raises(InvalidResult, match=message):
        asyncio.run(manager.check_and_apply(Transcript(CHAT)))
    with pytest.raises(InvalidResult, match=message):
        asyncio.run(manager.apply(Transcript(CHAT)))
    assert manager.folds == ()


class TakesNoSummarizer(HistoryStrategy):
    async def apply(self, history):
        return []


class TriggersWithoutHistory(HistoryStrategy):
    def should_trigger(self):
        return True

    async def apply(self, history, summarizer):
        return []


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (TakesNoSummarizer(), r"TakesNoSummarizer.apply with the parameters \(self, history, summarizer\)"),
        (TriggersWithoutHistory(), r"TriggersWithoutHistory.should_trigger with the parameters \(self, history\)"),
    ],
)
def test_a_strategy_whose_methods_take_other_parameters_is_refused(strategy, message):
    with pytest.raises(InvalidSetting, match=message):
        Conversation(strategy=strategy)
    register_strategy("other_parameters", lambda: strategy)
    try:
        with pytest.raises(InvalidSetting, match=message):
            Conversation(strategy="other_parameters")
    finally:
        unregister_strategy("other_parameters")


def test_a_strategy_without_apply_cannot_be_created():
    with pytest.raises(TypeError, match=r"abstract class HasNoApply with abstract method '?apply"):
        HasNoApply()


def folds_range(indexes, shown="[folded]"):
    class FoldsRange(HistoryStrategy):
        def should_trigger(self, history):
            return True

        async def apply(self, history, summarizer):
            return [Fold.over(indexes, shown=shown, reason="r")]

    return FoldsRange()


WITH_CALL = [
    {"role": "system", "content": "You run a bookshop, and you answer in French."},
    {"role": "user", "content": "Which book is new? Look at the list of the depot."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "books", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "Ulysses, and a dictionary of the French language"},
    {"role": "assistant", "content": "There are two new books in the depot: Ulysses and a dictionary."},
    {"role": "user", "content": "Order both of them for the shop in the north."},
]


@pytest.mark.parametrize(
    ("indexes", "pin", "problem"),
    [
        (range(6), None, "hides message 0, a leading system message"),
        (range(1, 5), 3, "hides message 2, which is pinned"),
        (range(4, 6), None, "hides message 5, the newest user message"),
        (range(1, 3), None, "a range of whole exchanges"),
        (range(1, 9), None, r"a range within 0\.\.6"),
    ],
)
def test_a_fold_that_splits_an_exchange_or_hides_what_every_view_has_is_refused_before_it_is_stored(
    indexes, pin, problem
):
    with Conversation("orders", model="gpt-4o", strategy=folds_range(indexes)) as chat:
        chat.append(WITH_CALL)
        if pin is not None:
            chat.pin(pin)
        for call in (chat.view, chat.compact):
            with pytest.raises(FoldConflict, match=rf"fold 'fold-.*{problem}.*; .*FoldsRange\.apply"):
                call()

        assert not chat.folds()


def test_a_fold_may_cover_a_pinned_message_that_it_shows():
    shown = [{"role": "system", "content": "[books]"}, WITH_CALL[4]]
    with Conversation("orders", model="gpt-4o", strategy=folds_range(range(1, 5), shown)) as chat:
        chat.append(WITH_CALL)
        chat.pin(4)

        assert WITH_CALL[4] in chat.view().messages
        assert len(chat.folds()) == 1


def test_an_error_of_the_strategy_is_not_blamed_on_the_summarizer(caplog):
    class Careless(HistoryStrategy):
        async def apply(self, history, summarizer):
            raise KeyError("turns")

    result = asyncio.run(manager_of(Careless()).apply(Transcript(CHAT)))

    assert (result.outcome, result.reason) == ("failed", "strategy careless failed: KeyError: 'turns'")
    assert isinstance(result.error, KeyError)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (FoldSmallTalk, r"strategy=<class .*: expected an object, such as FoldSmallTalk\(\)"),
        (5, "strategy=5: expected a name, or an object of a subclass of HistoryStrategy"),
        (object(), "expected a name, or an object of a subclass of HistoryStrategy"),
    ],
)
@pytest.mark.parametrize("make", [manager_of, lambda strategy: Conversation(strategy=strategy)])
def test_what_is_not_a_strategy_is_refused(make, strategy, message):
    with pytest.raises(InvalidSetting, match=message):
        make(strategy)


def test_a_fold_over_messages_shows_a_text_a_message_or_nothing():
    summary = {"role": "user", "content": "Greetings were exchanged."}

    assert Fold.over([3, 1, 2], reason="r").shown == ()
    assert (Fold.over([3, 1, 2], reason="r").start, Fold.over([3, 1, 2], reason="r").stop) == (1, 4)
    assert Fold.over(range(2), shown=summary, reason="r").shown == (summary,)
    assert Fold.over(range(2), shown=[summary, summary], reason="r").shown == (summary, summary)
    assert Fold.over(range(2), shown="[chat]", reason="r", id="mine").id == "mine"


@pytest.mark.parametrize("indexes", [[], range(0), [1, 3], [-1, 0]])
def test_a_fold_needs_neighbouring_messages(indexes):
    with pytest.raises(InvalidSetting, match=r"indexes=.*expected indexes of neighbouring messages"):
        Fold.over(indexes, reason="r")


def test_a_fold_needs_a_reason_and_shows_messages():
    with pytest.raises(InvalidSetting, match="reason=''"):
        Fold.over(range(2), reason="")
    with pytest.raises(InvalidMessage, match="is of type int"):
        Fold.over(range(2), shown=[5], reason="r")


@given(conversations(), st.integers(0, 6), st.integers(0, 6))
def test_equal_folds_have_equal_ids_and_different_ones_do_not(chat, start, length):
    indexes = range(start, start + length + 1)
    fold, other = Fold.over(indexes, shown=chat, reason="r"), Fold.over(list(indexes), shown=chat, reason="r")

    assert fold == other
    assert fold.id != Fold.over(indexes, shown=chat, reason="another").id


@given(conversations(), st.integers(0, 4))
def test_older_messages_end_where_the_last_turns_start(chat, turns):
    history = CompactionInput(Transcript(chat), (), MODEL)
    older = history.older_than(turns)

    assert not {index for index in older if index < history.record.leading_system_count}
    if older:
        assert sum(message["role"] == "user" for message in chat[older.stop :]) == turns


class BrokenTrigger(FoldSmallTalk):
    def should_trigger(self, history):
        raise KeyError("turns")


class AwaitableTrigger(FoldSmallTalk):
    async def should_trigger(self, history):
        return True


def test_a_trigger_that_raises_fails_the_compaction_and_not_the_view(caplog):
    with Conversation("a", store="memory:", max_tokens=5_000, strategy=BrokenTrigger()) as chat:
        chat.append(*CHAT)

        view = chat.view()
        result = asyncio.run(
            CompactionManager(BrokenTrigger(), ModelInfo("any", max_input_tokens=5_000)).check_and_apply(
                Transcript(CHAT)
            )
        )

    assert view.messages == CHAT
    assert "compaction by broken_trigger failed" in caplog.text
    assert result.outcome == "failed"


def test_a_trigger_that_is_a_coroutine_is_a_typed_error():
    manager = CompactionManager(AwaitableTrigger(), ModelInfo("any", max_input_tokens=5_000))

    with pytest.raises(InvalidResult, match=r"AwaitableTrigger.should_trigger returned a coroutine; write `def"):
        asyncio.run(manager.check_and_apply(Transcript(CHAT)))


@pytest.mark.parametrize("limit", [150, 300])
def test_a_trigger_that_raises_does_not_let_a_view_exceed_the_window(limit):
    result = asyncio.run(
        CompactionManager(BrokenTrigger(), ModelInfo("any", max_input_tokens=limit)).check_and_apply(Transcript(CHAT))
    )

    assert view_of(CHAT, folds=result.folds).tokens <= limit
