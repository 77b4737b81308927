"""A user's program: type checkers accept managers, strategies, tools and clients as the documents write them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anthropic import Anthropic
from openai import OpenAI

from minutebook import (
    ComposedManager,
    Conversation,
    ConversationRunner,
    Fold,
    HistoryCurated,
    HistoryManager,
    HistoryStrategy,
    InProcessEventBus,
    MarkdownSection,
    Message,
    ObservableManager,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    TokenBudgetManager,
    Tool,
    ToolContext,
    ToolResult,
    Transcript,
    View,
    check,
    view_of,
)
from minutebook.compaction import CompactionInput, Summarizer
from minutebook.history import SessionProtocol


class DocumentManager:
    """A manager with the signature of the source document."""

    def curate(self, messages: Sequence[dict[str, Any]], *, session: SessionProtocol) -> list[dict[str, Any]]:
        return [{**message, "content": message["content"] or ""} for message in messages[-10:]]


class MessageManager:
    """A manager that uses the library's type."""

    def curate(self, messages: Sequence[Message], *, session: SessionProtocol) -> list[Message]:
        newest = [message for message in messages if message["role"] != "tool"]
        return newest if session.session_id is None else list(messages)


MANAGERS: list[HistoryManager] = [DocumentManager(), MessageManager(), TokenBudgetManager(8_000)]


@dataclass(frozen=True)
class OldTurns(HistoryStrategy):
    keep: int = 2

    def should_trigger(self, history: CompactionInput) -> bool:
        return history.turns > 2 * self.keep

    async def apply(self, history: CompactionInput, summarizer: Summarizer) -> list[Fold]:
        starts = history.record.turn_starts
        return [Fold.over(range(starts[0], starts[-self.keep]), shown="[old turns]", reason="old turns")]


@dataclass(frozen=True)
class ReadFile:
    path: str


def read_file(params: ReadFile, *, context: ToolContext) -> ToolResult[str]:
    return ToolResult.ok(f"{params.path}: 40 lines")


def views(messages: list[dict[str, Any]]) -> list[View]:
    problems = [str(finding) for finding in check(messages, provider="anthropic")]
    record = Transcript(messages)
    composed = ComposedManager((DocumentManager(), MessageManager()))
    bus = InProcessEventBus()
    seen: list[str] = [*problems]
    bus.subscribe(HistoryCurated, lambda event: seen.extend(map(str, event.violations)))
    observed = ObservableManager(DocumentManager(), bus, "support")
    return [view_of(messages, manager) for manager in (*MANAGERS, composed, observed)] + [view_of(record, MANAGERS)]


def chat_with_openai(client: OpenAI, question: str) -> str | None:
    with Conversation("order-17", model="gpt-4o", manager=DocumentManager(), strategy=OldTurns()) as chat:
        chat.append(question)
        view = chat.view()
        reply = client.chat.completions.create(model="gpt-4o", messages=view.messages)
        chat.append(reply)
        return reply.choices[0].message.content


def chat_with_anthropic(client: Anthropic, question: str) -> list[str]:
    chat = Conversation("order-18", model="claude-sonnet-4-5", manager=[MessageManager(), TokenBudgetManager(8_000)])
    chat.append({"role": "user", "content": question})
    reply = client.messages.create(
        model="claude-sonnet-4-5", max_tokens=1024, **chat.view(provider="anthropic").anthropic()
    )
    chat.append(reply)
    return [block.text for block in reply.content if block.type == "text"]


async def run_agent(request: str) -> str:
    reader = Tool[ReadFile, str](name="read_file", description="Read a file.", handler=read_file)
    sections = [MarkdownSection[None](title="Task", key="task", template="You review code.", tools=[reader])]
    prompt = Prompt(PromptTemplate[str](ns="docs", key="review", sections=sections))
    runner = ConversationRunner(
        adapter=OpenAIAdapter("gpt-4o"),
        prompt=prompt,
        session=Session(),
        history_manager=DocumentManager(),
        request=request,
    )
    response = await runner.run()
    return f"{response.output}: {response.view.tokens} tokens"
