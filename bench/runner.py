"""What the agent loop adds to each call of the model, however long the conversation is already."""

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from bench.report import Part, Table, Target, progress, time_of, times
from bench.session import coding_session
from minutebook import (
    ConversationRunner,
    HistoryManager,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    Session,
    SlidingWindowManager,
    TokenBudgetManager,
    Tool,
    ToolContext,
    ToolResult,
    Transcript,
    view_of,
)
from minutebook.agent import ModelReply, ModelRequest, ProviderAdapter

if TYPE_CHECKING:
    from minutebook.agent.messages import OnDelta

LENGTHS = (100, 1_000, 10_000)
CALLS = 60


@dataclass(frozen=True)
class Path:
    path: str


async def _read(params: Path, /, *, context: ToolContext) -> ToolResult[None]:  # noqa: ARG001 - a handler's shape
    return ToolResult.ok(f"def {params.path}(): ...\n" * 20)


class Instant(ProviderAdapter):
    """A model that takes no time: it reads a file, again and again, and then is done."""

    def __init__(self) -> None:
        super().__init__("gpt-4o")
        self._left = CALLS

    async def ask(self, request: ModelRequest, *, on_delta: "OnDelta | None" = None) -> ModelReply:  # noqa: ARG002 - its shape
        self._left -= 1
        if not self._left:
            return ModelReply({"role": "assistant", "content": "Done."})
        function = {"name": "read", "arguments": f'{{"path": "part_{self._left}"}}'}
        call = {"id": f"call_{self._left}", "type": "function", "function": function}
        return ModelReply({"role": "assistant", "content": None, "tool_calls": [call]})


def measure(*, quick: bool) -> Part:
    managers: dict[str, HistoryManager] = {
        "SlidingWindowManager(40)": SlidingWindowManager(40),
        "TokenBudgetManager(32_000)": TokenBudgetManager(32_000),
    }
    rounds = 1 if quick else 3
    part = Part()
    table = Table(
        f"The agent loop: time per call of the model beside the model itself, best of {rounds} runs of {CALLS} calls",
        ["manager", *(f"{length:,} messages" for length in LENGTHS), "longest / shortest"],
    )
    for name, manager in managers.items():
        taken = {}
        for length in LENGTHS:
            progress(f"runner: {name}, {length:,} messages")
            taken[length] = min(_per_call(length, manager) for _ in range(rounds))
        growth = taken[LENGTHS[-1]] / taken[LENGTHS[0]]
        table.rows.append([name, *(time_of(seconds) for seconds in taken.values()), times(growth)])
        part.targets.append(
            Target(f"{name}: below 3 ms a call at 1,000 messages", time_of(taken[1_000]), taken[1_000] < 0.003)
        )
        part.targets.append(
            Target(
                f"{name}: at 10,000 messages at most 1.5 times a call at 1,000",
                times(taken[10_000] / taken[1_000]),
                taken[10_000] <= 1.5 * taken[1_000],
            )
        )
        part.figures[name] = {str(length): seconds for length, seconds in taken.items()}
    table.notes.append("It renders, curates, guards, runs a tool, counts and records: all but the model's own time.")
    part.tables.append(table)
    return part


def _per_call(length: int, manager: HistoryManager) -> float:
    runner = prepared_runner(length, manager)
    began = perf_counter()
    asyncio.run(runner.run())
    return (perf_counter() - began) / CALLS


def prepared_runner(length: int, manager: HistoryManager) -> ConversationRunner[str]:
    """A runner that will call the model 60 times in a conversation that is already so long."""
    tool = Tool[Path, None](name="read", description="Read a file.", handler=_read)
    section: MarkdownSection[None] = MarkdownSection(title="Task", key="task", template="Read.", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="bench", key="bench", sections=[section]))
    messages = [{"role": "system", "content": prompt.render().text}, *coding_session(length)[1:]]
    conversation = Transcript(messages, counter=Instant().counter, broken="mark")
    runner = ConversationRunner(
        adapter=Instant(),
        prompt=prompt,
        session=Session(),
        request="Go on.",
        conversation=conversation,
        history_manager=manager,
    )
    asyncio.run(ConversationRunner(adapter=Instant(), prompt=prompt, session=Session()).run())  # load what loads once
    view_of(conversation, manager)  # the earlier calls of so long a conversation have been made
    return runner
