"""The settings of one evaluation of a prompt, and its entry points `run` and `stream`."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable
from uuid import UUID, uuid4

from minutebook.agent.events import Emit, RunEvent, RunFinished, stream_events
from minutebook.agent.limits import Budget, BudgetTracker, Deadline, now
from minutebook.agent.loop import AgentRun
from minutebook.agent.messages import PromptResponse, ToolsAndSchema, Usage
from minutebook.compaction.manager import CompactionResult
from minutebook.errors import InvalidSetting, MissingSetting, require_type
from minutebook.history.compose import managers_of
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.history.view import View
from minutebook.planning.setup import evaluation_session
from minutebook.prompt.template import Prompt
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.wire.read import read

if TYPE_CHECKING:
    from minutebook.agent.adapter import ProviderAdapter

Out = TypeVar("Out")


class Compactor(Protocol):
    """Decides before every model call whether old messages are folded; see `CompactionManager`."""

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol, overhead_tokens: int
    ) -> CompactionResult:
        """Fold old messages if needed, and return all folds.

        `overhead_tokens` are the tokens of a request that are not in the record, such as those of the tools.
        """
        ...


class StoredRecord(Compactor, Protocol):
    """The record of a stored conversation during one run. It stores the messages and requests of the run."""

    @property
    def record(self) -> Transcript:
        """All messages. The run appends its messages here before it saves them."""
        ...

    @property
    def start(self) -> int:
        """The index of the first message that is not cleared. It is the length of the record if all are."""
        ...

    @property
    def manager(self) -> HistoryManager: ...

    @property
    def max_tokens(self) -> int | None:
        """Token limit of every view; None for no limit."""
        ...

    async def save(self, entries: Sequence[ConversationEntry], *, session: SessionProtocol) -> None:
        """Store entries that were appended to `record`: complete exchanges, all or none."""
        ...

    async def begin_request(self, view: View) -> int:
        """Store which messages are about to be sent, and return the number of the request."""
        ...

    async def begin_tools(self, message: Message) -> None:
        """Store the message whose tool calls are about to run, until it is saved with their results."""
        ...

    async def find_interrupted_message(self) -> Message | None:
        """The message whose tool calls an earlier run has started, if that run ended before it saved their results."""
        ...

    def end_request(self, usage: Usage, finish: str) -> None:
        """Set the outcome of the newest request. It is stored together with the answer."""
        ...


@runtime_checkable
class StoredConversation(Protocol):
    """A conversation in a store; see `minutebook.Conversation`."""

    def open_run(
        self, adapter: "ProviderAdapter", *, session: SessionProtocol, tools: Sequence[Mapping[str, Any]]
    ) -> AbstractAsyncContextManager[StoredRecord]:
        """Hold the conversation's lease for this block, which is one run, and restore its plan in the session."""
        ...


@dataclass(slots=True, kw_only=True)
class ConversationRunner(Generic[Out]):
    """Evaluates one prompt. Every run has its own evaluation id."""

    adapter: "ProviderAdapter"
    prompt: Prompt[Out]
    session: SessionProtocol
    bus: EventBus | None = None
    """Default: the session's bus."""
    history_manager: HistoryManager | None = None
    """Selects the messages of every request; None sends the whole conversation."""
    request: str | Message | None = None
    """The user message. Without it the prompt is the user message."""
    conversation: Transcript | Sequence[Message] | StoredConversation | None = None
    """The conversation to continue. New messages are appended to it; a stored one also stores them during the run. A list
    is copied first."""
    resume: bool = False
    """Continue the conversation without a new user message. If it ends with an answer, that is returned."""
    is_prompt_recorded: bool = True
    """Whether the prompt becomes the first message of a conversation without messages. If not, it is only sent."""
    visibility_overrides: Mapping[SectionPath, SectionVisibility] | None = None
    deadline: Deadline | None = None
    budget: Budget | None = None
    budget_tracker: BudgetTracker | None = None
    max_tokens: int | None = None
    """Token limit of every view, even if the manager has no limit."""
    strict: bool = False
    """Raise `GuaranteeViolated` if the manager's view violates a guarantee. Otherwise the view is repaired, which is logged
    and published in `HistoryCurated`."""
    compactor: Compactor | None = None
    max_calls: int = 200
    """Maximum number of model calls in a run."""
    tool_choice: str | Mapping[str, Any] = "auto"
    """The `tool_choice` of the first model call. Later calls use "auto"."""
    max_expansions: int = 0
    """How many times the model may open sections in a run. After that `VisibilityExpansionRequired` is raised."""
    max_output_attempts: int = 1
    """Maximum number of final answers that do not match the output type. The last one raises `OutputParseError`."""
    clock: Callable[[], datetime] = now
    new_id: Callable[[], UUID] = uuid4

    def __post_init__(self) -> None:
        _require_types(self)
        if isinstance(self.conversation, Sequence) and not isinstance(self.conversation, Transcript):
            self.conversation = Transcript(read(self.conversation), counter=self.adapter.counter)
        for name in ("max_calls", "max_output_attempts"):
            if getattr(self, name) < 1:
                raise InvalidSetting(name, getattr(self, name), "1 or more")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "1 or more, or None for no limit")
        self._check_conversation()
        session_bus: EventBus | None = getattr(self.session, "bus", None)
        self.bus = session_bus if self.bus is None else self.bus
        if self.bus is None:
            raise MissingSetting("bus", "pass bus=, or a session that has a bus: the messages are recorded through it")
        if session_bus is not None and self.bus is not session_bus:
            expected = "the session's bus, which is the default; a session receives events from its own bus only"
            raise InvalidSetting("bus", self.bus, expected)
        self.budget_tracker = self.budget_tracker or BudgetTracker(self.budget or Budget())
        if self.budget is not None and self.budget != self.budget_tracker.budget:
            raise InvalidSetting(
                "budget", self.budget, "the same budget as budget_tracker.budget; pass only one of the two"
            )

    def _check_conversation(self) -> None:
        conversation = self.conversation
        if self.resume and (conversation is None or self.request is not None):
            raise InvalidSetting("resume", self.resume, "False; to resume a run, pass conversation= and no request=")
        if not isinstance(conversation, StoredConversation):
            return
        for name in ("history_manager", "max_tokens"):
            if (value := getattr(self, name)) is not None:
                raise InvalidSetting(name, value, "None: a stored conversation has its own; set it there")

    async def run(self, emit: Emit = lambda _: None, *, streaming: bool = False) -> PromptResponse[Out]:
        """Evaluate the prompt. `emit` is called with every event; `streaming` adds the deltas of answers."""
        if self.deadline is not None:
            self.deadline.check(f"prompt {self.prompt.name!r}")
        evaluation_id, session_id = self.new_id(), str(getattr(self.session, "session_id", ""))
        with evaluation_session(self.session, evaluation_id) as session:
            async with self._open_record(session) as record:
                run = AgentRun(
                    self, emit, evaluation_id=evaluation_id, session=session, streaming=streaming, record=record
                )
                with self.adapter.telemetry.evaluation(self.prompt.name, session_id, self.adapter.name):
                    response = await run.run()
        emit(RunFinished(response))
        return response

    def _open_record(self, session: SessionProtocol) -> AbstractAsyncContextManager[Transcript | StoredRecord | None]:
        if not isinstance(self.conversation, StoredConversation):
            assert self.conversation is None or isinstance(self.conversation, Transcript)  # a list was converted
            return nullcontext(self.conversation)
        rendered = self.prompt.render(
            session=session,
            visibility_overrides=self.visibility_overrides,
            native_output=self.adapter.native_output,
        )
        tools = ToolsAndSchema(rendered, strict_tools=self.adapter.strict_tools).tools
        return self.conversation.open_run(self.adapter, session=session, tools=tools)

    def stream(self) -> AsyncGenerator[RunEvent, None]:
        """Evaluate the prompt, and yield its events. Closing the generator cancels the run."""
        return stream_events(partial(self.run, streaming=True))


def _require_types(runner: ConversationRunner[Any]) -> None:
    """Raise `InvalidSetting` for an argument of the wrong type, with an example of the right one."""
    expected = "a Prompt; put text into a template: Prompt(PromptTemplate(...)), or pass it as request="
    require_type("prompt", runner.prompt, Prompt, expected)
    if not callable(getattr(runner.adapter, "ask", None)):
        raise InvalidSetting("adapter", runner.adapter, "an adapter, such as OpenAIAdapter('gpt-4o')")
    if runner.history_manager is not None:
        managers_of([runner.history_manager])
    require_type("request", runner.request, (str, Mapping, NoneType), "text or a message")
    require_type(
        "conversation",
        runner.conversation,
        (Sequence, StoredConversation, NoneType),
        "a Transcript, a Conversation or a list of messages",
    )
    require_type("max_tokens", runner.max_tokens, (int, NoneType), "a number of tokens, or None for no limit")
    require_type("deadline", runner.deadline, (Deadline, NoneType), "a Deadline, such as Deadline.after(60)")
    require_type("budget", runner.budget, (Budget, NoneType), "a Budget")
    if runner.compactor is not None and not hasattr(runner.compactor, "check_and_apply"):
        raise InvalidSetting("compactor", runner.compactor, "a CompactionManager")
