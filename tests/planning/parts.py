"""What the tests of planning share: a prompt with both sections, and a model that plans, works, sums up and finishes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from minutebook import (
    ConversationRecorded,
    InProcessEventBus,
    MarkdownSection,
    ModelInfo,
    OpenAIAdapter,
    Prompt,
    PromptTemplate,
    Session,
    Tool,
    ToolContext,
    ToolResult,
)
from minutebook.planning.history_section import TaskHistorySection
from minutebook.planning.plan_section import PlanningToolsSection
from minutebook.testing import ScriptedModel, call, say
from minutebook.wire import provider_message_to_entry

MONDAY = datetime(2025, 1, 6, 9, tzinfo=UTC)
RUN = UUID(int=7)
MODEL = ModelInfo("gpt-4o", max_input_tokens=32_000)


@dataclass(frozen=True)
class TaskParams:
    objective: str


@dataclass(frozen=True)
class ReadFile:
    path: str


def read_file(params, *, context):
    return ToolResult.ok(f"{params.path}\n" + f"def check_{params.path.partition('.')[0]}(token): ...\n" * 40)


READER = Tool[ReadFile, None](name="read_file", description="Read a file.", handler=read_file)


def template(session=None, *, planning=None, **options):
    return PromptTemplate[str](
        ns="agents/worker",
        key="task-executor",
        sections=[
            MarkdownSection[TaskParams](
                title="Task", key="task", template="Complete the following: ${objective}", tools=[READER]
            ),
            planning or PlanningToolsSection(session=session),
            TaskHistorySection(session=session, **{"keep_tokens": 0, **options}),  # their talk is short
        ],
    )


def prompt_for(session=None, **options):
    return Prompt(template(session, **options)).bind(TaskParams(objective="Refactor auth module"))


def new_session():
    return Session(bus=InProcessEventBus(), clock=lambda: MONDAY, session_id=UUID(int=1))


def worker(*more):
    """A model that plans, works, sums up its first step, looks it up again and finishes."""
    return ScriptedModel(
        call("planning_setup_plan", objective="Refactor auth module", steps=["Read the code", "Change it", "Test it"]),
        call("planning_update_step", step_id=1, status="in_progress"),
        call("read_file", path="auth.py") + call("read_file", path="tokens.py"),
        call("read_file", path="sessions.py"),
        call("planning_update_step", step_id=1, status="done")
        + call("summarize_step", step_id=1, summary="Read auth.py, tokens.py and sessions.py; check_auth is the entry.")
        + call("planning_update_step", step_id=2, status="in_progress"),
        call("read_file", path="routes.py"),
        call("expand_step", step_id=1, reason="the signature of check_tokens"),
        call("planning_update_step", step_id=2, status="done"),
        *more,
        say("The auth module is refactored."),
    )


class Talk:
    """A conversation that a session records message by message, as the runner does."""

    def __init__(self, session):
        self.session = session
        self.messages = []
        self.calls = 0

    def say(self, message, *, is_prompt=False):
        entry = provider_message_to_entry(
            message, evaluation_id=RUN, sequence=len(self.messages), created_at=MONDAY, provider="openai", model="m"
        )
        self.messages.append(message)
        event = ConversationRecorded(
            entry, self.session.session_id, entry.created_at, len(self.messages) - 1, is_prompt
        )
        self.session.bus.publish(event).raise_errors()

    def user(self, text):
        self.say({"role": "user", "content": text})

    def assistant(self, text):
        self.say({"role": "assistant", "content": text})

    def ask(self, *names, text=None):
        """An assistant message with calls; returns their ids."""
        ids = []
        for _ in names:
            self.calls += 1
            ids.append(f"call_{self.calls}")
        calls = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for call_id, name in zip(ids, names, strict=True)
        ]
        self.say({"role": "assistant", "content": text, "tool_calls": calls})
        return ids

    def answer(self, call_id, text, name="read_file"):
        self.say({"role": "tool", "tool_call_id": call_id, "name": name, "content": text})

    def work(self, *texts, name="read_file"):
        """An exchange: calls side by side, and their results."""
        for call_id, text in zip(self.ask(*[name] * len(texts)), texts, strict=True):
            self.answer(call_id, text, name)


def context_of(session, prompt=None, **more):
    prompt = prompt or prompt_for(session)
    return ToolContext(prompt, prompt.render(session=session), session, **more)


def adapter_for(provider):
    return OpenAIAdapter("gpt-4o", base_url=provider.base_url, api_key="any")
