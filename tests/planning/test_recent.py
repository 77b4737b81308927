"""By default what was just said stays when a step is summarised, whoever sums it up."""

import asyncio

import pytest

from minutebook import ModelInfo, Transcript
from minutebook.errors import InvalidSetting, ReducerFailed
from minutebook.planning.budget import StepBudget, StepHistoryManager
from minutebook.planning.events import SetupPlan, SummarizeStep, UpdateStep
from minutebook.planning.plan import PlanStep
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.planning.summaries import auto_summarize_step
from minutebook.planning.task_history import DEFAULT_KEEP_TOKENS, TaskHistory
from minutebook.testing import LoopbackProvider, ScriptedModel, say
from tests.planning.parts import Talk, adapter_for, context_of, new_session, prompt_for

SMALL = ModelInfo("small", max_input_tokens=8_000)


def at_work():
    """A long step: 12 files that were read, each of some more than a thousand tokens."""
    session = new_session()
    prompt_for(session)
    talk = Talk(session)
    talk.user("Go.")
    session.dispatch(SetupPlan("Read", (PlanStep(1, "One"), PlanStep(2, "Two"))))
    session.dispatch(UpdateStep(1, "in_progress"))
    for number in range(12):
        talk.work(f"file{number}. " + "word " * 1_100)
    return session, talk


def by_the_model(session, **options):
    prompt = prompt_for(session, **{"keep_tokens": None, **options})
    context = context_of(session, prompt)
    tool = context.rendered_prompt.tool("summarize_step")
    asyncio.run(tool.call({"step_id": 1, "summary": "Read."}, context=context))


def when_done(session, **options):
    planning = PlanningToolsSection(session=session, on_step_done="extractive", **options)
    context = context_of(session, prompt_for(session, planning=planning))
    tool = context.rendered_prompt.tool("planning_update_step")
    asyncio.run(tool.call({"step_id": 1, "status": "done"}, context=context))


def when_asked(session, **options):
    async def ask():
        with LoopbackProvider(ScriptedModel(say("Read."))) as provider:
            async with adapter_for(provider) as adapter:
                await auto_summarize_step(session, 1, adapter, max_input_tokens=20_000, **options)

    asyncio.run(ask())


def by_the_budget(session, talk, model):
    session.dispatch(UpdateStep(1, "done"))
    asyncio.run(StepBudget(model).check_and_apply(Transcript(talk.messages), session=session))


def files_left(session, talk):
    talk.assistant("On.")
    session.dispatch(UpdateStep(2, "in_progress"))
    view = str(StepHistoryManager().curate(talk.messages, session=session))
    return sum(f"file{number}." in view for number in range(12))


@pytest.mark.parametrize("sum_up", [by_the_model, when_done, when_asked])
def test_the_newest_of_a_long_step_stays_and_the_rest_leaves(sum_up):
    session, talk = at_work()

    sum_up(session)

    assert session.query(TaskHistory).latest().step(1).keep_tokens == DEFAULT_KEEP_TOKENS == 4_000
    assert files_left(session, talk) == 3


@pytest.mark.parametrize("sum_up", [by_the_model, when_done, when_asked])
def test_all_of_it_leaves_where_the_owner_wants_that(sum_up):
    session, talk = at_work()

    sum_up(session, keep_tokens=0)

    assert files_left(session, talk) == 0


def test_of_a_small_window_no_more_than_an_eighth_stays_by_itself():
    session, _ = at_work()
    by_the_model(session, model=SMALL)
    assert session.query(TaskHistory).latest().step(1).keep_tokens == 1_000

    session, talk = at_work()
    by_the_budget(session, talk, SMALL)
    assert session.query(TaskHistory).latest().step(1).keep_tokens == 1_000


def test_a_number_that_cannot_be_meant_is_refused():
    session, _ = at_work()

    with pytest.raises(InvalidSetting):
        PlanningToolsSection(keep_tokens=-1)
    with pytest.raises(ReducerFailed):
        session.dispatch(SummarizeStep(1, "Read.", keep_tokens=-1))
