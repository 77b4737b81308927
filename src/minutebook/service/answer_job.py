"""Answering one request: the conversation's lease, the caller's limits, retries with shorter views, and metrics.

`conversation.ModelCall` does the work between the record and the model. What the client gets depends on the API: chat
completions, responses and threads each have a subclass of `AnswerJob`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.agent.retry import retry_overflow
from minutebook.conversation.minutes import CallSettings, SentRequest
from minutebook.conversation.model_call import AnswerDocuments, ModelCall, no_documents
from minutebook.conversation.record_cache import CachedRecord, are_large, compute, update_record
from minutebook.errors import (
    BrokenConversation,
    ContextOverflow,
    ConversationBusy,
    InvalidMessage,
    MinutebookError,
    ProviderFailed,
)
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.access.limits import Reservation
from minutebook.service.http.errors import Failure, failure_of
from minutebook.service.http.json_codec import INLINE_BYTES, json_bytes
from minutebook.service.http.responses import new_id
from minutebook.service.idempotency import IdempotencyKey
from minutebook.service.runs import RenewedLease, Run, hold_lease
from minutebook.service.state import Service, counter_of
from minutebook.service.upstream import PROVIDER
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, Lease, NewDocument

T = TypeVar("T")
_LEASE_POLL_SECONDS: Final = 0.05


@dataclass(slots=True, kw_only=True)
class AnswerJob:
    """Answers one request. The events go to a `Run`, so the work continues if the client disconnects."""

    api_name: ClassVar[str]
    """Name of the API in the minutes."""
    service: Service
    caller: Caller
    idempotency_key: IdempotencyKey
    run: Run
    """Receives the events of the answer."""
    authorization: str | None = None
    """The caller's own `Authorization` header for the provider, if callers may send one."""
    policy: str | None = None
    """Name of the requested policy; None for the configured one."""
    headers: dict[str, str] = field(default_factory=dict)
    """Response headers. They are complete when the first event is sent."""
    _started: float = field(default_factory=time.monotonic)
    _records: list[CachedRecord] = field(default_factory=list)
    """The records that this request uses. They go back to the cache when it ends."""

    @property
    def store(self) -> ConversationStore:
        return self.service.store_of(self.caller)

    async def execute(self) -> None:
        """Answer the request.

        Raises:
            Exception: the request failed before the first event. A later failure is sent as an event.
        """
        try:
            await self._execute()
        except asyncio.CancelledError:
            has_stream = bool(self.run.events) or self.run.is_open
            if has_stream:
                self._send_failure(failure_of(self.run.interruption_error))
            # Readers must not get the CancelledError: it would cancel them too.
            self.run.end(None if has_stream else self.run.interruption_error)
            raise
        except Exception as error:
            if not self.run.events and not self.run.is_open:
                raise
            self._send_failure(failure_of(error))
        finally:
            for record in self._records:
                self.service.records.put(record)

    async def _execute(self) -> None:
        raise NotImplementedError

    def _send_failure(self, failure: Failure) -> None:
        """Send a failure after the first event. Does nothing by default, for jobs whose `_execute` sends its own failures."""

    @asynccontextmanager
    async def lease(
        self,
        conversation: str,
        *,
        wait: bool = True,
        load: bool = False,
        folded: bool = False,
        since: int | None = None,
    ) -> AsyncIterator[RenewedLease]:
        """Hold a conversation's lease for this block. With `wait`, wait up to `wait_seconds` for another holder to release it.

        `load`, `folded` and `since` are those of `hold_lease`.

        Raises:
            ConversationBusy: another holder has the lease.
            LeaseLost: the lease expired and another holder took it.
        """
        started = time.monotonic()
        wait_seconds = self.service.config.server.wait_seconds if wait else 0.0
        async with AsyncExitStack() as leases:
            lease: RenewedLease | None = None
            while lease is None:
                attempt = hold_lease(
                    self.store,
                    conversation,
                    self.run.id,
                    seconds=self.service.lease_seconds,
                    load=load,
                    folded=folded,
                    since=since,
                )
                try:
                    lease = await leases.enter_async_context(attempt)
                except ConversationBusy:
                    if time.monotonic() - started >= wait_seconds:
                        raise
                    self.run.is_waiting = True
                    await asyncio.sleep(_LEASE_POLL_SECONDS)
            self.run.is_waiting = False
            self.service.metrics.observe_lock_wait(time.monotonic() - started)
            yield lease

    async def lease_record(
        self, leases: AsyncExitStack, conversation: str, *, wait: bool = True
    ) -> tuple[RenewedLease, CachedRecord | None]:
        """Hold a conversation's lease until `leases` is closed, and load its record; None if it does not exist.

        Raises:
            ConversationBusy: another holder has the lease.
        """
        cached = self.service.records.take(self.caller.tenant, conversation)
        since = None if cached is None else len(cached.messages)
        lease = await leases.enter_async_context(
            self.lease(conversation, wait=wait, load=True, folded=cached is not None, since=since)
        )
        if lease.loaded is None:
            return lease, None
        record = await update_record(self.store, cached, lease.loaded)
        self._records.append(record)
        return lease, record

    async def load_record(self, conversation: str) -> CachedRecord | None:
        """The record of a conversation, read without a lease; None if it does not exist."""
        record = await self.service.records.load(self.store, conversation)
        if record is not None:
            self._records.append(record)
        return record

    def settings(
        self,
        conversation: str,
        model: str,
        *,
        lease: Lease | None = None,
        overhead_tokens: int = 0,
        instructions: Sequence[Message] | None = None,
        **minutes_fields: Any,
    ) -> CallSettings:
        """The settings of a model call. `minutes_fields` are added to its minutes."""
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
            minutes_fields={"surface": self.api_name, **minutes_fields},
        )

    async def new_call(
        self,
        settings: CallSettings,
        record: CachedRecord | None,
        new_messages: Sequence[Message],
        copies: Mapping[int, Message] | None = None,
    ) -> ModelCall:
        """Create a model call. The tokens of many or long messages are counted in a thread.

        `copies` has, by position, the client's own copy of messages that it has resent.
        """
        settings = with_number(settings, None if record is None else record.header)
        create_call = partial(_call_with_token_counts, self.store, settings, record, new_messages, copies)
        stored = () if record is None else record.unindexed(settings.counter)
        uncounted = [*stored, *new_messages, *(settings.instructions or ())]
        return await compute(create_call, is_large=are_large(uncounted))

    async def begin(
        self, call: ModelCall, documents: Sequence[NewDocument] = (), *, recipient: str | None = None
    ) -> None:
        """Store the new messages and build the view."""
        with self.service.telemetry.prepare(call.settings.conversation) as span:
            await call.begin(documents=documents, recipient=recipient)
            for event in call.compactions:
                self.service.report_compaction(call.settings.conversation, event)
            self.headers |= history_headers(call.request)
            span.set_pruning(self.service.report(call.request))

    async def call_model(
        self,
        call: ModelCall,
        completion: CompletionAccumulator,
        attempt: Callable[[], Awaitable[T]],
        *,
        max_output_tokens: int,
        may_shorten: bool = True,
    ) -> T:
        """Run `attempt` within the caller's limits, again with a shorter view after each context overflow.

        Raises:
            ContextOverflow: the shortest view is still too long for the provider, or the view may not be shortened.
        """

        async def shorten(overflow: ContextOverflow) -> None:
            if not may_shorten:
                raise overflow
            await compute(call.shorten_view, overflow, is_large=call.is_large)
            if "x-history-request" in self.headers:
                self.headers |= history_headers(call.request)
            self.service.report(call.request)

        model, conversation = call.settings.model, call.settings.conversation
        async with self.spend_tokens(model, completion, lambda: call.minutes.tokens_after, max_output_tokens):
            with self.service.telemetry.chat(model, conversation) as span:
                result = await retry_overflow(attempt, shorten)
                span.set_answer(completion.usage, finish=completion.finish, model=completion.head.get("model"))
        return result

    @asynccontextmanager
    async def spend_tokens(
        self,
        model: str,
        completion: CompletionAccumulator,
        sent_tokens: Callable[[], int],
        max_output_tokens: int,
        *,
        reservation: Reservation | None = None,
        wait_seconds: float = 0.0,
    ) -> AsyncIterator[None]:
        """Reserve the caller's tokens for this block, and count those that the completion used.

        A given `reservation` is used instead of a new one. `wait_seconds` is that of `Limiter.reserve_tokens`. If the
        provider reports no usage, the tokens that were sent and received are counted here. A failure before any output
        counts nothing.

        Raises:
            RequestRefused: the daily limit is reached; the block does not run.
        """
        if reservation is None:
            reservation = await self.service.limiter.reserve_tokens(
                self.caller, sent_tokens() + max_output_tokens, wait_seconds=wait_seconds
            )
        try:
            yield
        finally:
            tokens = completion.usage.input_tokens + completion.usage.output_tokens
            if not tokens and completion.has_started:
                tokens = sent_tokens() + sum(map(counter_of(model).message, completion.messages))
            reservation.commit(tokens)
        self.service.metrics.count_usage(model, completion.usage)

    async def finish(
        self,
        call: ModelCall,
        answer: Message,
        outcome: Mapping[str, Any] | None = None,
        documents: AnswerDocuments = no_documents,
        *,
        lease: RenewedLease | None = None,
    ) -> None:
        """Store the answer. A given `lease` is released in the same transaction, unless old turns must be trimmed next.

        Raises:
            ProviderFailed: the answer is not a valid message, such as one with a tool call without a name.
        """
        if any(not function.get("name") for function in _called_functions(answer)):
            raise _invalid_answer()  # a stream without a name has an empty one
        started = time.monotonic()
        release = lease is not None and not call.trims
        try:
            async with lease.release_on_append() if lease is not None and release else nullcontext():
                await call.finish(call.entries([answer]), outcome, documents, release=release)
        except (BrokenConversation, InvalidMessage) as error:
            raise _invalid_answer() from error
        self.service.metrics.observe_append(time.monotonic() - started)

    def note_first_token(self) -> None:
        """Record the time from the request to the first token."""
        self.service.metrics.observe_first_token(time.monotonic() - self._started)


def _call_with_token_counts(
    store: ConversationStore,
    settings: CallSettings,
    record: CachedRecord | None,
    new_messages: Sequence[Message],
    copies: Mapping[int, Message] | None,
) -> ModelCall:
    if record is None:
        call = ModelCall(store, settings, None, new_messages)
    else:
        source = record.source(settings.counter, copies)
        call = ModelCall(store, settings, None, new_messages, source=source, version=record.header.version)
    call.source.record.token_counts()
    return call


def _called_functions(message: Message) -> Iterator[Mapping[str, Any]]:
    return (call["function"] or {} for call in message.get("tool_calls") or () if "function" in call)


def _invalid_answer() -> ProviderFailed:
    return ProviderFailed(PROVIDER, 200, "the answer is not a valid message")


def history_headers(request: SentRequest) -> dict[str, str]:
    """The response headers that describe the view of a request."""
    headers = {
        "x-history": "recorded" if request.settings.policy.mode != "off" else "recorded, not pruned",
        "x-history-request": request.settings.request_id,
        "x-history-tokens": f"{request.minutes.tokens_before}, {request.minutes.tokens_after}",
    }
    return headers if request.bypass is None else {**headers, "x-history-bypass": request.bypass}


def max_answer_tokens(service: Service, model: str, options: Mapping[str, Any]) -> int:
    """Maximum number of output tokens of all choices: the request's limit for each, else the model's."""
    choices = options.get("n")
    limits = (options.get(name) for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"))
    limit = next((max(0, value) for value in limits if isinstance(value, int)), None)
    if limit is None:
        limit = service.info_of(model).max_output_tokens
    return limit * (max(1, choices) if isinstance(choices, int) else 1)


async def message_tokens(model: str, messages: Sequence[Message]) -> int:
    """The tokens of messages."""
    count = counter_of(model).message
    return await compute(lambda: sum(map(count, messages)), is_large=are_large(messages))


async def tool_tokens(model: str, tools: Any) -> int:
    """The tokens of the tool definitions."""
    if not tools:
        return 0
    text = json_bytes(tools).decode()
    return await compute(counter_of(model).count, text, is_large=len(text) > INLINE_BYTES)


def failure_fields(error: BaseException) -> dict[str, Any]:
    """The fields of a failed request in its minutes: the error's code, and the error that the client got."""
    if not isinstance(error, MinutebookError):
        return {"failed": type(error).__name__}
    failure = failure_of(error)
    details = {**failure.body()["error"], "status": failure.status}
    return {"failed": str(failure.code or type(error).__name__), "error": details}


def with_number(settings: CallSettings, header: ConversationHeader | None) -> CallSettings:
    """The settings with the number of the next request of the conversation, which may not exist yet."""
    last = header.requests if header is not None and header.id == settings.conversation else 0
    return replace(settings, minutes_fields={**settings.minutes_fields, "number": last + 1})
