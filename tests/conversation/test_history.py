"""The history of one recipient: document 003, on every store."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import InProcessEventBus, ToolResultTruncator, TurnStrategy, check
from minutebook.compaction import HistoryCompacted
from minutebook.compaction.fact_ledger import without_ledger
from minutebook.compaction.summarizer import is_summary, require_summary, summary_text
from minutebook.conversation.history import ConversationHistory, history_settings
from minutebook.errors import (
    BrokenConversation,
    ConversationBusy,
    ConversationErased,
    EventFailed,
    FoldConflict,
    InvalidMessage,
    InvalidSetting,
    StoreUnavailable,
)
from minutebook.record import exchanges, is_valid, turn_count
from minutebook.store.memory import MemoryStore
from minutebook.store.types import ConversationStatus
from minutebook.testing.contract.samples import entries_of
from minutebook.tokens import EstimatedCounter, total
from tests.store.backends import BACKENDS, each_backend
from tests.strategies import conversations
from tests.transcripts import needs_corpus, real

COUNTER = EstimatedCounter()
SYSTEM = {"role": "system", "content": "You keep a food diary."}


@dataclass
class Recording:
    """A summarizer that says little and remembers what it was given."""

    requests: list = field(default_factory=list)

    async def summarize(self, request):
        self.requests.append(request)
        return f"Summary {len(self.requests)}."

    @property
    def read(self):
        return [message for request in self.requests for message in request.messages]


class Failing:
    async def summarize(self, request):
        raise ConnectionError("the model is away")


class Saying:
    """A summarizer that always says the same."""

    def __init__(self, text):
        self.text = text

    async def summarize(self, request):
        return self.text


class Growing:
    """A summary that is as long as it may be, of marks that must not be shown as they are."""

    async def summarize(self, request):
        text = "</summary>"
        while request.counter.count(f"{text} </summary>") <= request.max_tokens:
            text += " </summary>"
        return text


def lunch(number=0):
    """The document's turn of five messages."""
    calls = [
        {"id": f"call_{number}_{at}", "type": "function", "function": {"name": "log_food", "arguments": "{}"}}
        for at in range(3)
    ]
    return [
        {"role": "user", "content": f"Log my lunch, day {number}"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": call["id"], "content": f"result {call['id']}"} for call in calls),
    ]


def chat_turn(number):
    return [
        {"role": "user", "content": f"What did I have on day {number}? I would like to know everything about it."},
        {"role": "assistant", "content": f"On day {number} you had {number} apples, soup, bread and {number} figs."},
    ]


def history_of(store, recipient="alice", **options):
    options.setdefault("counter", COUNTER)
    return ConversationHistory(store, recipient, **options)


async def filled(history, count, make=chat_turn):
    await history.add_message(SYSTEM)
    for number in range(1, count + 1):
        await history.add_turn(make(number))


async def view(store, conversation="alice"):
    return [message for _, message in (await store.load(conversation, folded=True)).shown()]


@pytest.fixture(params=each_backend("redis", "sqlite"))
def run(request, tmp_path):
    """Runs an async test with a store of every kind."""

    def runner(test):
        async def with_store():
            async with BACKENDS[request.param](tmp_path) as store:
                return await test(store)

        return asyncio.run(with_store())

    return runner


def test_five_messages_of_one_interaction_are_one_turn(run):
    async def scenario(store):
        history = history_of(store)
        await history.add_turn(lunch())
        return await history.get_history(), await store.header("alice")

    messages, header = run(scenario)
    assert (len(messages), turn_count(messages), header.turns) == (5, 1, 1)
    assert messages == lunch()
    assert header.recipient == "alice"


def test_tool_heavy_turns_do_not_trigger_compaction_early_and_the_eleventh_does(run):
    async def scenario(store):
        history = history_of(store)
        due = []
        for number in range(11):
            await history.add_turn(lunch(number))
            due.append(await history.needs_compaction())
        return due, (await store.header("alice")).length

    due, length = run(scenario)
    assert due == [False] * 10 + [True]
    assert length == 55


def test_ten_turns_come_back_whole_and_of_more_the_last_ten(run):
    async def scenario(store):
        history = history_of(store)
        await filled(history, 10, lunch)
        ten = await history.get_history()
        await history.add_turn(lunch(11))
        return ten, await history.get_history(), await history.get_history(max_recent_turns=2)

    ten, eleven, two = run(scenario)
    assert ten == [SYSTEM, *(message for number in range(1, 11) for message in lunch(number))]
    assert eleven == [SYSTEM, *(message for number in range(2, 12) for message in lunch(number))]
    assert two == [SYSTEM, *lunch(10), *lunch(11)]


def test_compaction_keeps_the_last_three_turns_whole_and_shows_the_rest_as_a_system_message(run):
    async def scenario(store):
        history = history_of(store)
        await filled(history, 11)
        result = await history.compact()
        return result, await history.get_history(), await history.summary(), (await store.header("alice")).length

    result, messages, summary, length = run(scenario)
    assert result
    assert (result.start, result.stop, result.turns) == (1, 17, 8)
    assert result.tokens_after < result.tokens_before
    assert length == 23
    assert messages[0] == SYSTEM
    assert messages[1]["role"] == "system"
    assert messages[1]["content"].startswith("[Earlier conversation summary: ")
    assert set(messages[1]) == {"role", "content"}
    assert messages[2:] == [message for number in (9, 10, 11) for message in chat_turn(number)]
    assert without_ledger(summary_text(messages[1])) == summary == result.summary
    assert "day 1?" in summary


def test_after_compaction_the_kept_turns_count_so_the_next_is_due_eight_turns_later(run):
    async def scenario(store):
        history = history_of(store, summarizer=Recording())
        await filled(history, 11)
        await history.compact()
        due = []
        for number in range(12, 20):
            due.append(await history.needs_compaction())
            await history.add_turn(chat_turn(number))
        due.append(await history.needs_compaction())
        return due, await history.get_history()

    due, messages = run(scenario)
    assert due == [False] * 8 + [True]
    assert turn_count(messages) == 10
    assert "Summary 1." in messages[1]["content"]


def test_the_next_summary_is_made_from_the_last_one_and_all_that_was_folded_since(run):
    async def scenario(store):
        recording = Recording()
        history = history_of(store, summarizer=recording)
        await filled(history, 11)
        await history.compact()
        for number in range(12, 20):
            await history.add_turn(chat_turn(number))
        await history.compact()
        return recording, await view(store)

    recording, shown = run(scenario)
    assert [request.previous for request in recording.requests] == [None, "Summary 1."]
    assert recording.read == [message for number in range(1, 17) for message in chat_turn(number)]
    assert [without_ledger(summary_text(message)) for message in shown if is_summary(message)] == ["Summary 2."]


def test_compacting_twice_changes_nothing_the_second_time(run):
    async def scenario(store):
        recording = Recording()
        history = history_of(store, summarizer=recording)
        await filled(history, 11)
        await history.compact()
        before = await view(store)
        again = await history.compact()
        return again, len(recording.requests), before == await view(store)

    again, asked, same = run(scenario)
    assert not again
    assert again.outcome == "nothing to fold"
    assert (asked, same) == (1, True)


def test_undo_gives_back_the_exact_view(run):
    async def scenario(store):
        history = history_of(store, summarizer=Recording())
        await filled(history, 11)
        views = [await view(store)]
        results = []
        for number in range(12, 20):
            if number in {12, 19}:
                results.append(await history.compact())
                views.append(await view(store))
            await history.add_turn(chat_turn(number))
        del views[-1]
        after = await view(store)
        await history.undo(results[1].fold_id)
        middle = await view(store)
        await history.undo(results[0].fold_id)
        return after, middle, await view(store), (await store.load("alice")).messages

    after, middle, end, record = run(scenario)
    assert len(after) < len(middle) < len(end)
    assert sum(map(is_summary, middle)) == 1
    assert end == record


def test_what_is_appended_while_a_summary_is_made_is_kept(run):
    class Chatty:
        async def summarize(self, request):
            await self.history.add_turn(lunch(12))
            await self.history.add_message({"role": "user", "content": "Still there?"})
            return "They talked."

    async def scenario(store):
        chatty = Chatty()
        chatty.history = history = history_of(store, summarizer=chatty)
        await filled(history, 11)
        return await history.compact(), await history.get_history()

    result, messages = run(scenario)
    assert result
    kept = [message for number in (9, 10, 11) for message in chat_turn(number)]
    assert messages[2:] == [*kept, *lunch(12), {"role": "user", "content": "Still there?"}]


def test_of_two_compactions_at_a_time_one_stands_and_the_other_says_that_it_does_not(run):
    class Rival:
        async def summarize(self, request):
            assert await self.other.compact()
            return "Too late."

    async def scenario(store):
        rival = Rival()
        rival.other = history_of(store, summarizer=Saying("In time."))
        await filled(rival.other, 11)
        result = await history_of(store, summarizer=rival).compact()
        return result, await rival.other.summary(), await store.folds("alice")

    result, summary, folds = run(scenario)
    assert not result
    assert result.outcome == "conflict"
    assert "but it was made to replace none" in result.reason
    assert isinstance(result.error, FoldConflict)
    assert (summary, len(folds)) == ("In time.", 1)


@pytest.mark.parametrize(
    ("summarizer", "outcome", "reason"),
    [
        (Failing(), "failed", "ConnectionError: the model is away"),
        (Saying(""), "rejected", "is empty"),
        (Saying(None), "rejected", "not str"),
        (Saying('{"tool": "x"}'), "rejected", "is a tool call or data"),
        (Saying("word " * 5_000), "rejected", "tokens, more than the maximum of"),
        (Growing(), "rejected", "not fewer than"),
    ],
    ids=["raises", "empty", "none", "data", "long", "longer when shown"],
)
def test_a_summary_that_fails_changes_nothing_and_says_so(run, summarizer, outcome, reason):
    async def scenario(store):
        history = history_of(store)
        await filled(history, 11)
        before = await view(store)
        result = await history.compact(summarizer)
        return result, before == await view(store), await store.folds("alice"), await history.needs_compaction()

    result, same, folds, due = run(scenario)
    assert not result
    assert result.outcome == outcome
    assert reason in result.reason
    assert result.error is not None
    assert same
    assert folds == ()
    assert due


def test_a_cancelled_compaction_changes_nothing(run):
    class Slow:
        async def summarize(self, request):
            self.started.set()
            await asyncio.Event().wait()

    async def scenario(store):
        slow = Slow()
        slow.started = asyncio.Event()
        history = history_of(store, summarizer=slow)
        await filled(history, 11)
        task = asyncio.create_task(history.compact())
        await slow.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await store.folds("alice")

    assert run(scenario) == ()


def test_too_little_to_make_shorter_stays_as_it_is(run):
    async def scenario(store):
        history = history_of(store, max_turns_before_compaction=1, recent_turns_to_keep=1)
        for text in ("hi", "yes", "no"):
            await history.add_message({"role": "user", "content": text})
        return await history.needs_compaction(), await history.compact(Failing())

    due, result = run(scenario)
    assert due
    assert result.outcome == "nothing to fold"
    assert "folding would save no tokens" in result.reason


def test_what_is_pinned_is_shown_as_it_is_for_as_long_as_it_is_pinned(run):
    async def scenario(store):
        recording = Recording()
        history = history_of(store, summarizer=recording)
        await filled(history, 11, lambda number: lunch(number) if number == 2 else chat_turn(number))
        await store.pin("alice", 5)  # a result of turn 2, so its whole exchange stays
        await history.compact()
        first = await history.get_history()
        await store.pin("alice", 1)  # what is pinned within a summary comes back with the next one
        for number in range(12, 20):
            await history.add_turn(chat_turn(number))
        await history.compact()
        second = await history.get_history()
        await store.unpin("alice", 5)
        for number in range(20, 28):
            await history.add_turn(chat_turn(number))
        await history.compact()
        return first, second, await history.get_history(), recording

    first, second, third, recording = run(scenario)
    assert first[2:6] == lunch(2)[1:]
    assert second[2:7] == [chat_turn(1)[0], *lunch(2)[1:]]
    assert third[2] == chat_turn(1)[0]
    assert third[3] == chat_turn(25)[0]
    assert all(is_valid(messages) for messages in (first, second, third))
    assert all(message in recording.read for message in lunch(2))


def test_nothing_is_deleted_unless_it_is_asked_for_and_then_the_view_stays_the_same(run):
    async def scenario(store):
        await filled(history_of(store, "kept", summarizer=Recording()), 11)
        await history_of(store, "kept", summarizer=Recording()).compact()
        recording = Recording()
        history = history_of(store, purge_compacted=True, summarizer=recording)
        await filled(history, 11)
        await store.pin("alice", 2)
        results, views = [await history.compact()], [await history.get_history()]
        for number in range(12, 20):
            await history.add_turn(chat_turn(number))
        results.append(await history.compact())
        views.append(await history.get_history())
        with pytest.raises(FoldConflict, match="purged"):
            await history.undo(results[1].fold_id)
        header = await store.header("alice")
        return results, views, header, await history_of(store, "kept").get_history(), recording

    (first, second), (one, two), header, kept, recording = run(scenario)
    assert (first.purged, second.purged) == (17, 16)
    assert header.first == second.stop == 33
    assert one[0] == two[0] == kept[0] == SYSTEM
    assert one[2] == two[2] == chat_turn(1)[1]
    assert one[3:] == kept[2:]
    assert one[1]["content"] == kept[1]["content"]
    assert "Summary 2." in two[1]["content"]
    assert recording.requests[1].previous == "Summary 1."
    assert two[3:] == [message for number in (17, 18, 19) for message in chat_turn(number)]


def test_purging_can_begin_and_end_in_the_middle_of_a_conversation(run):
    async def scenario(store):
        for turn, purge in ((11, False), (19, True), (27, False)):
            history = history_of(store, purge_compacted=purge, summarizer=Recording())
            for number in range(turn - 10 if turn == 11 else turn - 7, turn + 1):
                await history.add_turn([SYSTEM, *chat_turn(1)] if number == 1 else chat_turn(number))
            assert await history.compact()
        return await history.get_history()

    messages = run(scenario)
    assert messages[0] == SYSTEM
    assert "Summary 1." in messages[1]["content"]
    assert messages[2:] == [message for number in (25, 26, 27) for message in chat_turn(number)]


def test_a_handle_that_is_opened_after_a_purge_shows_what_replaced_the_messages(run):
    async def scenario(store):
        history = history_of(store, purge_compacted=True, summarizer=Recording())
        await filled(history, 11)
        assert (await history.compact()).purged
        return await history.get_history(), (await history_of(store).view()).messages

    expected, sent = run(scenario)
    assert sent == expected


def test_a_purge_that_fails_leaves_the_fold_and_is_made_up_for_by_the_next_one():
    class Tired(MemoryStore):
        tired = True

        async def purge(self, conversation, *, before):
            if self.tired:
                raise StoreUnavailable("memory:", "is tired")
            return await super().purge(conversation, before=before)

    heard = []

    async def scenario():
        bus = InProcessEventBus()
        bus.subscribe(HistoryCompacted, heard.append)
        async with Tired() as store:
            history = history_of(store, purge_compacted=True, summarizer=Recording(), bus=bus)
            await filled(history, 11)
            with pytest.raises(StoreUnavailable):
                await history.compact()
            store.tired = False
            for number in range(12, 20):
                await history.add_turn(chat_turn(number))
            return await history.compact(), await history.get_history()

    result, messages = asyncio.run(scenario())
    assert (len(heard), result.purged) == (2, 33)
    assert messages[0] == SYSTEM
    assert "Summary 2." in messages[1]["content"]


def test_the_summary_may_be_the_users(run):
    async def scenario(store):
        history = history_of(store, strategy=TurnStrategy(summary_role="user"), summarizer=Recording())
        await filled(history, 11)
        await history.compact()
        return await history.get_history(), await history.needs_compaction()

    messages, due = run(scenario)
    assert [message["role"] for message in messages[:3]] == ["system", "user", "user"]
    assert not due


def test_a_turn_is_added_whole_or_not_at_all(run):
    async def scenario(store):
        history = history_of(store)
        await history.add_message(SYSTEM)
        problems = []
        for wrong in (lunch()[:-1], lunch()[2:], [*lunch(), {"role": "tool", "tool_call_id": "x", "content": ""}]):
            with pytest.raises(BrokenConversation) as raised:
                await history.add_turn(wrong)
            problems.append(str(raised.value))
        with pytest.raises(InvalidMessage):
            await history.add_turn([*lunch(), "not a message"])
        return problems, (await store.header("alice")).length

    problems, length = run(scenario)
    assert "a tool call has no result ('call_0_2')" in problems[0]
    assert "answers no call ('call_0_0')" in problems[1]
    assert length == 1


def test_a_call_that_waits_is_shown_as_waiting_and_then_answered(run):
    async def scenario(store):
        history = history_of(store)
        for message in lunch()[:3]:
            await history.add_message(message)
        waiting = await history.get_history()
        await history.add_turn(lunch()[3:])
        return waiting, await history.get_history()

    waiting, answered = run(scenario)
    assert not check(waiting)
    assert "no result" in waiting[-1]["content"]
    assert answered == lunch()


def test_a_retry_adds_nothing_twice(run):
    async def scenario(store):
        history = history_of(store)
        return [await history.add_turn(lunch(), idempotency_key="k") for _ in range(2)], await history.get_history()

    versions, messages = run(scenario)
    assert versions == [1, 1]
    assert messages == lunch()


def test_a_recipient_who_never_wrote_has_an_idle_and_empty_history(run):
    async def scenario(store):
        history = history_of(store)
        return (
            await history.get_history(),
            await history.needs_compaction(),
            await history.status(),
            await history.summary(),
        )

    messages, due, status, summary = run(scenario)
    assert (messages, due, summary) == ([], False, None)
    assert (status.status, status.updated_at) == (ConversationStatus.IDLE, None)


def test_a_history_of_system_messages_alone_is_returned_as_it_is(run):
    async def scenario(store):
        history = history_of(store)
        await history.add_message(SYSTEM)
        return await history.get_history()

    assert run(scenario) == [SYSTEM]


def test_an_erased_history_is_an_error_and_not_an_empty_one(run):
    async def scenario(store):
        history = history_of(store)
        await history.add_turn(lunch())
        await store.erase(recipient="alice")
        for attempt in (history.get_history(), history.needs_compaction(), history.status(), history.compact()):
            with pytest.raises(ConversationErased):
                await attempt

    run(scenario)


def test_an_erased_recipient_can_return(run):
    async def scenario(store):
        before = history_of(store)
        await before.add_turn(lunch())
        await store.erase(recipient="alice")

        returned = history_of(store)
        assert await returned.get_history() == []
        await returned.add_message({"role": "user", "content": "It is me again."})

        assert returned.conversation != "alice"
        assert await history_of(store).get_history() == [{"role": "user", "content": "It is me again."}]
        for history in (before, ConversationHistory(store, "alice", conversation="alice")):
            with pytest.raises(ConversationErased):
                await history.add_message({"role": "user", "content": "Into the erased one."})
        assert (await store.header(returned.conversation)).recipient == "alice"

    run(scenario)


def test_a_message_is_written_under_the_lease(run):
    async def scenario(store):
        history = history_of(store)
        lease = await store.acquire_lease("alice", "another process", seconds=60)
        with pytest.raises(ConversationBusy):
            await history.add_message({"role": "user", "content": "Not now."})
        await store.release_lease(lease)
        await history.add_message({"role": "user", "content": "Now."})
        await store.acquire_lease("alice", "another process", seconds=60)  # the append has released it
        return await history.get_history()

    assert run(scenario) == [{"role": "user", "content": "Now."}]


def test_messages_can_be_added_while_the_history_holds_its_lease(run):
    async def scenario(store):
        history = history_of(store)
        async with history.lease():
            await history.add_message({"role": "user", "content": "One."})
            await history.append({"role": "assistant", "content": "Two."})
            await history.add_message({"role": "user", "content": "Three."})
        return await history.get_history()

    assert [message["content"] for message in run(scenario)] == ["One.", "Two.", "Three."]


def test_a_history_is_a_conversation_too(run):
    async def scenario(store):
        history = history_of(store)
        await history.add_message({"role": "user", "content": "Where is my order?"})
        await history.append({"role": "assistant", "content": "It was shipped."})
        await history.add_message({"role": "user", "content": "Thanks."})
        return (await history.view()).messages, await history.get_history(), list(history), history.id

    sent, returned, record, history_id = run(scenario)
    assert sent == returned == record
    assert history_id == "alice"


def test_get_history_stays_within_the_token_budget(run):
    async def scenario(store):
        history = history_of(store, max_tokens=200, manager=ToolResultTruncator(40))
        for number in range(9):
            await history.add_message({"role": "user", "content": f"Question {number}. " * 10})
            await history.add_message({"role": "assistant", "content": f"Answer {number}. " * 10})
        await history.add_message({"role": "user", "content": "And now?"})
        return await history.get_history()

    messages = run(scenario)
    assert messages[-1]["content"] == "And now?"
    assert 1 < len(messages) < 19
    assert sum(map(COUNTER.message, messages)) <= 200


def test_a_budget_that_is_not_a_number_is_refused():
    with pytest.raises(InvalidSetting, match="max_tokens"):
        ConversationHistory(MemoryStore(), "alice", max_tokens=0)


def test_several_writers_wait_for_each_other(run):
    async def scenario(store):
        histories = [history_of(store), history_of(store)]
        await asyncio.gather(
            *(
                histories[number % 2].add_message({"role": "user", "content": f"Question {number}"})
                for number in range(6)
            )
        )
        return sorted(message["content"] for message in await histories[0].get_history())

    assert run(scenario) == [f"Question {number}" for number in range(6)]


def test_status_may_change_in_any_order_with_the_time_in_utc(tmp_path):
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)

    async def scenario():
        async with MemoryStore(clock=lambda: at) as store:
            history = history_of(store)
            said = [await history.set_status(name) for name in ("awaiting_answer", "closed", "active", "idle")]
            with pytest.raises(InvalidSetting, match="status='asleep': expected one of active"):
                await history.set_status("asleep")
            return said, await history.status(), (await store.header("alice")).recipient

    said, status, recipient = asyncio.run(scenario())
    assert [one.status for one in said] == ["awaiting_answer", "closed", "active", "idle"]
    assert {one.updated_at for one in [*said, status]} == {"2026-03-01T12:30:00+00:00"}
    assert recipient == "alice"


def test_messages_are_stored_with_the_time_of_the_given_clock():
    at = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)

    async def scenario():
        async with MemoryStore() as store:
            await history_of(store, clock=lambda: at).add_turn(lunch())
            return (await store.load("alice")).entries

    assert {entry.created_at.isoformat() for entry in asyncio.run(scenario())} == {"2026-03-01T12:30:00+00:00"}


@pytest.mark.parametrize("recipient", ["", "a\0b", "x" * 600, None])
def test_a_recipient_that_no_store_could_keep_is_refused(recipient):
    with pytest.raises(InvalidSetting, match="recipient"):
        ConversationHistory(MemoryStore(), recipient)


def test_settings_are_taken_in_both_spellings_and_by_the_names_of_document_003():
    document = {"maxTurnsBeforeCompaction": 10, "recentTurnsToKeep": 3, "maxRecentTurns": 10}

    assert history_settings(document) == {"max_recent_turns": 10, "strategy": TurnStrategy()}
    assert history_settings({"keep_turns": 2, "purgeCompacted": True}) == {
        "purge_compacted": True,
        "strategy": TurnStrategy(keep_turns=2),
    }
    history = ConversationHistory(MemoryStore(), "alice", max_turns_before_compaction=6, recent_turns_to_keep=2)
    assert history.strategy == TurnStrategy(max_turns=6, keep_turns=2)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"recentTurnsToKep": 3}, "did you mean 'recentTurnsToKeep'"),
        ({"banana": 3}, "one of max_turns_before_compaction"),
        ({"recentTurnsToKeep": 3, "recent_turns_to_keep": 3}, "is set twice"),
        ({"recentTurnsToKeep": 3, "keep_turns": 3}, "is set twice"),
        ({"recent_turns_to_keep": 0}, "a whole number above 0"),
        ({"recent_turns_to_keep": True}, "a whole number above 0"),
        ({"max_recent_turns": "10"}, "1 or more"),
        ({"recent_turns_to_keep": 11}, "1 to max_turns, which is 10"),
        ({"summary_role": "tool"}, "'system' or 'user'"),
        ({"purge_compacted": 1}, "True or False"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(settings, said):
    with pytest.raises(InvalidSetting, match=said):
        ConversationHistory(MemoryStore(), "alice", **history_settings(settings))


def test_a_stored_history_has_no_window_to_fill():
    with pytest.raises(InvalidSetting, match="threshold"):
        ConversationHistory(MemoryStore(), "alice", strategy=TurnStrategy(threshold=0.5))


def test_fewer_than_one_turn_cannot_be_asked_for():
    with pytest.raises(InvalidSetting, match="max_recent_turns=0: expected 1 or more"):
        asyncio.run(history_of(MemoryStore()).get_history(0))


def test_the_user_can_see_what_compaction_did_and_that_it_failed():
    heard = []

    async def scenario():
        bus = InProcessEventBus()
        bus.subscribe(HistoryCompacted, heard.append)
        async with MemoryStore(tenant="acme") as store:
            history = history_of(store, bus=bus)
            await filled(history, 11)
            results = [await history.compact(Failing()), await history.compact(), await history.compact()]
            bus.subscribe(HistoryCompacted, lambda _event: 1 / 0)
            await filled(other := history_of(store, "bob", bus=bus), 11)
            with pytest.raises(EventFailed):
                await other.compact()
            return results, await other.summary()

    results, summary = asyncio.run(scenario())
    assert [(event.outcome, event.conversation) for event in heard] == [
        ("failed", "alice"),
        ("folded", "alice"),
        ("folded", "bob"),
    ]
    assert [event.reason for event in heard[:2]] == [result.reason for result in results[:2]]
    assert heard[1] == results[1].event
    assert "the model is away" in heard[0].notice
    assert {event.tenant for event in heard} == {"acme"}
    assert summary


def test_others_folds_stay_where_compaction_has_no_business_and_are_read_where_it_has(run):
    from minutebook import Fold

    async def scenario(store):
        recording = Recording()
        history = history_of(store, summarizer=recording)
        await filled(history, 11)
        prompt = {"role": "system", "content": "You keep a diary, rendered again."}
        marker = {"role": "system", "content": "[2 messages are not shown]"}
        await store.add_fold("alice", Fold("prompt", 0, 1, (prompt,), "rendered again"))
        await store.add_fold("alice", Fold("marker", 3, 5, (marker,), "a marker that nobody read for"))
        await store.add_fold("alice", Fold("late", 16, 20, (marker,), "across the place where the kept turns begin"))
        result = await history.compact()
        return result, recording.read, await history.get_history()

    result, read, messages = run(scenario)
    assert (result.start, result.stop) == (1, 16)
    assert read == [message for number in range(1, 9) for message in chat_turn(number)][:15]
    assert messages[0]["content"] == "You keep a diary, rendered again."
    assert "Summary 1." in messages[1]["content"]


def test_a_record_that_begins_with_an_orphan_result_can_be_compacted_too(run):
    async def scenario(store):
        orphan = {"role": "tool", "tool_call_id": "gone", "content": "of a call that is not here"}
        await store.append("alice", entries_of([SYSTEM, orphan]), broken="mark")
        history = history_of(store, summarizer=Recording())
        for number in range(1, 12):
            await history.add_turn(chat_turn(number))
        return await history.compact(), await history.get_history()

    result, messages = run(scenario)
    assert result
    assert messages[0] == SYSTEM
    assert "Summary 1." in messages[1]["content"]


strategies = st.builds(
    lambda keep, more, ledger: TurnStrategy(
        max_turns=keep + more, keep_turns=keep, max_summary_tokens=60, max_ledger_tokens=ledger
    ),
    st.integers(1, 3),
    st.integers(0, 2),
    st.sampled_from([0, 500]),
)


@given(
    st.lists(conversations(user_first=True, max_steps=8), min_size=1, max_size=4), strategies, st.booleans(), st.data()
)
def test_whatever_is_said_nothing_is_lost_split_or_evicted_unseen(parts, strategy, purge, data):
    """Parts of a conversation, each followed by a compaction; whatever a summary stands for was read for it."""

    async def scenario():
        async with MemoryStore() as store:
            recording = Recording()
            history = history_of(store, strategy=strategy, purge_compacted=purge, summarizer=recording)
            record, pins = [], []
            for part in parts:
                await store.append("alice", entries_of(part))
                record += part
                if data.draw(st.booleans()):
                    pins.append(len(record) - data.draw(st.integers(1, len(part))))
                    await store.pin("alice", pins[-1])
                before = await view(store)
                due = await history.needs_compaction()
                result = await history.compact()
                check_step(record, before, await view(store), result, recording, await history.get_history())
                pinned = [
                    m for unit in exchanges(record) if set(unit) & set(pins) for m in record[unit.start : unit.stop]
                ]
                assert in_order(pinned, await view(store))
                assert due or strategy.max_turns >= turn_count(part) or result or recording.requests
                assert not await history.compact()
                await check_undo(store, history, result, before)

    async def check_undo(store, history, result, before):
        if result and not purge:
            after = await view(store)
            await history.undo(result.fold_id)
            assert await view(store) == before
            assert await history.compact(Saying(result.summary))
            assert await view(store) == after

    def check_step(record, before, after, result, recording, sent):
        assert is_valid(sent)
        if not result:
            assert after == before
            return
        assert total(COUNTER, after) < total(COUNTER, before)
        assert require_summary(result.summary, recording.requests[-1]) == result.summary
        starts = {exchange.start for exchange in exchanges(record)}
        assert result.start in starts
        assert result.stop in starts
        lead = next(at for at, message in enumerate(record) if message["role"] not in {"system", "developer"})
        assert in_order(record[max(lead, result.start) : result.stop], recording.read)
        assert turn_count(record[result.stop :]) == strategy.keep_turns
        assert after[-len(record[result.stop :]) :] == record[result.stop :]

    asyncio.run(scenario())


def in_order(wanted, found):
    """Whether all of these are among the others, in this order."""
    rest = iter(found)
    return all(any(message == other for other in rest) for message in wanted)


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("name", ["customer_service", "long_chat", "terminal", "broken_asfound"])
def test_real_conversations_are_compacted_as_they_grow_and_stay_valid(name):
    async def scenario(messages):
        async with MemoryStore() as store:
            history = history_of(store, max_turns_before_compaction=4, recent_turns_to_keep=2)
            for start in range(0, len(messages), 9):
                await store.append("alice", entries_of(messages[start : start + 9]), broken="mark")
                if await history.needs_compaction():
                    result = await history.compact()
                    assert result.outcome in {"folded", "nothing to fold"}, result
                assert is_valid(await history.get_history())
            return await store.load("alice")

    for one, _ in zip(real(name), range(3), strict=False):
        said = [message for message in one["messages"] if message["role"] in {"system", "user", "assistant", "tool"}]
        loaded = asyncio.run(scenario(said[:180]))
        assert loaded.messages == said[:180]
