"""What holds of every strategy, whatever the conversation and however small the window."""

import asyncio
import json
from contextlib import suppress
from itertools import islice

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from minutebook import (
    CannotFit,
    CompactionManager,
    Fold,
    HistoryCompacted,
    HistoryStrategy,
    InProcessEventBus,
    ModelInfo,
    PassthroughManager,
    Session,
    SummarizeStrategy,
    TokenBudgetManager,
    Transcript,
    TruncateStrategy,
    TurnStrategy,
    register_strategy,
    view_of,
)
from minutebook.compaction import HybridStrategy, strategy_named, strategy_names, unregister_strategy
from minutebook.compaction.extractive import ExtractiveSummarizer
from minutebook.compaction.summarizer import is_summary
from minutebook.errors import InvalidSetting, UnknownName
from minutebook.record import is_valid
from tests.strategies import conversations
from tests.transcripts import FILES, needs_corpus, real

STRATEGIES = {
    "summarize": SummarizeStrategy(),
    "truncate": TruncateStrategy(),
    "turns": TurnStrategy(max_turns=2, keep_turns=1),
    "hybrid": HybridStrategy(),
}
ROLES = ("user", "assistant")
EVERY = pytest.mark.parametrize("name", sorted(STRATEGIES))


class Listening(ExtractiveSummarizer):
    """Sums up, and remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.heard = []

    async def summarize(self, request):
        self.heard += request.messages
        return await super().summarize(request)


def manager(name, window, summarizer=None, **options):
    return CompactionManager(STRATEGIES[name], ModelInfo("m", max_input_tokens=window), summarizer, **options)


async def played(record, compactor, chat):
    """Play a conversation call by call, checking before each; what the manager did each time.

    In one event loop: to make and close one for every call takes longer than the call.
    """
    for message in chat:
        record.append(message)
        if not (record.open_calls or record.newest_request is None or message["role"] == "assistant"):
            yield await compactor.check_and_apply(record)


def told(name, chat, window, summarizer=None):
    """The record after a conversation was played, and its manager."""
    record, compactor = Transcript(broken="mark"), manager(name, window, summarizer)

    async def play():
        async for _ in played(record, compactor, chat):
            pass

    asyncio.run(play())
    return record, compactor


@EVERY
@given(chat=conversations(user_first=True), window=st.sampled_from([300, 1_000, 4_000, 20_000]))
def test_every_view_is_valid_keeps_what_matters_and_fits_or_says_so(name, chat, window):
    record, compactor = Transcript(broken="mark"), manager(name, window)

    async def play():
        for message in chat:
            record.append(message)
            if record.open_calls or record.newest_request is None:
                continue
            done = await compactor.check_and_apply(record)
            view = view_of(record, folds=done.folds)
            assert is_valid(view.messages)
            assert record[record.newest_request] in view.messages
            assert list(record[: record.lead]) == view.messages[: record.lead]
            if name != "turns" or done:
                assert compactor.situation(record).tokens <= window

    try:
        asyncio.run(play())
    except CannotFit as error:
        assert error.irreducible


@EVERY
@given(chat=conversations(user_first=True), window=st.sampled_from([400, 2_000]))
def test_applying_twice_changes_nothing(name, chat, window):
    record, compactor = Transcript(chat, broken="mark"), manager(name, window)
    try:
        asyncio.run(compactor.check_and_apply(record))
        before = compactor.folds
        again = asyncio.run(compactor.check_and_apply(record))
    except CannotFit:
        assume(False)

    assert not again
    assert compactor.folds == before


@pytest.mark.parametrize("name", ["summarize", "turns", "hybrid"])
@given(chat=conversations(user_first=True, max_steps=20), window=st.sampled_from([600, 2_000]))
def test_nothing_is_evicted_unseen(name, chat, window):
    summarizer = Listening()
    try:
        record, compactor = told(name, chat, window, summarizer)
    except CannotFit:
        assume(False)
    assume(not any(fold.id.startswith(("truncate", "clip")) for fold in compactor.folds))  # there was no other way
    standing = compactor.situation(record).standing
    summarized = [fold for fold in standing if fold.id.startswith(("summarize", "turns"))]

    gone = [record[place] for fold in summarized for place in range(fold.start, fold.stop)]

    assert all(any(message is heard for heard in summarizer.heard) for message in gone)


@EVERY
@given(chat=conversations(user_first=True), window=st.sampled_from([400, 2_000]))
def test_undoing_a_fold_restores_the_exact_view(name, chat, window):
    record, compactor = Transcript(chat, broken="mark"), manager(name, window)
    whole = view_of(record).messages
    try:
        done = asyncio.run(compactor.check_and_apply(record))
    except CannotFit:
        assume(False)

    kept = [fold for fold in done.folds if fold not in done.added]

    assert json.dumps(view_of(record, folds=kept).messages) == json.dumps(whole)


class Watched(Transcript):
    """A record that counts how many of its messages are looked at."""

    looks = 0

    def tokens_of(self, index):
        self.looks += 1
        return super().tokens_of(index)

    def since(self, index):
        found = super().since(index)
        self.looks += len(found)
        return found

    def exchange_of(self, index):
        self.looks += 1
        return super().exchange_of(index)

    def __getitem__(self, index):
        found = super().__getitem__(index)
        self.looks += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self):
        self.looks += len(self)
        return super().__iter__()


def looks(name, entries, window):
    """How many messages are looked at to see, call after call, that nothing is due, after so many entries."""
    record, compactor = Watched(broken="mark"), manager(name, window)
    for number in range(entries // 2):
        record.append({"role": "user", "content": f"Chapter {number}, please. " + "word " * 30})
        record.append({"role": "assistant", "content": f"Chapter {number} says: " + "deed " * 30})
    record.append({"role": "user", "content": "And the end?"})
    asyncio.run(compactor.check_and_apply(record))
    before, folds = record.looks, compactor.folds
    for number in range(5):
        record.append({"role": "assistant", "content": f"Part {number} of the end."})
        record.append({"role": "system", "content": "Go on."})
        asyncio.run(compactor.check_and_apply(record))

    assert compactor.folds is folds
    return record.looks - before


@EVERY
@pytest.mark.parametrize("window", [8_000, 10_000_000], ids=["folded", "whole"])
def test_to_see_that_nothing_is_due_costs_as_much_however_long_the_record_is(name, window):
    assert looks(name, 1_000, window) == looks(name, 200, window) <= 40


class Broken:
    """A summarizer that cannot."""

    def __init__(self, answer=None):
        self.answer = answer
        self.asked = 0

    async def summarize(self, request):
        self.asked += 1
        if self.answer is None:
            raise RuntimeError("no model today")
        return self.answer


LONG = [
    {"role": "system", "content": "You read."},
    *(
        message
        for number in range(40)
        for message in (
            {"role": "user", "content": f"Chapter {number}, please. " + "word " * 30},
            {"role": "assistant", "content": f"Chapter {number} says: " + "deed " * 30},
        )
    ),
    {"role": "user", "content": "And the end?"},
]


@pytest.mark.parametrize(
    "answer", [None, "", '{"tool": 1}', "word " * 5_000], ids=["raises", "empty", "data", "too-long"]
)
def test_a_summary_that_fails_changes_nothing_and_says_so(answer):
    record = Transcript(LONG)
    compactor = manager("summarize", int(record.tokens * 1.1), Broken(answer))

    done = asyncio.run(compactor.check_and_apply(record))

    assert not done
    assert done.folds == ()
    assert done.error is not None


def test_where_the_call_would_not_fit_a_failed_summary_is_followed_by_truncation():
    record = Transcript(LONG)
    compactor = manager("summarize", int(record.tokens * 0.8), Broken())

    done = asyncio.run(compactor.check_and_apply(record))

    assert done
    assert done.event.fallback == "RuntimeError: no model today"
    assert "truncated to fit context window" in view_of(record, folds=done.folds).messages[2]["content"]


def test_a_summarizer_that_goes_on_failing_is_not_asked_for_ever():
    record, summarizer = Transcript(LONG), Broken()
    compactor = manager("summarize", int(record.tokens * 1.2), summarizer)
    for number in range(200):
        record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
        record.append({"role": "user", "content": "Go on."})
        asyncio.run(compactor.check_and_apply(record))

    assert summarizer.asked == 3


def test_beside_a_summary_too_the_newest_results_are_cut_to_the_room_there_is():
    record, compactor = Transcript(LONG), manager("summarize", 3_000)
    assert asyncio.run(compactor.check_and_apply(record))
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for number in range(3)
    ]
    record.append({"role": "assistant", "content": None, "tool_calls": calls})
    for call, words in zip(calls, (900, 1_500, 300), strict=True):
        record.append({"role": "tool", "tool_call_id": call["id"], "content": "word " * words})

    done = asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=done.folds).messages

    assert compactor.situation(record).tokens <= 3_000
    assert is_valid(view)
    assert any(map(is_summary, view))


def test_the_previous_summary_is_carried_on():
    requests = []

    class Recording(ExtractiveSummarizer):
        async def summarize(self, request):
            requests.append(request)
            return f"Summary {len(requests)}."

    record = Transcript(LONG)
    compactor = manager("summarize", 2_000, Recording())
    asyncio.run(compactor.check_and_apply(record))
    for number in range(40):
        record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
        record.append({"role": "user", "content": f"Go on with {number}."})
        asyncio.run(compactor.check_and_apply(record))

    assert [request.previous for request in requests[:3]] == [None, "Summary 1.", "Summary 2."]
    shown = [message for message in view_of(record, folds=compactor.folds).messages if is_summary(message)]
    assert len(shown) == 1


def test_the_marker_of_a_truncation_counts_all_that_is_gone():
    record = Transcript(LONG)
    compactor = manager("truncate", 2_000)
    asyncio.run(compactor.check_and_apply(record))
    for number in range(40):
        record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
        record.append({"role": "user", "content": f"Go on with {number}."})
        asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=compactor.folds).messages

    markers = [message["content"] for message in view if "truncated" in str(message["content"])]

    assert markers == [f"[{len(record) - len(view) + 1} earlier messages truncated to fit context window]"]


def test_exactly_the_threshold_does_not_trigger():
    record = Transcript(LONG)
    tokens = record.tokens

    assert not TruncateStrategy().should_trigger(manager("truncate", -(-tokens * 10 // 8)).situation(record))
    assert TruncateStrategy().should_trigger(manager("truncate", int(tokens / 0.8) - 1).situation(record))


def test_tools_and_the_reply_count_too():
    record = Transcript(LONG)
    window = int(record.tokens / 0.8) + 500
    model = ModelInfo("m", max_input_tokens=window, max_output_tokens=1_000, context_tokens=window)

    assert not asyncio.run(CompactionManager("truncate", model).check_and_apply(record))
    assert asyncio.run(CompactionManager("truncate", model).check_and_apply(record, overhead_tokens=600))
    assert asyncio.run(CompactionManager("truncate", model, reply_tokens=600).check_and_apply(record))


def test_the_latest_files_stay_with_their_calls_and_results():
    record = Transcript([{"role": "user", "content": "Mend it."}])
    for number in range(40):
        call = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "read", "arguments": f'{{"path": "src/f{number}.py"}}'},
        }
        record.append({"role": "assistant", "content": None, "tool_calls": [call]})
        record.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"content {number} " + "word " * 60})
        record.append({"role": "assistant", "content": "Thinking aloud. " * 20})
    compactor = manager("summarize", 6_000)

    done = asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=done.folds)

    read = [message["tool_calls"][0]["function"]["arguments"] for message in view.messages if message.get("tool_calls")]
    assert len(read) >= 10
    assert read[-1] == '{"path": "src/f39.py"}'
    assert is_valid(view.messages)


def test_a_compaction_is_an_event_for_people_and_never_for_the_model():
    bus, events = InProcessEventBus(), []
    bus.subscribe(HistoryCompacted, events.append)
    record, session = Transcript(LONG), Session()
    compactor = manager("truncate", 2_000, bus=bus)

    done = asyncio.run(compactor.check_and_apply(record, session=session))

    assert [event.notice for event in events] == ["[History compacted using truncate strategy]"]
    assert events[0].tokens_after < events[0].tokens_before
    assert events[0].session_id == session.session_id
    assert "History compacted" not in str(view_of(record, folds=done.folds).messages)


def test_folds_are_kept_before_they_count():
    kept = []

    async def refuse(fold):
        kept.append(fold)
        raise OSError("disk full")

    compactor = manager("truncate", 2_000, keep=refuse)
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(compactor.check_and_apply(Transcript(LONG)))

    assert len(kept) == 1
    assert compactor.folds == ()


def test_without_a_strategy_nothing_is_done():
    assert not asyncio.run(
        CompactionManager(None, ModelInfo("m", max_input_tokens=10)).check_and_apply(Transcript(LONG))
    )


def test_strategies_go_by_their_names():
    assert strategy_names() == ["hybrid", "summarize", "truncate", "turns"]
    assert all(isinstance(strategy_named(name), HistoryStrategy) for name in strategy_names())
    with pytest.raises(UnknownName, match="did you mean 'summarize'"):
        strategy_named("sumarize")


def test_a_strategy_of_ones_own_goes_by_its_name():
    class Never:
        name = "never"

        def should_trigger(self, situation):
            return False

        async def apply(self, situation, summarizer):
            yield Fold("x", 0, 1, (), "")

    register_strategy("never", Never)
    try:
        assert isinstance(strategy_named("never"), Never)
        with pytest.raises(InvalidSetting, match="a strategy of that name is registered already"):
            register_strategy("never", Never)
    finally:
        unregister_strategy("never")
    with pytest.raises(InvalidSetting, match="a strategy of that name is built in already"):
        register_strategy("summarize", Never)


def test_what_is_pinned_stays_in_every_view_of_a_record_that_is_folded_by_turns():
    chat = [{"role": role, "content": f"{role} {at} " + "word " * 60} for at in range(22) for role in ROLES]
    record = Transcript(chat[:28])
    record.pin(3)
    compactor = CompactionManager(
        TurnStrategy(max_summary_tokens=50, max_ledger_tokens=50), ModelInfo("m"), ExtractiveSummarizer()
    )

    assert asyncio.run(compactor.check_and_apply(record))
    record.pin(0)  # what is pinned within a summary comes back with the next one
    record.extend(chat[28:])
    assert asyncio.run(compactor.check_and_apply(record))

    managers = PassthroughManager(), TokenBudgetManager(500)
    views = [view_of(record, each, folds=compactor.folds).messages for each in managers]
    assert len(views[0]) > len(views[1])
    for view in views:
        assert [message for message in view if message in (chat[0], chat[3])] == [chat[0], chat[3]]


def test_turns_that_cannot_be_meant_are_refused():
    with pytest.raises(InvalidSetting):
        TurnStrategy(max_turns=2, keep_turns=3)


@needs_corpus
@EVERY
@pytest.mark.parametrize("file", FILES)
def test_real_conversations_stay_within_their_window(name, file):
    for window in (4_000, 32_000):
        for conversation in islice(real(file), 2):
            with suppress(CannotFit):
                asyncio.run(_stays_within(name, conversation["messages"][:120], window))


async def _stays_within(name, chat, window):
    record, compactor = Transcript(broken="mark"), manager(name, window)
    async for done in played(record, compactor, chat):
        assert is_valid(view_of(record, folds=done.folds).messages)
        assert name == "turns" or compactor.situation(record).tokens <= window
