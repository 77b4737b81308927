"""A model call of a stored conversation, without a service around it."""

import asyncio
import itertools
import threading
from typing import ClassVar

import pytest

from minutebook import ConversationHistory, MemoryStore, ModelInfo, view_of
from minutebook.conversation.config import PolicyConfig
from minutebook.conversation.minutes import CallSettings
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.policy import policy_named
from minutebook.conversation.view_source import FailOpenManager
from minutebook.service.config.schema import ServiceConfig
from minutebook.store.types import REQUEST_KIND
from minutebook.tokens import counter_for

SMALL = ModelInfo("small", max_input_tokens=600)
CONFIG = ServiceConfig(policies={"mine": PolicyConfig(strategy="truncate", keep_turns=1)})


async def filled(store):
    """A conversation that is too long for the small model."""
    history = ConversationHistory(store, "c")
    for number in range(8):
        await history.add_turn(
            [
                {"role": "user", "content": f"Question {number} " + "word " * 60},
                {"role": "assistant", "content": "answer " * 40},
            ]
        )


async def asked(store, request_id, new=()):
    """A call that has begun, with what the store has of the conversation."""
    settings = CallSettings(
        conversation="c",
        model="small",
        policy=policy_named("mine", CONFIG, model=SMALL),
        counter=counter_for(None),
        run_id="run",
        request_id=request_id,
    )
    call = ModelCall(store, settings, await store.load("c"), new)
    await call.begin()
    return call


async def standing(store):
    return [stored.fold for stored in await store.folds("c") if stored.undone_at is None]


def test_a_fold_that_was_undone_is_made_and_stored_anew():
    async def scenario():
        async with MemoryStore() as store:
            await filled(store)
            first = await asked(store, "first")
            before = await standing(store)
            for fold in before:
                await store.undo_fold("c", fold.id)
            second = await asked(store, "second")
            minutes = [(await store.document(REQUEST_KIND, each)).body["folds"] for each in ("first", "second")]
            return before, await standing(store), minutes, first.messages, second.messages

    before, after, minutes, first, second = asyncio.run(scenario())

    assert [(fold.start, fold.stop, fold.shown) for fold in before] == [
        (fold.start, fold.stop, fold.shown) for fold in after
    ]
    assert not {fold.id for fold in before} & {fold.id for fold in after}
    assert minutes == [[fold.id for fold in before], [fold.id for fold in after]]
    assert first == second


def test_a_fold_over_a_fold_takes_its_place_in_the_store_and_in_the_minutes():
    async def scenario():
        async with MemoryStore() as store:
            await filled(store)
            await asked(store, "first")
            history = ConversationHistory(store, "c")
            await history.add_turn(
                [{"role": "user", "content": "word " * 300}, {"role": "assistant", "content": "Yes."}]
            )
            await asked(store, "second", [{"role": "user", "content": "And now?"}])
            loaded = await store.load("c")
            return (
                len(await store.folds("c")),
                loaded.folds,
                (await store.document(REQUEST_KIND, "second")).body["folds"],
            )

    made, folds, minutes = asyncio.run(scenario())

    assert made > len(folds) >= 1
    assert minutes == [fold.id for fold in folds]


@pytest.mark.parametrize(
    ("change", "reason"),
    [(lambda _: 1 / 0, "PromptEvaluationError"), (lambda messages: messages[0].clear(), "RecordIsReadOnly")],
)
def test_the_bypass_is_an_error_of_ours_whatever_the_manager_raised(change, reason):
    class Failing:
        def curate(self, messages, *, session):
            change(messages)

    manager = FailOpenManager(Failing())
    view = view_of([{"role": "user", "content": "Hello"}], manager)

    assert (view.messages, manager.bypass) == ([{"role": "user", "content": "Hello"}], reason)


class ThreadNotingMessage(dict):
    """A message that notes the threads that read its role."""

    threads: ClassVar[set] = set()

    def get(self, key, default=None):
        if key == "role":
            self.threads.add(threading.get_ident())
        return super().get(key, default)


@pytest.mark.parametrize("count", [2, 1_001])
def test_many_new_messages_are_converted_to_entries_in_a_thread(count):
    async def threads_of_begin():
        settings = CallSettings(
            conversation="c",
            model="small",
            policy=policy_named("passthrough", CONFIG, model=ModelInfo("large", max_input_tokens=1_000_000)),
            counter=counter_for(None),
            run_id="run",
            request_id="request",
        )
        roles = itertools.cycle(["user", "assistant"])
        messages = [ThreadNotingMessage(role=next(roles), content="Hi") for _ in range(count)]
        store = MemoryStore()
        call = ModelCall(store, settings, None, messages)
        ThreadNotingMessage.threads.clear()
        await call.begin()
        assert (await store.header("c")).length == count
        return set(ThreadNotingMessage.threads)

    assert (asyncio.run(threads_of_begin()) == {threading.get_ident()}) is (count == 2)
