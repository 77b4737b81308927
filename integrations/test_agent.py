"""The agent loop with a real model: prompt, views, tools, record."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest

from minutebook import (
    AnthropicAdapter,
    ConversationEntry,
    ConversationRunner,
    MarkdownSection,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    SlidingWindowManager,
    TokenBudgetManager,
    Tool,
    ToolResult,
    check,
)
from minutebook.agent import RunFinished, TextDelta, ViewBuilt
from minutebook.testing import LocalModel
from minutebook.wire import entry_to_provider_message

ADAPTERS = {
    "openai": lambda model, **options: OpenAIAdapter(model.model, base_url=model.base_url, api_key="any", **options),
    "anthropic": lambda model, **options: AnthropicAdapter(
        model.model, base_url=model.anthropic_url, api_key="any", max_output_tokens=48, **options
    ),
}
SHORT = {"options": {"max_tokens": 32}}


@dataclass(frozen=True)
class Colour:
    name: str = field(metadata={"max_length": 20})


@dataclass(frozen=True)
class Numbers:
    a: int
    b: int


def prompt_of(text, *, output=str, tools=()):
    section = MarkdownSection(title="Task", key="task", template=text, tools=tools)
    return Prompt(PromptTemplate[output](ns="integrations", key="task", sections=[section]))


def recorded(session):
    return [entry_to_provider_message(entry) for entry in session.query(ConversationEntry).all()]


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_a_chat_of_many_turns_stays_within_its_window_and_is_recorded_completely(local, kind):
    session, conversation, sent = Session(), None, []

    with ADAPTERS[kind](local) as adapter:
        for turn in range(5):
            response = adapter.evaluate_sync(
                prompt_of("You answer in one short sentence."),
                session=session,
                request=f"Name a fruit, number {turn}.",
                conversation=conversation,
                history_manager=SlidingWindowManager(2),
            )
            conversation = response.conversation
            sent.append(len(response.view.messages))
            assert response.text
            assert response.usage.input_tokens > 0

    assert max(sent) <= 4
    assert [message["role"] for message in recorded(session)] == ["system", *["user", "assistant"] * 5]


@pytest.mark.parametrize("kind", sorted(ADAPTERS))
def test_a_streamed_answer_is_the_one_that_is_recorded(local, kind):
    session = Session()

    async def stream():
        async with ADAPTERS[kind](local) as adapter:
            return [event async for event in adapter.stream(prompt_of("Name three colours."), session=session)]

    events = asyncio.run(stream())

    words = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], RunFinished)
    assert words == events[-1].response.text == recorded(session)[-1]["content"]


def test_a_structured_answer_matches_its_schema(local):
    with ADAPTERS["openai"](local, options={"max_tokens": 64}) as adapter:
        response = adapter.evaluate_sync(prompt_of("Name a colour.", output=Colour), session=Session())

    assert isinstance(response.output, Colour)


def test_a_tool_is_called_run_and_answered(tool_model):
    added = []

    def add(params, *, context):  # noqa: ARG001 - the signature of a handler
        added.append(params)
        return ToolResult.ok(f"The sum is {params.a + params.b}.")

    tool = Tool[Numbers, None](name="add", description="Adds two numbers", handler=add)

    class CallOnceAdapter(OpenAIAdapter):
        """Removes the tools from the second request: this small model answers only if it has none."""

        async def ask(self, request, *, on_delta=None):
            if request.messages[-1]["role"] == "tool":
                request = replace(request, tools=(), tool_choice=None)
            return await super().ask(request, on_delta=on_delta)

    session = Session()
    options = {"parallel_tool_calls": False, "max_tokens": 60}
    with CallOnceAdapter(tool_model.model, base_url=tool_model.base_url, api_key="any", options=options) as adapter:

        async def run():
            runner = ConversationRunner(
                adapter=adapter,
                prompt=prompt_of("Use the tools.", tools=[tool]),
                session=session,
                request="Add 2 and 3.",
                tool_choice="required",
            )
            try:
                return await runner.run()
            finally:
                await adapter.aclose()

        response = asyncio.run(run())

    assert [message["role"] for message in recorded(session)] == ["system", "user", "assistant", "tool", "assistant"]
    assert len(added) == 1
    assert response.calls == 2
    assert not check(recorded(session))


def test_an_overflow_is_retried_with_a_shorter_view():
    session, conversation = Session(), None
    views = []

    async def chat():
        nonlocal conversation
        async with ADAPTERS["openai"](small, **SHORT) as adapter:
            for turn in range(3):
                async for event in adapter.stream(
                    prompt_of("You read."),
                    session=session,
                    request=f"Part {turn}: " + "the ship sailed on. " * 40,
                    conversation=conversation,
                ):
                    if isinstance(event, ViewBuilt):
                        views.append(event.view)
                conversation = event.response.conversation

    with LocalModel(max_context_tokens=512) as small:
        asyncio.run(chat())

    assert len(views) > 3  # one was rejected and replaced by a shorter view
    assert len(recorded(session)) == 7


def test_a_conversation_is_summarized(local):
    conversation = "\n".join(f"{who}: We sail at {hour}." for hour, who in enumerate(["Ann", "Ben"] * 4, start=5))
    with ADAPTERS["openai"](local, **SHORT) as adapter:
        response = adapter.evaluate_sync(
            prompt_of(f"Summarize this conversation in one sentence:\n\n{conversation}"), session=Session()
        )

    assert response.text.strip()


def test_cached_tokens_of_a_real_server_are_counted(local):
    with ADAPTERS["openai"](local, **SHORT) as adapter:
        prompt = prompt_of("You know the ship's log: " + "All is well on deck. " * 60)
        first = adapter.evaluate_sync(prompt, session=Session(), request="What is the time?")
        second = adapter.evaluate_sync(prompt, session=Session(), request="What is the date?")

    assert second.usage.cached_tokens > first.usage.input_tokens // 2


def test_a_budget_counted_with_another_tokenizer_limits_the_view(local):
    session, conversation = Session(), None
    manager = TokenBudgetManager(300)
    with ADAPTERS["openai"](local, **SHORT) as adapter:
        for turn in range(4):
            response = adapter.evaluate_sync(
                prompt_of("You read."),
                session=session,
                request=f"Part {turn}: " + "the ship sailed on. " * 20,
                conversation=conversation,
                history_manager=manager,
            )
            conversation = response.conversation

    assert response.view.tokens <= 300
    assert len(recorded(session)) == 9
