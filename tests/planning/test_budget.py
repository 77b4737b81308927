"""The automatic budget: above a threshold the oldest finished steps fold first, until the target; never the active one."""

import asyncio

import pytest

from minutebook import HistoryCompacted, ModelInfo, Transcript, view_of
from minutebook.errors import InvalidSetting
from minutebook.planning.budget import StepBudget, StepHistoryManager
from minutebook.planning.events import PinStep, SetActiveStep, SetupPlan, UpdateStep
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.task_history import TaskHistory
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.planning.parts import Talk, adapter_for, new_session, prompt_for

SMALL = ModelInfo("small", max_input_tokens=4_000)


class Failing:
    async def summarize(self, request):
        raise RuntimeError("no")


def at_work(steps=5, words=500):
    """A session whose steps are all done but for the last, which is active; each has about as many tokens."""
    session = new_session()
    prompt_for(session)
    talk = Talk(session)
    talk.user("Go.")
    session.dispatch(SetupPlan("Read", tuple(PlanStep(n, f"Part {n}") for n in range(1, steps + 1))))
    for number in range(1, steps + 1):
        session.dispatch(UpdateStep(number, "in_progress"))
        talk.work(f"src/part{number}.py says " + "word " * words)
        talk.assistant(f"Part {number} needs a fix in src/part{number}.py.")
        if number < steps:
            session.dispatch(UpdateStep(number, "done"))
    return session, talk


def checked(budget, session, talk, **more):
    return asyncio.run(budget.check_and_apply(Transcript(talk.messages), session=session, **more))


def levels(session):
    return {step.step_id: step.level for step in session.query(TaskHistory).latest().steps}


def test_nothing_is_folded_below_the_threshold():
    session, talk = at_work(steps=5)

    assert not checked(StepBudget(SMALL), session, talk).event
    assert set(levels(session).values()) == {"full"}


def test_the_oldest_finished_steps_fold_until_the_target_and_no_further():
    session, talk = at_work(steps=8)

    done = checked(StepBudget(SMALL), session, talk)

    assert done.event.folds == tuple(f"step-{number}" for number in range(1, 6))
    assert done.event.tokens_before > 3_200
    assert 1_500 < done.event.tokens_after <= 2_000
    assert list(levels(session).values()) == ["full"] + ["summary"] * 5 + ["full"] * 3
    view = view_of(talk.messages, StepHistoryManager(), session=session, strict=True)
    assert "src/part8.py says" in str(list(view.messages))
    assert "src/part1.py says" not in str(list(view.messages))
    assert "src/part1.py" in session.query(TaskHistory).latest().step(1).summary


def test_the_active_step_and_pinned_ones_are_never_folded():
    session, talk = at_work(steps=8)
    session.dispatch(PinStep(1))
    session.dispatch(SetActiveStep(3))  # though it is done
    tiny = StepBudget(ModelInfo("tiny", max_input_tokens=100))

    checked(tiny, session, talk)

    assert [step for step, level in levels(session).items() if level == "full"] == [0, 1, 3, 8]


def test_steps_of_an_earlier_task_fold_before_those_of_this_one():
    session, talk = at_work(steps=3, words=900)
    session.dispatch(UpdateStep(3, "done"))
    session.dispatch(SetupPlan("Next", (PlanStep(4, "More"),)))
    session.dispatch(UpdateStep(4, "in_progress"))
    talk.work("word " * 900)

    done = checked(StepBudget(SMALL), session, talk)

    assert done.event.folds == ("step-1", "step-2")
    section = prompt_for(session).render(session=session).text
    assert "**Earlier task**: Read" in section
    assert "Step 1, Part 1: " in section


def test_a_summarizer_that_fails_changes_nothing():
    session, talk = at_work(steps=8)
    before = session.snapshot()

    done = checked(StepBudget(SMALL, Failing()), session, talk)

    assert isinstance(done.error, RuntimeError)
    assert session.snapshot().slices == before.slices


def test_what_the_call_sends_besides_counts():
    session, talk = at_work(steps=5)

    assert checked(StepBudget(SMALL), session, talk, overhead_tokens=1_500).event


@pytest.mark.parametrize("settings", [{"threshold": 0}, {"target": 0.9}, {"max_summary_tokens": 0}], ids=str)
def test_settings_that_cannot_be_meant_are_refused(settings):
    with pytest.raises(InvalidSetting):
        StepBudget(SMALL, **settings)


def test_a_long_run_stays_within_its_window_by_itself():
    session, events = new_session(), []
    session.bus.subscribe(HistoryCompacted, events.append)
    steps = [f"Read {n}" for n in range(1, 9)]
    script = [call("planning_setup_plan", objective="Read all", steps=steps)]
    for number in range(1, 9):
        script += [
            call("planning_update_step", step_id=number, status="in_progress"),
            call("read_file", path=f"one{number}.py") + call("read_file", path=f"two{number}.py"),
            call("planning_update_step", step_id=number, status="done"),
        ]
    model = ModelInfo("small", max_input_tokens=5_000)
    with LoopbackProvider(ScriptedModel(*script, say("All read.")), max_context_tokens=6_000) as provider:
        with adapter_for(provider) as adapter:
            response = adapter.evaluate_sync(
                prompt_for(session),
                session=session,
                history_manager=StepHistoryManager(),
                compactor=StepBudget(model, bus=session.bus),
                request="Go.",
            )
            shown = [request.body["messages"][0]["content"] for request in provider.requests]

    assert (response.text, provider.problems) == ("All read.", [])
    assert response.conversation.tokens > 4_500
    assert events
    assert "one1.py" in shown[-1]
    assert session.query(Plan).latest().is_done
