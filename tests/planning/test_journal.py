"""A task in a store: another process goes on with it, and renders the same bytes."""

import asyncio
import json
import subprocess
import sys

import pytest

from minutebook.errors import ConversationNotFound, UnreadableInput, VersionConflict
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.events import SetupPlan, SummarizeStep, UpdateStep
from minutebook.planning.journal import TaskJournal
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task_history import TaskHistory
from minutebook.session import TypeRegistry
from minutebook.session.snapshot import Snapshot
from minutebook.store.memory import MemoryStore
from minutebook.store.url import open_store
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.planning.parts import Talk, adapter_for, new_session, prompt_for, worker

OTHER_PROCESS = """
import asyncio, json, sys
from minutebook import view_of
from minutebook.planning.journal import TaskJournal
from minutebook.planning.budget import StepHistoryManager
from minutebook.store.url import open_store
from tests.planning.parts import prompt_for

async def main():
    async with open_store(sys.argv[1]) as store:
        journal = await TaskJournal.resume(store, "task")
    prompt = prompt_for(journal.session).render(session=journal.session).text
    view = view_of(journal.conversation(), StepHistoryManager(), session=journal.session)
    print(json.dumps([prompt, list(view.messages)]))

asyncio.run(main())
"""


def worked():
    session = new_session()
    with LoopbackProvider(worker()) as provider, adapter_for(provider) as adapter:
        response = adapter.evaluate_sync(
            prompt_for(session), session=session, history_manager=StepHistoryManager(), request="Go."
        )
    return session, response.conversation


async def kept(url, session):
    async with open_store(url) as store:
        await TaskJournal(store, "task", session=session).save()


def test_another_process_renders_the_same_bytes(tmp_path):
    session, conversation = worked()
    url = f"sqlite:///{tmp_path / 'task.db'}"
    asyncio.run(kept(url, session))

    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS, url], capture_output=True, text=True, check=True)

    prompt, view = json.loads(done.stdout)
    assert prompt == prompt_for(session).render(session=session).text
    assert view == list(StepHistoryManager().curate(conversation, session=session))


def test_a_resumed_task_goes_on_where_it_was(tmp_path):
    session, conversation = worked()
    url = f"sqlite:///{tmp_path / 'task.db'}"
    asyncio.run(kept(url, session))

    async def go_on():
        model = ScriptedModel(call("planning_update_step", step_id=3, status="done"), say("Tested."))
        async with open_store(url) as store:
            journal = await TaskJournal.resume(store, "task")
            with LoopbackProvider(model) as provider:
                async with adapter_for(provider) as adapter:
                    response = await adapter.evaluate(
                        prompt_for(journal.session),
                        session=journal.session,
                        history_manager=StepHistoryManager(),
                        conversation=journal.conversation(),
                        request="And the tests?",
                    )
            await journal.save()
            return response, provider.problems, await TaskJournal.resume(store, "task"), journal

    response, problems, again, journal = asyncio.run(go_on())

    assert (response.text, problems) == ("Tested.", [])
    assert list(response.conversation)[: len(conversation)] == list(conversation)
    assert again.session.query(Plan).latest().is_done
    assert again.session.query(TaskHistory).all() == journal.session.query(TaskHistory).all()
    assert list(again.conversation()) == list(response.conversation)


class Crash(Exception):
    pass


class CrashingStore(MemoryStore):
    """A store whose process dies at the append that it is told."""

    left = 0

    async def append(self, *args, **options):
        if not self.left:
            raise Crash
        self.left -= 1
        return await super().append(*args, **options)


def test_a_crash_between_any_two_writes_leaves_a_beginning_of_what_happened():
    session, _ = worked()
    texts = []
    for writes in range(1, 100):
        store = CrashingStore()
        store.left = writes
        try:
            asyncio.run(TaskJournal(store, "task", session=session).save())
            break
        except Crash:
            pass
        again = asyncio.run(TaskJournal.resume(store, "task")).session
        texts.append(prompt_for(again).render(session=again).text)
        history = again.query(TaskHistory).latest()
        whole = session.query(TaskHistory).latest()
        said = [turn.content for step in history.steps for turn in step.turns] if history else []
        assert set(said) <= {turn.content for step in whole.steps for turn in step.turns}

    assert writes > 10
    assert len(set(texts)) > 4


def test_a_plan_alone_can_be_kept_before_anything_was_said():
    async def both():
        store, session = MemoryStore(), new_session()
        journal = TaskJournal(store, "task", session=session)
        session.dispatch(SetupPlan("Read", (PlanStep(1, "Read it"),)))
        await journal.save()
        return session, (await TaskJournal.resume(store, "task")).session

    session, again = asyncio.run(both())

    assert again.query(Plan).all() == session.query(Plan).all()


def test_a_conversation_that_began_anew_is_resumed_as_such():
    async def both():
        store, session = MemoryStore(), new_session()
        journal = TaskJournal(store, "task", session=session)
        for _ in range(2):
            talk = Talk(session)
            talk.say({"role": "user", "content": "the prompt"}, is_prompt=True)
            talk.user("Go.")
            talk.work("what auth.py says")
        await journal.save()
        return session, talk, await TaskJournal.resume(store, "task")

    session, talk, again = asyncio.run(both())

    assert again.session.query(TaskHistory).all() == session.query(TaskHistory).all()
    assert list(again.conversation()) == talk.messages


def test_two_who_write_to_one_task_are_told():
    async def both():
        store, session = MemoryStore(), new_session()
        first = TaskJournal(store, "task", session=session)
        session.dispatch(SetupPlan("Read", (PlanStep(1, "Read it"),)))
        await first.save()
        second = await TaskJournal.resume(store, "task")
        second.session.dispatch(UpdateStep(1, "in_progress"))
        await second.save()
        session.dispatch(UpdateStep(1, "done"))
        await first.save()

    with pytest.raises(VersionConflict):
        asyncio.run(both())


def test_what_is_not_there_or_is_no_task_is_said():
    async def wrong():
        store, session = MemoryStore(), new_session()
        talk = Talk(session)
        journal = TaskJournal(store, "task/plan", session=session)
        talk.user("Hello")
        await journal.save()
        await TaskJournal.resume(store, "task")

    with pytest.raises(UnreadableInput, match="plan of a task"):
        asyncio.run(wrong())
    with pytest.raises(ConversationNotFound):
        asyncio.run(TaskJournal.resume(MemoryStore(), "task"))


def test_erasing_the_recipient_erases_both_parts():
    async def erased():
        store, session = MemoryStore(), new_session()
        journal = TaskJournal(store, "task", session=session, recipient="alice")
        Talk(session).user("Hello")
        session.dispatch(SetupPlan("Read", (PlanStep(1, "Read it"),)))
        await journal.save()
        return await store.erase(recipient="alice")

    assert asyncio.run(erased()).conversations == 2


def test_a_snapshot_and_its_json_bring_back_plan_and_history():
    session, _ = worked()
    registry = TypeRegistry(*session.snapshot().slices)

    again = new_session()
    again.restore(Snapshot.from_json(session.snapshot().to_json(registry), registry))

    assert prompt_for(again).render(session=again).text == prompt_for(session).render(session=session).text


def test_a_rollback_takes_a_summary_back():
    session, conversation = worked()
    before = list(StepHistoryManager().curate(conversation, session=session))
    snapshot = session.snapshot()
    session.dispatch(SummarizeStep(2, "Changed."))

    session.rollback(snapshot)

    assert list(StepHistoryManager().curate(conversation, session=session)) == before


def test_a_history_that_is_none_is_said():
    with pytest.raises(UnreadableInput, match="TaskHistory"):
        TaskHistory.from_json("[]")
    with pytest.raises(UnreadableInput):
        TaskHistory.from_json('[{"objective": 3}]')
