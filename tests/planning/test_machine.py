"""Any order of talk and planning: no turn is shown twice or lost, the plan is in view, and a crash changes nothing."""

import json
import os

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine

from minutebook import Fold, Session, Transcript, view_of
from minutebook.errors import InvalidSetting, ReducerFailed
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.events import AddStep, ExpandStep, PinStep, SetupPlan, SummarizeStep, UpdateStep
from minutebook.planning.plan import Plan, PlanStep
from minutebook.planning.plan_snapshot import PlanChanges, restore_plan
from minutebook.planning.reducers import history_with_step, next_step_id
from minutebook.planning.task_history import TaskHistory
from minutebook.record import is_valid
from tests.planning.parts import Talk, new_session, prompt_for

pytestmark = pytest.mark.fuzz
picks = st.integers(0, 50)
keeps = st.sampled_from([0, 0, 10, 40])


class Planning(RuleBasedStateMachine):
    """A model at work, from whose calls everything follows that can happen to a plan."""

    def __init__(self):
        super().__init__()
        self.session = new_session()
        self.prompt = prompt_for(self.session)
        self.count = 0
        self.said = []
        self.before = None
        """The view of last time, until something is planned."""

    def text(self):
        self.count += 1
        self.said.append(f"<t{self.count}> src/part{self.count % 7}.py")
        return self.said[-1]

    @initialize()
    def begin(self):
        self.talk = Talk(self.session)
        self.talk.say({"role": "system", "content": self.prompt.render(session=self.session).text}, is_prompt=True)
        self.talk.user(self.text())
        self.before = None

    @rule()
    def user(self):
        self.talk.user(self.text())

    @rule()
    def assistant(self):
        self.talk.assistant(self.text())

    @rule(count=st.integers(1, 3))
    def work(self, count):
        ids = self.talk.ask(*["read_file"] * count, text=self.text())
        for call_id in ids:
            self.talk.answer(call_id, self.text())

    def planned(self, event, *, beside=(), tool="summarize_step"):
        """An event as it comes about: in the middle of the exchange that has the call."""
        ids = self.talk.ask(tool, *beside, text=self.text())
        try:
            self.session.dispatch(event)
        except ReducerFailed as failed:
            assert isinstance(failed.__cause__, InvalidSetting)
        for call_id, name in zip(ids, (tool, *beside), strict=True):
            self.talk.answer(call_id, self.text(), name)
        self.before = None

    @rule(count=st.integers(1, 3))
    def set_up(self, count):
        first = next_step_id(self.session.query(Plan).all())
        steps = tuple(PlanStep(first + n, f"Title{first + n}.") for n in range(count))
        self.planned(SetupPlan(f"Objective{first}.", steps), tool="planning_setup_plan")

    @precondition(lambda self: self.session.query(Plan).latest())
    @rule(parent=st.one_of(st.none(), picks))
    def add(self, parent):
        plan = self.session.query(Plan).latest()
        number = next_step_id(self.session.query(Plan).all())
        above = None if parent is None else plan.steps[parent % len(plan.steps)].step_id
        self.planned(AddStep((PlanStep(number, f"Title{number}.", parent_id=above),)), tool="planning_add_step")

    @precondition(lambda self: self.session.query(Plan).latest())
    @rule(pick=picks, status=st.sampled_from(["pending", "in_progress", "in_progress", "done"]))
    def update(self, pick, status):
        steps = self.session.query(Plan).latest().steps
        self.planned(UpdateStep(steps[pick % len(steps)].step_id, status), tool="planning_update_step")

    def some_step(self, pick):
        known = [step.step_id for history in self.session.query(TaskHistory).all() for step in history.steps]
        return known[pick % len(known)]

    def step(self, step_id):
        return history_with_step(self.session.query(TaskHistory).all(), step_id).step(step_id)

    @rule(
        pick=picks,
        level=st.sampled_from(["summary", "summary", "condensed", "title"]),
        beside=st.sampled_from([(), (), ("read_file",)]),
        keep=keeps,
    )
    def summarize(self, pick, level, beside, keep):
        self.planned(SummarizeStep(self.some_step(pick), f"Summary{self.count}.", level, keep), beside=beside)

    @rule(pick=picks, keep=keeps)
    def summarize_from_outside(self, pick, keep):
        """As an automatic budget does, between two calls."""
        self.before = None
        step = self.step(self.some_step(pick))
        if not step.pinned:
            self.session.dispatch(SummarizeStep(step.step_id, f"Summary{self.count}.", keep_tokens=keep))

    @rule(pick=picks)
    def note_a_summary(self, pick):
        self.planned(SummarizeStep(self.some_step(pick), f"Summary{self.count}.", visibility=None))

    @rule(pick=picks)
    def expand(self, pick):
        self.planned(ExpandStep(self.some_step(pick)), tool="expand_step")

    @rule(pick=picks, pinned=st.booleans())
    def pin(self, pick, pinned):
        self.planned(PinStep(self.some_step(pick), pinned), tool="pin_step")

    @rule(pick=picks, level=st.sampled_from(["summary", "condensed", "title"]), keep=keeps)
    def summarizing_and_expanding_changes_no_byte(self, pick, level, keep):
        step_id = self.some_step(pick)
        step = self.step(step_id)
        if step.pinned or step.level != "full":
            return
        before = self.sent(), self.shown()

        self.session.dispatch(SummarizeStep(step_id, "Something.", level, keep))
        self.session.dispatch(ExpandStep(step_id))

        assert (self.sent(), self.shown()) == before
        self.before = None

    @rule()
    def another_conversation(self):
        """The next evaluation begins anew: only the history has what was said so far."""
        self.begin()

    def shown(self, session=None):
        return self.prompt.render(session=session or self.session).text

    def sent(self, session=None):
        """The view that the model would be sent, its prompt rendered again."""
        session = session or self.session
        fold = Fold("prompt", 0, 1, ({"role": "system", "content": self.shown(session)},), "rendered again")
        view = view_of(Transcript(self.talk.messages), StepHistoryManager(), session=session, folds=[fold], strict=True)
        return list(view.messages)

    @invariant()
    def every_turn_is_there_once(self):
        histories = self.session.query(TaskHistory).all()
        if not histories:
            return
        turns = sorted(
            ((turn, history, step) for history in histories for step in history.steps for turn in step.turns),
            key=lambda found: found[0].turn_id,
        )
        assert [turn.content for turn, _, _ in turns] == self.said
        view, section = self.sent(), self.shown()
        words = "\n".join(str(message["content"]) for message in view[1:])
        for turn, history, step in turns:
            times = words.count(turn.content) + section.count(turn.content)
            if times != 1:
                standing = [
                    one
                    for one in history.step_and_parents(step.step_id)
                    if one.level != "full" and turn.turn_id <= one.summarized_through
                ]
                assert times == 0
                assert standing
                assert standing[-1].level != "summary" or standing[-1].summary in section

    @invariant()
    def every_view_is_valid_and_nothing_was_put_right(self):
        if self.session.query(TaskHistory).latest():
            assert is_valid(self.sent())

    @invariant()
    def the_plan_and_the_active_step_are_in_view(self):
        plan, history = self.session.query(Plan).latest(), self.session.query(TaskHistory).latest()
        if plan is None:
            return
        prompt = self.sent()[0]["content"]
        assert plan.objective in prompt
        assert all(f"{step.step_id}. {step.title}" in prompt for step in plan.steps)
        if history.active_step_id is not None:
            assert f"{history.step(history.active_step_id).step_title} [active]" in prompt

    @invariant()
    def rendering_twice_is_equal_and_changes_nothing(self):
        before = self.session.snapshot()
        assert self.shown() == self.shown()
        assert self.session.snapshot().slices == before.slices

    @invariant()
    def between_two_plannings_the_view_only_grows(self):
        if not self.session.query(TaskHistory).latest():
            return
        now = list(StepHistoryManager().curate(self.talk.messages, session=self.session))
        assert self.before is None or now[: len(self.before)] == self.before
        self.before = now

    @invariant()
    def a_crash_and_a_resume_give_the_same_rendering(self):
        if not self.session.query(TaskHistory).latest():
            return

        data = PlanChanges("talk").data(self.session, len(self.talk.messages))
        again = Session(session_id=self.session.session_id)
        restore_plan(again, json.loads(json.dumps(data)))

        assert again.query(Plan).all() == self.session.query(Plan).all()
        assert again.query(TaskHistory).all() == self.session.query(TaskHistory).all()
        assert self.sent(again) == self.sent()

    def teardown(self):
        """The same through a snapshot, and through JSON."""
        snapshot = self.session.snapshot()
        other = Session(session_id=self.session.session_id)
        other.restore(snapshot)
        assert self.shown(other) == self.shown()
        latest = self.session.query(TaskHistory).latest()
        if latest is not None:
            assert TaskHistory.from_json(snapshot.slice_to_json(TaskHistory)) == latest
            assert TaskHistory.from_json(latest.to_json()) == latest
        self.session.close()


@pytest.mark.parametrize("has_noted_summary", [True, False])
@pytest.mark.parametrize("level", ["summary", "condensed", "title"])
def test_a_child_that_is_summarized_after_its_parent_is_shown(has_noted_summary, level):
    machine = Planning()
    machine.begin()
    machine.set_up(count=3)
    machine.update(pick=0, status="in_progress")
    machine.work(count=1)
    if has_noted_summary:
        machine.note_a_summary(pick=1)
    machine.add(parent=0)
    machine.update(pick=3, status="in_progress")
    machine.work(count=1)
    machine.summarize(pick=1, level="summary", beside=(), keep=0)
    machine.work(count=1)
    machine.summarize(pick=4, level=level, beside=(), keep=0)
    machine.update(pick=3, status="done")

    machine.every_turn_is_there_once()
    machine.every_view_is_valid_and_nothing_was_put_right()
    parent, child = machine.step(1), machine.step(4)
    assert parent.summary in machine.shown()
    assert (child.summary in machine.shown()) == (level == "summary")
    assert "step_id=4" in machine.shown()
    machine.teardown()


def test_any_order_of_talk_and_planning_keeps_every_promise():
    examples = max(5, int(os.environ.get("MINUTEBOOK_EXAMPLES", "40")) // 2)
    as_found = [Phase.reuse, Phase.generate]  # a failing run can be read as it is; to make it shorter takes minutes
    run_machine(Planning, settings=settings(max_examples=examples, stateful_step_count=25, phases=as_found))
