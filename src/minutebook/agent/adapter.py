"""What every provider's adapter has: `evaluate`, and one method of its own that asks the model once."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from typing import ClassVar, Self, TypedDict, TypeVar, Unpack

from minutebook.agent.events import RunEvent
from minutebook.agent.limits import Budget, BudgetTracker, Deadline
from minutebook.agent.messages import ModelReply, ModelRequest, OnDelta, PromptResponse
from minutebook.agent.retry import Throttle
from minutebook.agent.runner import Compactor, ConversationRunner
from minutebook.agent.telemetry import Telemetry
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.prompt.template import Prompt
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.message import Message, Provider
from minutebook.record.transcript import Transcript
from minutebook.store.per_loop import wait_for
from minutebook.tokens import TokenCounter, counter_for

Out = TypeVar("Out")


class EvaluateOptions(TypedDict, total=False):
    """What `evaluate` takes besides the prompt and its session."""

    bus: EventBus | None
    deadline: Deadline | None
    visibility_overrides: Mapping[SectionPath, SectionVisibility] | None
    history_manager: HistoryManager | None
    budget: Budget | None
    budget_tracker: BudgetTracker | None
    request: str | Message | None
    conversation: Transcript | None
    max_tokens: int | None
    compactor: Compactor | None


class ProviderAdapter(ABC):
    """Evaluates prompts with one model of one provider.

    A subclass says how the model is asked once; the loop, the record, views, retries and budgets are here already.
    """

    provider: ClassVar[Provider] = "openai"
    """Whose rules a view must keep."""
    name: ClassVar[str] = "openai"
    """What the record and the spans call the provider."""

    def __init__(
        self,
        model: str,
        *,
        throttle: Throttle | None = None,
        telemetry: Telemetry | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        self.model = model
        self.throttle = throttle or Throttle()
        self.telemetry: Telemetry = telemetry or Telemetry()
        self.counter = counter or counter_for(model)
        """Counts the tokens of conversations that do not bring a counter of their own."""

    @property
    def native_output(self) -> bool:
        """Whether the provider itself can hold an answer to a JSON schema."""
        return False

    @property
    def strict_tools(self) -> bool:
        """Whether tools are described so that the provider can hold calls to their schemas."""
        return False

    @abstractmethod
    async def ask(self, request: ModelRequest, *, on_delta: OnDelta | None = None) -> ModelReply:
        """Ask the model once, with a streamed answer where somebody listens.

        Raises:
            ProviderFailed: there is no answer; `retryable` says whether there may be one later.
            ContextOverflow: the prompt is longer than the model's window.
        """

    async def aclose(self) -> None:  # noqa: B027 - an adapter that holds nothing open has nothing to close
        """Close what the adapter holds open in this event loop."""

    async def evaluate(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> PromptResponse[Out]:
        """Ask the model, run the tools it calls, and go on until it answers; everything said is recorded.

        `request` is what the user says, and the prompt then the system message; without one the prompt itself is what
        is asked. `conversation` is what was said before, and grows. `max_tokens` limits every view, whatever the
        manager does. `compactor` (a `CompactionManager`) folds old parts before every call.

        Raises:
            VisibilityExpansionRequired: the model asks for sections to be opened; evaluate again with its overrides.
            CannotFit: what must be sent is longer than it may be.
            OutputParseError: the answer is not what the prompt asks for.
            DeadlineExceeded, BudgetExceeded, TooManyCalls: it may not go on.
            ProviderFailed: the provider does not answer.
            PromptEvaluationError: a manager or someone who listens to the record failed.
        """
        return await ConversationRunner(adapter=self, prompt=prompt, session=session, **options).run()

    def evaluate_sync(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> PromptResponse[Out]:
        """`evaluate` for code that is not async; any thread may call it."""
        return wait_for(self.evaluate(prompt, session=session, **options))

    def stream(
        self, prompt: Prompt[Out], *, session: SessionProtocol, **options: Unpack[EvaluateOptions]
    ) -> AsyncGenerator[RunEvent, None]:
        """`evaluate` as it happens: what the model says word by word, its calls, and at last `Finished`.

        Close it (`contextlib.aclosing`) when you leave early: the run is then cancelled, and its record settled.
        """
        return ConversationRunner(adapter=self, prompt=prompt, session=session, **options).stream()

    def close(self) -> None:
        """Close what `evaluate_sync` has left open."""
        wait_for(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
