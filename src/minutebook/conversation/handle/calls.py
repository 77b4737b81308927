"""The model calls of a stored conversation: the views that are recorded as requests, and the runs of agents."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from minutebook.agent.adapter import ProviderAdapter
from minutebook.agent.messages import usage_from
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.conversation.agent_call import ATTEMPTS, LEASE_SECONDS, RunLimits, RunRecord
from minutebook.conversation.handle.record import ConversationRecord, is_empty, is_rewound
from minutebook.conversation.lease import hold_lease
from minutebook.conversation.minutes import CallSettings, SentRequest, usage_json
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.requests import find_request, request_id
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import ConversationBusy, DocumentExists, InvalidSetting, MissingSetting, require_type
from minutebook.history.protocol import SessionProtocol
from minutebook.history.view import View
from minutebook.planning.budget import StepHistoryManager
from minutebook.planning.history_section import TaskHistorySection
from minutebook.prompt.section import Section
from minutebook.prompt.tools import AnyTool, Tool, tool
from minutebook.record.message import Provider, is_system, role_of, text_of
from minutebook.record.validation import rejected_kinds
from minutebook.session.state import Session
from minutebook.store.types import Document, NewDocument
from minutebook.wire.chat import new_entries
from minutebook.wire.read import ClientInput, read_input


class ConversationCalls(ConversationRecord):
    """A conversation's record with its requests, and with the runs of agents on it, one at a time."""

    provider: Provider
    _is_running = False

    @abstractmethod
    def open_run(
        self, adapter: ProviderAdapter, *, session: SessionProtocol, tools: Sequence[Mapping[str, Any]] = ()
    ) -> AbstractAsyncContextManager[RunRecord]: ...

    async def _record_view(self, tools: Sequence[Any], provider: Provider | None) -> View:
        for _ in range(ATTEMPTS):
            call = self._model_call(await self._synchronize(), tools, provider, number=self._last_request + 1)
            try:
                await call.begin()
            except DocumentExists:  # another process has taken the number
                self._last_request = (await self.store.header(self.id)).requests
                continue
            self._last_request += 1
            self._unanswered_request = call.request
            return call.view(number=self._last_request)
        raise DocumentExists("request", request_id(self.id, self._last_request + 1), self.id)

    def _model_call(
        self, source: ViewSource, tools: Sequence[Any], provider: Provider | None, *, number: int | None = None
    ) -> ModelCall:
        """A model call that builds a view of the record. With a number, the view is recorded as this request."""
        if is_empty(source):
            raise MissingSetting(f"a message in conversation {self.id!r}", "append one first")
        if provider is not None:
            rejected_kinds(provider)
        return ModelCall(self.store, self._settings(tools, provider, number=number), source=source)

    async def _minutes_to_answer(self, number: int | None) -> SentRequest | Document | None:
        """The minutes that get the usage of an answer: of the newest view that has none, or of the request with this number."""
        newest = self._unanswered_request
        if number is None or (newest is not None and newest.settings.number == number):
            return newest
        return (await find_request(self.store, self.id, number))[1]

    def _settings(self, tools: Sequence[Any], provider: Provider | None, *, number: int | None = None) -> CallSettings:
        overhead_tokens = self._policy.tool_tokens(tools)
        return CallSettings(
            conversation=self.id,
            model=self._policy.model_name or "",
            policy=self._policy.policy,
            counter=self._policy.counter,
            run_id=request_id(self.id, number),
            request_id=request_id(self.id, number),
            provider=self.provider,
            rules=provider or self.provider,
            keeps_parts=False,
            fails_open=False,
            lease=None if self._renewed_lease is None else self._renewed_lease.lease,
            overhead_tokens=overhead_tokens,
            number=number,
        )

    @asynccontextmanager
    async def _runner(
        self,
        adapter: ProviderAdapter,
        request: Any,
        tools: Sequence[AnyTool | Callable[..., Any]],
        sections: Sequence[Section[Any]],
        session: Session | None,
        limits: RunLimits,
    ) -> AsyncIterator[ConversationRunner[str]]:
        messages = [] if request is None else read_input(request).messages
        if request is not None and list(map(role_of, messages)) != ["user"]:
            raise InvalidSetting("request", request, "one user message; append others before the run")
        require_type("tools", tools, Iterable, "a list of functions or tools: [find_order]")
        source = await self._read_locked()
        if not messages and is_empty(source):
            raise MissingSetting("request", f"pass the user message, because conversation {self.id!r} is empty")
        first_message = None if is_empty(source) else source.record[source.start]
        if first_message is None:
            system = self._system or ""
        else:
            system = text_of(first_message) if is_system(first_message) else ""
        if _has_task_history(sections):
            self._policy.add_manager(StepHistoryManager())
        all_tools = [item if isinstance(item, Tool) else tool(item) for item in tools]
        prompt = text_prompt("conversation", system, all_tools, sections=sections)
        with Session() if session is None else nullcontext(session) as run_session:
            yield ConversationRunner(
                adapter=adapter,
                prompt=prompt,
                session=run_session,
                request=messages[0] if messages else None,
                conversation=self,
                is_prompt_recorded=False,
                resume=not messages,
                **limits,
            )

    @asynccontextmanager
    async def _open_run(
        self, adapter: ProviderAdapter, session: SessionProtocol, tools: Sequence[Mapping[str, Any]]
    ) -> AsyncIterator[RunRecord]:
        async with self._reserve_run(), AsyncExitStack() as stack:
            if self._renewed_lease is None:
                await stack.enter_async_context(self._lease(LEASE_SECONDS, wait=True))
            run = await self._start_run(adapter, tools)
            try:
                await run.restore_plan(session)
                yield run
            except BaseException as error:
                await run.note_failure(error)
                raise
            finally:
                await self._end_run(run)

    @asynccontextmanager
    async def _reserve_run(self) -> AsyncIterator[None]:
        """Allow one run of this handle at a time: both would use the same lease, so the lease does not prevent a second.

        Raises:
            ConversationBusy: this handle has a run.
        """
        async with self._lock:
            if self._is_running:
                raise ConversationBusy(
                    self._id or str(self._recipient), datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS)
                )
            self._is_running = True
        try:
            yield
        finally:
            self._is_running = False

    async def _start_run(self, adapter: ProviderAdapter, tools: Sequence[Mapping[str, Any]]) -> RunRecord:
        """Give the record to a run. Until the run ends, other tasks of this handle read a separate record."""
        async with self._lock:
            source = await self._synchronize()
            interrupted = [] if is_rewound(source) else self._interrupted_results(source.record, ())
            self._warn_interrupted(interrupted)
            first_messages = [*self._first_messages(source), *interrupted]
            source.extend(first_messages)
            self._run = RunRecord(
                self.store,
                replace(
                    self._settings(tools, adapter.provider),
                    model=adapter.model,
                    provider=adapter.name,
                    run_id=f"run_{uuid4().hex}",
                ),
                source,
                version=self._version,
                recipient=self._recipient,
                last_request=self._last_request,
                first_entries=new_entries(first_messages, provider=adapter.name, model=adapter.model),
            )
            self._source = self._unanswered_request = None
            return self._run

    async def _end_run(self, run: RunRecord) -> None:
        """Take the record back, unless another task has read a newer one meanwhile."""
        self._run = None
        async with self._lock:
            if self._source is None or run.version >= self._version:
                self._source, self._version, self._last_request = run.stored_source(), run.version, run.last_request

    @asynccontextmanager
    async def _lease(self, seconds: float, *, wait: bool = False) -> AsyncIterator[None]:
        await self._open_locked()
        holder = f"conversation-{uuid4()}"
        async with hold_lease(self.store, self.id, holder, seconds=seconds, wait=wait) as renewed_lease:
            self._renewed_lease = renewed_lease
            try:
                await self._read_locked()
                yield
            finally:
                self._renewed_lease = None


def answer_documents(
    minutes: SentRequest | Document | None, response: ClientInput, position: int
) -> Sequence[NewDocument]:
    """The minutes of a request with its answer at a position, and the usage that the provider reported for it."""
    if minutes is None:
        return ()
    outcome = {"finish": response.finish, "usage": usage_json(usage_from(response.usage)), "answer": position}
    if isinstance(minutes, SentRequest):
        return (replace(minutes, outcome=outcome).document(minutes.stored_length or position),)
    return (NewDocument(minutes.kind, minutes.id, {**minutes.body, **outcome}, replace=True),)


def _has_task_history(sections: Sequence[Section[Any]]) -> bool:
    """Whether one of the sections, or of those within them, folds finished steps."""
    return any(isinstance(part, TaskHistorySection) or _has_task_history(part.children) for part in sections)
