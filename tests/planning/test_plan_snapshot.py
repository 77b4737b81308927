"""The plan of a conversation is stored with its messages: another process continues with the same plan and view."""

import asyncio
from dataclasses import make_dataclass
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import AsyncConversation, MemoryStore, Session, tool
from minutebook.errors import ProviderFailed, UnreadableInput
from minutebook.planning import Plan, PlanningToolsSection, StepHistoryManager, TaskHistory, TaskHistorySection
from minutebook.planning.events import ExpandStep, SummarizeStep
from minutebook.planning.plan_snapshot import restore_plan
from minutebook.session import TypeRegistry
from minutebook.session.snapshot import Snapshot
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, call, fail
from tests.planning.parts import READER, adapter_for, new_session, prompt_for, worker

CALLS = len(worker().steps)


def task(store):
    return AsyncConversation("task", store=store, system="You refactor code.", manager=StepHistoryManager())


def run(store, adapter, request=None, session=None, tools=(READER,)):
    """Run the task with a new handle and, by default, a new session, as another process would."""
    sections = [PlanningToolsSection(), TaskHistorySection(keep_tokens=0)]
    return run_sync(task(store).run(adapter, request, tools=tools, sections=sections, session=session))


def roles_and_contents(store):
    return [(message["role"], message.get("content")) for message in asyncio.run(store.load("task")).messages]


@pytest.fixture(scope="module")
def whole_record():
    store = MemoryStore()
    with LoopbackProvider(worker()) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.")
    return roles_and_contents(store)


@pytest.mark.parametrize("failed_call", range(1, CALLS + 1))
def test_a_resumed_run_sends_the_same_bytes(failed_call, whole_record):
    store, steps = MemoryStore(), list(worker().steps)
    model = ScriptedModel(*steps[: failed_call - 1], fail(400, "no"), *steps[failed_call - 1 :])
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        with pytest.raises(ProviderFailed):
            run(store, adapter, "Please begin.")
        response = run(store, adapter)

        failed, resumed = provider.requests[failed_call - 1 : failed_call + 1]
        assert resumed.body == failed.body
        assert response.text == "The auth module is refactored."
        assert roles_and_contents(store) == whole_record


def test_steps_that_were_summarized_stay_out_of_the_view():
    store = MemoryStore()
    steps = [step for step in worker().steps if "expand_step" not in str(step)]
    with LoopbackProvider(ScriptedModel(*steps, "Still here.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.")
        run(store, adapter, "And now?")

        sent = provider.requests[-1].messages
        assert "check_auth is the entry" in sent[0]["content"]
        assert not any("def check_auth" in str(message.get("content")) for message in sent[1:])


def test_a_rollback_of_the_session_is_stored_with_the_next_exchange():
    store, session = MemoryStore(), Session()
    with LoopbackProvider(worker("Still here.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.", session)
        before = session.snapshot()
        session.dispatch(SummarizeStep(2, "Changed it."))
        session.rollback(before)
        session.dispatch(ExpandStep(1))
        run(store, adapter, "And now?", session)

        resumed = Session()
        run(store, adapter, None, resumed)
        assert resumed.query(Plan).slice() == session.query(Plan).slice()
        assert resumed.query(TaskHistory).slice() == session.query(TaskHistory).slice()


@pytest.mark.parametrize("has_plan", [False, True])
def test_a_rollback_between_two_runs_is_not_undone_by_the_next_run(has_plan):
    store, session = MemoryStore(), Session()
    before = session.snapshot()
    with LoopbackProvider(worker("Still here.", "And still.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.", session)
        if has_plan:
            before = session.snapshot()
            session.dispatch(SummarizeStep(2, "Changed it."))
            run(store, adapter, "Go on.", session)
        session.rollback(before)
        plan = session.query(Plan).slice()
        assert bool(plan) is has_plan
        run(store, adapter, "And now?", session)

        resumed = Session()
        run(store, adapter, None, resumed)
        for other in (session, resumed):
            assert other.query(Plan).slice() == plan
            assert "Changed it." not in str(other.query(TaskHistory).slice())


@pytest.mark.parametrize("hide", ["clear", "rewind"])
def test_a_plan_that_was_changed_after_a_rewind_is_not_shown(hide):
    store = MemoryStore()
    with LoopbackProvider(worker("A new task.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.")
        run_sync(task(store).clear() if hide == "clear" else task(store).rewind(2))

        run(store, adapter, "Something else.")

        prompt = provider.requests[-1].messages[0]["content"]
        assert "There is no plan yet." in prompt
        assert "check_auth" not in prompt
    assert "Refactor auth module" not in str(asyncio.run(_stored_plan(store)))


def test_a_rewind_after_the_last_change_of_the_plan_keeps_it_without_the_hidden_turns():
    store = MemoryStore()
    with LoopbackProvider(worker("An answer.", "A new answer.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.")
        run(store, adapter, "Tell me a secret.")
        run_sync(task(store).rewind(-2))

        run(store, adapter, "Something else.")

        prompt = provider.requests[-1].messages[0]["content"]
        assert "Refactor auth module" in prompt
    assert "Tell me a secret." not in str(asyncio.run(_stored_plan(store)))


async def _stored_plan(store):
    return [document.body for document in (await store.documents("task", "plan")).items]


def test_a_session_with_a_plan_keeps_it():
    store, session = MemoryStore(), Session()
    with LoopbackProvider(worker("Still here.")) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.", session)
        plan = session.query(Plan).latest()
        run(store, adapter, "And now?", session)

        assert session.query(Plan).latest() == plan


def test_a_conversation_without_a_plan_stores_none():
    store = MemoryStore()
    with LoopbackProvider(ScriptedModel("Hello.")) as provider, adapter_for(provider) as adapter:
        run_sync(task(store).run(adapter, "Hello."))

    assert not asyncio.run(store.documents("task", "plan")).items


def test_erasing_the_conversation_erases_its_plan():
    store = MemoryStore()
    with LoopbackProvider(worker()) as provider, adapter_for(provider) as adapter:
        run(store, adapter, "Please begin.")

    assert asyncio.run(store.documents("task", "plan")).items
    asyncio.run(store.erase(conversation="task"))
    with pytest.raises(LookupError):
        asyncio.run(store.documents("task", "plan"))


def test_data_that_is_not_a_plan_is_refused():
    with pytest.raises(UnreadableInput):
        restore_plan(Session(), {"Plan": [{"objective": 17}]})


def worked():
    """A session with a plan, and its conversation."""
    session = new_session()
    with LoopbackProvider(worker()) as provider, adapter_for(provider) as adapter:
        response = adapter.evaluate_sync(
            prompt_for(session), session=session, history_manager=StepHistoryManager(), request="Go."
        )
    return session, response.conversation


def test_a_snapshot_and_its_json_bring_back_plan_and_history():
    session, _ = worked()
    registry = TypeRegistry(*session.snapshot().slices)

    again = new_session()
    again.restore(Snapshot.from_json(session.snapshot().to_json(registry), registry))

    assert prompt_for(again).render(session=again).text == prompt_for(session).render(session=session).text


def test_a_slice_of_yours_may_have_the_name_of_ours():
    ours = Plan
    session, _ = worked()
    yours = make_dataclass("Plan", [("text", str)], frozen=True)
    session.mutate(yours).append(yours("mine"))
    text = session.snapshot().to_json()

    again = new_session()
    again.restore(Snapshot.from_json(text, TypeRegistry(ours, yours, TaskHistory)))

    assert again.query(yours).all() == (yours("mine"),)
    assert again.query(ours).all() == session.query(ours).all()


TOOL_CALLS = [
    call("planning_setup_plan", objective="Plan it", steps=["Read", "Write"]),
    call("planning_add_step", steps=["Test"]),
    *(
        call("planning_update_step", step_id=step, status=status)
        for step in (1, 2)
        for status in ("in_progress", "done")
    ),
    *(call("summarize_step", step_id=step, summary=f"Summary {step}.") for step in (0, 1, 2)),
    call("expand_step", step_id=1, reason="the details"),
    call("read_file", path="auth.py"),
    call("undo"),
]


@pytest.mark.fuzz
@given(st.integers(0, 1_000_000))
def test_a_conversation_with_a_plan_resumes_after_any_rollback(seed):
    """Rollbacks between runs, or by a tool during a run; then another process continues with the same plan."""
    draw = Random(seed)  # Hypothesis cannot draw in the provider's thread
    store, session = MemoryStore(), Session()
    snapshots = [session.snapshot()]

    def undo():
        """Undo changes of the plan."""
        session.rollback(draw.choice(snapshots))
        return "Undone."

    def answer(request):
        return "Fine." if draw.random() < 0.25 else draw.choice(TOOL_CALLS)

    with LoopbackProvider(ScriptedModel(otherwise=answer)) as provider, adapter_for(provider) as adapter:
        for _ in range(draw.randint(1, 3)):
            run(store, adapter, "Go on.", session, tools=[READER, tool(undo)])
            snapshots.append(session.snapshot())
            if draw.random() < 0.5:
                session.rollback(draw.choice(snapshots))
        run(store, adapter, "Go on.", session, tools=[READER, tool(undo)])
        resumed = Session()
        run(store, adapter, None, resumed)

        assert provider.problems == []
        assert resumed.query(Plan).all() == session.query(Plan).all()
        assert resumed.query(TaskHistory).all() == session.query(TaskHistory).all()


def test_a_rollback_undoes_a_summary():
    session, conversation = worked()
    before = list(StepHistoryManager().curate(conversation, session=session))
    snapshot = session.snapshot()
    session.dispatch(SummarizeStep(2, "Changed."))

    session.rollback(snapshot)

    assert list(StepHistoryManager().curate(conversation, session=session)) == before


def test_text_that_is_not_a_history_is_refused():
    with pytest.raises(UnreadableInput, match="TaskHistory"):
        TaskHistory.from_json("[]")
    with pytest.raises(UnreadableInput):
        TaskHistory.from_json('[{"objective": 3}]')
