"""Turns, steps and tasks as values, how they are rendered, and how the history follows the plan."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest

from minutebook import ConversationRecorded, Session
from minutebook.errors import InvalidSetting, ReducerFailed
from minutebook.planning.events import (
    AddHistorySteps,
    AddStep,
    AppendTurn,
    ExpandStep,
    InitializeTaskHistory,
    SetActiveStep,
    SetupPlan,
    SummarizeStep,
    UpdateStep,
)
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.setup import install_history, install_plan, sync_plan_to_history
from minutebook.planning.task_history import StepHistory, StepVisibilityResolver, TaskHistory, Turn, extractive_summary
from minutebook.prompt.tools import RenderContext
from minutebook.prompt.visibility import SectionVisibility
from minutebook.record.entry import ToolCall
from minutebook.wire import provider_message_to_entry
from tests.planning.parts import MONDAY, Talk, new_session, prompt_for


def turn(number, role="assistant", text=None, **more):
    return Turn(number, role, text or f"words {number}", created_at=MONDAY, **more)


def planned(*titles):
    session = new_session()
    install_plan(session)
    install_history(session)
    session.dispatch(SetupPlan("Refactor", tuple(PlanStep(n, title) for n, title in enumerate(titles, 1))))
    return session


def latest(session):
    return session.query(TaskHistory).latest()


def section_of(session, **options):
    return prompt_for(session, **options).render(session=session).text_of(("task-history",))


@pytest.mark.parametrize(
    ("one", "shown"),
    [
        (turn(1, "user", "hi"), "[user] hi"),
        (turn(1, "tool", "out", tool_name="read"), "[tool:read] out"),
        (turn(1, "tool", "out"), "[tool] out"),
        (turn(1, "assistant", "x", tool_name="read"), "[assistant] x"),
        (Turn(1, "assistant", "", tool_calls=(ToolCall("a", "read", "{}"),)), "[assistant] → read({})"),
        (Turn(1, "assistant", "so", tool_calls=(ToolCall("a", "read", "{}"),)), "[assistant] so\n→ read({})"),
    ],
    ids=["user", "named result", "result", "no name for others", "calls", "words and calls"],
)
def test_a_turn_renders_who_says_what(one, shown):
    assert one.render() == shown


def test_a_step_renders_by_its_visibility():
    full = StepHistory(1, "Read", tuple(map(turn, range(1, 6))))
    folded = StepHistory(1, "Read", full.turns, "In short.", "summary", summarized_through=4)
    hint = "[Call `expand_step` with step_id=1 and a reason to read all of it.]"

    assert full.render().count("words") == 5
    assert full.render(include_turns=False) == "Step 1: Read"
    assert folded.render() == f"Step 1: Read\n[Summary] In short.\n{hint}\n  [assistant] words 5"
    assert StepHistory(1, "Read", full.turns, None, "summary").render() == full.render()
    condensed = StepHistory(1, "Read", full.turns, "In short.", "condensed", summarized_through=5).render()
    assert [line.strip() for line in condensed.splitlines() if "words" in line] == [
        f"[assistant] words {number}" for number in (1, 4, 5)
    ]
    assert StepHistory(1, "Read", full.turns, "x", "title", summarized_through=5).render() == f"Step 1: Read\n{hint}"


def test_a_task_renders_its_steps_and_marks_the_active_one():
    steps = (StepHistory(1, "Read", (turn(1),)), StepHistory(2, "Write"))

    assert TaskHistory("Refactor").render() == "Task: Refactor\n\n<no history recorded>"
    assert TaskHistory("Refactor", 2, steps).render() == (
        "Task: Refactor\n\nStep 1: Read\n  [assistant] words 1\n\nStep 2: Write [active]"
    )


def test_parts_of_a_step_are_a_task_of_their_own():
    steps = (StepHistory(1, "Read"), StepHistory(2, "Auth", parent_id=1), StepHistory(3, "Tokens", parent_id=2))

    tasks = TaskHistory("Refactor", None, steps).subtasks

    assert [(task.objective, [step.step_id for step in task.steps]) for task in tasks] == [
        ("Read", [2, 3]),
        ("Auth", [3]),
    ]


@pytest.mark.parametrize(
    "steps",
    [
        (PlanStep(1, "a"), PlanStep(1, "b")),
        (PlanStep(0, "a"),),
        (PlanStep(1, "a", parent_id=9),),
        tuple(PlanStep(n, "a", parent_id=n - 1 or None) for n in range(1, 5)),
    ],
    ids=["one id twice", "step 0", "no such parent", "four levels"],
)
def test_a_plan_that_cannot_be_is_refused(steps):
    with pytest.raises(InvalidSetting):
        Plan("x", steps)


def test_extraction_keeps_the_first_the_last_and_the_most_telling_in_their_order():
    step = StepHistory(
        1,
        "Read",
        (
            turn(1, "user", "Fix it."),
            turn(2, "tool", "nothing", tool_name="ls"),
            turn(3, "tool", "src/app/main.py has 48213 lines and ORD-1234", tool_name="read"),
            turn(4, "assistant", "Hm."),
            turn(5, "assistant", "Done."),
        ),
    )

    assert extractive_summary(step) == (
        "[user] Fix it.\n[tool:read] src/app/main.py has 48213 lines and ORD-1234\n[assistant] Done."
    )
    assert extractive_summary(step, 1) == "[assistant] Done."
    assert extractive_summary(step, 9).count("\n") == 4
    assert len(extractive_summary(step, max_characters=40)) <= 40
    for wrong in ({"max_turns": 0}, {"max_characters": 0}):
        with pytest.raises(InvalidSetting):
            extractive_summary(step, **wrong)


def test_an_override_wins_over_what_is_stored_and_that_over_the_default():
    resolver = StepVisibilityResolver(default="title", overrides={3: "full"})

    assert [resolver.resolve(3, "summary"), resolver.resolve(4, "summary"), resolver.resolve(4, None)] == [
        "full",
        "summary",
        "title",
    ]
    with pytest.raises(InvalidSetting):
        StepVisibilityResolver(overrides={1: "all"})


def test_the_history_follows_the_plan():
    session = planned("Read", "Change")
    session.dispatch(AddStep((PlanStep(3, "Test"),)))
    session.dispatch(UpdateStep(1, "in_progress", "Read it all"))

    history = latest(session)
    assert (history.objective, history.active_step_id) == ("Refactor", 1)
    assert [(step.step_id, step.step_title) for step in history.steps] == [
        (1, "Read it all"),
        (2, "Change"),
        (3, "Test"),
    ]

    session.dispatch(UpdateStep(2, "in_progress"))
    assert latest(session).active_step_id == 2
    session.dispatch(UpdateStep(1, "done"))
    assert latest(session).active_step_id == 2
    session.dispatch(UpdateStep(2, "pending"))
    assert latest(session).active_step_id is None


def test_the_parts_of_a_step_stand_right_after_it():
    session = planned("Read", "Change")
    session.dispatch(AddStep((PlanStep(3, "Read auth", parent_id=1),)))

    headings = [line for line in section_of(session).splitlines() if line.startswith("### ")]

    assert headings == ["### 3.1. Read", "### 3.2. Read auth", "### 3.3. Change"]


def test_rendering_begins_no_step():
    session = planned("Read", "Change")
    for step_id, status in ((1, "in_progress"), (2, "in_progress"), (2, "done")):
        session.dispatch(UpdateStep(step_id, status))
    before = session.snapshot()

    section_of(session)

    assert latest(session).active_step_id is None
    assert session.snapshot().slices == before.slices


def test_when_a_part_is_finished_the_step_it_is_part_of_is_active_again():
    session = planned("Read")
    session.dispatch(AddStep((PlanStep(2, "Auth", parent_id=1),)))
    for step_id, status in ((1, "in_progress"), (2, "in_progress"), (2, "done")):
        session.dispatch(UpdateStep(step_id, status))

    assert latest(session).active_step_id == 1


def test_a_second_plan_makes_the_first_history_and_its_steps_keep_their_ids():
    session = planned("Read", "Change")
    talk = Talk(session)
    talk.user("Go.")
    session.dispatch(UpdateStep(1, "in_progress"))
    talk.work("what auth.py says")
    session.dispatch(SummarizeStep(1, "Read auth.py."))
    session.dispatch(SetupPlan("Document", (PlanStep(3, "Write"),)))

    first, second = session.query(TaskHistory).all()
    assert [(h.objective, [s.step_id for s in h.steps]) for h in (first, second)] == [
        ("Refactor", [0, 1, 2]),
        ("Document", [3]),
    ]
    assert "**Earlier task**: Refactor\n\nStep 1, Read: Read auth.py." in section_of(session)
    with pytest.raises(ReducerFailed, match="no step of an earlier plan"):
        session.dispatch(SetupPlan("Again", (PlanStep(2, "x"),)))
    session.dispatch(ExpandStep(1))
    assert "Earlier task" not in section_of(session)


def test_a_result_goes_home_to_a_task_that_has_made_way_for_another():
    session = planned("Read")
    session.dispatch(UpdateStep(1, "in_progress"))
    talk = Talk(session)
    [call_id] = talk.ask("planning_setup_plan")
    session.dispatch(SetupPlan("Next", (PlanStep(2, "More"),)))
    talk.answer(call_id, "There is a new plan.", "planning_setup_plan")

    first, second = session.query(TaskHistory).all()
    assert [one.role for one in first.step(1).turns] == ["assistant", "tool"]
    assert second.steps == (StepHistory(2, "More"),)


def test_turns_from_elsewhere_get_a_number_and_a_time_and_are_taken_once():
    session = planned("Read")
    session.dispatch(AppendTurn(Turn(None, "user", "before any step")))
    session.dispatch(SetActiveStep(1))
    session.dispatch(AppendTurn(Turn(None, "assistant", "in the step")))
    session.dispatch(AppendTurn(Turn(2, "assistant", "in the step")))
    session.dispatch(AppendTurn(Turn(None, "tool", "where I say", tool_name="x"), step_id=1))

    history = latest(session)
    assert [(one.turn_id, one.created_at) for step in history.steps for one in step.turns] == [
        (number, MONDAY) for number in (1, 2, 3)
    ]
    assert [len(step.turns) for step in history.steps] == [1, 2]
    assert "**Assistant**: in the step\n\n**[x]**: where I say" in section_of(session)
    with pytest.raises(ReducerFailed, match="step_id"):
        session.dispatch(AppendTurn(Turn(None, "user", "x"), step_id=9))
    with pytest.raises(ReducerFailed, match="belongs to already"):
        session.dispatch(AppendTurn(Turn(1, "user", "before any step"), step_id=1))


def test_another_turn_with_the_same_number_is_refused():
    session = planned("Read")
    session.dispatch(AppendTurn(Turn(1, "user", "this one")))
    session.dispatch(SetupPlan("Next", (PlanStep(2, "More"),)))
    before = session.snapshot().slices

    session.dispatch(AppendTurn(Turn(1, "user", "this one")))
    with pytest.raises(ReducerFailed, match="turn_id=1: expected a number that no other turn has"):
        session.dispatch(AppendTurn(Turn(1, "user", "another one")))

    assert session.snapshot().slices == before


def test_a_turn_without_a_number_is_identified_by_its_entry():
    session = planned("Read")
    turn = Turn(None, "user", "said once", evaluation_id=UUID(int=3), entry_sequence=4)

    session.dispatch(AppendTurn(turn))
    session.dispatch(AppendTurn(turn))
    session.dispatch(AppendTurn(replace(turn, entry_sequence=5)))
    session.dispatch(AppendTurn(Turn(None, "user", "no identity")))
    session.dispatch(AppendTurn(Turn(None, "user", "no identity")))

    contents = [one.content for step in latest(session).steps for one in step.turns]
    assert contents == ["said once", "said once", "no identity", "no identity"]


def test_new_turns_of_a_summarised_step_stay_visible():
    session = planned("Read")
    session.dispatch(SetActiveStep(1))
    session.dispatch(AppendTurn(Turn(None, "assistant", "earlier")))
    session.dispatch(SummarizeStep(1, "In short."))
    session.dispatch(AppendTurn(Turn(None, "assistant", "later")))

    section = section_of(session)
    assert "In short." in section
    assert "later" in section
    assert "earlier" not in section


@pytest.mark.parametrize("number", [-1, 0, 1, 4], ids=repr)
def test_a_turn_cannot_get_a_number_that_hides_it_behind_a_summary(number):
    session = planned("Read")
    session.dispatch(SetActiveStep(1))
    session.dispatch(AppendTurn(Turn(5, "assistant", "earlier")))
    session.dispatch(SummarizeStep(1, "In short."))

    with pytest.raises(ReducerFailed, match=f"turn_id={number}: expected a number above 5, because a summary covers"):
        session.dispatch(AppendTurn(Turn(number, "assistant", "later")))
    session.dispatch(AppendTurn(Turn(9, "assistant", "later")))

    assert "later" in section_of(session)


def test_two_sections_and_their_copies_on_one_session_take_each_turn_once():
    session = new_session()
    one = TaskHistorySection(session=session)
    one.clone(title="Another")
    TaskHistorySection(session=session, key="second")
    Talk(session).user("Go.")

    assert len(latest(session).steps[0].turns) == 1


def test_one_section_serves_many_sessions():
    section = TaskHistorySection()
    first, second = planned("Read"), planned("Write")

    texts = [section.render(None, 0, "3.", context=RenderContext(session)) for session in (first, second)]

    assert "Read" in texts[0]
    assert "Write" in texts[1]
    assert "<no history recorded>" in section.render(None, 0, "3")
    assert "### 3.1. Read" in texts[0]


def test_headings_are_six_levels_deep_at_most():
    section = TaskHistorySection()

    assert "\n###### 1.1. Read" in section.render(None, 9, "1", context=RenderContext(planned("Read")))


def test_a_section_shown_as_a_summary_is_an_outline_and_keeps_what_each_step_shows():
    session = planned("Read", "Change")
    session.dispatch(UpdateStep(2, "in_progress"))
    prompt = prompt_for(session)

    rendered = prompt.render(session=session, visibility_overrides={("task-history",): SectionVisibility.SUMMARY})

    assert "- 1. Read\n- 2. Change [active]" in rendered.text
    assert rendered.tool("open_sections") is not None
    assert rendered.tool("summarize_step") is None


def test_single_steps_can_be_shown_otherwise_for_one_rendering():
    session = planned("Read")
    session.dispatch(SetActiveStep(1))
    session.dispatch(AppendTurn(Turn(None, "assistant", "every word")))
    session.dispatch(SummarizeStep(1, "In short."))
    session.dispatch(ExpandStep(1))
    short = {("task-history", "step-1"): SectionVisibility.SUMMARY}

    assert "every word" in section_of(session)
    assert "every word" not in prompt_for(session).render(session=session, visibility_overrides=short).text
    folded = planned("Read")
    folded.dispatch(SetActiveStep(1))
    folded.dispatch(AppendTurn(Turn(None, "assistant", "every word")))
    folded.dispatch(SummarizeStep(1, "In short."))
    assert "every word" in section_of(folded, resolver=StepVisibilityResolver(overrides={1: "full"}))


def test_an_override_shows_a_summarized_step_in_full():
    session = planned("Read")
    session.dispatch(SetActiveStep(1))
    session.dispatch(AppendTurn(Turn(None, "assistant", "every word")))
    session.dispatch(SummarizeStep(1, "In short."))
    full = {("task-history", "step-1"): SectionVisibility.FULL}

    assert "every word" not in section_of(session)
    assert "every word" in prompt_for(session).render(session=session, visibility_overrides=full).text
    assert (
        "every word" not in prompt_for(session, expand="view").render(session=session, visibility_overrides=full).text
    )


@pytest.mark.parametrize("keys", [("step-9",), ("step-x",), ("1",), ("step-1", "more"), ("step-01",)])
@pytest.mark.parametrize("visibility", SectionVisibility)
def test_an_override_of_a_step_that_does_not_exist_is_refused(keys, visibility):
    session = planned("Read")

    with pytest.raises(InvalidSetting, match=r"expected a step of the section task-history: step-1"):
        prompt_for(session).render(session=session, visibility_overrides={("task-history", *keys): visibility})
    with pytest.raises(InvalidSetting, match="there are none yet"):
        prompt_for().render(session=Session(), visibility_overrides={("task-history", *keys): visibility})


@pytest.mark.parametrize(
    ("level", "shown"), [("condensed", ["w1", "w9", "w5"]), ("summary", ["In short."]), ("title", [])]
)
def test_there_are_four_levels_of_detail(level, shown):
    session = planned("Read")
    session.dispatch(SetActiveStep(1))
    for number in range(1, 10):
        role = "tool" if number == 5 else "assistant"
        session.dispatch(AppendTurn(Turn(None, role, f"w{number}")))
    assert all(f"w{number}" in section_of(session) for number in range(1, 10))

    session.dispatch(SummarizeStep(1, "In short.", level))

    said = section_of(session)
    assert [word for word in ["In short.", *(f"w{n}" for n in range(1, 10))] if word in said] == sorted(shown)
    assert "Read" in said


def test_a_history_that_comes_late_catches_up_with_the_plan():
    session = new_session()
    install_plan(session)
    session.dispatch(SetupPlan("Refactor", (PlanStep(1, "Read"), PlanStep(2, "Change"))))
    session.dispatch(UpdateStep(2, "in_progress"))

    install_history(session)

    history = latest(session)
    assert (history.objective, history.active_step_id, len(history.steps)) == ("Refactor", 2, 2)
    before = session.snapshot()
    sync_plan_to_history(session)
    assert session.snapshot().slices == before.slices


def test_a_history_may_be_kept_by_hand():
    session = Session()
    install_history(session)
    session.dispatch(InitializeTaskHistory("By hand", (PlanStep(1, "One"),)))
    session.dispatch(AddHistorySteps((PlanStep(1, "One"), PlanStep(2, "Two"))))
    session.dispatch(SetActiveStep(2))

    assert latest(session).render() == "Task: By hand\n\nStep 1: One\n\nStep 2: Two [active]"
    with pytest.raises(ReducerFailed, match="step_id"):
        session.dispatch(SetActiveStep(9))
    session.mutate(TaskHistory).dispatch(TaskHistory("Another"))
    assert latest(session) == TaskHistory("Another")


def test_events_without_a_plan_or_a_history_are_refused():
    session = Session()
    install_plan(session)
    install_history(session)
    for event in (AddStep((PlanStep(1, "a"),)), UpdateStep(1, "done"), SetActiveStep(1), SummarizeStep(1, "x")):
        with pytest.raises(ReducerFailed):
            session.dispatch(event)
    with pytest.raises(ReducerFailed, match="objective"):
        session.dispatch(SetupPlan(" "))


def test_system_messages_and_prompts_are_no_turns():
    session = new_session()
    prompt_for(session)
    talk = Talk(session)
    talk.say({"role": "system", "content": "the prompt"}, is_prompt=True)
    talk.user("Go.")
    talk.say({"role": "system", "content": "by the way"})
    entry = provider_message_to_entry(
        {"role": "user", "content": "the prompt again"},
        evaluation_id=UUID(int=1),
        sequence=9,
        created_at=datetime.now(UTC),
    )
    session.bus.publish(ConversationRecorded(entry, session.session_id, MONDAY, None, is_prompt=True))

    assert [one.content for step in latest(session).steps for one in step.turns] == ["Go."]


def test_an_override_for_an_unknown_step_is_reported_when_the_section_is_rendered():
    session = planned("Read")

    with pytest.warns(RuntimeWarning, match=r"unknown steps: \[99\]"):
        section_of(session, resolver=StepVisibilityResolver(overrides={1: "full", 99: "title"}))
