"""Compaction by turns is one path: a record in memory and one in a store keep the same facts."""

import asyncio

import pytest

from minutebook import (
    AsyncConversation,
    CannotFit,
    CompactionManager,
    Conversation,
    ConversationHistory,
    MemoryStore,
    Transcript,
    TurnStrategy,
    TurnWindowManager,
    counter_for,
    model_info,
    view_of,
)
from minutebook.compaction import facts, is_summary
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.policy import policy_named
from minutebook.service.config.schema import ServiceConfig
from minutebook.testing import coding_session

TURNS = [
    [
        {
            "role": "user",
            "content": f"Please look at /srv/app/module_{i}.py, ticket ERR-44{i:02d}; it took {i + 3} ms.",
        },
        {"role": "assistant", "content": "I looked at it, and there is nothing unusual to be seen there. " * 6},
    ]
    for i in range(28)
]


class Short:
    """A summary that names no fact."""

    async def summarize(self, request):
        return "They looked at several modules and found nothing."


async def stored(counts):
    """The view of a stored conversation that is compacted whenever it has so many turns, and its results."""
    async with MemoryStore() as store:
        history = ConversationHistory(store, "alice", summarizer=Short())
        results, done = [], 0
        for count in counts:
            for turn in TURNS[done:count]:
                await history.add_turn(turn)
            done = count
            results.append(await history.compact())
        return [message for _, message in (await store.load("alice", folded=True)).shown()], results


async def in_memory(counts):
    """The same of a record in memory."""
    record, results, done = Transcript(), [], 0
    manager = CompactionManager(TurnStrategy(), model_info("gpt-4o"), Short())
    for count in counts:
        record.extend(message for turn in TURNS[done:count] for message in turn)
        done = count
        results.append(await manager.apply(record))
    return list(view_of(record, folds=manager.folds).curated), results


async def in_model_calls(counts):
    """What a model call of a stored conversation sends that has so many turns, under a policy that counts turns."""
    policy = policy_named("turns", ServiceConfig(), model=model_info("gpt-4o"), summarizer=Short())
    async with MemoryStore() as store:
        history, done = ConversationHistory(store, "alice"), 0
        for count in counts:
            for turn in TURNS[done:count]:
                await history.add_turn(turn)
            done = count
            settings = CallSettings(
                conversation="alice",
                model="gpt-4o",
                policy=policy,
                counter=counter_for(None),
                run_id="run",
                request_id=f"request-{count}",
            )
            call = ModelCall(store, settings, await store.load("alice"), ())
            await call.begin()
        return call.view().curated


def named_in(view):
    """The facts that the ledger of a view names; which requests it quotes depends on how often they were counted."""
    summaries = [message for message in view if is_summary(message)]
    return {(fact.kind, fact.text) for fact in facts(summaries) if fact.kind != "requests"}


def test_the_first_compaction_gives_the_same_view_and_result():
    (view, [result]), (other, [another]) = asyncio.run(stored((12,))), asyncio.run(in_memory((12,)))

    assert view == other
    assert (result.start, result.stop, result.turns) == (0, 18, 9)
    same = ("outcome", "reason", "start", "stop", "turns", "summary", "tokens_before", "tokens_after", "error")
    assert [getattr(result, name) for name in same] == [getattr(another, name) for name in same]


@pytest.mark.parametrize("counts", [(12,), (12, 20), (11, 12, 19, 28)], ids=["once", "twice", "often"])
def test_a_stored_conversation_keeps_the_facts_that_one_in_memory_keeps(counts):
    (view, results), (other, others) = asyncio.run(stored(counts)), asyncio.run(in_memory(counts))

    assert named_in(view) == named_in(other)
    assert {("paths", f"/srv/app/module_{i}.py") for i in range(counts[-1] - 3)} <= named_in(view)
    assert [(one.outcome, one.start, one.stop, one.turns) for one in results] == [
        (one.outcome, one.start, one.stop, one.turns) for one in others
    ]
    assert [message for message in view if not is_summary(message)] == [
        message for message in other if not is_summary(message)
    ]


@pytest.mark.parametrize("counts", [(12,), (12, 20)], ids=["once", "twice"])
def test_a_model_call_sends_what_the_view_of_one_in_memory_shows(counts):
    sent, (view, _) = asyncio.run(in_model_calls(counts)), asyncio.run(in_memory(counts))

    assert sent == view


def test_what_was_summed_up_is_not_loaded_again():
    class Counting(MemoryStore):
        loaded = 0

        async def load(self, *arguments, **options):
            found = await super().load(*arguments, **options)
            self.loaded += len(found.entries)
            return found

    async def scenario():
        async with Counting() as store:
            history = ConversationHistory(store, "alice", summarizer=Short())
            costs = []
            for turn in TURNS:
                await history.add_turn(turn)
                if await history.needs_compaction():
                    store.loaded = 0
                    assert await history.compact()
                    costs.append(store.loaded)
            return costs

    assert asyncio.run(scenario()) == [22, 22, 22]


@pytest.mark.parametrize("strategy", [None, "turns", "summarize", "hybrid", "truncate"])
def test_a_first_message_larger_than_the_budget_does_not_block_a_conversation(strategy):
    with Conversation("a", store=MemoryStore(), max_tokens=600, strategy=strategy) as chat:
        chat.append("Read this: " + "word " * 900)
        with pytest.raises(CannotFit):
            chat.view()
        chat.append({"role": "assistant", "content": "It is too long."})
        for number in range(20):
            chat.append(f"Question {number}: " + "why " * 20)
            assert chat.view().tokens <= 600
            chat.append({"role": "assistant", "content": f"Answer {number} " + "because " * 30})


@pytest.mark.parametrize("strategy", [None, "turns", "summarize", "truncate"])
@pytest.mark.parametrize("seed", range(4))
def test_compact_neither_enlarges_the_view_nor_brings_back_a_message(seed, strategy):
    with Conversation("a", store="memory:", max_tokens=3_000) as conversation:
        for message in coding_session(seed, 14):
            conversation.append(message)
        before = conversation.fit()
        conversation.compact(strategy)
        after = conversation.fit()

        assert len(before.curated) < before.length
        assert after.tokens <= before.tokens
        assert {*after.curated.origins} <= {*before.curated.origins, None}


def test_a_pinned_message_that_a_fold_shows_stays_in_views_after_the_conversation_is_read_again():
    async def run():
        async with MemoryStore() as store:
            chat = AsyncConversation("pins", store=store, system="You help.")
            await chat.append(*(message for turn in TURNS for message in turn))
            await chat.pin(3)
            await chat.compact("turns")
            pinned = chat[3]["content"]

            again = AsyncConversation("pins", store=store, manager=TurnWindowManager(1))
            loaded = await store.load("pins", folded=True)
            views = [await again.view(), await again.view(), view_of(loaded.transcript(), TurnWindowManager(1))]
            return [pinned in [message["content"] for message in view.messages] for view in views]

    assert asyncio.run(run()) == [True, True, True]
