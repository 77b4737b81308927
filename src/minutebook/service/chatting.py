"""One answer in a thread, from the user's message to the stored answer; it is made whoever still listens.

Where the database may be away, the answer is given all the same, and says that it is not recorded.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.agent.events import ModelAnswered, RunEvent
from minutebook.agent.offer import Offer
from minutebook.agent.request import TextDelta
from minutebook.agent.runner import Compactor, ConversationRunner
from minutebook.compaction.events import HistoryCompacted
from minutebook.dsl.instruction import prompt_of
from minutebook.errors import MinutebookError, RequestRefused, StoreUnavailable
from minutebook.prompt.prompt import Prompt
from minutebook.prompt.tool import AnyTool
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.service.agents import Agents
from minutebook.service.aging import age_out
from minutebook.service.asking import Asking
from minutebook.service.caller import Caller
from minutebook.service.failures import Failure, failure_of
from minutebook.service.keeping import SURFACE, Keeping, Question
from minutebook.service.outcome import exposes, result_of, retell, run_of
from minutebook.service.policy import Policy
from minutebook.service.replies import RUN, earlier_run
from minutebook.service.runs import held
from minutebook.service.sheet import Sheet
from minutebook.service.state import Service, counter_of, info_of
from minutebook.service.telling import Telling, ThreadRun, usage_json
from minutebook.service.toolsused import sanitised, tools_used
from minutebook.service.turns import Call
from minutebook.session.session import Session
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document
from minutebook.wire.chat import entry_to_provider_message

_LOG: Final = logging.getLogger("minutebook.service")
PATIENCE_SECONDS: Final = 3.0
"""How long an answer waits for a database that it can do without."""
CANCELLED: Final = Failure(503, "The answer was stopped before its end. Ask again.", "run_cancelled")


@dataclass(slots=True, kw_only=True)
class Chatting:
    """Makes the answer to one question. What it says goes to its run."""

    service: Service
    agents: Agents
    caller: Caller
    question: Question
    run: ThreadRun
    _telling: Telling = field(init=False)
    _begun: float = field(default_factory=time.monotonic)
    _is_heard: bool = False
    """Whether the model has begun to speak."""

    def __post_init__(self) -> None:
        self._telling = Telling(self.run, expose_tool_details=exposes(self.service))

    async def make(self) -> None:
        """Make the answer.

        Raises:
            Exception: why there is none, where nothing was told yet. Later it is told as an event.
        """
        try:
            await self._make()
        except asyncio.CancelledError:
            if self.run.events and self.run.result is None:
                self._telling.fail(CANCELLED)
            # Nobody who listens is cancelled with it.
            self.run.end(None if self.run.events else RequestRefused(503, CANCELLED.message, str(CANCELLED.code)))
            raise
        except Exception as error:
            if not self.run.events:
                raise
            self._telling.fail(failure_of(error))

    async def _make(self) -> None:
        await self.agents.ready(self.question.model)
        tools = await self.agents.tools()
        if not self.service.config.database.optional:
            async with asyncio.timeout(None) as limit:
                await self._recorded(tools, limit)
        elif self.agents.is_database_away or not await self._recorded_in_time(tools):
            await self._unrecorded(tools)

    async def _recorded_in_time(self, tools: Sequence[AnyTool]) -> bool:
        """Answer as always, unless the database cannot be reached; nobody waits for it long. Whether it could be."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as limit:
                await self._recorded(tools, limit)
        except (StoreUnavailable, TimeoutError) as error:
            if self.run.events or (isinstance(error, TimeoutError) and not limit.expired()):
                raise
            _LOG.warning("the database cannot be reached: an answer is given, and not recorded")
            self.agents.note_database_away()
            return False
        return True

    async def _recorded(self, tools: Sequence[AnyTool], limit: asyncio.Timeout) -> None:
        service, question, store = self.service, self.question, self.service.store_of(self.caller)
        waited = time.monotonic()
        async with held(store, question.thread, self.run.id, seconds=service.lease_seconds) as hold:
            service.metrics.lock_waited(time.monotonic() - waited)
            known = await _answered(store, await run_of(store, await earlier_run(store, question.claim)))
            if known is not None and known.body["status"] == "completed":
                await retell(service, store, known, self._telling)
                return
            policy = service.policy(question.model, question.policy)
            whole = policy.strategy is not None and policy.mode == "on"
            keeping = Keeping(store, hold, question, self.run.id)
            await keeping.load(
                self.caller,
                open_at=None if known is None else known.body["question"],
                whole=whole,
                system_prompt=service.config.system_prompt,
                may_make=service.config.database.optional,
            )
            sheet = keeping.sheet(counter_of(question.model), whole=whole)
            asking = Asking(self._call(policy), sheet, keeping.place, lambda: keeping.folds)
            prompt = prompt_of("chat", "", tools)
            compactor = policy.compaction(sheet.folds, keeping.keep) if whole else None
            async with service.limiter.spending(self.caller, self._most_tokens(sheet, prompt)) as spending:
                await keeping.ask(self.caller)
                limit.reschedule(None)  # from here on it is the model that takes its time
                self.run.headers |= {"x-history": "recorded"}
                try:
                    facts, entries = await self._answered(asking, sheet, prompt, compactor, keeping)
                    spending.tokens = facts["usage"]["total_tokens"]
                    await self._finish(store, keeping, asking, facts, entries)
                except BaseException as error:
                    await keeping.fail(asking, _facts_of(error) | {"partial": self._telling.text or None})
                    raise

    async def _finish(
        self,
        store: ConversationStore,
        keeping: Keeping,
        asking: Asking,
        facts: Mapping[str, Any],
        entries: Sequence[ConversationEntry],
    ) -> None:
        """Store the answer, trim what is old by now, and tell the end."""
        started = time.monotonic()
        try:
            body = await keeping.finish(entries, asking, facts)
        except StoreUnavailable:
            if not self.service.config.database.optional:
                raise
            self.agents.note_database_away()
            self._end_unrecorded(facts, entries)
            return
        self.service.metrics.appended(time.monotonic() - started)
        try:
            await age_out(store, self.question.thread, self.service.config.conversation.effective_retention)
        except MinutebookError as error:  # it is done with the next answer
            _LOG.warning("old tool payloads could not be trimmed: %s", type(error).__name__)
        self._telling.done(result_of(self.run.id, body, _messages(entries), expose=exposes(self.service)))

    async def _unrecorded(self, tools: Sequence[AnyTool]) -> None:
        """Answer with what there is: the message alone."""
        self.run.headers |= {"x-history": "unrecorded", "x-history-bypass": "store_unavailable"}
        lead = self.service.config.system_prompt
        question, first = self.question, [] if lead is None else [{"role": "system", "content": lead}]
        sheet = Sheet(None, first, counter=counter_of(question.model), whole=True)
        policy = self.service.policy(question.model, question.policy)
        asking = Asking(self._call(policy), sheet, len(first), lambda: ())
        prompt = prompt_of("chat", "", tools)
        async with self.service.limiter.spending(self.caller, self._most_tokens(sheet, prompt)) as spending:
            facts, entries = await self._answered(asking, sheet, prompt, policy.compaction(), None)
            spending.tokens = facts["usage"]["total_tokens"]
        self._end_unrecorded(facts, entries)

    def _end_unrecorded(self, facts: Mapping[str, Any], entries: Sequence[ConversationEntry]) -> None:
        self.service.metrics.unrecorded()
        body = {**facts, "conversation": self.question.thread, "model": self.question.model}
        self._telling.done(result_of(self.run.id, body, _messages(entries), expose=exposes(self.service)))

    async def _answered(
        self,
        asking: Asking,
        sheet: Sheet,
        prompt: Prompt[Any],
        compactor: Compactor | None,
        keeping: Keeping | None,
    ) -> tuple[dict[str, Any], list[ConversationEntry]]:
        """Let the agent answer; return how it ended, and all that was said after the user's message."""
        question, limit = self.question, asking.max_tokens
        overhead = Offer(prompt.render(), strict_tools=False).tokens(sheet.record.counter)

        def emit(event: RunEvent) -> None:
            self._hear(event, asking, None if keeping is None else keeping.version)

        with Session() as session:
            runner: ConversationRunner[Any] = ConversationRunner(
                adapter=self.agents.adapter(question.model, question.options, question.authorization),
                prompt=prompt,
                session=session,
                history_manager=asking.manager,
                request=question.message,
                conversation=sheet.record,
                max_tokens=None if limit is None else max(1, limit - overhead),
                compactor=compactor,
            )
            response = await runner.run(emit, streaming=True)
            entries = list(session.query(ConversationEntry).all())[1:]
        used = sanitised(tools_used(_messages(entries)))
        return {"finish": response.finish, "usage": usage_json(response.usage), "tools": used}, entries

    def _hear(self, event: RunEvent, asking: Asking, version: int | None) -> None:
        """Tell and count what the agent does."""
        metrics = self.service.metrics
        ask = asking.hear(event)
        if ask is not None:
            with self.service.telemetry.prepare(self.question.thread) as span:
                span.pruned(self.service.tell(ask))
            if not self.run.events:
                self._begin(ask.bypass, version)
        match event:
            case TextDelta() if not self._is_heard:
                self._is_heard = True
                metrics.first_token(time.monotonic() - self._begun)
            case ModelAnswered(usage=usage):
                metrics.usage(self.question.model, usage)
            case HistoryCompacted():
                metrics.compacted(event)
        self._telling.hear(event)

    def _begin(self, bypass: str | None, version: int | None) -> None:
        if bypass is not None:
            self.run.headers["x-history-bypass"] = bypass
        kind = "unrecorded" if version is None else "recorded"
        self._telling.notice(kind, run=self.run.id, thread=self.question.thread, version=version)

    def _call(self, policy: Policy) -> Call:
        return Call(
            conversation=self.question.thread,
            model=self.question.model,
            policy=policy,
            counter=counter_of(self.question.model),
            run_id=self.run.id,
            request_id="",
            facts={"surface": SURFACE},
        )

    def _most_tokens(self, sheet: Sheet, prompt: Prompt[Any]) -> int:
        """What a call may use: all that there is to send, and the longest answer."""
        counter = sheet.record.counter
        sent = sheet.record.tokens + counter.message(self.question.message)
        sent += Offer(prompt.render(), strict_tools=False).tokens(counter)
        for name in ("max_completion_tokens", "max_tokens"):
            if isinstance(self.question.options.get(name), int):
                return sent + max(0, int(self.question.options[name]))
        info = info_of(self.question.model)
        return sent + (info.max_output_tokens if info.is_known else 0)


async def _answered(store: ConversationStore, known: Document | None) -> Document | None:
    """What is known of an earlier try, or of another try to answer the same words that has done it.

    A server that is slow may lose its lease, and find out only when it has said that the next one is its turn.
    """
    if known is None or known.body["status"] == "completed":
        return known
    page = await store.documents(known.conversation, RUN, newest_first=True)
    tries = (each for each in page.items if each.body.get("question") == known.body["question"])
    return next((each for each in tries if each.body["status"] == "completed"), known)


def _messages(entries: Sequence[ConversationEntry]) -> list[Message]:
    return [entry_to_provider_message(entry) for entry in entries]


def _facts_of(error: BaseException) -> dict[str, Any]:
    failure = failure_of(error) if isinstance(error, Exception) else CANCELLED
    told = {"status": failure.status, "message": failure.message, "code": failure.code}
    return {"failed": failure.code or type(error).__name__, "error": told}
