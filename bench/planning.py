"""Compares the token budget with plan-aligned history on long planned projects: cost and recall.

Both get the same messages. With aligned history, the tool calls of the recording run on a real session: the plan and the
summaries are in the prompt, which is rendered again when they change, and summarized steps are removed from the messages.
Its tools are counted as an additional message, because only aligned history needs them.
"""

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from bench.policies import COLUMNS, cells_of
from bench.report import Part, Table, Target, progress
from minutebook import (
    ComposedManager,
    ConversationRecorded,
    Fold,
    MarkdownSection,
    Message,
    ModelInfo,
    Prompt,
    PromptTemplate,
    Session,
    TokenBudgetManager,
    ToolContext,
    Transcript,
    view_of,
)
from minutebook.lab import TYPICAL_BILLING, PolicyResult, RecordedSession, Report, SessionOutcome, evaluate
from minutebook.lab.replay import MakeManager
from minutebook.planning.budget import StepBudget, StepHistoryManager
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.testing.simulator.plan_session import planned_project
from minutebook.tokens import ExactCounter
from minutebook.wire import provider_message_to_entry

BUDGET = 32_000


class AlignedHistory:
    """A session that replays a recording, and builds its views. It is a peer of the lab, because it adds its own tools."""

    def __init__(self, budget: int, *, system: Message, fold_immediately: bool) -> None:
        self.session = Session()
        self.budget = None if fold_immediately else StepBudget(ModelInfo("any", max_input_tokens=budget))
        text = str(system["content"]).replace("${", "$${")
        sections = [
            MarkdownSection[None](title="Work", key="work", template=text),
            PlanningToolsSection(session=self.session),
            TaskHistorySection(session=self.session, fold="now" if fold_immediately else "when_full"),
        ]
        self.prompt: Prompt[str] = Prompt(PromptTemplate[str](ns="bench", key="planned", sections=sections))
        self.record = Transcript(broken="mark")
        self.tools: Message = {
            "role": "system",
            "content": json.dumps([tool.spec() for tool in self.prompt.render(session=self.session).tools]),
        }
        room = budget - self.record.counter.message(self.tools)
        self.manager = ComposedManager((StepHistoryManager(), TokenBudgetManager(room)))

    def select(self, messages: Sequence[Message]) -> Sequence[tuple[Message, int | None]]:
        for message in messages[len(self.record) :]:
            self.add(message)
        if self.budget is not None:
            asyncio.run(self.compact(self.budget))
        fold = Fold("prompt", 0, 1, (self.rendered_prompt(),), "rendered again")
        view = view_of(self.record, self.manager, session=self.session, folds=[fold]).curated
        return [(self.tools, None), *zip(view, view.origins, strict=True)]

    def rendered_prompt(self) -> Message:
        return {"role": "system", "content": self.prompt.render(session=self.session).text}

    async def compact(self, budget: StepBudget) -> None:
        count = self.record.counter.message
        overhead = count(self.tools) + count(self.rendered_prompt()) - self.record.tokens_of(0)
        await budget.check_and_apply(self.record, session=self.session, overhead_tokens=overhead)

    def add(self, message: Message) -> None:
        position = self.record.append(message)
        now = datetime.now(UTC)
        entry = provider_message_to_entry(message, evaluation_id=UUID(int=1), sequence=position, created_at=now)
        self.session.dispatch(ConversationRecorded(entry, self.session.session_id, now, position, position == 0))
        asyncio.run(self.run_tools(message))

    async def run_tools(self, message: Message) -> None:
        rendered = self.prompt.render(session=self.session)
        for call in message.get("tool_calls") or ():
            tool = rendered.tool(call["function"]["name"])
            if tool is not None:
                result: Any = tool.call(
                    call["function"]["arguments"], context=ToolContext(self.prompt, rendered, self.session)
                )
                await result


def measure(*, quick: bool) -> Part:
    part = Part()
    seeds = range(1 if quick else 3)
    by_area = [_with_tools(planned_project(seed)) for seed in seeds]
    anywhere = [_with_tools(planned_project(seed, aligned=False)) for seed in seeds]
    _add_table(part, "by area, then release notes", _replay_all(by_area), is_whole=True)
    _add_table(
        part, "by area, without release notes", _replay_all([_without_release_notes(messages) for messages in by_area])
    )
    _add_table(part, "steps cut anywhere", _replay_all(anywhere))
    return part


def _without_release_notes(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages before the release notes. The notes repeat the summaries, so a view with these has everything they need."""
    calls = [json.dumps(message.get("tool_calls")) for message in messages]
    return messages[: next(index for index, call in enumerate(calls) if "CHANGELOG.md" in call)]


def _replay_all(projects: list[list[dict[str, Any]]]) -> Report:
    """All projects have the same system message, apart from the tools that their names are in."""
    progress("planning: replay")
    outcomes: dict[str, list[SessionOutcome]] = {}
    for number, messages in enumerate(projects):
        session = RecordedSession(f"project {number}", messages, ExactCounter())
        aligned = partial(AlignedHistory, system=messages[0])
        policies: dict[str, MakeManager] = {
            "budget": TokenBudgetManager,
            "steps": partial(aligned, fold_immediately=True),
            "steps, when full": partial(aligned, fold_immediately=False),
        }
        for result in evaluate(policies, [session], budget=BUDGET, billing=TYPICAL_BILLING, jobs=1).results:
            outcomes.setdefault(result.name, []).extend(result.outcomes)
    return Report(BUDGET, [PolicyResult(name, results) for name, results in outcomes.items()])


def _with_tools(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages with the names of all tools in the system message, so that every policy keeps them in view."""
    tools: dict[str, set[str]] = {}
    for call in (call["function"] for message in messages for call in message.get("tool_calls") or ()):
        arguments = json.loads(call["arguments"])
        tools.setdefault(call["name"], set()).update(arguments)
        for edit in arguments.get("edits", ()):
            tools[call["name"]].update(edit)
    tool_list = "; ".join(f"{name}({', '.join(sorted(names))})" for name, names in sorted(tools.items()))
    return [{**messages[0], "content": f"{messages[0]['content']}\n\nTools: {tool_list}"}, *messages[1:]]


def _add_table(part: Part, title: str, report: Report, *, is_whole: bool = False) -> None:
    notes = [
        "budget: TokenBudgetManager. steps: StepHistoryManager, then the same budget; a summarized step is folded immediately,",
        "or when the window is full (StepBudget). lost: with steps, the system message contains the current plan.",
        "The number of messages kept with the summaries was tuned on other seeds (100 to 105) than these (0 to 2).",
    ]
    if is_whole:
        notes.append(
            "The notes use the words of the summaries, which favors steps. The next table leaves the notes out."
        )
    rows = [cells_of(result) for result in report.results]
    table = Table(f"Planned projects of 12 steps and 600 messages, {title}: {BUDGET:,} tokens", COLUMNS, rows, notes)
    part.tables.append(table)
    part.figures[title] = report.to_json()
    steps, budget = report.result("steps"), report.result("budget")
    bad = sum(result.total(name) for result in report.results[1:] for name in ("invalid", "over", "refused"))
    part.targets.append(Target(f"{title}: no view is invalid or over the budget", f"{bad}", not bad))
    relative = steps.total("cost") / budget.total("cost")
    part.targets.append(Target(f"{title}: steps cost no more", f"{relative:.2f} of it", relative <= 1))
    recall, other = steps.measure("names"), budget.measure("names")
    part.targets.append(
        Target(f"{title}: steps keep at least as much", f"{recall:.1%} and {other:.1%}", recall >= other)
    )
