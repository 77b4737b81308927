"""One evaluation of a prompt: what it is told before it starts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from uuid import UUID, uuid4

from minutebook.agent.events import Emit, Finished, RunEvent
from minutebook.agent.limits import Budget, BudgetTracker, Deadline, now
from minutebook.agent.loop import Run
from minutebook.agent.messages import PromptResponse
from minutebook.compaction.manager import CompactionResult
from minutebook.errors import InvalidSetting
from minutebook.history.protocol import EventBus, HistoryManager, SessionProtocol
from minutebook.prompt.template import Prompt
from minutebook.prompt.visibility import SectionPath, SectionVisibility
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript

if TYPE_CHECKING:
    from minutebook.agent.adapter import ProviderAdapter

Out = TypeVar("Out")


class Compactor(Protocol):
    """Who decides, before every call, that old parts of a conversation are shown as something shorter."""

    async def check_and_apply(
        self, record: Transcript, *, session: SessionProtocol, overhead_tokens: int
    ) -> CompactionResult:
        """What stands folded now. `overhead_tokens` is what a call sends besides messages: the tools."""
        ...


@dataclass(slots=True, kw_only=True)
class ConversationRunner(Generic[Out]):
    """One evaluation of a prompt, ready to run; each run has an evaluation id of its own."""

    adapter: "ProviderAdapter"
    prompt: Prompt[Out]
    session: SessionProtocol
    bus: EventBus | None = None
    """The session's own, where it has one."""
    history_manager: HistoryManager | None = None
    """Curates the conversation before every call; None sends all of it."""
    request: str | Message | None = None
    """What the user says; without it the prompt is what is asked."""
    conversation: Transcript | None = None
    """What was said before; it grows."""
    visibility_overrides: Mapping[SectionPath, SectionVisibility] | None = None
    deadline: Deadline | None = None
    budget: Budget | None = None
    budget_tracker: BudgetTracker | None = None
    max_tokens: int | None = None
    """The most tokens a view may have, whatever the manager does."""
    compactor: Compactor | None = None
    max_calls: int = 200
    """How often the model may be called before an answer."""
    tool_choice: str | Mapping[str, Any] = "auto"
    """What the first call is told about its tools; the later ones are free to answer."""
    max_expansions: int = 0
    """How often the model may open sections without the caller; beyond that, `VisibilityExpansionRequired` is raised."""
    max_output_attempts: int = 1
    """How often an answer that is not what the prompt asks for is sent back, less one."""
    clock: Callable[[], datetime] = now
    new_id: Callable[[], UUID] = uuid4

    def __post_init__(self) -> None:
        for name in ("max_calls", "max_output_attempts"):
            if getattr(self, name) < 1:
                raise InvalidSetting(name, getattr(self, name), "1 or more")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidSetting("max_tokens", self.max_tokens, "a number above 0, or None for no limit")
        own: EventBus | None = getattr(self.session, "bus", None)
        self.bus = own if self.bus is None else self.bus
        if self.bus is None:
            raise InvalidSetting("bus", None, "one, or a session that has one: what is said must be recorded somewhere")
        if own is not None and self.bus is not own:
            expected = "the session's own, or leave it out: a session hears nothing from another"
            raise InvalidSetting("bus", self.bus, expected)
        self.budget_tracker = self.budget_tracker or BudgetTracker(self.budget or Budget())
        if self.budget is not None and self.budget != self.budget_tracker.budget:
            raise InvalidSetting("budget", self.budget, "the tracker's own, or leave one of the two out")

    async def run(self, emit: Emit = lambda _: None, *, streaming: bool = False) -> PromptResponse[Out]:
        """Evaluate the prompt; `emit` hears what happens, with `streaming` word by word."""
        if self.deadline is not None:
            self.deadline.check(f"prompt {self.prompt.name!r}")
        run = Run(self, emit, streaming=streaming)
        session_id = str(getattr(self.session, "session_id", ""))
        with self.adapter.telemetry.evaluation(self.prompt.name, session_id, self.adapter.name):
            response = await run.to_the_end()
        emit(Finished(response))
        return response

    async def stream(self) -> AsyncGenerator[RunEvent, None]:
        """Evaluate the prompt, and yield what happens as it happens."""
        events: asyncio.Queue[RunEvent | None] = asyncio.Queue()
        task = asyncio.create_task(self.run(events.put_nowait, streaming=True))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await task
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
