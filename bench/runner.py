"""The overhead of the agent loop per model call, in short and long conversations."""

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
class ReadParams:
    path: str


async def _read(params: ReadParams, /, *, context: ToolContext) -> ToolResult[None]:  # noqa: ARG001 - the signature of a handler
    return ToolResult.ok(f"def {params.path}(): ...\n" * 20)


class InstantAdapter(ProviderAdapter):
    """A model that takes no time: it calls a tool `CALLS - 1` times, then answers."""

    def __init__(self) -> None:
        super().__init__("gpt-4o")
        self._remaining = CALLS

    async def ask(self, request: ModelRequest, *, on_delta: "OnDelta | None" = None) -> ModelReply:  # noqa: ARG002 - the signature of the base class
        self._remaining -= 1
        if not self._remaining:
            return ModelReply({"role": "assistant", "content": "Done."})
        function = {"name": "read", "arguments": f'{{"path": "part_{self._remaining}"}}'}
        call = {"id": f"call_{self._remaining}", "type": "function", "function": function}
        return ModelReply({"role": "assistant", "content": None, "tool_calls": [call]})


def measure(*, quick: bool) -> Part:
    managers: dict[str, HistoryManager] = {
        "SlidingWindowManager(40)": SlidingWindowManager(40),
        "TokenBudgetManager(32_000)": TokenBudgetManager(32_000),
    }
    rounds = 1 if quick else 3
    part = Part()
    table = Table(
        f"Agent loop: overhead per model call, minimum of {rounds} runs of {CALLS} calls",
        ["manager", *(f"{length:,} messages" for length in LENGTHS), "longest / shortest"],
    )
    for name, manager in managers.items():
        seconds_of = {}
        for length in LENGTHS:
            progress(f"runner: {name}, {length:,} messages")
            seconds_of[length] = min(_time_call(length, manager) for _ in range(rounds))
        growth = seconds_of[LENGTHS[-1]] / seconds_of[LENGTHS[0]]
        table.rows.append([name, *(time_of(seconds) for seconds in seconds_of.values()), times(growth)])
        part.targets.append(
            Target(
                f"{name}: less than 3 ms per call at 1,000 messages",
                time_of(seconds_of[1_000]),
                seconds_of[1_000] < 0.003,
            )
        )
        part.targets.append(
            Target(
                f"{name}: a call at 10,000 messages takes at most 1.5 times one at 1,000",
                times(seconds_of[10_000] / seconds_of[1_000]),
                seconds_of[10_000] <= 1.5 * seconds_of[1_000],
            )
        )
        part.figures[name] = {str(length): seconds for length, seconds in seconds_of.items()}
    table.notes.append("Includes rendering, curating, the guard, the tool, counting and recording.")
    part.tables.append(table)
    return part


def _time_call(length: int, manager: HistoryManager) -> float:
    runner = prepared_runner(length, manager)
    started = perf_counter()
    asyncio.run(runner.run())
    return (perf_counter() - started) / CALLS


def prepared_runner(length: int, manager: HistoryManager) -> ConversationRunner[str]:
    """A runner that calls the model 60 times in a conversation of this length."""
    tool = Tool[ReadParams, None](name="read", description="Read a file.", handler=_read)
    section: MarkdownSection[None] = MarkdownSection(title="Task", key="task", template="Read.", tools=[tool])
    prompt = Prompt(PromptTemplate[str](ns="bench", key="bench", sections=[section]))
    messages = [{"role": "system", "content": prompt.render().text}, *coding_session(length)[1:]]
    conversation = Transcript(messages, counter=InstantAdapter().counter, broken="mark")
    runner = ConversationRunner(
        adapter=InstantAdapter(),
        prompt=prompt,
        session=Session(),
        request="Continue.",
        conversation=conversation,
        history_manager=manager,
    )
    asyncio.run(
        ConversationRunner(adapter=InstantAdapter(), prompt=prompt, session=Session()).run()
    )  # loads what is loaded on first use
    view_of(conversation, manager)  # as the earlier calls of the conversation would have done
    return runner
