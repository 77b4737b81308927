"""One answer of a stored conversation: the lease, the limits, the attempts, and what is measured of them.

`conversation.ModelCall` is the way from the record to the model and back. What goes to the client is each endpoint
family's own: chat completions, responses and threads each have a subclass.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from minutebook.agent.providers.openai import Answer
from minutebook.agent.retry import retry_overflow
from minutebook.conversation.minutes import CallSettings, SentRequest
from minutebook.conversation.model_call import DocumentsAt, ModelCall, no_documents
from minutebook.errors import ContextOverflow, MinutebookError
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.errors import Failure, failure_of
from minutebook.service.http.responses import new_id
from minutebook.service.idempotency import Claim
from minutebook.service.runs import Hold, Run, held
from minutebook.service.state import Service, counter_of, info_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, NewDocument
from minutebook.wire.chat import dumped

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class AnswerRun:
    """Makes one answer, whoever still listens."""

    surface: ClassVar[str]
    """What the minutes call the endpoint family."""
    service: Service
    caller: Caller
    claim: Claim
    run: Run
    """What is told of the answer."""
    authorization: str | None = None
    """The caller's own key for the provider, where it may bring one."""
    policy: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    """What the client is told about its history."""
    _started: float = field(default_factory=time.monotonic)

    @property
    def store(self) -> ConversationStore:
        return self.service.store_of(self.caller)

    async def make(self) -> None:
        """Make the answer.

        Raises:
            Exception: why there is none, where nothing was told yet. Later it is told as an event.
        """
        try:
            await self._make()
        except asyncio.CancelledError:
            if self.run.events:
                self._tell_failure(failure_of(self.run.interruption))
            self.run.end(None if self.run.events else self.run.interruption)  # nobody who listens is cancelled with it
            raise
        except Exception as error:
            if not self.run.events:
                raise
            self._tell_failure(failure_of(error))

    async def _make(self) -> None:
        raise NotImplementedError

    def _tell_failure(self, failure: Failure) -> None:
        """Tell a failure after the first event, where `_make` does not do that itself."""

    @asynccontextmanager
    async def lease(self, conversation: str) -> AsyncIterator[Hold]:
        """Hold a conversation's lease for this block.

        Raises:
            ConversationBusy: somebody else has it.
            LeaseLost: somebody else has it by now.
        """
        waited = time.monotonic()
        async with held(self.store, conversation, self.run.id, seconds=self.service.lease_seconds) as hold:
            self.service.metrics.lock_waited(time.monotonic() - waited)
            yield hold

    def settings(
        self,
        conversation: str,
        model: str,
        *,
        lease: Lease | None = None,
        overhead_tokens: int = 0,
        instructions: Sequence[Message] | None = None,
        **facts: Any,
    ) -> CallSettings:
        """The settings of a model call; `facts` are for its minutes."""
        return CallSettings(
            conversation=conversation,
            model=model,
            policy=self.service.policy(model, self.policy),
            counter=counter_of(model),
            run_id=self.run.id,
            request_id=new_id("req"),
            lease=lease,
            overhead_tokens=overhead_tokens,
            instructions=instructions,
            retention=self.service.config.conversation.effective_retention,
            facts={"surface": self.surface, **facts},
        )

    async def begin(
        self, call: ModelCall, documents: Sequence[NewDocument] = (), *, recipient: str | None = None
    ) -> None:
        """Store what is new and make the view."""
        with self.service.telemetry.prepare(call.call.conversation) as span:
            await call.begin(documents=documents, recipient=recipient)
            self.headers |= history_headers(call.request)
            span.pruned(self.service.report(call.request))

    async def ask(
        self,
        call: ModelCall,
        answer: Answer,
        attempt: Callable[[], Awaitable[T]],
        *,
        max_answer_tokens: int,
        may_shorten: bool = True,
    ) -> T:
        """Ask within the caller's limits, with shorter views while the provider finds them too long.

        Raises:
            ContextOverflow: there is no view that is short enough.
        """

        def shorten(overflow: ContextOverflow) -> None:
            if not may_shorten:
                raise overflow
            call.narrow(overflow)
            if "x-history-request" in self.headers:
                self.headers |= history_headers(call.request)
            self.service.report(call.request)

        model, conversation = call.call.model, call.call.conversation
        async with self.service.limiter.spending(
            self.caller, call.minutes.tokens_after + max_answer_tokens
        ) as spending:
            with self.service.telemetry.chat(model, conversation) as span:
                made = await retry_overflow(attempt, shorten)
                span.answered(answer.usage, finish=answer.finish, model=answer.head.get("model"))
            spending.tokens = answer.usage.input_tokens + answer.usage.output_tokens
        self.service.metrics.usage(model, answer.usage)
        return made

    async def finish(
        self,
        call: ModelCall,
        answer: Sequence[ConversationEntry],
        outcome: Mapping[str, Any] | None = None,
        documents: DocumentsAt = no_documents,
        *,
        hold: Hold | None = None,
    ) -> None:
        """Store the answer. With `hold` its lease is given back in the same step, where nothing is to be trimmed."""
        started = time.monotonic()
        release = hold is not None and not call.trims
        async with hold.given_back() if hold is not None and release else nullcontext():
            await call.finish(answer, outcome, documents, release=release)
        self.service.metrics.appended(time.monotonic() - started)

    def note_first_token(self) -> None:
        """Measure how long the client waited for the first words."""
        self.service.metrics.first_token(time.monotonic() - self._started)


def history_headers(request: SentRequest) -> dict[str, str]:
    """What a client is told about its history."""
    headers = {
        "x-history": "recorded" if request.call.policy.mode != "off" else "recorded, not pruned",
        "x-history-request": request.call.request_id,
        "x-history-tokens": f"{request.minutes.tokens_before}, {request.minutes.tokens_after}",
    }
    return headers if request.bypass is None else {**headers, "x-history-bypass": request.bypass}


def longest_answer(model: str, options: Mapping[str, Any]) -> int:
    """The most tokens that an answer may have: what the request says, or what the model can."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        if isinstance(options.get(name), int):
            return max(0, int(options[name]))
    info = info_of(model)
    return info.max_output_tokens if info.is_known else 0


def tool_tokens(model: str, tools: Any) -> int:
    """What a request sends besides messages."""
    return counter_of(model).count(dumped(tools).decode()) if tools else 0


def failure_code(error: BaseException) -> str:
    """How the minutes name an error."""
    code = failure_of(error).code if isinstance(error, MinutebookError) else None
    return code or type(error).__name__
