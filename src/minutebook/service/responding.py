"""One response, from where it goes on to the stored answer, whoever still listens."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from minutebook.errors import (
    DocumentExists,
    DocumentNotFound,
    MinutebookError,
    RequestRefused,
    StoreUnavailable,
)
from minutebook.record.message import Message
from minutebook.service.answers import Answer, pieces
from minutebook.service.asked import ResponseRequest
from minutebook.service.caller import Caller
from minutebook.service.failures import failure_of
from minutebook.service.ids import new_id
from minutebook.service.items import Item, require_new_ids, require_room, told_as_messages
from minutebook.service.placing import Placed, placed
from minutebook.service.pruned import HistoryPruned
from minutebook.service.reconcile import lead_of
from minutebook.service.replies import REPLY, RUN, Claim, in_flight, remember
from minutebook.service.response import SURFACE, Told, name_of, outputs, response_object
from minutebook.service.responses_events import Listening, Telling, arranged, cut, slots_of
from minutebook.service.runs import Run
from minutebook.service.shrinking import compact_above
from minutebook.service.state import Service, counter_of, info_of
from minutebook.service.turns import Call, Turn
from minutebook.service.wire import dumped
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import NewDocument

_LOOK_SECONDS: Final = 0.5
CANCEL: Final = "cancel"
"""The kind of document with which another server asks to stop a response."""


@dataclass(slots=True, kw_only=True)
class Responding:
    """Makes one response. What it says goes to its run; how it ended is in `told`."""

    service: Service
    caller: Caller
    asked: ResponseRequest
    items: Sequence[Item]
    claim: Claim
    authorization: str | None = None
    recipient: str | None = None
    policy: str | None = None
    expected_version: int | None = None
    earlier: str | None = None
    """The response that an earlier try of the same request began, and that failed."""
    headers: dict[str, str] = field(default_factory=dict)
    told: Told | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when what the client said is stored."""
    failure: BaseException | None = None
    """Why there is no answer, where there is none."""
    watcher: "asyncio.Task[None] | None" = None
    """Who stops it when its client is gone, where that is wanted."""
    _body: dict[str, Any] = field(default_factory=dict)
    """What is written down of it."""
    _chat: dict[str, Any] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    async def make(self, run: Run) -> None:
        store = self.service.store_of(self.caller)
        model = self.service.model_of(self.asked.model)
        self._chat = self.asked.chat(model)
        self._body = {
            "surface": SURFACE,
            "status": "in_progress",
            "model": model,
            "echo": self.asked.echo(model),
            "created_at": int(time.time()),
            "at": datetime.now(UTC).isoformat(),
        }
        if self.asked.store is False:
            await self._unkept(run, store)
            return
        async with AsyncExitStack() as stack:
            waited = time.monotonic()
            place = await placed(self, stack, store, run)
            self.service.metrics.lock_waited(time.monotonic() - waited)
            await self._kept(run, store, place)

    async def _kept(self, run: Run, store: ConversationStore, place: Placed) -> None:
        new = [*place.again, *(told_as_messages(self.items) if place.fresh else ())]
        require_new_ids(self.items if place.fresh else (), place.loaded)
        if place.loaded is None and not new:
            raise RequestRefused(400, "input is missing: there is nothing to answer.", "missing_input", "input")
        length = 0 if place.loaded is None else place.loaded.conversation.length
        require_room(length + len(new), self.service.config.limits)
        for told in self.asked.context_management or ():
            place = await compact_above(self.service, store, place, told.compact_threshold, self._body["model"])
        turn = self._turn(store, run, place, new)
        start = place.start if place.start is not None else length + len(place.again)
        self._body |= {
            "conversation": turn.call.conversation,
            "request": turn.call.request_id,
            "evaluation": turn.evaluation.hex,
            "input": [start, length + len(new)],
        }
        self.headers["x-conversation-id"] = turn.call.conversation
        with self.service.telemetry.prepare(turn.call.conversation) as span:
            await self._begin(run, store, turn, elsewhere=place.loaded is None or place.forked)
            span.pruned(self._tell(turn))
        self.told = Told(run.id, dict(self._body), None)
        self.begun.set()
        async with self._cancelled_from_afar(run, store):
            await self._answered(run, turn)

    async def _begin(self, run: Run, store: ConversationStore, turn: Turn, *, elsewhere: bool) -> None:
        """`elsewhere` says that an earlier request of the same words may be remembered in another conversation."""
        apart = elsewhere and not self.claim.keyed
        if elsewhere and self.earlier is not None:
            await store.delete_document(REPLY, self.claim.id)
        try:
            claims = () if apart else (self.claim.document(run.id),)
            await turn.begin(documents=[self._document(run), *claims], recipient=self.recipient)
        except DocumentExists:
            raise in_flight() from None
        except MinutebookError as error:
            self._body |= {"status": "failed", "error": _error(failure_of(error)), "completed_at": int(time.time())}
            with suppress(MinutebookError):  # what is not written down yet need not be mended
                known = await store.document(RUN, run.id)
                await store.put_document(known.conversation, self._document(run))
            raise
        if apart:
            await remember(store, self.claim, turn.call.conversation, run.id)

    async def _unkept(self, run: Run, store: ConversationStore) -> None:
        """Answer, and write nothing down; what is there is read where the request goes on from it."""
        self.headers["x-history"] = "off"
        place = await placed(self, None, store, run)
        turn = self._turn(store, run, place, told_as_messages(self.items))
        turn.look()
        self._body |= {"evaluation": turn.evaluation.hex, "input": [turn.length, turn.length]}
        await self._answered(run, turn, kept=False)

    async def unrecorded(self, run: Run) -> None:
        """Answer while the database is away, with what the request brings alone."""
        model = self.service.model_of(self.asked.model)
        turn = self._turn(self.service.store, run, Placed(new_id("conv"), None), told_as_messages(self.items))
        turn.look()
        self._chat = self.asked.chat(model)
        self._body |= {"evaluation": turn.evaluation.hex, "input": [turn.length, turn.length]}
        await self._answered(run, turn, kept=False)

    def _turn(self, store: ConversationStore, run: Run, place: Placed, new: Sequence[Message]) -> Turn:
        model = self._body["model"]
        counter = counter_of(model)
        tools = self._chat.get("tools")
        policy = "passthrough" if self.asked.truncation == "disabled" else self.policy
        call = Call(
            conversation=place.conversation,
            model=model,
            policy=self.service.policy(model, policy),
            counter=counter,
            run_id=run.id,
            request_id=new_id("req"),
            lease=place.lease,
            overhead_tokens=counter.count(dumped(tools).decode()) if tools else 0,
            instructions=self._instructions(place, new),
            facts={"surface": SURFACE, "reconcile": "forked" if place.forked else "appended"},
        )
        return Turn(store, call, place.loaded, new)

    def _instructions(self, place: Placed, new: Sequence[Message]) -> list[Message] | None:
        """The request's own instructions, before the system messages of the record: they hold for this request alone."""
        if self.asked.instructions is None:
            return None
        record = [*(place.loaded.messages if place.loaded is not None else ()), *new]
        return [{"role": "system", "content": self.asked.instructions}, *record[: lead_of(record)]]

    async def _answered(self, run: Run, turn: Turn, *, kept: bool = True) -> None:
        model, answer, telling = turn.call.model, Answer(), Telling(name_of(self._body))
        most = turn.minutes.tokens_after + (self.asked.max_output_tokens or _longest_answer(model))
        try:
            async with self.service.limiter.spending(self.caller, most) as spending:
                with self.service.telemetry.chat(model, turn.call.conversation) as span:
                    shorten = self.asked.truncation != "disabled"
                    message = await turn.until_it_fits(
                        lambda: self._ask(run, turn, answer, telling), self._tell, shorten=shorten
                    )
                    span.answered(answer.usage, finish=answer.finish, model=answer.head.get("model"))
                spending.tokens = answer.usage.input_tokens + answer.usage.output_tokens
            await self._store(run, turn, answer, telling, message, kept=kept)
        except BaseException as error:
            await self._broke_off(run, turn, answer, telling, error, kept=kept)
            if not run.events:
                raise

    async def _ask(self, run: Run, turn: Turn, answer: Answer, telling: Telling) -> dict[str, Any]:
        body = {**self._chat, "messages": turn.messages}
        if not self.asked.stream and not self.asked.background:
            answer.take_whole(await self.service.upstream.ask(body, authorization=self.authorization))
            message = arranged(answer.message, ())
            self._say(run, telling.begin(response_object(run.id, self._body, "in_progress", [])))
            for piece in cut(message, None):
                self._say(run, telling.take(*piece))
            return message
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        listening = Listening()
        async with self.service.upstream.stream(body, authorization=self.authorization) as events:
            self._say(run, telling.begin(response_object(run.id, self._body, "in_progress", [])))
            async for _, chunk in pieces(events):
                first = not telling.pieces
                answer.take(chunk)
                for choice in chunk.get("choices") or ():
                    if choice.get("index", 0) == 0:
                        for piece in listening.pieces(choice.get("delta") or {}):
                            self._say(run, telling.take(*piece))
                if first and telling.pieces:
                    self.service.metrics.first_token(time.monotonic() - self._begun)
        for piece in listening.rest():
            self._say(run, telling.take(*piece))
        message = arranged(answer.message, telling.order)
        for slot, _, head in slots_of(message):
            if slot not in telling.order:
                self._say(run, telling.take(slot, "", head))
        return message

    async def _store(
        self, run: Run, turn: Turn, answer: Answer, telling: Telling, message: dict[str, Any], *, kept: bool
    ) -> None:
        """The end is told when the answer is stored, and not before."""
        status = "incomplete" if answer.finish in {"length", "content_filter"} else "completed"
        self._body |= {
            **answer.outcome(),
            "status": status,
            "completed_at": int(time.time()),
            "pieces": [[slot, lengths] for slot, lengths in telling.pieces],
        }
        if kept:
            started = time.monotonic()
            self._body["answer"] = turn.length
            await turn.finish([message], answer.outcome(), [self._document(run)])
            self.service.metrics.appended(time.monotonic() - started)
        self.service.metrics.usage(turn.call.model, answer.usage)
        self.told = Told(run.id, dict(self._body), message)
        self._say(run, telling.end(response_object(run.id, self._body, status, outputs(self._body, message, status))))

    async def _broke_off(
        self, run: Run, turn: Turn, answer: Answer, telling: Telling, error: BaseException, *, kept: bool
    ) -> None:
        """Write down how it ended. Half an answer is kept with that, and not in the record: nobody can build on it."""
        self.failure, cancelled = error, isinstance(error, asyncio.CancelledError)
        failure = failure_of(error) if isinstance(error, MinutebookError) else None
        message = arranged(answer.message, telling.order) if telling.pieces else None
        self._body |= {
            **answer.outcome(),
            "status": "cancelled" if cancelled else "failed",
            "error": None if cancelled else _error(failure_of(error)),
            "completed_at": int(time.time()),
            "pieces": [[slot, lengths] for slot, lengths in telling.pieces],
            "partial": message,
        }
        if kept:
            outcome = {"failed": failure.code if failure else type(error).__name__, "partial": None}
            with suppress(MinutebookError):  # such as that the conversation was erased meanwhile
                await _to_the_end(turn.fail(outcome, [self._document(run)]))
        self.told = Told(run.id, dict(self._body), message)
        if cancelled and not run.events:
            self._say(run, telling.begin(response_object(run.id, self._body, "in_progress", [])))
        if run.events:
            self._say(run, telling.fail(self.told.object()))

    @asynccontextmanager
    async def _cancelled_from_afar(self, run: Run, store: ConversationStore) -> AsyncIterator[None]:
        """Only background responses can be cancelled by name, so only those look whether they are."""
        if not self.asked.background:
            yield
            return
        owner = asyncio.current_task()

        async def look() -> None:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                with suppress(DocumentNotFound, StoreUnavailable):
                    await store.document(CANCEL, run.id)
                    if owner is not None:
                        owner.cancel()
                    return

        looking = asyncio.create_task(look())
        try:
            yield
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    def _tell(self, turn: Turn) -> HistoryPruned:
        self.headers |= turn.headers()
        return self.service.tell(turn)

    def _document(self, run: Run) -> NewDocument:
        return NewDocument(RUN, run.id, dict(self._body), replace=True)

    @staticmethod
    def _say(run: Run, events: Iterable[bytes]) -> None:
        for event in events:
            run.say(event)


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait for something that ends what was broken off; who is stopped meanwhile, as a lost lease does, was to stop anyway."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


def _error(failure: Any) -> dict[str, Any]:
    """An error in the few words that a response has for it."""
    code = {429: "rate_limit_exceeded", 400: "invalid_prompt"}.get(failure.status, "server_error")
    return {"code": code, "message": failure.message}


def _longest_answer(model: str) -> int:
    info = info_of(model)
    return info.max_output_tokens if info.is_known else 0
