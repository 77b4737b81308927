"""Planning and step summaries with a real model of 135 million parameters.

The model writes the texts of the calls (objective, titles, summary), which the tools' schemas constrain. The script selects
the next tool, the number of the step and the maximum length of texts, because the model would choose at random and never
stop.
"""

import asyncio
import json
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest

from minutebook import (
    ConversationEntry,
    HistoryCurated,
    MarkdownSection,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolResult,
    check,
)
from minutebook.errors import SummaryRejected
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan import Plan
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.planning.summaries import auto_summarize_step
from minutebook.planning.task_history import TaskHistory
from minutebook.record import is_valid
from minutebook.record.finding import errors
from minutebook.wire import entry_to_provider_message

TEXT = {"type": "string", "minLength": 3, "maxLength": 60}
FIRST = {"const": 1}
SCRIPT = (
    (
        "planning_setup_plan",
        {"objective": TEXT, "steps": {"type": "array", "minItems": 2, "maxItems": 2, "items": TEXT}},
    ),
    ("planning_update_step", {"step_id": FIRST, "status": {"const": "in_progress"}}),
    ("read_recipe", {"name": {"type": "string", "maxLength": 20}}),
    ("summarize_step", {"step_id": FIRST, "summary": {"type": "string", "minLength": 10, "maxLength": 120}}),
    ("planning_update_step", {"step_id": FIRST, "status": {"const": "done"}}),
)
"""The tools to call in order, each with the properties that replace those of its schema."""


@dataclass(frozen=True)
class Recipe:
    name: str


def read_recipe(params, *, context):  # noqa: ARG001 - the signature of a handler
    return ToolResult.ok(f"{params.name}: " + "flour, water, salt and time; knead, rest, bake at 240 degrees. " * 12)


class ScriptedAdapter(OpenAIAdapter):
    """Offers the model only the next tool of the script, and none after the last, so that it answers with text."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.remaining = list(SCRIPT)

    async def ask(self, request, *, on_delta=None):
        if not self.remaining:
            return await super().ask(replace(request, tools=(), tool_choice=None), on_delta=on_delta)
        name, properties = self.remaining.pop(0)
        tool = deepcopy(next(tool for tool in request.tools if tool["function"]["name"] == name))
        assert set(properties) <= set(tool["function"]["parameters"]["properties"])
        tool["function"]["parameters"] |= {"required": list(properties), "properties": properties}
        return await super().ask(replace(request, tools=(tool,), tool_choice="required"), on_delta=on_delta)


def sections(session):
    tool = Tool[Recipe, None](name="read_recipe", description="Read a recipe.", handler=read_recipe)
    return [
        MarkdownSection(title="Task", key="task", template="You help in a kitchen.", tools=[tool]),
        PlanningToolsSection(session=session),
        TaskHistorySection(session=session, keep_tokens=0),  # the conversation is short, and all of it would be kept
    ]


@pytest.fixture(scope="module")
def run(tool_model):
    """A session in which the model has planned, worked and summarized, its views and the response."""
    session, views = Session(), []
    session.bus.subscribe(HistoryCurated, views.append)
    prompt = Prompt(PromptTemplate[str](ns="integrations", key="kitchen", sections=sections(session)))
    options = {"parallel_tool_calls": False, "max_tokens": 200}
    with ScriptedAdapter(tool_model.model, base_url=tool_model.base_url, api_key="any", options=options) as adapter:
        response = adapter.evaluate_sync(
            prompt, session=session, request="Plan how to bake a bread.", history_manager=StepHistoryManager()
        )
    return session, views, response


def test_the_model_writes_the_texts_of_the_plan(run):
    session, _, _ = run

    plan = session.query(Plan).latest()
    assert plan.objective.strip()
    assert [step.status for step in plan.steps] == ["done", "pending"]
    assert all(step.title.strip() for step in plan.steps)


def test_the_model_summarizes_its_step_and_the_view_shrinks(run):
    session, views, response = run

    step = session.query(TaskHistory).latest().step(1)
    prompt = response.view.messages[0]["content"]
    assert step.level == "summary"
    assert step.summary in prompt
    assert views[4].tokens_after < views[3].tokens_after
    assert "bake at 240 degrees" in str(list(response.conversation))
    assert "bake at 240 degrees" not in str(list(response.view.messages))


def test_the_record_is_complete_and_every_view_was_accepted(run):
    session, views, response = run

    messages = [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]
    names = [call["function"]["name"] for message in messages for call in message.get("tool_calls") or ()]
    assert names == [name for name, _ in SCRIPT]
    assert all(json.loads(call["function"]["arguments"]) for m in messages for call in m.get("tool_calls") or ())
    assert not errors(check([message for message in messages if message["role"] != "system"]))
    assert is_valid(response.view.messages)
    assert len(views) == len(SCRIPT) + 1
    assert response.text


def test_the_summary_of_a_step_by_the_model_is_stored_or_rejected(local, run):
    session, _, _ = run
    before = session.snapshot()

    async def summarize():
        async with OpenAIAdapter(local.model, base_url=local.base_url, api_key="any") as adapter:
            return await auto_summarize_step(session, 1, adapter)

    try:
        summary = asyncio.run(summarize())
    except SummaryRejected:
        assert session.snapshot().slices == before.slices
    else:
        assert session.query(TaskHistory).latest().step(1).summary == summary
        assert len(summary) <= 1_000
