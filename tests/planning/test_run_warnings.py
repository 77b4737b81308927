"""The warnings of a run whose prompt has a task history that cannot work."""

import warnings

import pytest

from minutebook import ComposedManager, MarkdownSection, Prompt, PromptTemplate, Session, SlidingWindowManager
from minutebook.history import ObservableManager
from minutebook.planning import StepHistoryManager, TaskHistorySection
from minutebook.session import InProcessEventBus
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
