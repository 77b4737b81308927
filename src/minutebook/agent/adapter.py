"""The base class of provider adapters: a subclass sends one request, `evaluate` runs the whole agent loop."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import ClassVar, Self, TypedDict, TypeVar, Unpack

from minutebook.agent.events import RunEvent
from minutebook.agent.limits import Budget, BudgetTracker, Deadline
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, PromptResponse
from minutebook.agent.retry import RetryPolicy
from minutebook.agent.runner import Compactor, ConversationRunner, StoredConversation
from minutebook.agent.telemetry import Telemetry
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.prompt.template import Prompt
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.message import Message, Provider
from minutebook.record.transcript import Transcript
from minutebook.store.loop_thread import run_sync
from minutebook.tokens import TokenCounter, counter_for

Out = TypeVar("Out")


class EvaluateOptions(TypedDict, total=False):
    """Optional arguments of `evaluate`; see `ConversationRunner` for their meaning."""

    bus: EventBus | None
    deadline: Deadline | None
    visibility_overrides: Mapping[SectionPath, SectionVisibility] | None
    history_manager: HistoryManager | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    request: str | Message | None
    conversation: Transcript | Sequence[Message] | StoredConversation | None
    resume: bool
    max_tokens: int | None
    strict: bool
    compactor: Compactor | None
    max_calls: int


class ProviderAdapter(ABC):
    """Evaluates prompts with one model of one provider.

    A subclass implements `ask`, one request to the model. The loop, the record, views, retries and budgets are shared.
    """

    provider: ClassVar[Provider] = "openai"
    """The provider whose message rules a view must satisfy."""
    name: ClassVar[str] = "openai"
    """The provider's name in the record and in spans."""

    def __init__(
        self,
        model: str,
        *,
        retry_policy: RetryPolicy | None = None,
        telemetry: Telemetry | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.model = model
        self.retry_policy = retry_policy or RetryPolicy()
        self.telemetry: Telemetry = telemetry or Telemetry()
        self.counter = counter or counter_for(model)
        """Counts the tokens of a `conversation` given as a list. Without a `conversation`, it is used if the history manager has
        no counter."""

    @property
    def native_output(self) -> bool:
        """Whether the provider can enforce a JSON schema for the answer."""
        return False

    @property
    def strict_tools(self) -> bool:
        """Whether tool schemas are sent in strict mode, in which the provider enforces them."""
        return False

    @abstractmethod
    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        """Send one request to the model. With `on_delta` the answer is streamed to it.

        Raises:
            ProviderFailed: the request failed; `retryable` says whether a retry can help.
            ContextOverflow: the prompt exceeds the model's context window.
        """

    async def aclose(self) -> None:  # noqa: B027 - optional: an adapter may have no connections
        """Close the connections that the adapter opened in this event loop."""

    async def evaluate(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> PromptResponse[Out]:
        """Call the model and the tools it requests until it gives a final answer, and record every message.

        With `request` (the user message) the prompt is the system message; without it the prompt is the user message.
        New messages are appended to `conversation`; a `Conversation` also stores them during the run. `max_tokens` limits
        every view, even if the manager has no limit. `compactor` (a `CompactionManager`) may fold old messages before
        every call.

        Raises:
            VisibilityExpansionRequired: the model asks for sections that are shown as a summary; evaluate again
                with the error's `requested_overrides`.
            CannotFit: the messages that must be sent exceed the token limit.
            GuaranteeViolated: `strict` is set, and the manager's view violates a guarantee.
            OutputParseError: the answer does not match the prompt's output type.
            DeadlineExceeded, BudgetExceeded, TooManyCalls: a limit was reached.
            ProviderFailed: the provider failed, and retries did not help.
            PromptEvaluationError: a manager or a handler of recorded messages failed.
        """
        return await ConversationRunner(adapter=self, prompt=prompt, session=session, **options).run()

    def evaluate_sync(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> PromptResponse[Out]:
        """Run `evaluate` from synchronous code, in any thread."""
        return run_sync(self.evaluate(prompt, session=session, **options))

    def stream(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> AsyncGenerator[RunEvent, None]:
        """Run `evaluate` and yield its events: text deltas, tool calls, and `RunFinished` last.

        To stop early, close the generator (`contextlib.aclosing`): the run is cancelled, and open tool calls get a
        result that says that they were interrupted.
        """
        return ConversationRunner(adapter=self, prompt=prompt, session=session, **options).stream()

    def close(self) -> None:
        """Close the connections that `evaluate_sync` opened."""
        run_sync(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
