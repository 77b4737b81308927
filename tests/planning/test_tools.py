"""Every tool with every bad argument: a message that the model can act on, and nothing changed."""

import asyncio

import pytest

from minutebook import ToolValidationError, VisibilityExpansionRequired
from minutebook.errors import InvalidSetting, ReducerFailed
from minutebook.planning.events import SummarizeStep, UpdateStep
from minutebook.planning.plan import Plan
from minutebook.planning.task_history import TaskHistory
from minutebook.planning.tools import ContextPressure
from minutebook.prompt.visibility import SectionVisibility
from tests.planning.parts import MODEL, Talk, context_of, new_session, prompt_for


def use(session, name, arguments=None, prompt=None, **more):
    prompt = prompt or prompt_for(session, model=MODEL)
    context = context_of(session, prompt, **more)
    tool = context.rendered_prompt.tool(name)
    return asyncio.run(tool.call(arguments or {}, context=context))


def planned():
    """A session with a plan of three steps: the first summarised, the second active with turns, the third empty."""
    session = new_session()
    talk = Talk(session)
    prompt_for(session)
    talk.user("Go on.")
    use(session, "planning_setup_plan", {"objective": "Refactor auth", "steps": ["Read", "Change", "Test"]})
    use(session, "planning_update_step", {"step_id": 1, "status": "in_progress"})
    talk.work("what auth.py says", "what tokens.py says")
    use(session, "planning_update_step", {"step_id": 1, "status": "done"})
    use(session, "planning_update_step", {"step_id": 2, "status": "in_progress"})
    use(session, "summarize_step", {"step_id": 1, "summary": "  Read both.  "})
    talk.work("changed")
    return session


def pinned():
    session = planned()
    use(session, "pin_step", {"step_id": 2})
    return session


BAD = {
    "setup: no objective": (planned, "planning_setup_plan", {"objective": " ", "steps": ["a"]}, "objective is empty"),
    "setup: no steps": (planned, "planning_setup_plan", {"objective": "x", "steps": []}, "at least 1"),
    "setup: an empty title": (
        planned,
        "planning_setup_plan",
        {"objective": "x", "steps": ["a", ""]},
        "title of a step is",
    ),
    "setup: two lines": (planned, "planning_setup_plan", {"objective": "a\nb", "steps": ["a"]}, "several lines"),
    "setup: too long": (planned, "planning_setup_plan", {"objective": "x" * 501, "steps": ["a"]}, "at most 500"),
    "setup: wrong type": (planned, "planning_setup_plan", {"objective": "x", "steps": "a"}, "steps"),
    "setup: something else": (planned, "planning_setup_plan", {"objective": "x", "steps": ["a"], "y": 1}, "y"),
    "add: no plan": (new_session, "planning_add_step", {"steps": ["a"]}, "planning_setup_plan"),
    "add: unknown parent": (planned, "planning_add_step", {"steps": ["a"], "parent_id": 9}, "Steps: 1, 2, 3"),
    "add: nothing": (planned, "planning_add_step", {"steps": []}, "at least 1"),
    "add: a long title": (planned, "planning_add_step", {"steps": ["x" * 201]}, "at most 200"),
    "update: no plan": (new_session, "planning_update_step", {"step_id": 1, "status": "done"}, "planning_setup_plan"),
    "update: unknown step": (planned, "planning_update_step", {"step_id": 7, "status": "done"}, "Steps: 1, 2, 3"),
    "update: unknown status": (planned, "planning_update_step", {"step_id": 1, "status": "finished"}, "in_progress"),
    "update: nothing": (planned, "planning_update_step", {"step_id": 1}, "Pass a new status"),
    "update: empty title": (planned, "planning_update_step", {"step_id": 1, "title": ""}, "title is empty"),
    "update: wrong type": (planned, "planning_update_step", {"step_id": "one", "status": "done"}, "step_id"),
    "read: no plan": (new_session, "planning_read_plan", {}, "planning_setup_plan"),
    "summarize: no history": (new_session, "summarize_step", {"step_id": 1, "summary": "x"}, "planning_setup_plan"),
    "summarize: unknown step": (planned, "summarize_step", {"step_id": 9, "summary": "x"}, "Steps: 0, 1, 2, 3"),
    "summarize: empty": (planned, "summarize_step", {"step_id": 2, "summary": " \n "}, "must not be empty"),
    "summarize: 1,001 characters": (planned, "summarize_step", {"step_id": 2, "summary": "x" * 1001}, "<= 1000"),
    "summarize: wrong type": (planned, "summarize_step", {"step_id": 2, "summary": 3}, "summary"),
    "summarize: a step that is a bool": (planned, "summarize_step", {"step_id": True, "summary": "x"}, "step_id"),
    "summarize: no summary": (planned, "summarize_step", {"step_id": 2}, "summary"),
    "summarize: unknown level": (
        planned,
        "summarize_step",
        {"step_id": 2, "summary": "x", "level": "all"},
        "condensed",
    ),
    "summarize: no turns": (planned, "summarize_step", {"step_id": 3, "summary": "x"}, "nothing to summarize"),
    "summarize: pinned": (pinned, "summarize_step", {"step_id": 2, "summary": "x"}, "pinned=false"),
    "expand: no history": (new_session, "expand_step", {"step_id": 1, "reason": "x"}, "planning_setup_plan"),
    "expand: unknown step": (planned, "expand_step", {"step_id": 9, "reason": "x"}, "Steps: 0, 1, 2, 3"),
    "expand: already full": (planned, "expand_step", {"step_id": 2, "reason": "x"}, "already shown in full"),
    "expand: no turns": (planned, "expand_step", {"step_id": 3, "reason": "x"}, "Step 3 has no turns yet"),
    "expand: no reason": (planned, "expand_step", {"step_id": 1}, "reason"),
    "expand: wrong type": (planned, "expand_step", {"step_id": [1], "reason": "x"}, "step_id"),
    "pin: no history": (new_session, "pin_step", {"step_id": 1}, "planning_setup_plan"),
    "pin: unknown step": (planned, "pin_step", {"step_id": 9}, "Steps: 0, 1, 2, 3"),
    "pin: already": (pinned, "pin_step", {"step_id": 2}, "already pinned"),
    "pin: not pinned": (planned, "pin_step", {"step_id": 2, "pinned": False}, "not pinned"),
    "pin: wrong type": (planned, "pin_step", {"step_id": 2, "pinned": "yes"}, "pinned"),
    "reference: no history": (new_session, "reference_step", {"step_id": 1}, "planning_setup_plan"),
    "reference: unknown step": (planned, "reference_step", {"step_id": 9}, "Steps: 0, 1, 2, 3"),
    "reference: beyond the end": (planned, "reference_step", {"step_id": 1, "first_turn": 9}, "has 3 turns"),
    "reference: turn 0": (planned, "reference_step", {"step_id": 1, "first_turn": 0}, "at least 1"),
    "reference: no turns": (planned, "reference_step", {"step_id": 3}, "has 0 turns"),
    "pressure: size unknown": (planned, "context_pressure", {}, "The size of the next call is not known"),
    "pressure: with an argument": (planned, "context_pressure", {"now": 1}, "now"),
}


@pytest.mark.parametrize(("make", "name", "arguments", "said"), BAD.values(), ids=BAD.keys())
def test_a_bad_call_is_told_what_to_do_and_changes_nothing(make, name, arguments, said):
    session = make()
    prompt_for(session)
    before = session.snapshot()

    with pytest.raises(ToolValidationError) as refused:
        use(session, name, arguments)

    assert said in str(refused.value)
    assert session.snapshot().slices == before.slices


@pytest.mark.parametrize("arguments", ["{", "[]", '"text"', "null"], ids=["half", "list", "text", "null"])
@pytest.mark.parametrize(
    "name",
    ["planning_setup_plan", "planning_add_step", "planning_update_step", "summarize_step", "expand_step", "pin_step"],
)
def test_arguments_that_are_no_object_change_nothing(name, arguments):
    session = planned()
    before = session.snapshot()

    with pytest.raises(ToolValidationError):
        use(session, name, arguments)

    assert session.snapshot().slices == before.slices


def test_parts_of_a_step_lie_at_most_three_levels_deep():
    session = planned()
    for parent in (2, 4):
        use(session, "planning_add_step", {"steps": ["a part"], "parent_id": parent})
    before = session.snapshot()

    with pytest.raises(ToolValidationError, match="3 levels deep"):
        use(session, "planning_add_step", {"steps": ["too deep"], "parent_id": 5})

    assert session.snapshot().slices == before.slices
    assert session.query(Plan).latest().depth_of(5) == 3


def test_the_plan_reads_back_as_it_is():
    session = planned()
    use(session, "planning_add_step", {"steps": ["Look at routes"], "parent_id": 2})

    assert use(session, "planning_read_plan").render() == (
        "**Objective**: Refactor auth\n\n- [x] 1. Read\n- [>] 2. Change\n  - [ ] 4. Look at routes\n- [ ] 3. Test"
    )


def test_a_summary_is_stripped_and_shown_with_a_hint_how_to_expand_it():
    session = planned()

    step = session.query(TaskHistory).latest().step(1)
    section = prompt_for(session).render(session=session).text_of(("task-history",))

    assert (step.summary, step.visibility) == ("Read both.", "summary")
    assert "Read both.\n\n_Call `expand_step` with step_id=1 and a reason to read all of it._" in section
    assert "what auth.py says" not in section


def test_expanding_answers_with_every_word_and_leaves_the_view_alone():
    session = planned()
    before = session.snapshot()

    result = use(session, "expand_step", {"step_id": 1, "reason": "details"})

    assert result.render() == (
        "Step 1, Read, in full:\n\n[assistant] → read_file({})\n→ read_file({})\n\n"
        "[tool:read_file] what auth.py says\n\n[tool:read_file] what tokens.py says"
    )
    assert session.snapshot().slices == before.slices


def test_expanding_in_the_view_opens_the_step_and_asks_for_another_rendering():
    session = planned()

    with pytest.raises(VisibilityExpansionRequired) as asked:
        use(session, "expand_step", {"step_id": 1, "reason": "details"}, prompt_for(session, expand="view"))

    assert asked.value.requested_overrides == {("task-history", "step-1"): SectionVisibility.FULL}
    assert session.query(TaskHistory).latest().step(1).visibility == "full"
    assert session.query(TaskHistory).latest().folds == ()


def test_a_part_of_a_folded_step_is_expanded_with_it():
    session = planned()
    talk_under(session, 2, "a part", "what routes.py says")
    use(session, "summarize_step", {"step_id": 2, "summary": "Changed."})

    assert "what routes.py says" in use(session, "expand_step", {"step_id": 2, "reason": "x"}).render()
    assert "what routes.py says" in use(session, "expand_step", {"step_id": 4, "reason": "x"}).render()
    with pytest.raises(ToolValidationError, match="Expand step 2"):
        use(session, "expand_step", {"step_id": 4, "reason": "x"}, prompt_for(session, expand="view"))


def talk_under(session, parent, title, text):
    use(session, "planning_add_step", {"steps": [title], "parent_id": parent})
    number = session.query(Plan).latest().steps[-1].step_id
    session.dispatch(UpdateStep(number, "in_progress"))
    talk = Talk(session)
    talk.messages = [None] * session.query(TaskHistory).latest().extent.length
    talk.calls = 50
    talk.work(text)


def test_a_pinned_step_comes_back_in_full_and_stays():
    session = planned()

    use(session, "pin_step", {"step_id": 1})

    step = session.query(TaskHistory).latest().step(1)
    assert (step.pinned, step.level) == (True, "full")
    use(session, "pin_step", {"step_id": 1, "pinned": False})
    assert use(session, "summarize_step", {"step_id": 1, "summary": "again"}).message == "Step 1 summarized."


def test_some_turns_of_a_step_can_be_read_alone():
    session = planned()

    result = use(session, "reference_step", {"step_id": 1, "first_turn": 2, "last_turn": 2})

    assert result.render() == "Step 1, turns 2 to 2 of 3:\n\n[tool:read_file] what auth.py says"


@pytest.mark.parametrize(
    ("used", "said"),
    [(0, "ok"), (69, "ok"), (70, "consider_summarizing"), (89, "consider_summarizing"), (90, "urgent")],
)
def test_pressure_recommends_by_how_full_the_window_is(used, said):
    assert ContextPressure(used, 100).recommendation == said


def test_pressure_is_at_most_1_and_keeps_what_it_is():
    pressure = ContextPressure(250, 100)

    assert (pressure.utilization, pressure.raw, pressure.recommendation) == (1.0, 2.5, "urgent")
    with pytest.raises(InvalidSetting, match="max_tokens"):
        ContextPressure(1, 0)


def test_pressure_is_told_from_what_the_next_call_would_send():
    result = use(planned(), "context_pressure", next_tokens=lambda: 24_000)

    assert result.render() == (
        "used_tokens: 24000, max_tokens: 32000, utilization: 0.75, recommendation: consider_summarizing"
    )


def test_without_a_model_nobody_is_offered_its_pressure():
    session = new_session()

    names = [tool.name for tool in prompt_for(session).render(session=session).tools]

    assert "context_pressure" not in names
    assert {"summarize_step", "expand_step", "pin_step", "reference_step"} <= set(names)


def test_a_step_may_be_summarised_again():
    session = planned()

    use(session, "summarize_step", {"step_id": 1, "summary": "Better."})

    assert session.query(TaskHistory).latest().step(1).summary == "Better."


def test_what_a_host_dispatches_wrongly_changes_nothing_either():
    session = planned()
    before = session.snapshot()

    for event in (SummarizeStep(1, " "), SummarizeStep(99, "x"), SummarizeStep(1, "x", "full"), UpdateStep(99, "done")):
        with pytest.raises(ReducerFailed, match=r"step_id|summary|visibility"):
            session.dispatch(event)

    assert session.snapshot().slices == before.slices


def test_without_a_session_the_model_is_advised_to_continue_without_a_plan():
    prompt = prompt_for(None, model=MODEL)
    tool = prompt.render().tool("planning_setup_plan")

    with pytest.raises(ToolValidationError, match="Continue without a plan"):
        asyncio.run(tool.call({"objective": "x", "steps": ["a"]}, context=context_of(None, prompt)))


def test_turns_outside_any_step_are_step_0_which_may_have_none():
    session = new_session()
    use(session, "planning_setup_plan", {"objective": "Read", "steps": ["One"]})

    with pytest.raises(ToolValidationError, match="outside the steps"):
        use(session, "expand_step", {"step_id": 0, "reason": "x"})
    assert use(planned(), "summarize_step", {"step_id": 0, "summary": "The user asked."}).success


def test_a_plan_shown_as_a_summary_still_shows_its_steps():
    session = planned()
    short = {("plan",): SectionVisibility.SUMMARY}

    text = prompt_for(session).render(session=session, visibility_overrides=short).text_of(("plan",))

    assert "- [>] 2. Change" in text
    assert "The plan, and the tools to change it." in prompt_for().render(visibility_overrides=short).text


def test_the_documents_prompt_serves_a_session_it_was_not_made_with():
    session = new_session()

    result = use(session, "planning_setup_plan", {"objective": "Read", "steps": ["One"]}, prompt_for(None))

    assert result.message == "Plan created. Steps: 1 pending."
    assert session.query(Plan).latest().objective == "Read"
