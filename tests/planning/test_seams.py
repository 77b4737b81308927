"""What the runner tells about messages and lends to tools, and summaries that wait until there is no room."""

import asyncio

import pytest

from minutebook import ConversationRecorded, MarkdownSection, ModelInfo, Transcript
from minutebook.errors import InvalidSetting
from minutebook.planning.budget import StepBudget, StepHistoryManager
from minutebook.planning.events import SetupPlan, UpdateStep
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan import PlanStep
from minutebook.planning.task_history import TaskHistory
from minutebook.prompt.template import Prompt, PromptTemplate
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from tests.planning.parts import MODEL, Talk, adapter_for, context_of, new_session, prompt_for, worker


def heard(prompt, model, session, **options):
    events = []
    session.bus.subscribe(ConversationRecorded, events.append)
    options = {"history_manager": StepHistoryManager(), **options}
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        response = adapter.evaluate_sync(prompt, session=session, **options)
    return events, response


def test_every_entry_says_where_its_message_stands_and_prompts_say_that_they_are():
    session = new_session()

    events, response = heard(prompt_for(session), worker(), session, request="Go.")

    placed = [event for event in events if event.position is not None]
    assert [event.position for event in placed] == list(range(len(response.conversation)))
    assert [event.entry.role.value for event in events if event.is_prompt] == ["system"] * (
        1 + len(events) - len(placed)
    )
    assert placed[0].is_prompt


def test_without_a_request_the_prompt_is_the_users_message_and_still_no_turn():
    session = new_session()

    events, _ = heard(prompt_for(session), ScriptedModel(say("Hello.")), session)

    assert [(event.entry.role.value, event.is_prompt) for event in events] == [("user", True), ("assistant", False)]
    assert [turn.content for turn in session.query(TaskHistory).latest().steps[0].turns] == ["Hello."]


def test_a_conversation_that_is_taken_up_goes_on_counting():
    session, plain = (
        new_session(),
        Prompt(PromptTemplate[str](ns="t", key="k", sections=[MarkdownSection(title="T", key="t", template="x")])),
    )
    _, response = heard(plain, ScriptedModel(say("One.")), session, request="First.")

    events, _ = heard(plain, ScriptedModel(say("Two.")), session, request="Second.", conversation=response.conversation)

    assert [event.position for event in events] == [3, 4]


def test_the_compactor_is_told_what_the_prompt_has_gained():
    session, told = new_session(), []

    class Listening(StepBudget):
        async def check_and_apply(self, record, *, session, overhead_tokens=0):
            told.append(overhead_tokens)
            return await super().check_and_apply(record, session=session, overhead_tokens=overhead_tokens)

    heard(prompt_for(session), worker(), session, request="Go.", compactor=Listening(MODEL))

    assert told[0] > 0  # the tools
    assert told[1] > told[0]  # and the plan


def waiting():
    """A session whose first step has a summary that waits until there is no room."""
    session = new_session()
    prompt = prompt_for(session, fold="when_full")
    talk = Talk(session)
    talk.user("Go.")
    session.dispatch(SetupPlan("Read", (PlanStep(1, "One"), PlanStep(2, "Two"))))
    session.dispatch(UpdateStep(1, "in_progress"))
    talk.work("src/part1.py says " + "word " * 900)
    [call_id] = talk.ask("summarize_step")
    context = context_of(session, prompt)
    tool = context.rendered_prompt.tool("summarize_step")
    result = asyncio.run(tool.call({"step_id": 1, "summary": "The model's own words."}, context=context))
    talk.answer(call_id, result.render(), "summarize_step")
    session.dispatch(UpdateStep(1, "done"))
    session.dispatch(UpdateStep(2, "in_progress"))
    talk.work("short")
    return session, talk, result


def test_a_summary_may_wait_until_there_is_no_room():
    session, talk, result = waiting()

    assert result.message == "Step 1 summarized. It stays in the conversation while there is room."
    assert list(StepHistoryManager().curate(talk.messages, session=session)) == talk.messages
    assert "own words" not in prompt_for(session).render(session=session).text

    small = StepBudget(ModelInfo("small", max_input_tokens=1_000))
    asyncio.run(small.check_and_apply(Transcript(talk.messages), session=session))

    assert session.query(TaskHistory).latest().step(1).summary == "The model's own words."
    assert "src/part1.py" in prompt_for(session).render(session=session).text
    assert "word word" not in str(list(StepHistoryManager().curate(talk.messages, session=session)))


@pytest.mark.parametrize(
    "options", [{"fold": "later"}, {"expand": "inline"}, {"keep_tokens": -1}, {"max_ledger_tokens": -1}], ids=str
)
def test_settings_of_the_section_that_cannot_be_meant_are_refused(options):
    with pytest.raises(InvalidSetting):
        TaskHistorySection(**options)


def test_calls_of_one_message_take_effect_in_their_order():
    session = new_session()
    model = ScriptedModel(
        call("planning_setup_plan", objective="Read", steps=["One", "Two"])
        + call("planning_update_step", step_id=1, status="in_progress")
        + call("planning_update_step", step_id=2, status="in_progress"),
        say("Done."),
    )

    heard(prompt_for(session), model, session, request="Go.")

    assert session.query(TaskHistory).latest().active_step_id == 2
