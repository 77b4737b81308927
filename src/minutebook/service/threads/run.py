"""Answers one message of a thread: runs an agent with the configured tools and stores the answer.

The run continues when the client disconnects, unless `on_disconnect` is `cancel`. If the database is optional and
unavailable, the message is answered without history and the answer is not recorded.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from minutebook.agent.events import RunEvent, ViewBuilt
from minutebook.agent.messages import TextDelta, ToolsAndSchema
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.agent.runner import ConversationRunner
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.minutes import usage_json
from minutebook.conversation.record_cache import CachedRecord, are_large, compute
from minutebook.conversation.trimming import tool_uses, tool_uses_for_clients
from minutebook.conversation.view_source import ViewSource
from minutebook.errors import (
    ConversationNotFound,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.prompt.template import Prompt
from minutebook.prompt.tools import AnyTool
from minutebook.record.message import Message, is_user
from minutebook.service.access.limits import Reservation
from minutebook.service.agent_tools import Agents
from minutebook.service.answer_job import AnswerJob, failure_fields, max_answer_tokens
from minutebook.service.http.errors import Failure
from minutebook.service.http.requests import require_access
from minutebook.service.idempotency import RUN_KIND, find_earlier_answer
from minutebook.service.responses.items import require_room
from minutebook.service.state import counter_of
from minutebook.service.threads.events import ThreadEvents, ThreadRun
from minutebook.service.threads.objects import (
    API_NAME,
    answer_object,
    answer_text,
    exposes_tool_details,
    replay_answer,
)
from minutebook.service.threads.record import ThreadRecord
from minutebook.session.state import Session
from minutebook.store.types import Lease, NewDocument

_LOG: Final = logging.getLogger("minutebook.service")
DRAFT_ID_PREFIX: Final = "draft_"
"""Id prefix of threads created while the database was unavailable. Recording starts when it is available again."""
OPTIONAL_STORE_TIMEOUT_SECONDS: Final = 3.0
"""How long an answer waits for an optional database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A message to answer."""

    thread: str
    message: Message
    model: str
    options: Mapping[str, Any]
    """Further parameters of the provider call, such as temperature."""
    version: int | None = None
    """The version of the thread that the client expects; None for any."""


@dataclass(slots=True, kw_only=True)
class ThreadJob(AnswerJob):
    """Answers one question. Its events go to the run."""

    api_name: ClassVar[str] = API_NAME
    agents: Agents
    question: Question
    run: ThreadRun
    _events: ThreadEvents = field(init=False)
    _reservation: Reservation | None = None
    """The tokens reserved for the first model call, until it begins."""
    _request_ids: list[str] = field(default_factory=list)
    """The ids of the requests to the provider."""
    _stored_text: str = ""
    """The text that an earlier attempt has stored."""
    _has_text: bool = False
    """The model has sent its first token."""

    def __post_init__(self) -> None:
        self._events = ThreadEvents(self.run, expose_tool_details=exposes_tool_details(self.service))

    def _send_failure(self, failure: Failure) -> None:
        if self.run.result is None:
            self._events.fail(failure)

    async def _execute(self) -> None:
        await self.agents.load_model(self.question.model)
        tools = await self.agents.tools()
        if not self.service.config.database.optional:
            async with asyncio.timeout(None) as timeout:
                await self._answer_recorded(tools, timeout)
        elif self.agents.is_database_unavailable or not await self._answer_recorded_in_time(tools):
            await self._answer_unrecorded(tools)

    async def _answer_recorded_in_time(self, tools: Sequence[AnyTool]) -> bool:
        """Answer and record; return False if the database is unavailable or too slow, before any event was sent."""
        try:
            async with asyncio.timeout(OPTIONAL_STORE_TIMEOUT_SECONDS) as timeout:
                await self._answer_recorded(tools, timeout)
        except (StoreUnavailable, TimeoutError) as error:
            if self.run.events or (isinstance(error, TimeoutError) and not timeout.expired()):
                raise
            _LOG.warning("the database is unavailable: an answer is not recorded")
            self.agents.note_database_unavailable()
            return False
        return True

    async def _answer_recorded(self, tools: Sequence[AnyTool], time_limit: asyncio.Timeout) -> None:
        """Answer and record. `time_limit` is lifted before the model is called."""
        store = self.store
        async with AsyncExitStack() as leases:
            lease, cached = await self.lease_record(leases, self.question.thread)
            earlier = await find_earlier_answer(store, self.idempotency_key, API_NAME)
            if earlier is not None and "answer" in earlier.body:
                await replay_answer(self.service, store, earlier, self._events)
                return
            position = self._stored_position(cached, None if earlier is None else earlier.body["input"][0])
            prompt = text_prompt("chat", "", tools)
            record = await self._thread_record(cached, prompt, lease.lease, is_stored=position is not None)
            if position is None:
                position = len(record.record) - 1
            async with self._reserve_first_call(record):
                run_document = self._run_document(position, {"status": "in_progress"})
                await record.store_first([run_document, self.idempotency_key.document(self.run.id)])
                time_limit.reschedule(None)
                self.run.headers |= {"x-history": "recorded"}
                self._stored_text = answer_text(record.record[position + 1 :])
                try:
                    fields, messages = await self._run_agent(record, prompt, position)
                    await self._finish(record, position, fields, messages)
                except BaseException as error:
                    self._records.clear()  # the cached record may have messages that were not stored
                    fields = failure_fields(error if isinstance(error, Exception) else self.run.interruption_error)
                    outcome = {**fields, "status": "failed", "partial": self._events.text or None}
                    await record.fail(fields, [self._run_document(position, outcome)])
                    raise

    def _stored_position(self, cached: CachedRecord | None, earlier_position: int | None) -> int | None:
        """The position of the message, if an earlier attempt has stored it there and its answer may be continued.

        Raises:
            ConversationNotFound: the thread does not exist, or the caller may not access it.
            VersionConflict: the thread is at another version than the client expects.
        """
        question = self.question
        if cached is None:
            if not self.service.config.database.optional or not question.thread.startswith(DRAFT_ID_PREFIX):
                raise ConversationNotFound(question.thread)
            return None
        require_access(self.caller, cached.header)
        position = None
        if earlier_position is not None and _is_newest(cached.messages, earlier_position, question.message):
            position = earlier_position
        if question.version not in {None, cached.header.version} and position is None:
            raise VersionConflict(question.thread, cached.header.version, question.version or 0)
        require_room(cached.header.length + (1 if position is not None else 2), self.service.config.limits)
        return position

    async def _thread_record(
        self,
        cached: CachedRecord | None,
        prompt: Prompt[Any],
        lease: Lease | None = None,
        *,
        is_stored: bool = False,
        is_recorded: bool = True,
    ) -> ThreadRecord:
        """The record of the thread for this answer. `is_stored`: it has the question already."""
        model, system_prompt = self.question.model, self.service.config.system_prompt
        counter = counter_of(model)
        new_messages: list[Message] = [] if is_stored else [self.question.message]
        if not is_stored and system_prompt is not None and (cached is None or not cached.header.length):
            new_messages.insert(0, {"role": "system", "content": system_prompt})
        settings = self.settings(
            self.question.thread,
            model,
            lease=lease,
            overhead_tokens=ToolsAndSchema(prompt.render(), strict_tools=False).tokens(counter),
        )

        def create_record() -> ThreadRecord:
            source = ViewSource(None, (), counter=counter, whole_record=True)
            record = ThreadRecord(
                self.store,
                settings,
                source if cached is None else cached.source(counter),
                new_messages,
                version=0 if cached is None else cached.header.version,
                recipient=self.caller.recipient,
                last_request=0 if cached is None else cached.header.requests,
                is_recorded=is_recorded,
                is_optional=self.service.config.database.optional,
                observe_append=self.service.metrics.observe_append,
            )
            record.record.token_counts()
            return record

        stored = () if cached is None else cached.unindexed(counter)
        return await compute(create_record, is_large=are_large([*stored, *new_messages]))

    async def _finish(
        self, record: ThreadRecord, position: int, fields: Mapping[str, Any], messages: Sequence[Message]
    ) -> None:
        """Store the result of the run, trim old turns, and send the `done` event."""
        if record.is_recorded:
            stop = position + 1 + len(messages)
            outcome = {"status": "completed", "answer": position + 1, "stop": stop, "version": record.version}
            document = self._run_document(position, {**fields, **outcome})
            await record.end([document])
        if record.is_recorded:  # `end` changes it if the database became unavailable
            self._send_result(document.body, messages)
        else:
            self.agents.note_database_unavailable()
            self._records.clear()
            self._finish_unrecorded(fields, messages)

    def _send_result(self, body: Mapping[str, Any], messages: Sequence[Message]) -> None:
        expose = exposes_tool_details(self.service)
        self._events.finish(answer_object(self.run.id, body, messages, expose_tool_details=expose))

    async def _answer_unrecorded(self, tools: Sequence[AnyTool]) -> None:
        """Answer the message without history, and do not record it."""
        self.run.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
        prompt = text_prompt("chat", "", tools)
        record = await self._thread_record(None, prompt, is_recorded=False)
        async with self._reserve_first_call(record):
            fields, messages = await self._run_agent(record, prompt, len(record.record) - 1)
        self._finish_unrecorded(fields, messages)

    def _finish_unrecorded(self, fields: Mapping[str, Any], messages: Sequence[Message]) -> None:
        self.service.metrics.count_unrecorded()
        self._send_result({**fields, "conversation": self.question.thread, "model": self.question.model}, messages)

    async def _run_agent(
        self, record: ThreadRecord, prompt: Prompt[Any], position: int
    ) -> tuple[dict[str, Any], list[Message]]:
        """Run the agent; return the answer's fields of the run's document, and the messages after the question."""
        question = self.question
        with Session() as session:
            runner: ConversationRunner[Any] = ConversationRunner(
                adapter=self.agents.adapter(
                    question.model,
                    question.options,
                    self.authorization,
                    lambda completion: self._spend_tokens(record, completion),
                ),
                prompt=prompt,
                session=session,
                conversation=record,
                resume=True,
            )
            response = await runner.run(lambda event: self._on_event(event, record), streaming=True)
        if not self._request_ids:  # an earlier attempt has stored the whole answer
            self._send_first_events(record)
        messages = record.record[position + 1 :]
        uses = tool_uses_for_clients(tool_uses(messages))
        fields = {"finish": response.finish, "usage": usage_json(response.usage), "tools": uses}
        return {**fields, "requests": self._request_ids}, messages

    def _on_event(self, event: RunEvent, record: ThreadRecord) -> None:
        """Update metrics and traces, and send the event to the clients."""
        match event:
            case ViewBuilt():
                self._on_request(record)
            case TextDelta() if not self._has_text:
                self._has_text = True
                self.note_first_token()
            case HistoryCompacted():
                self.service.report_compaction(self.question.thread, event)
        self._events.on_run_event(event)

    def _on_request(self, record: ThreadRecord) -> None:
        """Report a request to the provider, and send the first events if it is the first one."""
        request = record.request
        with self.service.telemetry.prepare(self.question.thread) as span:
            span.set_pruning(self.service.report(request))
        if not self._request_ids:
            if request.bypass is not None:
                self.run.headers["x-history-bypass"] = request.bypass
            self._send_first_events(record)
        self._request_ids.append(request.settings.request_id)

    def _send_first_events(self, record: ThreadRecord) -> None:
        """Send the notice whether the answer is recorded, and the text that an earlier attempt has stored."""
        kind, version = ("recorded", record.version) if record.is_recorded else ("unrecorded", None)
        self._events.send_notice(kind, run=self.run.id, thread=self.question.thread, version=version)
        self._events.send_stored_text(self._stored_text)

    def _run_document(self, position: int, fields: Mapping[str, Any]) -> NewDocument:
        """The stored state of the run."""
        body = {
            "surface": API_NAME,
            "conversation": self.question.thread,
            "input": [position, position + 1],
            "model": self.question.model,
            "at": datetime.now(UTC).isoformat(),
            **fields,
        }
        return NewDocument(RUN_KIND, self.run.id, body, replace=True)

    @asynccontextmanager
    async def _reserve_first_call(self, record: ThreadRecord) -> AsyncIterator[None]:
        """Reserve the tokens of the first model call: those of the complete record and of the longest answer.

        They are reserved before the question is stored, so a caller whose limit is reached leaves nothing in the record.

        Raises:
            RequestRefused: the caller's daily limit is reached; the block does not run.
        """
        sent_tokens = record.record.tokens + record.settings.overhead_tokens
        reservation = await self.service.limiter.reserve_tokens(self.caller, sent_tokens + self._max_answer_tokens)
        self._reservation = reservation
        try:
            yield
        finally:
            reservation.commit(0)  # no effect if a model call has used it

    def _spend_tokens(
        self, record: ThreadRecord, completion: CompletionAccumulator
    ) -> AbstractAsyncContextManager[None]:
        """Reserve and count the tokens of one model call. The run ends if they cannot be reserved."""
        reservation, self._reservation = self._reservation, None
        return self.spend_tokens(
            self.question.model,
            completion,
            lambda: record.request.minutes.tokens_after,
            self._max_answer_tokens,
            reservation=reservation,
            wait_seconds=self.service.config.server.wait_seconds,
        )

    @property
    def _max_answer_tokens(self) -> int:
        return max_answer_tokens(self.service, self.question.model, self.question.options)


def _is_newest(messages: Sequence[Message], position: int, message: Message) -> bool:
    """Whether this message is at a position, and is the last one of the user."""
    return (
        position < len(messages)
        and is_user(messages[position])
        and messages[position].get("content") == message["content"]
        and not any(map(is_user, messages[position + 1 :]))
    )
