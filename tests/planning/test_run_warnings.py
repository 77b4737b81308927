"""The warnings of a run whose prompt has a task history that cannot work."""

import warnings

import pytest

from minutebook import (
    AsyncConversation,
    ComposedManager,
    Conversation,
    ConversationRunner,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    SlidingWindowManager,
)
from minutebook.history import ObservableManager
from minutebook.planning import StepHistoryManager, TaskHistorySection
from minutebook.session import InProcessEventBus
from minutebook.store.loop_thread import run_sync
from minutebook.testing import LoopbackProvider, ScriptedModel, say
from tests.planning.parts import adapter_for


def run(section, session, manager, *, times=1):
    prompt = Prompt(
        PromptTemplate(
            ns="shop",
            key="refactor",
            sections=[MarkdownSection(title="Role", key="role", template="You refactor code.", children=[section])],
        )
    )
    with LoopbackProvider(ScriptedModel(*[say("Done.")] * times)) as provider, adapter_for(provider) as adapter:
        for _ in range(times):
            adapter.evaluate_sync(prompt, session=session, request="Please begin.", history_manager=manager)


@pytest.mark.parametrize("manager", [None, SlidingWindowManager(50), ComposedManager((SlidingWindowManager(50),))])
def test_a_run_without_a_step_history_manager_warns_once(manager):
    with pytest.warns(RuntimeWarning, match="'task-history' folds finished steps, but the run has no Step") as caught:
        run(TaskHistorySection(), Session(), manager, times=2)

    assert len(caught) == 1
    assert "pass history_manager=StepHistoryManager()" in str(caught[0].message)


def test_a_run_in_a_stored_conversation_has_the_manager_also_for_nested_sections():
    parent = MarkdownSection(title="Role", key="role", template="You refactor.", children=[TaskHistorySection()])
    with LoopbackProvider(ScriptedModel(say("Done."))) as provider, adapter_for(provider) as adapter:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Conversation("task") as chat:
                chat.run(adapter, "Please begin.", sections=[parent])
                assert "step_history" in str(chat.requests()[-1].policy)


def test_a_runner_on_a_stored_conversation_warns_and_names_its_setting():
    prompt = Prompt(PromptTemplate(ns="shop", key="refactor", sections=[TaskHistorySection()]))
    with LoopbackProvider(ScriptedModel(say("Done."))) as provider, adapter_for(provider) as adapter:
        runner = ConversationRunner(
            adapter=adapter, prompt=prompt, session=Session(), conversation=AsyncConversation("task"), request="Begin."
        )
        with pytest.warns(RuntimeWarning, match="a stored conversation takes it as manager="):
            run_sync(runner.run())


def test_a_section_of_another_session_warns():
    with pytest.warns(RuntimeWarning, match="'task-history' was created with another session than the run's; pass the"):
        run(TaskHistorySection(session=Session()), Session(), StepHistoryManager())


@pytest.mark.parametrize("has_session", [True, False])
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda manager: manager,
        lambda manager: ComposedManager((manager, SlidingWindowManager(50))),
        lambda manager: ObservableManager(ComposedManager((manager,)), InProcessEventBus(), "refactor"),
    ],
)
def test_a_run_with_the_manager_and_the_session_does_not_warn(wrapped, has_session):
    session = Session()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(TaskHistorySection(session=session if has_session else None), session, wrapped(StepHistoryManager()))
