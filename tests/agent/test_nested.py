"""A tool may evaluate another prompt on the session of its run: each evaluation has its own conversation and its own plan."""

import asyncio
import json
import warnings
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minutebook import ConversationEntry, MarkdownSection, Prompt, PromptTemplate, Session, Tool, ToolResult
from minutebook.planning import Plan, PlanningToolsSection, StepHistoryManager, TaskHistory, TaskHistorySection
from minutebook.record import is_valid
from minutebook.session import get_evaluation_history
from minutebook.testing import LoopbackProvider, ScriptedModel, call, say
from minutebook.wire import entry_to_provider_message
from tests.agent.parts import adapter_for


@dataclass(frozen=True)
class Agent:
    """An agent, and the agents that its tool runs."""

    name: str
    has_plan: bool
    is_async: bool
    is_parallel: bool
    uses_context_session: bool
    children: tuple["Agent", ...] = ()

    @property
    def family(self):
        return [self, *(agent for child in self.children for agent in child.family)]


@st.composite
def agents(draw, name="agent", depth=None):
    depth = draw(st.integers(1, 3)) if depth is None else depth
    flags = [draw(st.booleans()) for _ in range(4)]
    count = draw(st.integers(1, 2)) if depth else 0
    children = [draw(agents(f"{name}-{number}", depth - 1)) for number in range(count)]
    return Agent(name, *flags, tuple(children))


@dataclass(frozen=True)
class Text:
    text: str


class Runs:
    """Runs an agent and those that its tools run, on one session."""

    def __init__(self, agent, adapter):
        self.agents = {member.name: member for member in agent.family}
        self.adapter, self.session = adapter, Session()
        self.responses = {}

    def prompt(self, agent):
        def read(params, *, context):
            return ToolResult.ok(f"<{agent.name}:{params.text}>")

        def delegate(params, *, context):
            child = self.agents[params.text]
            session = context.session if agent.uses_context_session else self.session
            return ToolResult.ok(self.run_sync(child, session))

        async def delegate_async(params, *, context):
            child = self.agents[params.text]
            session = context.session if agent.uses_context_session else self.session
            return ToolResult.ok(await self.run(child, session))

        tools = [
            Tool[Text, None](name="read", description="Read a text.", handler=read),
            Tool[Text, None](
                name="delegate",
                description="Run another agent.",
                handler=delegate_async if agent.is_async else delegate,
            ),
        ]
        task = MarkdownSection(title="Task", key="task", template=f"You are [{agent.name}].", tools=tools)
        planning = [PlanningToolsSection(), TaskHistorySection(keep_tokens=0)] if agent.has_plan else []
        return Prompt(PromptTemplate[str](ns="tests", key=agent.name, sections=[task, *planning]))

    def options(self, agent, session):
        manager = StepHistoryManager() if agent.has_plan else None
        return {"session": session, "request": f"Begin, {agent.name}.", "history_manager": manager}

    async def run(self, agent, session):
        response = await self.adapter.evaluate(self.prompt(agent), **self.options(agent, session))
        self.responses[agent.name] = response
        return response.text

    def run_sync(self, agent, session):
        response = self.adapter.evaluate_sync(self.prompt(agent), **self.options(agent, session))
        self.responses[agent.name] = response
        return response.text


def steps_of(agent):
    """The answers of the model for one agent."""
    delegations = [call("delegate", text=child.name) for child in agent.children]
    if agent.is_parallel and delegations:
        delegations = [sum(delegations[1:], delegations[0])]
    work = [call("read", text="first"), *delegations, call("read", text="second")]
    end = [call("read", text="third"), say(f"The answer of {agent.name}.")]
    if not agent.has_plan:
        return [*work, *end]
    plan = call("planning_setup_plan", objective=f"Objective of {agent.name}", steps=["One", "Two"])
    start = call("planning_update_step", step_id=1, status="in_progress")
    finish = (
        call("planning_update_step", step_id=1, status="done")
        + call("summarize_step", step_id=1, summary=f"Summary of {agent.name}.")
        + call("planning_update_step", step_id=2, status="in_progress")
    )
    return [plan, start, *work, finish, *end]


def agent_name(messages):
    return messages[0]["content"].partition("[")[2].partition("]")[0]


def run(agent, *, sync):
    """Run an agent. Returns the runs, and the messages of the requests by agent."""
    scripts = {member.name: iter(steps_of(member)) for member in agent.family}
    model = ScriptedModel(otherwise=lambda request: next(scripts[agent_name(request.messages)]))
    requests = {}
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter, warnings.catch_warnings():
        warnings.simplefilter("error")
        runs = Runs(agent, adapter)
        runs.run_sync(agent, runs.session) if sync else asyncio.run(run_and_close(runs, agent))
        assert provider.problems == []
        for request in provider.requests:
            requests.setdefault(agent_name(request.messages), []).append(request.messages)
    return runs, requests


async def run_and_close(runs, agent):
    await runs.run(agent, runs.session)
    await runs.adapter.aclose()


def assert_scoped(agent, runs, requests):
    for member in agent.family:
        others = [other.name for other in agent.family if other is not member]
        for messages in requests[member.name]:
            text = json.dumps(messages)
            assert is_valid(messages)
            assert all(text.count(f"<{member.name}:{word}>") <= 1 for word in ("first", "second", "third"))
            assert not any(f"<{other}:" in text or f"Summary of {other}." in text for other in others)
        last = json.dumps(requests[member.name][-1])
        is_folded = f"<{member.name}:first>" not in last
        assert is_folded == (f"Summary of {member.name}." in last) == member.has_plan
        assert f"<{member.name}:third>" in last


def assert_record_is_complete(agent, runs):
    for member in agent.family:
        response = runs.responses[member.name]
        entries = get_evaluation_history(runs.session, response.evaluation_id)
        messages = [entry_to_provider_message(entry) for entry in entries]
        prompts = [message for message in messages if message["role"] == "system"]
        assert [entry.sequence for entry in entries] == list(range(len(entries)))
        assert [message for message in messages if message["role"] != "system"] == list(response.conversation)[1:]
        assert len(prompts) == 1 or member.has_plan
    recorded = runs.session.query(ConversationEntry).all()
    assert {entry.evaluation_id for entry in recorded} == {one.evaluation_id for one in runs.responses.values()}


@pytest.mark.fuzz
@given(agents(), st.booleans())
def test_nested_evaluations_have_their_own_conversation_and_plan(agent, sync):
    runs, requests = run(agent, sync=sync)

    assert_scoped(agent, runs, requests)
    assert_record_is_complete(agent, runs)
    plan = runs.session.query(Plan).latest()
    assert (plan and plan.objective) == (f"Objective of {agent.name}" if agent.has_plan else None)


def child(**flags):
    return Agent(
        "agent-0", **{"has_plan": True, "is_async": True, "is_parallel": False, **flags}, uses_context_session=True
    )


def parent(*children, **flags):
    defaults = {"has_plan": True, "is_async": True, "is_parallel": False, "uses_context_session": True}
    return Agent("agent", **{**defaults, **flags}, children=children)


def sync_agents(name="agent", depth=3):
    children = tuple(sync_agents(f"{name}-{number}", depth - 1) for number in range(2 if depth else 0))
    return Agent(
        name,
        has_plan=False,
        is_async=False,
        is_parallel=True,
        uses_context_session=True,
        children=children,
    )


def test_parallel_sync_tools_that_wait_for_each_other_do_not_run_out_of_threads():
    agent = sync_agents()

    runs, _ = run(agent, sync=True)

    assert len(runs.responses) == 15


def test_the_history_of_a_plan_has_the_turns_of_its_own_evaluation_only():
    agent = parent(child())

    runs, _ = run(agent, sync=True)

    history = runs.session.query(TaskHistory).latest()
    turns = [turn for step in history.steps for turn in step.turns]
    assert {turn.evaluation_id for turn in turns} == {runs.responses["agent"].evaluation_id}
    assert len(turns) == len(runs.responses["agent"].conversation) - 1


def test_the_state_of_the_session_is_shared_except_for_the_plan():
    @dataclass(frozen=True)
    class Found:
        text: str

    seen = []

    def note(params, *, context):
        context.session.mutate(Found).append(Found(params.text))
        seen.append((context.session.query(Plan).latest(), context.session.query(Found).all()))
        return ToolResult.ok("Noted.")

    async def delegate(params, *, context):
        response = await adapter.evaluate(inner, session=context.session, request="Note it.")
        return ToolResult.ok(response.text)

    note_tool = Tool[Text, None](name="note", description="Note a text.", handler=note)
    delegate_tool = Tool[Text, None](name="delegate", description="Run an agent.", handler=delegate)
    inner = Prompt(
        PromptTemplate[str](
            ns="tests",
            key="inner",
            sections=[MarkdownSection(title="Task", key="task", template="Note.", tools=[note_tool])],
        )
    )
    outer = Prompt(
        PromptTemplate[str](
            ns="tests",
            key="outer",
            sections=[
                MarkdownSection(title="Task", key="task", template="Delegate.", tools=[delegate_tool, note_tool]),
                PlanningToolsSection(),
            ],
        )
    )
    model = ScriptedModel(
        call("planning_setup_plan", objective="All", steps=["One"]),
        call("note", text="outer"),
        call("delegate", text=""),
        call("note", text="inner"),
        "Noted.",
        "Done.",
    )
    session = Session()
    with LoopbackProvider(model) as provider, adapter_for(provider) as adapter:
        adapter.evaluate_sync(outer, session=session, request="Begin.")

    assert [plan and plan.objective for plan, _ in seen] == ["All", None]
    assert session.query(Found).all() == (Found("outer"), Found("inner"))
    assert seen[1][1] == session.query(Found).all()
