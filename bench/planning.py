"""A long planned project under the token budget and under step alignment: what each costs, and what each still holds.

Both see the same messages. With step alignment the calls of the recording are carried out on a real session: the plan and
the summaries stand in the prompt, which is rendered again when they change, and summarised steps leave the messages. Its
tools are counted as a message of their own, for only it needs them.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bench.policies import COLUMNS, _row, ours
from bench.replay import Policy, Recording, Tally, plain, replay
from bench.report import Part, Table, Target, progress
from minutebook import (
    ComposedManager,
    ConversationRecorded,
    Fold,
    MarkdownSection,
    Message,
    ModelInfo,
    PassthroughManager,
    Prompt,
    PromptTemplate,
    Session,
    TokenBudgetManager,
    ToolContext,
    Transcript,
    view_of,
)
from minutebook.planning.budget import StepBudget, StepHistoryManager
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.testing.simulator.plan_session import planned_project
from minutebook.wire import provider_message_to_entry

BUDGET = 32_000


class Aligned:
    """A session that follows a recording, and its views."""

    def __init__(self, budget: int, system: Message, *, at_once: bool) -> None:
        self.session = Session()
        self.budget = None if at_once else StepBudget(ModelInfo("any", max_input_tokens=budget))
        text = str(system["content"]).replace("${", "$${")
        sections = [
            MarkdownSection[None](title="Work", key="work", template=text),
            PlanningToolsSection(session=self.session),
            TaskHistorySection(session=self.session, fold="now" if at_once else "when_full"),
        ]
        self.prompt: Prompt[str] = Prompt(PromptTemplate[str](ns="bench", key="planned", sections=sections))
        self.record = Transcript(broken="mark")
        self.tools: Message = {
            "role": "system",
            "content": json.dumps([tool.spec() for tool in self.prompt.render(session=self.session).tools]),
        }
        room = budget - self.record.counter.message(self.tools)
        self.manager = ComposedManager((StepHistoryManager(), TokenBudgetManager(room)))

    def view(self, messages: Sequence[Message]) -> list[Message]:
        for message in messages[len(self.record) :]:
            self.take(message)
        if self.budget is not None:
            asyncio.run(self.compact(self.budget))
        shown = self.shown()
        fold = Fold("prompt", 0, 1, (shown,), "rendered again")
        return [self.tools, *view_of(self.record, self.manager, session=self.session, folds=[fold]).messages]

    def shown(self) -> Message:
        return {"role": "system", "content": self.prompt.render(session=self.session).text}

    async def compact(self, budget: StepBudget) -> None:
        count = self.record.counter.message
        overhead = count(self.tools) + count(self.shown()) - self.record.tokens_of(0)
        await budget.check_and_apply(self.record, session=self.session, overhead_tokens=overhead)

    def take(self, message: Message) -> None:
        position = self.record.append(message)
        now = datetime.now(UTC)
        entry = provider_message_to_entry(message, evaluation_id=UUID(int=1), sequence=position, created_at=now)
        self.session.dispatch(ConversationRecorded(entry, self.session.session_id, now, position, position == 0))
        asyncio.run(self.carry_out(message))

    async def carry_out(self, message: Message) -> None:
        rendered = self.prompt.render(session=self.session)
        for call in message.get("tool_calls") or ():
            tool = rendered.tool(call["function"]["name"])
            if tool is not None:
                done: Any = tool.call(
                    call["function"]["arguments"], context=ToolContext(self.prompt, rendered, self.session)
                )
                await done


def aligned(*, at_once: bool) -> Policy:
    def policy(messages: list[Message], budget: int, state: dict[str, Any]) -> Sequence[Message]:
        if not state:
            state["aligned"] = Aligned(budget, messages[0], at_once=at_once)
        view: list[Message] = state["aligned"].view(messages)
        return view

    return policy


def measure(*, quick: bool) -> Part:
    part = Part()
    seeds = range(1 if quick else 3)
    by_area = [_with_tools(planned_project(seed)) for seed in seeds]
    anywhere = [_with_tools(planned_project(seed, aligned=False)) for seed in seeds]
    _tell(part, "by area, then release notes", _tallies(by_area), is_whole=True)
    _tell(part, "by area, without the notes", _tallies([_before_the_notes(messages) for messages in by_area]))
    _tell(part, "cut anywhere", _tallies(anywhere))
    return part


def _before_the_notes(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The work alone. The notes say again what the summaries say, so whoever shows these has all of them in view."""
    calls = [json.dumps(message.get("tool_calls")) for message in messages]
    return messages[: next(place for place, said in enumerate(calls) if "CHANGELOG.md" in said)]


def _tallies(projects: list[list[dict[str, Any]]]) -> dict[str, Tally]:
    recorded = [Recording(f"project {at}", [plain(m) for m in messages]) for at, messages in enumerate(projects)]
    policies = {
        "full": ours(lambda _: PassthroughManager()),
        "budget": ours(TokenBudgetManager),
        "steps": aligned(at_once=True),
        "steps, when full": aligned(at_once=False),
    }
    tallies = {}
    for name, policy in policies.items():
        progress(f"planning: {name}")
        tallies[name] = replay(recorded, policy, BUDGET)
    return tallies


def _with_tools(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with the tools that every call offers named in the system message, so that nobody can lose those."""
    tools: dict[str, set[str]] = {}
    for call in (call["function"] for message in messages for call in message.get("tool_calls") or ()):
        arguments = json.loads(call["arguments"])
        tools.setdefault(call["name"], set()).update(arguments)
        for edit in arguments.get("edits", ()):
            tools[call["name"]].update(edit)
    listed = "; ".join(f"{name}({', '.join(sorted(names))})" for name, names in sorted(tools.items()))
    return [{**messages[0], "content": f"{messages[0]['content']}\n\nTools: {listed}"}, *messages[1:]]


def _tell(part: Part, title: str, tallies: dict[str, Tally], *, is_whole: bool = False) -> None:
    whole = tallies["full"].cost
    notes = [
        "budget: TokenBudgetManager. steps: StepHistoryManager, the same budget behind it; a summarised step leaves at once,",
        "or when the window is full (StepBudget). system: steps show the prompt as it is now, with the plan in it.",
        "How much stays beside the summaries was chosen on projects of other seeds (100 to 105) than these (0 to 2).",
    ]
    rows: list[Sequence[str]] = [_row(name, tally, whole) for name, tally in tallies.items()]
    if is_whole:
        notes.append(
            "The notes are in the words of the summaries: what steps keep more, they keep there. See the next table."
        )
    table = Table(f"Planned projects of 12 steps and 600 messages, {title}: {BUDGET:,} tokens", COLUMNS, rows, notes)
    part.tables.append(table)
    part.figures[title] = {name: vars(tally) for name, tally in tallies.items()}
    steps, budget = tallies["steps"], tallies["budget"]
    bad = sum(tally.invalid + tally.over + tally.refused for name, tally in tallies.items() if name != "full")
    part.targets.append(Target(f"{title}: no view is invalid or over the budget", f"{bad}", not bad))
    part.targets.append(
        Target(f"{title}: steps cost no more", f"{steps.cost / budget.cost:.2f} of it", steps.cost <= budget.cost)
    )
    recall = f"{steps.share('held'):.1%} beside {budget.share('held'):.1%}"
    kept = steps.share("held") >= budget.share("held")
    part.targets.append(Target(f"{title}: steps keep at least as much", recall, kept))
