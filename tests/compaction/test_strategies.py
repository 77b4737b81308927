"""Properties of every strategy, for any conversation and any window."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
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
from minutebook.compaction.fact_ledger import HEADING
from minutebook.compaction.summarizer import is_summary
from minutebook.errors import InvalidSetting, UnknownName
from minutebook.history.tool_results import cleared_result
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


class RecordingSummarizer(ExtractiveSummarizer):
    """Records the messages that it gets."""

    def __init__(self):
        super().__init__()
        self.messages = []

    async def summarize(self, request):
        self.messages += request.messages
        return await super().summarize(request)


def manager(name, window, summarizer=None, **options):
    return CompactionManager(STRATEGIES[name], ModelInfo("m", max_input_tokens=window), summarizer, **options)


async def compactions(record, compactor, chat):
    """Play a conversation and yield the result of the compaction before each model call.

    All run in one event loop: creating one for every call takes longer than the call.
    """
    for message in chat:
        record.append(message)
        if not (record.open_calls or record.newest_request is None or message["role"] == "assistant"):
            yield await compactor.check_and_apply(record)


def play_conversation(name, chat, window, summarizer=None):
    """Play a conversation; return its record and its manager."""
    record, compactor = Transcript(broken="mark"), manager(name, window, summarizer)

    async def play():
        async for _ in compactions(record, compactor, chat):
            pass

    asyncio.run(play())
    return record, compactor


@EVERY
@given(chat=conversations(user_first=True), window=st.sampled_from([300, 1_000, 4_000, 20_000]))
def test_every_view_is_valid_keeps_the_essentials_and_fits_or_raises(name, chat, window):
    record, compactor = Transcript(broken="mark"), manager(name, window)

    async def play():
        for message in chat:
            record.append(message)
            if record.open_calls or record.newest_request is None:
                continue
            result = await compactor.check_and_apply(record)
            view = view_of(record, folds=result.folds)
            assert is_valid(view.messages)
            assert record[record.newest_request] in view.curated
            assert list(record[: record.leading_system_count]) == view.curated[: record.leading_system_count]
            assert compactor.compaction_input(record).tokens <= window

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
def test_the_summarizer_sees_every_folded_message(name, chat, window):
    summarizer = RecordingSummarizer()
    try:
        record, compactor = play_conversation(name, chat, window, summarizer)
    except CannotFit:
        assume(False)
    assume(not any(fold.id.startswith(("truncate", "clip")) for fold in compactor.folds))  # there was no other way
    active = compactor.compaction_input(record).active_folds
    summarized = [fold for fold in active if fold.id.startswith(("summarize", "turns"))]

    hidden = [record[index] for fold in summarized for index in range(fold.start, fold.stop)]

    assert all(any(message is seen for seen in summarizer.messages) for message in hidden)


@EVERY
@given(chat=conversations(user_first=True), window=st.sampled_from([400, 2_000]))
def test_undoing_a_fold_restores_the_exact_view(name, chat, window):
    record, compactor = Transcript(chat, broken="mark"), manager(name, window)
    whole = view_of(record).messages
    try:
        result = asyncio.run(compactor.check_and_apply(record))
    except CannotFit:
        assume(False)

    earlier = [fold for fold in result.folds if fold not in result.added]

    assert json.dumps(view_of(record, folds=earlier).messages) == json.dumps(whole)


class CountingTranscript(Transcript):
    """A record that counts the reads of its messages."""

    reads = 0

    def tokens_of(self, index):
        self.reads += 1
        return super().tokens_of(index)

    def since(self, index):
        messages = super().since(index)
        self.reads += len(messages)
        return messages

    def exchange_of(self, index):
        self.reads += 1
        return super().exchange_of(index)

    def __getitem__(self, index):
        result = super().__getitem__(index)
        self.reads += len(result) if isinstance(index, slice) else 1
        return result

    def __iter__(self):
        self.reads += len(self)
        return super().__iter__()


def reads_when_not_due(name, entries, window):
    """The number of reads in five checks that find nothing due, in a record with this number of entries."""
    record, compactor = CountingTranscript(broken="mark"), manager(name, window)
    for number in range(entries // 2):
        record.append({"role": "user", "content": f"Chapter {number}, please. " + "word " * 30})
        record.append({"role": "assistant", "content": f"Chapter {number} says: " + "deed " * 30})
    record.append({"role": "user", "content": "And the end?"})
    asyncio.run(compactor.check_and_apply(record))
    before, folds = record.reads, compactor.folds
    for number in range(5):
        record.append({"role": "assistant", "content": f"Part {number} of the end."})
        record.append({"role": "system", "content": "Go on."})
        asyncio.run(compactor.check_and_apply(record))

    assert compactor.folds is folds
    return record.reads - before


@EVERY
@pytest.mark.parametrize("window", [8_000, 10_000_000], ids=["folded", "whole"])
def test_a_check_that_finds_nothing_due_costs_the_same_in_a_long_record(name, window):
    assert reads_when_not_due(name, 1_000, window) == reads_when_not_due(name, 200, window) <= 40


class FailingSummarizer:
    """Raises, or returns an unusable summary."""

    def __init__(self, answer=None):
        self.answer = answer
        self.calls = 0

    async def summarize(self, request):
        self.calls += 1
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
def test_a_failed_summary_changes_nothing_and_is_reported(answer):
    record = Transcript(LONG)
    compactor = manager("summarize", int(record.tokens * 1.1), FailingSummarizer(answer))

    result = asyncio.run(compactor.check_and_apply(record))

    assert not result
    assert result.folds == ()
    assert result.error is not None


def test_a_conversation_that_does_not_fit_gets_an_extractive_summary_after_a_failed_one():
    record = Transcript(LONG)
    compactor = manager("summarize", int(record.tokens * 0.8), FailingSummarizer())

    result = asyncio.run(compactor.check_and_apply(record))
    shown = view_of(record, folds=result.folds).messages[2]["content"]

    assert result
    assert result.event.methods == ("extractive summary",)
    assert result.event.fallback == "strategy summarize failed: RuntimeError: no model today"
    assert result.event.notice == (
        "[History compacted using extractive summary: strategy summarize failed: RuntimeError: no model today]"
    )
    assert "Chapter" in shown
    assert HEADING in shown


class Clock:
    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        return self.now


def test_a_summarizer_that_keeps_failing_is_called_again_after_a_delay():
    record, summarizer, clock = Transcript(LONG), FailingSummarizer(), Clock()
    compactor = manager("summarize", int(record.tokens * 1.2), summarizer, clock=clock)

    def play(answers):
        for number in range(answers):
            record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
            record.append({"role": "user", "content": "Go on."})
            result = asyncio.run(compactor.check_and_apply(record))
            assert compactor.compaction_input(record).tokens <= compactor.model.max_input_tokens
        return result

    play(100)
    assert summarizer.calls == 3

    clock.now += timedelta(minutes=5)
    play(100)
    assert summarizer.calls == 4, "one call, which fails"

    clock.now += timedelta(minutes=5)
    summarizer.answer = "They read the chapters in order."
    play(100)
    assert summarizer.calls > 5, "it works again, so it is called whenever it is due"


def test_the_notice_says_what_was_done_while_the_summarizer_is_not_called():
    record, bus, events = Transcript(LONG), InProcessEventBus(), []
    bus.subscribe(HistoryCompacted, events.append)
    compactor = manager("summarize", int(record.tokens * 1.2), FailingSummarizer(), clock=Clock(), bus=bus)
    for number in range(60):
        record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
        record.append({"role": "user", "content": "Go on."})
        asyncio.run(compactor.check_and_apply(record))

    assert events[-1].notice == (
        "[History compacted using extractive summary: the strategy failed 3 times in a row and is not called again before "
        "2026-01-01T00:05:00+00:00]"
    )


def test_the_newest_results_are_cut_to_fit_also_after_a_summary():
    record, compactor = Transcript(LONG), manager("summarize", 3_000)
    assert asyncio.run(compactor.check_and_apply(record))
    calls = [
        {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}} for number in range(3)
    ]
    record.append({"role": "assistant", "content": None, "tool_calls": calls})
    for call, words in zip(calls, (900, 1_500, 300), strict=True):
        record.append({"role": "tool", "tool_call_id": call["id"], "content": "word " * words})

    result = asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=result.folds).curated

    assert compactor.compaction_input(record).tokens <= 3_000
    assert is_valid(view)
    assert any(map(is_summary, view))


def test_the_summarizer_gets_the_previous_summary():
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
    shown = [message for message in view_of(record, folds=compactor.folds).curated if is_summary(message)]
    assert len(shown) == 1


def test_the_marker_of_a_truncation_counts_all_hidden_messages():
    record = Transcript(LONG)
    compactor = manager("truncate", 2_000)
    asyncio.run(compactor.check_and_apply(record))
    for number in range(40):
        record.append({"role": "assistant", "content": f"Number {number}: " + "more " * 40})
        record.append({"role": "user", "content": f"Go on with {number}."})
        asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=compactor.folds).curated

    markers = [message["content"] for message in view if "truncated" in str(message["content"])]

    assert markers == [f"[{len(record) - len(view) + 1} earlier messages truncated to fit context window]"]


def test_exactly_the_threshold_does_not_trigger():
    record = Transcript(LONG)
    tokens = record.tokens

    assert not TruncateStrategy().should_trigger(manager("truncate", -(-tokens * 10 // 8)).compaction_input(record))
    assert TruncateStrategy().should_trigger(manager("truncate", int(tokens / 0.8) - 1).compaction_input(record))


def test_tools_and_the_reply_count_too():
    record = Transcript(LONG)
    window = int(record.tokens / 0.8) + 500
    model = ModelInfo("m", max_input_tokens=window, max_output_tokens=1_000, context_tokens=window)

    assert not asyncio.run(CompactionManager("truncate", model).check_and_apply(record))
    assert asyncio.run(CompactionManager("truncate", model).check_and_apply(record, overhead_tokens=600))
    assert asyncio.run(CompactionManager("truncate", model, reply_tokens=600).check_and_apply(record))


def test_the_most_recent_files_are_kept_with_their_calls_and_results():
    record = Transcript([{"role": "user", "content": "Fix it."}])
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

    result = asyncio.run(compactor.check_and_apply(record))
    view = view_of(record, folds=result.folds)

    read = [message["tool_calls"][0]["function"]["arguments"] for message in view.messages if message.get("tool_calls")]
    assert len(read) >= 10
    assert read[-1] == '{"path": "src/f39.py"}'
    assert is_valid(view.messages)


def test_a_compaction_is_published_and_not_sent_to_the_model():
    bus, events = InProcessEventBus(), []
    bus.subscribe(HistoryCompacted, events.append)
    record, session = Transcript(LONG), Session()
    compactor = manager("truncate", 2_000, bus=bus)

    result = asyncio.run(compactor.check_and_apply(record, session=session))

    assert [event.notice for event in events] == ["[History compacted using truncate strategy]"]
    assert events[0].tokens_after < events[0].tokens_before
    assert events[0].session_id == session.session_id
    assert "History compacted" not in str(view_of(record, folds=result.folds).messages)


def test_folds_are_saved_before_they_are_added():
    saved = []

    async def fail(fold):
        saved.append(fold)
        raise OSError("disk full")

    compactor = manager("truncate", 2_000, save_fold=fail)
    with pytest.raises(OSError, match="disk full"):
        asyncio.run(compactor.check_and_apply(Transcript(LONG)))

    assert len(saved) == 1
    assert compactor.folds == ()


def test_without_a_strategy_nothing_is_folded():
    assert not asyncio.run(
        CompactionManager(None, ModelInfo("m", max_input_tokens=10)).check_and_apply(Transcript(LONG))
    )


def test_strategies_are_found_by_name():
    assert strategy_names() == ["hybrid", "summarize", "truncate", "turns"]
    assert all(isinstance(strategy_named(name), HistoryStrategy) for name in strategy_names())
    with pytest.raises(UnknownName, match="did you mean 'summarize'"):
        strategy_named("sumarize")


def test_a_registered_strategy_is_found_by_name():
    class Never:
        name = "never"

        def should_trigger(self, history):
            return False

        async def apply(self, history, summarizer):
            yield Fold("x", 0, 1, (), "")

    register_strategy("never", Never)
    try:
        assert isinstance(strategy_named("never"), Never)
        with pytest.raises(InvalidSetting, match="a name that is not registered yet"):
            register_strategy("never", Never)
    finally:
        unregister_strategy("never")
    with pytest.raises(InvalidSetting, match="a name other than the built-in"):
        register_strategy("summarize", Never)


def test_pinned_messages_stay_in_every_view_of_a_record_that_is_folded_by_turns():
    chat = [{"role": role, "content": f"{role} {at} " + "word " * 60} for at in range(22) for role in ROLES]
    record = Transcript(chat[:28])
    record.pin(3)
    compactor = CompactionManager(
        TurnStrategy(max_summary_tokens=50, max_ledger_tokens=50), ModelInfo("m"), ExtractiveSummarizer()
    )

    assert asyncio.run(compactor.check_and_apply(record))
    record.pin(0)  # a message that is pinned after it was summarized is shown with the next summary
    record.extend(chat[28:])
    assert asyncio.run(compactor.check_and_apply(record))

    managers = PassthroughManager(), TokenBudgetManager(500)
    views = [view_of(record, manager, folds=compactor.folds).curated for manager in managers]
    assert len(views[0]) > len(views[1])
    for view in views:
        assert [message for message in view if message in (chat[0], chat[3])] == [chat[0], chat[3]]


def test_keeping_more_turns_than_the_maximum_is_refused():
    with pytest.raises(InvalidSetting):
        TurnStrategy(max_turns=2, keep_turns=3)


def irreducible_tokens(record):
    """Tokens of the messages that every view has, each result of the last exchange at its shortest."""
    last = max(index for index, message in enumerate(record) if message["role"] not in {"system", "developer"})
    open_exchange = range(record.exchange_of(last).start, len(record))
    essential = {*range(record.leading_system_count), *open_exchange, record.newest_request}
    essential |= {index for pin in record.pins for index in record.exchange_of(pin)}
    return sum(_shortest(record, index, index in open_exchange) for index in essential)


def _shortest(record, index, is_open):
    cleared = cleared_result(record, index) if is_open and not record.pins & {*record.exchange_of(index)} else None
    tokens = record.tokens_of(index)
    return tokens if cleared is None else min(tokens, record.counter.message(cleared[0]))


async def check_that_every_view_fits(name, chat, window, pins=()):
    """Play a conversation. Every view fits its window, unless the messages that must be sent exceed it."""
    record, compactor = Transcript(broken="mark"), manager(name, window)
    for message in chat:
        record.append(message)
        if len(record) - 1 in pins:
            record.pin(len(record) - 1)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        try:
            result = await compactor.check_and_apply(record)
        except CannotFit as error:
            assert irreducible_tokens(record) > window
            assert error.needed > window
            continue
        view = view_of(record, folds=result.folds).curated
        assert compactor.compaction_input(record).tokens <= window
        assert is_valid(view)
        assert all(record[index] in view for pin in record.pins for index in record.exchange_of(pin))


@pytest.mark.fuzz
@EVERY
@given(
    chat=conversations(user_first=True, max_steps=20),
    window=st.integers(60, 4_000),
    pins=st.sets(st.integers(0, 20), max_size=2),
)
def test_every_view_fits_unless_the_essential_messages_exceed_the_window(name, chat, window, pins):
    asyncio.run(check_that_every_view_fits(name, chat, window, pins))


@pytest.mark.fuzz
@EVERY
@given(chat=conversations(user_first=True), window=st.integers(60, 2_000), data=st.data())
def test_a_fold_that_hides_the_newest_messages_is_not_split(name, chat, window, data):
    """After a rewind to the end of a fold, the newest messages are in that fold."""
    record = Transcript(chat, broken="mark")
    assume(len(record) > record.leading_system_count)
    start = record.exchange_of(data.draw(st.integers(record.leading_system_count, len(record) - 1))).start
    stop = record.exchange_of(data.draw(st.integers(start, len(record) - 1))).stop
    fold = Fold("summary", start, stop, ({"role": "system", "content": "earlier " * 40, "kind": "summary"},), "")
    compactor = manager(name, window, folds=[fold])

    try:
        result = asyncio.run(compactor.check_and_apply(record))
    except CannotFit:
        return

    assert compactor.compaction_input(record).tokens <= window
    assert is_valid([{"role": "user", "content": "Go on."}, *view_of(record, folds=result.folds).messages])


@pytest.mark.fuzz
@given(chat=conversations(user_first=True, max_steps=20), limit=st.integers(60, 3_000))
def test_a_budget_fits_unless_the_essential_messages_exceed_it(chat, limit):
    record = Transcript(broken="mark")
    for message in chat:
        record.append(message)
        if record.open_calls or record.newest_request is None or message["role"] == "assistant":
            continue
        try:
            view = view_of(record, limit)
        except CannotFit:
            assert irreducible_tokens(record) > limit
        else:
            assert view.tokens <= limit


@needs_corpus
@pytest.mark.fuzz
@EVERY
@pytest.mark.parametrize("file", FILES)
def test_every_view_of_a_real_conversation_fits_unless_the_essential_messages_exceed_the_window(name, file):
    for window in (4_000, 32_000):
        for conversation in islice(real(file), 2):
            asyncio.run(check_that_every_view_fits(name, conversation["messages"][:120], window))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ["truncate", "summarize", "hybrid"])
@given(
    chat=conversations(user_first=True, max_steps=16),
    window=st.integers(1, 80),
    pins=st.sets(st.integers(0, 20), max_size=4),
)
def test_cannot_fit_names_the_smallest_window_that_works(name, chat, window, pins):
    record = Transcript(chat, broken="mark")
    for pin in pins & set(range(len(chat))):
        record.pin(pin)

    def fits(tokens):
        result = asyncio.run(manager(name, tokens).check_and_apply(record))
        return view_of(record, folds=result.folds).tokens <= tokens

    try:
        fits(window)
    except CannotFit as error:
        assert fits(error.needed)
        with pytest.raises(CannotFit):
            fits(error.needed - 1)


def test_a_summary_after_a_truncation_does_not_cut_into_it():
    """The tail of a summary moves to the start of its turn, but not to before messages that are folded already."""
    record = Transcript(
        [
            *({"role": "user", "content": "Where is my order? " * 20} for _ in range(4)),
            {"role": "user", "content": "ok"},
            {"role": "assistant", "content": "It is packed. " * 20},
            {"role": "user", "content": "Thanks"},
        ]
    )
    truncated = Fold("truncate", 2, 5, (), "truncated")
    compactor = manager("summarize", 900, folds=[truncated])

    asyncio.run(compactor.apply(record))

    assert view_of(record, folds=compactor.folds).tokens <= 900
