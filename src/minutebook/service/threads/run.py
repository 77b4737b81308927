"""One answer in a thread, from the user's message to the stored answer; it is made whoever still listens.

An agent with the configured tools is what asks the model. Where the database may be away, the answer is given all the
same, and says that it is not recorded.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from minutebook.agent.events import ModelAnswered, RunEvent
from minutebook.agent.messages import Offer, TextDelta
from minutebook.agent.prompt_message import prompt_of
from minutebook.agent.runner import ConversationRunner
from minutebook.compaction.manager import HistoryCompacted
from minutebook.conversation.agent_call import AgentCall
from minutebook.conversation.minutes import usage_json
from minutebook.conversation.trimming import sanitised, tools_used
from minutebook.conversation.view_source import compacts
from minutebook.errors import (
    ConversationErased,
    ConversationNotFound,
    StoreUnavailable,
    VersionConflict,
)
from minutebook.prompt.template import Prompt
from minutebook.prompt.tools import AnyTool
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message, is_user
from minutebook.service.agent_tools import Agents
from minutebook.service.answer_run import AnswerRun, longest_answer
from minutebook.service.http.errors import Failure, failure_of
from minutebook.service.http.requests import require_sight
from minutebook.service.http.responses import new_id
from minutebook.service.idempotency import RUN, find_earlier_answer
from minutebook.service.state import counter_of
from minutebook.service.threads.events import Telling, ThreadRun
from minutebook.service.threads.objects import SURFACE, exposes, result_of, retell
from minutebook.session.state import Session
from minutebook.store.base import ConversationStore
from minutebook.store.types import Lease, Loaded, NewDocument
from minutebook.wire.chat import entry_to_provider_message

_LOG: Final = logging.getLogger("minutebook.service")
DRAFT: Final = "draft_"
"""Threads that were made while there was no database; they are recorded from the first message on that can be."""
PATIENCE_SECONDS: Final = 3.0
"""How long an answer waits for a database that it can do without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a client asks in a thread."""

    thread: str
    message: Message
    model: str
    options: Mapping[str, Any]
    """What the provider is told besides, such as a temperature."""
    version: int | None = None
    """The version that the client knows, where it says so."""


@dataclass(frozen=True, slots=True)
class _LoadedThread:
    """A thread as it was before the user's message."""

    loaded: Loaded | None = None
    is_asked: bool = False
    """Whether an earlier try stored the message, and nobody answered it."""

    @property
    def is_empty(self) -> bool:
        return self.loaded is None or not self.loaded.conversation.length


@dataclass(slots=True, kw_only=True)
class ThreadAnswer(AnswerRun):
    """Makes the answer to one question. What it says goes to its run."""

    surface: ClassVar[str] = SURFACE
    agents: Agents
    question: Question
    run: ThreadRun
    _telling: Telling = field(init=False)
    _is_heard: bool = False
    """Whether the model has begun to speak."""

    def __post_init__(self) -> None:
        self._telling = Telling(self.run, expose_tool_details=exposes(self.service))

    def _tell_failure(self, failure: Failure) -> None:
        if self.run.result is None:
            self._telling.fail(failure)

    async def _make(self) -> None:
        await self.agents.ready(self.question.model)
        tools = await self.agents.tools()
        if not self.service.config.database.optional:
            async with asyncio.timeout(None) as limit:
                await self._answer_recorded(tools, limit)
        elif self.agents.is_database_away or not await self._answer_recorded_in_time(tools):
            await self._answer_unrecorded(tools)

    async def _answer_recorded_in_time(self, tools: Sequence[AnyTool]) -> bool:
        """Answer as always, unless the database cannot be reached; nobody waits for it long. Whether it could be."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as limit:
                await self._answer_recorded(tools, limit)
        except (StoreUnavailable, TimeoutError) as error:
            if self.run.events or (isinstance(error, TimeoutError) and not limit.expired()):
                raise
            _LOG.warning("the database cannot be reached: an answer is given, and not recorded")
            self.agents.note_database_away()
            return False
        return True

    async def _answer_recorded(self, tools: Sequence[AnyTool], limit: asyncio.Timeout) -> None:
        question, store = self.question, self.store
        async with self.lease(question.thread) as hold:
            known = await find_earlier_answer(store, self.claim, SURFACE)
            if known is not None and "answer" in known.body:
                await retell(self.service, store, known, self._telling)
                return
            place = await self._place(store, None if known is None else known.body["input"][0])
            prompt = prompt_of("chat", "", tools)
            call = self._call(place, prompt, hold.lease)
            async with self.service.limiter.spending(self.caller, self._most_tokens(call)) as spending:
                documents = [self._document(call, {"status": "in_progress"}), self.claim.document(self.run.id)]
                await call.begin(documents=documents, recipient=self.caller.recipient)
                limit.reschedule(None)  # from here on it is the model that takes its time
                self.run.headers |= {"x-history": "recorded"}
                try:
                    facts, entries = await self._run_agent(call, prompt, recorded=True)
                    spending.tokens = facts["usage"]["total_tokens"]
                    await self._finish(call, facts, entries)
                except BaseException as error:
                    facts = _failure_facts(error if isinstance(error, Exception) else self.run.interruption)
                    run = self._document(call, {**facts, "status": "failed", "partial": self._telling.text or None})
                    await call.fail({"failed": facts["failed"]}, [run])
                    raise

    async def _place(self, store: ConversationStore, asked_at: int | None) -> _LoadedThread:
        """The thread. `asked_at` is where an earlier try left the message, unanswered; it is not said again.

        Raises:
            ConversationNotFound: there is no such thread, or the caller does not see it.
            VersionConflict: it is not as the client knows it.
        """
        question = self.question
        whole = compacts(self.service.policy(question.model, self.policy))
        try:
            loaded = await store.load(question.thread, folded=not whole)
        except ConversationErased:
            raise
        except ConversationNotFound:
            if not self.service.config.database.optional or not question.thread.startswith(DRAFT):
                raise
            return _LoadedThread()
        require_sight(self.caller, loaded.conversation)
        known = loaded.conversation
        is_asked = asked_at is not None and _ends_in(loaded, asked_at, question.message)
        if question.version not in {None, known.version} and not is_asked:
            raise VersionConflict(question.thread, known.version, question.version or 0)
        if is_asked:
            loaded = replace(
                loaded,
                entries=loaded.entries[:-1],
                positions=loaded.positions[:-1],
                conversation=replace(known, length=known.length - 1),
            )
        return _LoadedThread(loaded, is_asked)

    def _call(self, place: _LoadedThread, prompt: Prompt[Any], lease: Lease | None) -> AgentCall:
        model, lead = self.question.model, self.service.config.system_prompt
        first: list[Message] = []
        if place.is_empty and lead is not None:
            first = [{"role": "system", "content": lead}]
        settings = self.settings(
            self.question.thread,
            model,
            lease=lease,
            overhead_tokens=Offer(prompt.render(), strict_tools=False).tokens(counter_of(model)),
        )
        return AgentCall(
            self.store,
            settings,
            place.loaded,
            [*first, self.question.message],
            new_id=lambda: new_id("req"),
            is_asked=place.is_asked,
        )

    async def _finish(self, call: AgentCall, facts: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        """Store the answer, trim what is old by now, and tell the end."""
        body: dict[str, Any] = {}

        def documents(start: int) -> list[NewDocument]:
            requests = [request.call.request_id for request in call.requests]
            told = {"status": "completed", "answer": start, "stop": start + len(entries), "version": call.version + 1}
            made = self._document(call, {**facts, **told, "requests": requests})
            body.update(made.body)
            return [made]

        try:
            await self.finish(call, entries, documents=documents)
        except StoreUnavailable:
            if not self.service.config.database.optional:
                raise
            self.agents.note_database_away()
            self._end_unrecorded(facts, entries)
            return
        self._telling.done(result_of(self.run.id, body, _messages(entries), expose=exposes(self.service)))

    async def _answer_unrecorded(self, tools: Sequence[AnyTool]) -> None:
        """Answer with what there is: the message alone."""
        self.run.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
        prompt = prompt_of("chat", "", tools)
        call = self._call(_LoadedThread(), prompt, None)
        async with self.service.limiter.spending(self.caller, self._most_tokens(call)) as spending:
            facts, entries = await self._run_agent(call, prompt, recorded=False)
            spending.tokens = facts["usage"]["total_tokens"]
        self._end_unrecorded(facts, entries)

    def _end_unrecorded(self, facts: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        self.service.metrics.unrecorded()
        body = {**facts, "conversation": self.question.thread, "model": self.question.model}
        self._telling.done(result_of(self.run.id, body, _messages(entries), expose=exposes(self.service)))

    async def _run_agent(
        self, call: AgentCall, prompt: Prompt[Any], *, recorded: bool
    ) -> tuple[dict[str, Any], list[ConversationEntry]]:
        """Let the agent answer; return how it ended, and all that was said after the user's message."""
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
                compactor=call.compactor(keep=recorded),
            )
            response = await runner.run(lambda event: self._hear(event, call, recorded=recorded), streaming=True)
            entries = list(session.query(ConversationEntry).all())[1:]
        used = sanitised(tools_used(_messages(entries)))
        return {"finish": response.finish, "usage": usage_json(response.usage), "tools": used}, entries

    def _hear(self, event: RunEvent, call: AgentCall, *, recorded: bool) -> None:
        """Tell and count what the agent does."""
        metrics = self.service.metrics
        request = call.hear(event)
        if request is not None:
            with self.service.telemetry.prepare(self.question.thread) as span:
                span.pruned(self.service.report(request))
            if not self.run.events:
                self._tell_begin(request.bypass, call.version if recorded else None)
        match event:
            case TextDelta() if not self._is_heard:
                self._is_heard = True
                self.note_first_token()
            case ModelAnswered(usage=usage):
                metrics.usage(self.question.model, usage)
            case HistoryCompacted():
                metrics.compacted(event)
        self._telling.hear(event)

    def _tell_begin(self, bypass: str | None, version: int | None) -> None:
        if bypass is not None:
            self.run.headers["x-history-bypass"] = bypass
        kind = "unrecorded" if version is None else "recorded"
        self._telling.notice(kind, run=self.run.id, thread=self.question.thread, version=version)

    def _document(self, call: AgentCall, facts: Mapping[str, Any]) -> NewDocument:
        """What is known of the answer by now."""
        body = {
            "surface": SURFACE,
            "conversation": self.question.thread,
            "input": [call.length - 1, call.length],
            "model": self.question.model,
            "at": datetime.now(UTC).isoformat(),
            **facts,
        }
        return NewDocument(RUN, self.run.id, body, replace=True)

    def _most_tokens(self, call: AgentCall) -> int:
        """What a request may use: all that there is to send, and the longest answer."""
        record, question = call.source.record, self.question
        sent = record.tokens + record.counter.message(question.message) + call.call.overhead_tokens
        return sent + longest_answer(question.model, question.options)


def _ends_in(loaded: Loaded, place: int, message: Message) -> bool:
    """Whether the record ends in this message, at that place, and so waits for an answer to it."""
    if loaded.conversation.length != place + 1 or not loaded.entries:
        return False
    last = entry_to_provider_message(loaded.entries[-1])
    return is_user(last) and last.get("content") == message["content"]


def _messages(entries: Sequence[ConversationEntry]) -> list[Message]:
    return [entry_to_provider_message(entry) for entry in entries]


def _failure_facts(error: Exception) -> dict[str, Any]:
    failure = failure_of(error)
    told = {"status": failure.status, "message": failure.message, "code": failure.code}
    return {"failed": failure.code or type(error).__name__, "error": told}
