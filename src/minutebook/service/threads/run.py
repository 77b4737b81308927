"""Answers one message of a thread: runs an agent with the configured tools and stores the answer.

The run continues when the client disconnects, unless `on_disconnect` is `cancel`. If the database is optional and
unavailable, the message is answered without history and the answer is not recorded.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from minutebook.agent.events import ModelAnswered, RunEvent
from minutebook.agent.messages import TextDelta, ToolsAndSchema
from minutebook.agent.prompt_message import text_prompt
from minutebook.agent.runner import ConversationRunner
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.agent_call import AgentCall
from minutebook.conversation.minutes import usage_json
from minutebook.conversation.trimming import tool_uses, tool_uses_for_clients
from minutebook.conversation.view_source import compacts
from minutebook.errors import (
    ConversationNotFound,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.prompt.template import Prompt
from minutebook.prompt.tools import AnyTool
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_user
from minutebook.service.agent_tools import Agents
from minutebook.service.answer_job import AnswerJob, failure_fields, max_answer_tokens, with_number
from minutebook.service.http.errors import Failure
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id
from minutebook.service.idempotency import RUN_KIND, find_earlier_answer
from minutebook.service.responses.items import require_room
from minutebook.service.state import counter_of
from minutebook.service.threads.events import ThreadEvents, ThreadRun
from minutebook.service.threads.objects import API_NAME, answer_object, exposes_tool_details, replay_answer
from minutebook.session.state import Session
from minutebook.store.types import Lease, LoadedConversation, NewDocument
from minutebook.wire.chat import entry_to_provider_message

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


@dataclass(frozen=True, slots=True)
class _LoadedThread:
    """A thread before the user's message."""

    loaded: LoadedConversation | None = None
    has_stored_message: bool = False
    """An earlier attempt has stored the message, but no answer."""

    @property
    def is_empty(self) -> bool:
        return self.loaded is None or not self.loaded.conversation.length


@dataclass(slots=True, kw_only=True)
class ThreadJob(AnswerJob):
    """Answers one question. Its events go to the run."""

    api_name: ClassVar[str] = API_NAME
    agents: Agents
    question: Question
    run: ThreadRun
    _events: ThreadEvents = field(init=False)
    _spent_tokens: int = 0
    """The tokens of the model calls so far."""
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
        question, store = self.question, self.store
        needs_whole_record = compacts(self.service.policy(question.model, self.policy))
        async with self.lease(question.thread, load=True, folded=not needs_whole_record) as lease:
            earlier = await find_earlier_answer(store, self.idempotency_key, API_NAME)
            if earlier is not None and "answer" in earlier.body:
                await replay_answer(self.service, store, earlier, self._events)
                return
            thread = self._thread(lease.loaded, None if earlier is None else earlier.body["input"][0])
            prompt = text_prompt("chat", "", tools)
            call = await self._agent_call(thread, prompt, lease.lease)
            async with self.service.limiter.reserve_tokens(self.caller, self._max_tokens(call)) as spending:
                documents = [
                    self._run_document(call, {"status": "in_progress"}),
                    self.idempotency_key.document(self.run.id),
                ]
                await call.begin(documents=documents, recipient=self.caller.recipient)
                time_limit.reschedule(None)
                self.run.headers |= {"x-history": "recorded"}
                try:
                    fields, entries = await self._run_agent(call, prompt, recorded=True)
                    await self._finish(call, fields, entries)
                except BaseException as error:
                    fields = failure_fields(error if isinstance(error, Exception) else self.run.interruption_error)
                    outcome = {**fields, "status": "failed", "partial": self._events.text or None}
                    await call.fail(fields, [self._run_document(call, outcome)])
                    raise
                finally:
                    spending.tokens = self._spent_tokens

    def _thread(self, loaded: LoadedConversation | None, message_position: int | None) -> _LoadedThread:
        """The thread without the message, which an earlier attempt may have stored at `message_position`.

        Raises:
            ConversationNotFound: the thread does not exist, or the caller may not access it.
            VersionConflict: the thread is at another version than the client expects.
        """
        question = self.question
        if loaded is None:
            if not self.service.config.database.optional or not question.thread.startswith(DRAFT_ID_PREFIX):
                raise ConversationNotFound(question.thread)
            return _LoadedThread()
        require_access(self.caller, loaded.conversation)
        header = loaded.conversation
        has_stored_message = message_position is not None and _ends_with(loaded, message_position, question.message)
        if question.version not in {None, header.version} and not has_stored_message:
            raise VersionConflict(question.thread, header.version, question.version or 0)
        require_room(header.length + (1 if has_stored_message else 2), self.service.config.limits)
        if has_stored_message:
            loaded = replace(
                loaded,
                entries=loaded.entries[:-1],
                positions=loaded.positions[:-1],
                conversation=replace(header, length=header.length - 1),
            )
        return _LoadedThread(loaded, has_stored_message)

    async def _agent_call(self, thread: _LoadedThread, prompt: Prompt[Any], lease: Lease | None) -> AgentCall:
        model, system_prompt = self.question.model, self.service.config.system_prompt
        leading_messages: list[Message] = []
        if thread.is_empty and system_prompt is not None:
            leading_messages = [{"role": "system", "content": system_prompt}]
        settings = self.settings(
            self.question.thread,
            model,
            lease=lease,
            overhead_tokens=ToolsAndSchema(prompt.render(), strict_tools=False).tokens(counter_of(model)),
        )
        return AgentCall(
            self.store,
            with_number(settings, None if thread.loaded is None else thread.loaded.conversation),
            thread.loaded,
            [*leading_messages, self.question.message],
            new_id=lambda: new_id("req"),
            has_stored_question=thread.has_stored_message,
        )

    async def _finish(self, call: AgentCall, fields: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        """Store the answer, trim old turns, and send the `done` event."""
        body: dict[str, Any] = {}

        def documents(start: int) -> list[NewDocument]:
            requests = [request.settings.request_id for request in call.requests]
            stop, version = start + len(entries), call.version + 1
            outcome = {"status": "completed", "answer": start, "stop": stop, "version": version}
            document = self._run_document(call, {**fields, **outcome, "requests": requests})
            body.update(document.body)
            return [document]

        try:
            await self.finish(call, entries, documents=documents)
        except StoreUnavailable:
            if not self.service.config.database.optional:
                raise
            self.agents.note_database_unavailable()
            self._finish_unrecorded(fields, entries)
            return
        self._send_result(body, entries)

    def _send_result(self, body: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        expose = exposes_tool_details(self.service)
        self._events.finish(answer_object(self.run.id, body, _messages(entries), expose_tool_details=expose))

    async def _answer_unrecorded(self, tools: Sequence[AnyTool]) -> None:
        """Answer the message without history, and do not record it."""
        self.run.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
        prompt = text_prompt("chat", "", tools)
        call = await self._agent_call(_LoadedThread(), prompt, None)
        async with self.service.limiter.reserve_tokens(self.caller, self._max_tokens(call)) as spending:
            try:
                fields, entries = await self._run_agent(call, prompt, recorded=False)
            finally:
                spending.tokens = self._spent_tokens
        self._finish_unrecorded(fields, entries)

    def _finish_unrecorded(self, fields: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        self.service.metrics.count_unrecorded()
        self._send_result({**fields, "conversation": self.question.thread, "model": self.question.model}, entries)

    async def _run_agent(
        self, call: AgentCall, prompt: Prompt[Any], *, recorded: bool
    ) -> tuple[dict[str, Any], list[ConversationEntry]]:
        """Run the agent; return the answer's fields of the run's document, and the entries after the user's message."""
        question = self.question
        with Session() as session:
            runner: ConversationRunner[Any] = ConversationRunner(
                adapter=self.agents.adapter(question.model, question.options, self.authorization),
                prompt=prompt,
                session=session,
                history_manager=call.manager,
                request=question.message,
                conversation=call.source.record,
                max_tokens=call.max_tokens,
                compactor=call.compactor(store_folds=recorded),
            )
            response = await runner.run(lambda event: self._on_event(event, call, recorded=recorded), streaming=True)
            entries = list(session.query(ConversationEntry).all())[1:]
        uses = tool_uses_for_clients(tool_uses(_messages(entries)))
        return {"finish": response.finish, "usage": usage_json(response.usage), "tools": uses}, entries

    def _on_event(self, event: RunEvent, call: AgentCall, *, recorded: bool) -> None:
        """Update metrics and traces, and send the event to the clients."""
        metrics = self.service.metrics
        request = call.on_event(event)
        if request is not None:
            with self.service.telemetry.prepare(self.question.thread) as span:
                span.set_pruning(self.service.report(request))
            if not self.run.events:
                self._send_first_notice(request.bypass, call.version if recorded else None)
        match event:
            case TextDelta() if not self._has_text:
                self._has_text = True
                self.note_first_token()
            case ModelAnswered(usage=usage):
                metrics.count_usage(self.question.model, usage)
                self._spent_tokens += usage.input_tokens + usage.output_tokens or self._estimated_tokens(call)
            case HistoryCompacted():
                metrics.count_compaction(event)
        self._events.on_run_event(event)

    def _send_first_notice(self, bypass: str | None, version: int | None) -> None:
        if bypass is not None:
            self.run.headers["x-history-bypass"] = bypass
        kind = "unrecorded" if version is None else "recorded"
        self._events.send_notice(kind, run=self.run.id, thread=self.question.thread, version=version)

    def _run_document(self, call: AgentCall, fields: Mapping[str, Any]) -> NewDocument:
        """The stored state of the run."""
        body = {
            "surface": API_NAME,
            "conversation": self.question.thread,
            "input": [call.length - 1, call.length],
            "model": self.question.model,
            "at": datetime.now(UTC).isoformat(),
            **fields,
        }
        return NewDocument(RUN_KIND, self.run.id, body, replace=True)

    def _estimated_tokens(self, call: AgentCall) -> int:
        """The tokens of the newest model call, if the provider reports no usage."""
        sent_tokens = call.requests[-1].minutes.tokens_after if call.requests else 0
        return sent_tokens + counter_of(self.question.model).count(self._events.text)

    def _max_tokens(self, call: AgentCall) -> int:
        """The maximum tokens of the first model call: the complete record and the longest answer."""
        record, question = call.source.record, self.question
        sent_tokens = record.tokens + record.counter.message(question.message) + call.settings.overhead_tokens
        return sent_tokens + max_answer_tokens(self.service, question.model, question.options)


def _ends_with(loaded: LoadedConversation, position: int, message: Message) -> bool:
    """Whether this message, at that position, is the last one of the record."""
    if loaded.conversation.length != position + 1 or not loaded.entries:
        return False
    last_message = entry_to_provider_message(loaded.entries[-1])
    return is_user(last_message) and last_message.get("content") == message["content"]


def _messages(entries: Sequence[ConversationEntry]) -> list[Message]:
    return [entry_to_provider_message(entry) for entry in entries]
