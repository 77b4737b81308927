"""001's usage example from end to end: a model plans, works, sums up a step, looks it up again and finishes."""

import asyncio
import json
from itertools import pairwise

import pytest

from minutebook import (
    ComposedManager,
    ConversationEntry,
    ConversationRunner,
    HistoryCurated,
    TokenBudgetManager,
    VisibilityExpansionRequired,
    check,
    counter_for,
)
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.plan import Plan
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.planning.task_history import TaskHistory
from minutebook.record import is_valid
from minutebook.record.finding import errors
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from minutebook.wire import entry_to_provider_message
from tests.planning.parts import MODEL, adapter_for, new_session, prompt_for, worker


def run(model, *, manager=None, session=None, prompt=None, request="Go.", **options):
    session = session or new_session()
    views = []
    session.bus.subscribe(HistoryCurated, views.append)
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        response = adapter.evaluate_sync(
            prompt or prompt_for(session, model=MODEL),
            session=session,
            bus=session.bus,
            history_manager=manager or StepHistoryManager(),
            request=request,
            **options,
        )
        return response, session, provider, views


def test_the_example_runs_to_its_end_and_its_record_is_complete():
    response, session, provider, _ = run(worker())

    said = [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]
    turns = [turn for step in session.query(TaskHistory).latest().steps for turn in step.turns]
    assert response.text == "The auth module is refactored."
    assert provider.problems == []
    assert not errors(check([message for message in said if message["role"] != "system"]))
    assert len(turns) == sum(message["role"] != "system" for message in said) == len(response.conversation) - 1
    assert [step.status for step in session.query(Plan).latest().steps] == ["done", "done", "pending"]


def test_views_shrink_when_a_step_is_summarised():
    _, _, provider, views = run(worker())

    tokens = [view.tokens_after for view in views]
    shrunk = [place for place, (before, after) in enumerate(pairwise(tokens)) if after < before]
    assert shrunk == [4, 7]  # with the summary; and what was left of that step, with the next change of the plan
    assert tokens[5] < tokens[4] / 2
    assert all(is_valid(request.body["messages"]) for request in provider.requests)


def test_what_the_section_shows_and_what_the_messages_show_never_double():
    _, _, provider, _ = run(worker())

    after = provider.requests[5].body["messages"]
    rest = str(after[1:])
    assert "check_auth is the entry" in after[0]["content"]
    assert "def check_tokens" not in str(after)
    assert "'read_file'" not in rest
    assert "planning_update_step" in rest


def test_the_active_step_is_in_view_word_for_word():
    _, session, provider, _ = run(worker())

    step = session.query(TaskHistory).latest().step(2)
    view = str(provider.requests[-1].body["messages"])
    assert all(turn.content.replace("\n", "\\n") in view for turn in step.turns)


def test_a_result_belongs_to_the_step_in_which_its_call_was_made():
    _, session, _, _ = run(worker())

    names = {
        step.step_id: [turn.tool_name for turn in step.turns if turn.role == "tool"]
        for step in session.query(TaskHistory).latest().steps
    }
    assert names == {
        0: ["planning_setup_plan", "planning_update_step"],
        1: ["read_file"] * 3 + ["planning_update_step", "summarize_step", "planning_update_step"],
        2: ["read_file", "expand_step", "planning_update_step"],
        3: [],
    }


def test_the_documents_own_loop_works_without_a_request_or_a_conversation():
    """Each evaluation begins anew, and what was said before stands in the section."""
    session = new_session()
    prompt = prompt_for(session, expand="view")
    model = ScriptedModel(
        call("planning_setup_plan", objective="Refactor", steps=["Read", "Change"])
        + call("planning_update_step", step_id=1, status="in_progress"),
        call("read_file", path="auth.py"),
        call("planning_update_step", step_id=1, status="done")
        + call("planning_update_step", step_id=2, status="in_progress")
        + call("summarize_step", step_id=1, summary="Read auth.py."),
        say("One step is done."),
        call("expand_step", step_id=1, reason="details"),
        call("planning_update_step", step_id=2, status="done"),
        say("All is done."),
    )
    overrides, evaluations = {}, 0
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        while not (session.query(Plan).latest() and session.query(Plan).latest().is_done):
            evaluations += 1
            try:
                response = adapter.evaluate_sync(
                    prompt,
                    session=session,
                    bus=session.bus,
                    visibility_overrides=overrides,
                    history_manager=StepHistoryManager(),
                )
            except VisibilityExpansionRequired as expansion:
                overrides.update(expansion.requested_overrides)
        second, third = (provider.requests[place].body["messages"][0]["content"] for place in (4, 5))

    assert (response.text, evaluations, provider.problems) == ("All is done.", 3, [])
    assert "Read auth.py." in second
    assert "def check_auth" not in second
    assert "**Assistant**: One step is done." in second
    assert third.count("def check_auth") == 40
    assert "[Summary] " not in session.query(TaskHistory).latest().render()
    assert "Step 2: Change" in session.query(TaskHistory).latest().render()


def test_the_runner_itself_opens_steps_in_the_view_as_often_as_it_may():
    session = new_session()

    async def run_it(provider):
        async with adapter_for(provider) as adapter:
            await ConversationRunner(
                adapter=adapter,
                prompt=prompt_for(session, expand="view"),
                session=session,
                history_manager=StepHistoryManager(),
                request="Go.",
                max_expansions=1,
            ).run()

    with LoopbackProvider(worker()) as provider:
        asyncio.run(run_it(provider))
        before, after = provider.requests[4].body["messages"], provider.requests[7].body["messages"]

    assert after[1 : len(before)] == before[1:]
    assert "Now shown in full: task-history.step-1." in str(after[-1])


def test_pressure_is_the_count_of_the_view_that_is_then_sent():
    plan = [
        call("planning_setup_plan", objective="Read", steps=["Read"]),
        call("planning_update_step", step_id=1, status="in_progress"),
        call("read_file", path="auth.py"),
        call("context_pressure"),
        call("planning_update_step", step_id=1, status="done") + call("summarize_step", step_id=1, summary="Read it."),
        call("context_pressure"),
        say("Done."),
    ]
    _, _, provider, views = run(ScriptedModel(*plan))

    told = [
        int(message["content"].split()[1].rstrip(","))
        for message in provider.requests[-1].body["messages"]
        if message["role"] == "tool" and message["content"].startswith("used_tokens")
    ]
    assert len(told) == 1  # the first was said in the step that has left the messages
    sent = views[6].tokens_after
    tools = told[-1] - sent
    assert told[-1] > 0
    assert abs(tools - _tool_tokens(provider)) < 40  # the result itself has come to the view since


def _tool_tokens(provider):
    return counter_for("gpt-4o").count(json.dumps(provider.requests[-1].body["tools"]))


def test_it_composes_with_a_token_budget():
    manager = ComposedManager((StepHistoryManager(), TokenBudgetManager(1_200)))

    response, _, provider, views = run(worker(), manager=manager)

    assert response.text == "The auth module is refactored."
    assert provider.problems == []
    assert all(view.tokens_after <= 1_200 for view in views)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("none", "Step 1 is done. Steps"),
        ("suggest", "call `summarize_step` with step_id=1"),
        ("extractive", "summarized"),
    ],
)
def test_a_finished_step_is_dealt_with_as_the_owner_wants(how, said):
    session = new_session()
    planning = PlanningToolsSection(session=session, on_step_done=how)
    model = ScriptedModel(
        call("planning_setup_plan", objective="Read", steps=["Read", "Write"]),
        call("planning_update_step", step_id=1, status="in_progress"),
        call("read_file", path="auth.py"),
        call("planning_update_step", step_id=1, status="done"),
        say("Done."),
    )

    _, _, provider, _ = run(model, session=session, prompt=prompt_for(session, planning=planning))

    step = session.query(TaskHistory).latest().step(1)
    assert said in str(provider.requests[-1].body["messages"])
    assert (step.level == "summary") == (how == "extractive")
    if how == "extractive":
        assert "check_auth" in step.summary
        assert len(step.summary) <= 1_000
