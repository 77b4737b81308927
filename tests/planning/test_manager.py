"""The manager: what it leaves out, what it never does, and what it says about it."""

import pytest

from minutebook import ComposedManager, CurationContext, SlidingWindowManager, Transcript, view_of
from minutebook.history import NoteStatus
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.events import ExpandStep, SetupPlan, SummarizeStep, UpdateStep
from minutebook.planning.plan import PlanStep
from tests.planning.parts import Talk, new_session, prompt_for

MANAGER = StepHistoryManager()


def at_work():
    """Two steps; the first is summarised, in the middle of an exchange that belongs to it."""
    session = new_session()
    prompt_for(session)
    talk = Talk(session)
    talk.say({"role": "system", "content": "the prompt"}, is_prompt=True)
    talk.user("Go.")
    session.dispatch(SetupPlan("Refactor", (PlanStep(1, "Read"), PlanStep(2, "Change"))))
    session.dispatch(UpdateStep(1, "in_progress"))
    talk.work("auth", "tokens")
    talk.work("sessions")
    [call_id] = talk.ask("summarize_step")
    session.dispatch(SummarizeStep(1, "In short."))
    talk.answer(call_id, "Step 1 summarized.", "summarize_step")
    session.dispatch(UpdateStep(2, "in_progress"))
    talk.work("routes")
    return session, talk


def roles(view):
    return "".join(message["role"][0] for message in view)


def test_a_summarised_step_leaves_and_what_was_being_said_leaves_with_the_next_change_of_the_plan():
    session, talk = at_work()

    before = MANAGER.curate(talk.messages, session=session)
    session.dispatch(UpdateStep(2, "done"))
    after = MANAGER.curate(talk.messages, session=session)

    assert roles(talk.messages) == "suattatatat"
    assert roles(before) == "suatat"
    assert roles(after) == "suat"
    assert [message["content"] for message in after][-1] == "routes"


def after_three(keep_tokens, *, words=60):
    """Two exchanges and an answer in a first step that is summarised, in the middle of a fourth thing that is said."""
    session = new_session()
    prompt_for(session)
    talk = Talk(session)
    talk.user("Go.")
    session.dispatch(SetupPlan("Refactor", (PlanStep(1, "Read"), PlanStep(2, "Change"))))
    session.dispatch(UpdateStep(1, "in_progress"))
    talk.work("first " * words, "second " * words)
    talk.work("third " * words)
    talk.assistant("answer")
    [call_id] = talk.ask("summarize_step")
    session.dispatch(UpdateStep(1, "done"))
    session.dispatch(SummarizeStep(1, "In short.", keep_tokens=keep_tokens))
    session.dispatch(UpdateStep(2, "in_progress"))
    talk.answer(call_id, "Step 1 summarized.", "summarize_step")
    return session, talk


@pytest.mark.parametrize(
    ("keep_tokens", "left"),
    [(0, "uat"), (20, "uaat"), (100, "uataat"), (180, "uataat"), (1_000, "uattataat")],
    ids=str,
)
def test_the_end_of_the_conversation_stays_in_whole_exchanges_when_a_step_is_summarised(keep_tokens, left):
    session, talk = after_three(keep_tokens)

    assert roles(talk.messages) == "uattataat"
    assert roles(view_of(talk.messages, MANAGER, session=session, strict=True).messages) == left


def test_what_stayed_leaves_when_the_plan_changes_and_newer_things_were_said():
    session, talk = after_three(100)
    talk.work("routes " * 80)
    talk.assistant("Changed.")
    assert "third" in str(MANAGER.curate(talk.messages, session=session))

    session.dispatch(UpdateStep(2, title="Change it"))

    view = str(MANAGER.curate(talk.messages, session=session))
    assert "third" not in view
    assert "routes" in view


def test_what_stays_is_not_in_the_section_as_well():
    session, talk = after_three(100)
    session.dispatch(SummarizeStep(1, "In short.", "condensed", 100))

    section = prompt_for(session).render(session=session).text

    assert "second" in section
    assert "third" not in section
    assert "third" in str(MANAGER.curate(talk.messages, session=session))


def test_results_that_the_summarys_writer_had_not_seen_stay():
    session, talk = at_work()
    first, second = talk.ask("read_file", "summarize_step")
    session.dispatch(SummarizeStep(2, "Also in short."))
    talk.answer(first, "what nobody had seen")
    talk.answer(second, "Step 2 summarized.", "summarize_step")
    talk.user("And?")
    session.dispatch(UpdateStep(2, "done"))

    view = MANAGER.curate(talk.messages, session=session)

    assert "what nobody had seen" in str(view)
    assert "routes" not in str(view)


def test_the_first_and_the_newest_request_stay_whatever_is_summarised():
    session, talk = at_work()
    talk.user("One more thing.")
    session.dispatch(SummarizeStep(0, "The user asked."))
    session.dispatch(SummarizeStep(2, "Changed."))
    session.dispatch(UpdateStep(2, "done"))

    view = view_of(talk.messages, MANAGER, session=session, strict=True)

    assert [m["content"] for m in view.messages if m["role"] == "user"] == ["Go.", "One more thing."]


def test_without_a_session_or_a_fold_the_view_is_the_conversation():
    session, talk = at_work()
    session.dispatch(ExpandStep(1))

    assert list(MANAGER.curate(talk.messages)) == talk.messages
    assert list(MANAGER.curate(talk.messages, session=new_session())) == talk.messages
    assert list(MANAGER.curate(talk.messages, session=session)) == talk.messages


def test_pins_and_the_last_messages_stay_where_the_caller_wants_them():
    session, talk = at_work()

    pinned = MANAGER.curate(talk.messages, session=session, context=CurationContext(pins=frozenset({3})))
    last = MANAGER.curate(talk.messages, session=session, context=CurationContext(preserve_last_n=6))

    assert "tokens" in str(pinned)
    assert "auth" in str(pinned)
    assert "sessions" not in str(pinned)
    assert "sessions" in str(last)
    assert "auth" not in str(last)


def test_a_conversation_that_the_folds_were_not_made_for_is_left_alone():
    session, talk = at_work()
    other = [{"role": "user", "content": "Hello"}, *talk.messages[1:]]
    shifted = [talk.messages[0], {"role": "user", "content": "before"}, *talk.messages[1:]]

    assert len(MANAGER.curate(other, session=session)) < len(other)
    assert list(MANAGER.curate(shifted, session=session)) == shifted


def test_a_transcript_that_grows_gives_what_the_whole_list_gives():
    session, talk = at_work()
    transcript = Transcript()
    for message in talk.messages:
        transcript.append(message)
        grown = MANAGER.curate(transcript, session=session)

    assert list(grown) == list(MANAGER.curate(talk.messages, session=session))
    assert list(grown) == list(MANAGER.curate(Transcript(talk.messages), session=session))


def test_what_is_not_there_is_explained():
    session, talk = at_work()

    lines = view_of(talk.messages, MANAGER, session=session).explain().lines

    folded = [line for line in lines if line.status is NoteStatus.FOLDED]
    assert [line.index for line in folded] == [2, 3, 4, 5, 6]
    assert {line.reason for line in folded} == {"step 1 is shown in the task history"}


@pytest.mark.parametrize("provider", ["openai", "anthropic", "gemini"])
def test_it_composes_and_every_provider_takes_its_views(provider):
    session, talk = at_work()
    manager = ComposedManager((MANAGER, SlidingWindowManager(2)))

    view = view_of(talk.messages, manager, session=session, provider=provider, strict=True)

    assert roles(view.curated) == "suat"
