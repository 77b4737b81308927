"""How far a real model of 135 million parameters keeps a plan and sums up its steps.

It writes what stands in the calls: the objective, the titles, the summary, held to the tools' own schemas. What it cannot
do is scripted here: which tool comes next, the number of the step, and how long a text may be, for it would choose at
random and find no end.
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
"""Which tool comes next, and how its schema is narrowed."""


@dataclass(frozen=True)
class Recipe:
    name: str


def read_recipe(params, *, context):  # noqa: ARG001 - a handler's shape
    return ToolResult.ok(f"{params.name}: " + "flour, water, salt and time; knead, rest, bake at 240 degrees. " * 12)


class Driven(OpenAIAdapter):
    """The model, told by the script which tool to call, and asked for words when the script is at its end."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.left = list(SCRIPT)

    async def ask(self, request, *, on_delta=None):
        if not self.left:
            return await super().ask(replace(request, tools=(), tool_choice=None), on_delta=on_delta)
        name, narrowed = self.left.pop(0)
        tool = deepcopy(next(tool for tool in request.tools if tool["function"]["name"] == name))
        assert set(narrowed) <= set(tool["function"]["parameters"]["properties"])
        tool["function"]["parameters"] |= {"required": list(narrowed), "properties": narrowed}
        return await super().ask(replace(request, tools=(tool,), tool_choice="required"), on_delta=on_delta)


def sections(session):
    tool = Tool[Recipe, None](name="read_recipe", description="Read a recipe.", handler=read_recipe)
    return [
        MarkdownSection(title="Task", key="task", template="You help in a kitchen.", tools=[tool]),
        PlanningToolsSection(session=session),
        TaskHistorySection(session=session, keep_tokens=0),  # the talk is short, and all of it would stay
    ]


@pytest.fixture(scope="module")
def worked(calling):
    """A session in which the model has planned, worked and summed up, and what it was sent."""
    session, views = Session(), []
    session.bus.subscribe(HistoryCurated, views.append)
    prompt = Prompt(PromptTemplate[str](ns="integrations", key="kitchen", sections=sections(session)))
    options = {"parallel_tool_calls": False, "max_tokens": 200}
    with Driven(calling.model, base_url=calling.base_url, api_key="any", options=options) as adapter:
        response = adapter.evaluate_sync(
            prompt, session=session, request="Plan how to bake a bread.", history_manager=StepHistoryManager()
        )
    return session, views, response


def test_the_model_makes_a_plan_in_its_own_words(worked):
    session, _, _ = worked

    plan = session.query(Plan).latest()
    assert plan.objective.strip()
    assert [step.status for step in plan.steps] == ["done", "pending"]
    assert all(step.title.strip() for step in plan.steps)


def test_the_model_sums_up_its_step_and_the_view_shrinks(worked):
    session, views, response = worked

    step = session.query(TaskHistory).latest().step(1)
    prompt = response.view.messages[0]["content"]
    assert step.level == "summary"
    assert step.summary in prompt
    assert views[4].tokens_after < views[3].tokens_after
    assert "bake at 240 degrees" in str(list(response.conversation))
    assert "bake at 240 degrees" not in str(list(response.view.messages))


def test_the_record_is_complete_and_every_view_was_taken(worked):
    session, views, response = worked

    said = [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]
    names = [call["function"]["name"] for message in said for call in message.get("tool_calls") or ()]
    assert names == [name for name, _ in SCRIPT]
    assert all(json.loads(call["function"]["arguments"]) for m in said for call in m.get("tool_calls") or ())
    assert not errors(check([message for message in said if message["role"] != "system"]))
    assert is_valid(response.view.messages)
    assert len(views) == len(SCRIPT) + 1
    assert response.text


def test_asked_for_the_minutes_of_a_step_the_model_writes_some_or_is_refused(local, worked):
    session, _, _ = worked
    before = session.snapshot()

    async def summed_up():
        async with OpenAIAdapter(local.model, base_url=local.base_url, api_key="any") as adapter:
            return await auto_summarize_step(session, 1, adapter)

    try:
        summary = asyncio.run(summed_up())
    except SummaryRejected:
        assert session.snapshot().slices == before.slices
    else:
        assert session.query(TaskHistory).latest().step(1).summary == summary
        assert len(summary) <= 1_000
