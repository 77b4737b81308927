"""One response, from where it goes on to the stored answer, whoever still listens."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.conversation.model_call import ModelCall
from minutebook.errors import (
    DocumentExists,
    DocumentNotFound,
    MinutebookError,
    RequestRefused,
    StoreUnavailable,
)
from minutebook.record.message import Message, leading_system_count
from minutebook.service.answer_run import failure_code, longest_answer, tool_tokens
from minutebook.service.http.errors import failure_of
from minutebook.service.http.responses import new_id
from minutebook.service.idempotency import (
    REPLY,
    RUN,
    UNFINISHED,
    fail_if_abandoned,
    find_answered_attempt,
    find_earlier_answer,
    in_flight,
    remember,
    wait_for_end,
)
from minutebook.service.responses.compact import compact_above
from minutebook.service.responses.events import Listening, Telling, arranged, cut, slots_of
from minutebook.service.responses.items import Item, require_new_ids, require_room
from minutebook.service.responses.objects import SURFACE, Told, lost, name_of, outputs, response_object
from minutebook.service.responses.placement import Placed, PlacedAnswer
from minutebook.service.upstream import parse_chunks
from minutebook.store.types import Document, NewDocument
from minutebook.wire.responses import items_to_messages

_LOOK_SECONDS: Final = 0.5
_GRACE_SECONDS: Final = 0.4
CANCEL: Final = "cancel"
"""The kind of document with which another server asks to stop a response."""


@dataclass(slots=True, kw_only=True)
class ResponseAnswer(PlacedAnswer):
    """Makes one response. What it says goes to its run; how it ended is in `told`."""

    surface: ClassVar[str] = SURFACE
    items: Sequence[Item]
    recipient: str | None = None
    told: Told | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when what the client said is stored."""
    failure: BaseException | None = None
    """Why there is no answer, where there is none."""
    _body: dict[str, Any] = field(default_factory=dict)
    """What is written down of it."""
    _chat: dict[str, Any] = field(default_factory=dict)

    async def find_earlier(self) -> Document | None:
        """The response that the same request got before. None if it is to be made: in the place of one that failed, if any.

        One that another server makes is waited for. Whoever is streamed to hears nothing before its end in any case, so
        it waits only until a server that died would have lost its lease.
        """
        store, service, asked = self.store, self.service, self.asked
        known = await find_earlier_answer(store, self.claim, SURFACE)
        if known is None or "answer" in known.body:
            return known
        if asked.background or (asked.stream and service.runs.get(known.id, self.caller.tenant) is not None):
            known = await fail_if_abandoned(service, store, known, lost())
        else:
            seconds = service.lease_seconds + _GRACE_SECONDS if asked.stream else None
            known = await wait_for_end(service, store, known, lost(), timeout_seconds=seconds)
        if known.body["status"] in UNFINISHED:
            return known
        known = await find_answered_attempt(store, known)
        self.earlier = None if "answer" in known.body else known.id
        return known if self.earlier is None else None

    async def _make(self) -> None:
        self._prepare()
        if self.asked.store is False:
            self.headers["x-history"] = "off"
            await self._answer_unkept(await self.place(None))
            return
        async with AsyncExitStack() as stack:
            await self._kept(await self.place(stack))

    def _prepare(self) -> None:
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
        if self.asked.truncation == "disabled":
            self.policy = "passthrough"

    async def _kept(self, place: Placed) -> None:
        new = [*place.again, *(items_to_messages(self.items) if place.fresh else ())]
        require_new_ids(self.items if place.fresh else (), place.loaded)
        if place.loaded is None and not new:
            raise RequestRefused(400, "input is missing: there is nothing to answer.", "missing_input", "input")
        length = 0 if place.loaded is None else place.loaded.conversation.length
        require_room(length + len(new), self.service.config.limits)
        for told in self.asked.context_management or ():
            place = await compact_above(self.service, self.store, place, told.compact_threshold, self._body["model"])
        call = self._call(place, new)
        start = place.start if place.start is not None else length + len(place.again)
        self._body |= {
            "conversation": call.call.conversation,
            "request": call.call.request_id,
            "evaluation": call.evaluation.hex,
            "input": [start, length + len(new)],
        }
        self.headers["x-conversation-id"] = call.call.conversation
        await self._begin(call, elsewhere=place.loaded is None or place.forked)
        self.told = Told(self.run.id, dict(self._body), None)
        self.begun.set()
        async with self._cancelled_from_afar():
            await self._answer(call)

    async def _begin(self, call: ModelCall, *, elsewhere: bool) -> None:
        """`elsewhere` says that an earlier request of the same words may be remembered in another conversation."""
        store, apart = self.store, elsewhere and not self.claim.keyed
        if elsewhere and self.earlier is not None:
            await store.delete_document(REPLY, self.claim.id)
        try:
            claims = () if apart else (self.claim.document(self.run.id),)
            await self.begin(call, [self._document(), *claims], recipient=self.recipient)
        except DocumentExists:
            raise in_flight() from None
        except MinutebookError as error:
            self._body |= {"status": "failed", "error": _error(failure_of(error)), "completed_at": int(time.time())}
            with suppress(MinutebookError):  # what is not written down yet need not be mended
                known = await store.document(RUN, self.run.id)
                await store.put_document(known.conversation, self._document())
            raise
        if apart:
            await remember(store, self.claim, call.call.conversation, self.run.id)

    async def unrecorded(self) -> None:
        """Answer while the database is away, with what the request brings alone."""
        self._prepare()
        await self._answer_unkept(Placed(new_id("conv"), None))

    async def _answer_unkept(self, place: Placed) -> None:
        """Answer, and write nothing down; what is there is read where the request goes on from it."""
        call = self._call(place, items_to_messages(self.items))
        call.look()
        self._body |= {"evaluation": call.evaluation.hex, "input": [call.length, call.length]}
        await self._answer(call, kept=False)

    def _call(self, place: Placed, new: Sequence[Message]) -> ModelCall:
        model = self._body["model"]
        settings = self.settings(
            place.conversation,
            model,
            lease=place.lease,
            overhead_tokens=tool_tokens(model, self._chat.get("tools")),
            instructions=self._instructions(place, new),
            reconcile="forked" if place.forked else "appended",
        )
        return ModelCall(self.store, settings, place.loaded, new)

    def _instructions(self, place: Placed, new: Sequence[Message]) -> list[Message] | None:
        """The request's own instructions, before the system messages of the record: they hold for this request alone."""
        if self.asked.instructions is None:
            return None
        record = [*(place.loaded.messages if place.loaded is not None else ()), *new]
        return [{"role": "system", "content": self.asked.instructions}, *record[: leading_system_count(record)]]

    async def _answer(self, call: ModelCall, *, kept: bool = True) -> None:
        answer, telling = CompletionAccumulator(), Telling(name_of(self._body))
        longest = self.asked.max_output_tokens or longest_answer(call.call.model, {})
        try:
            message = await self.call_model(
                call,
                answer,
                lambda: self._attempt(call, answer, telling),
                max_output_tokens=longest,
                may_shorten=self.asked.truncation != "disabled",
            )
            await self._store(call, answer, telling, message, kept=kept)
        except BaseException as error:
            await self._broke_off(call, answer, telling, error, kept=kept)
            if not self.run.events:
                raise

    async def _attempt(self, call: ModelCall, answer: CompletionAccumulator, telling: Telling) -> dict[str, Any]:
        body = {**self._chat, "messages": call.messages}
        if not self.asked.stream and not self.asked.background:
            answer.add_completion(await self.service.upstream.complete(body, authorization=self.authorization))
            message = arranged(answer.message, ())
            self._say(telling.begin(response_object(self.run.id, self._body, "in_progress", [])))
            for piece in cut(message, None):
                self._say(telling.take(*piece))
            return message
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        listening = Listening()
        async with self.service.upstream.stream(body, authorization=self.authorization) as events:
            self._say(telling.begin(response_object(self.run.id, self._body, "in_progress", [])))
            async for _, chunk in parse_chunks(events):
                first = not telling.pieces
                answer.add_chunk(chunk)
                for choice in chunk.get("choices") or ():
                    if choice.get("index", 0) == 0:
                        for piece in listening.pieces(choice.get("delta") or {}):
                            self._say(telling.take(*piece))
                if first and telling.pieces:
                    self.note_first_token()
        for piece in listening.rest():
            self._say(telling.take(*piece))
        message = arranged(answer.message, telling.order)
        for slot, _, head in slots_of(message):
            if slot not in telling.order:
                self._say(telling.take(slot, "", head))
        return message

    async def _store(
        self, call: ModelCall, answer: CompletionAccumulator, telling: Telling, message: dict[str, Any], *, kept: bool
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
            await self.finish(
                call, call.entries([message]), answer.outcome(), lambda start: [self._document(answer=start)]
            )
        self.told = Told(self.run.id, dict(self._body), message)
        self._say(telling.end(response_object(self.run.id, self._body, status, outputs(self._body, message, status))))

    async def _broke_off(
        self, call: ModelCall, answer: CompletionAccumulator, telling: Telling, error: BaseException, *, kept: bool
    ) -> None:
        """Write down how it ended. Half an answer is kept with that, and not in the record: nobody can build on it."""
        self.failure, cancelled = error, isinstance(error, asyncio.CancelledError)
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
            outcome = {"failed": failure_code(error), "partial": None}
            with suppress(MinutebookError):  # such as that the conversation was erased meanwhile
                await _to_the_end(call.fail(outcome, [self._document()]))
        self.told = Told(self.run.id, dict(self._body), message)
        if cancelled and not self.run.events:
            self._say(telling.begin(response_object(self.run.id, self._body, "in_progress", [])))
        if self.run.events:
            self._say(telling.fail(self.told.object()))

    @asynccontextmanager
    async def _cancelled_from_afar(self) -> AsyncIterator[None]:
        """Only background responses can be cancelled by name, so only those look whether they are."""
        if not self.asked.background:
            yield
            return
        owner = asyncio.current_task()

        async def look() -> None:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                with suppress(DocumentNotFound, StoreUnavailable):
                    await self.store.document(CANCEL, self.run.id)
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

    def _document(self, **facts: Any) -> NewDocument:
        return NewDocument(RUN, self.run.id, {**self._body, **facts}, replace=True)

    def _say(self, events: Iterable[bytes]) -> None:
        for event in events:
            self.run.say(event)


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
