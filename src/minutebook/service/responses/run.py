"""One response, from the client's items to the stored answer.

It continues if the client disconnects, unless `on_disconnect` is `cancel`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from minutebook.agent.providers.openai import CompletionAccumulator
from minutebook.conversation.model_call import ModelCall
from minutebook.conversation.record_cache import compute
from minutebook.errors import (
    DocumentExists,
    DocumentNotFound,
    MinutebookError,
    StoreUnavailable,
)
from minutebook.record.message import Message, leading_system_count
from minutebook.service.answer_job import failure_fields, max_answer_tokens, tool_tokens
from minutebook.service.completions.reconcile import own_system_messages
from minutebook.service.http.errors import Failure, failure_of
from minutebook.service.http.responses import new_id, sse
from minutebook.service.idempotency import (
    IDEMPOTENCY_KIND,
    RUN_KIND,
    UNFINISHED,
    fail_if_abandoned,
    find_answered_attempt,
    find_earlier_answer,
    in_flight_error,
    store_key,
    wait_for_end,
)
from minutebook.service.responses.compaction import compact_above_threshold
from minutebook.service.responses.continuation import ContinuedConversation, ConversationJob, load_continued
from minutebook.service.responses.events import (
    AnswerPiece,
    DeltaReader,
    ResponseEvents,
    answer_items,
    answer_pieces,
    with_item_order,
)
from minutebook.service.responses.items import Item, items_of, missing_input, require_new_ids, require_room
from minutebook.service.responses.objects import (
    API_NAME,
    StoredResponse,
    item_ids,
    lost_fields,
    output_items,
    response_object,
)
from minutebook.service.upstream import parse_chunks
from minutebook.store.types import Document, NewDocument

_CANCEL_POLL_SECONDS: Final = 0.5
_GRACE_SECONDS: Final = 0.4
"""Time that is added to the duration of a lease, so that the lease of a server that died has expired."""
CANCEL_KIND: Final = "cancel"
"""Kind of the document with which another server requests that a response is cancelled."""


@dataclass(slots=True, kw_only=True)
class ResponseJob(ConversationJob):
    """Answers a request for a response."""

    api_name: ClassVar[str] = API_NAME
    response: StoredResponse | None = None
    """The response in its current status. Set when the client's messages are stored, and again when the run ends."""
    input_stored: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client's messages are stored."""
    error: BaseException | None = None
    """The error that ended the call of the model."""
    _body: dict[str, Any] = field(default_factory=dict)
    """The body of the run's document."""
    _chat_parameters: dict[str, Any] = field(default_factory=dict)

    async def find_earlier(self) -> Document | None:
        """The run document of an earlier attempt; None if there is none, or if it failed and must be repeated.

        An attempt that runs on another server is waited for. Its events cannot be streamed from here, so a request for
        a stream waits only until the lease of a server that died would have expired.
        """
        store, service, request = self.store, self.service, self.request
        earlier = await find_earlier_answer(store, self.idempotency_key, API_NAME)
        if earlier is None or "answer" in earlier.body:
            return earlier
        is_local = service.runs.get(earlier.id, self.caller.tenant) is not None
        if request.background or (request.stream and is_local):
            earlier = await fail_if_abandoned(service, store, earlier, lost_fields())
        else:
            timeout_seconds = service.lease_seconds + _GRACE_SECONDS if request.stream else None
            earlier = await wait_for_end(service, store, earlier, lost_fields(), timeout_seconds=timeout_seconds)
        if earlier.body["status"] in UNFINISHED:
            return earlier
        earlier = await find_answered_attempt(store, earlier)
        self.failed_attempt = None if "answer" in earlier.body else earlier.id
        return earlier if self.failed_attempt is None else None

    def _send_failure(self, failure: Failure) -> None:
        if not self.run.events:  # `_answer` sends later failures
            error = {"type": "error", "sequence_number": 0, **failure.body()["error"], "error": failure.body()["error"]}
            self.run.send(sse(error, event="error"))

    async def _execute(self) -> None:
        self._prepare()
        if self.request.store is False:
            await self._answer_without_storing(await load_continued(self.service, self.caller, self.request))
            return
        async with AsyncExitStack() as leases:
            await self._answer_recorded(await self.lease_continued(leases))

    async def run_unrecorded(self) -> None:
        """Answer without history and store nothing, because the database is unavailable."""
        self._prepare()
        await self._answer_without_storing(ContinuedConversation(new_id("conv")))

    def _prepare(self) -> None:
        """Set the parameters of the model call and the fields of the run's document."""
        model = self.service.model_of(self.request.model)
        self._chat_parameters = self.request.chat_parameters(model)
        self._body = {
            "surface": API_NAME,
            "status": "in_progress",
            "model": model,
            "echo": self.request.returned_parameters(model),
            "created_at": int(time.time()),
            "at": datetime.now(UTC).isoformat(),
        }
        if self.request.truncation == "disabled":
            self.policy = "passthrough"

    async def _answer_recorded(self, continued: ContinuedConversation) -> None:
        if continued.new_messages is not None:
            new_messages = list(continued.new_messages)
        else:
            is_stored = continued.stored_input is not None
            new_messages = [*continued.repeated, *(() if is_stored else self.messages)]
            require_new_ids(() if is_stored else self.items, await self._load_items(continued))
        length = continued.length
        require_room(length + len(new_messages) + 1, self.service.config.limits)
        for compaction in self.request.context_management or ():
            continued = await compact_above_threshold(
                self.service, self.store, continued, compaction.compact_threshold, self._body["model"]
            )
        call = await self._call(continued, new_messages)
        start = length + len(continued.repeated) if continued.stored_input is None else continued.stored_input
        self._body |= {
            "conversation": call.settings.conversation,
            "request": call.settings.request_id,
            "evaluation": call.evaluation_id.hex,
            "input": [start, length + len(new_messages)],
        }
        await self._begin(call, is_new_conversation=continued.record is None or continued.is_fork)
        self.response = StoredResponse(self.run.id, dict(self._body), None)
        self.input_stored.set()
        async with self._watch_for_cancellation():
            await self._answer(call)

    async def _begin(self, call: ModelCall, *, is_new_conversation: bool) -> None:
        """Store the client's messages, the run's document and the idempotency key, and build the view.

        The document of an equal request may be in another conversation if this request starts a new one. Then a key
        without an `Idempotency-Key` header is stored separately, see `store_key`.
        """
        store, key = self.store, self.idempotency_key
        is_separate = is_new_conversation and not key.from_header
        if is_new_conversation and self.failed_attempt is not None:
            await store.delete_document(IDEMPOTENCY_KIND, key.id)
        try:
            key_documents = () if is_separate else (key.document(self.run.id),)
            await self.begin(call, [self._document(), *key_documents], recipient=self.recipient)
        except DocumentExists:
            raise in_flight_error() from None
        except MinutebookError as error:
            self._body |= {
                "status": "failed",
                "error": _error_object(failure_of(error)),
                "completed_at": int(time.time()),
            }
            with suppress(MinutebookError):  # a document that was not stored needs no new status
                document = await store.document(RUN_KIND, self.run.id)
                await store.put_document(document.conversation, self._document())
            raise
        if is_separate:
            await store_key(store, key, call.settings.conversation, self.run.id)

    async def _answer_without_storing(self, continued: ContinuedConversation) -> None:
        """Answer with the history of the continued conversation, and store nothing."""
        call = await self._call(continued, self.messages)
        await compute(call.build_view, is_large=call.is_large)
        self._body |= {"evaluation": call.evaluation_id.hex, "input": [call.length, call.length]}
        await self._answer(call, recorded=False)

    async def _call(self, continued: ContinuedConversation, new_messages: Sequence[Message]) -> ModelCall:
        if continued.record is None and not new_messages:
            raise missing_input()
        model = self._body["model"]
        settings = self.settings(
            continued.conversation,
            model,
            lease=continued.lease,
            overhead_tokens=await tool_tokens(model, self._chat_parameters.get("tools")),
            instructions=self._instructions(continued, new_messages),
            reconcile="forked" if continued.is_fork else "appended",
        )
        return await self.new_call(settings, continued.record, new_messages, continued.copies)

    async def _load_items(self, continued: ContinuedConversation) -> Sequence[Item]:
        """The items of the conversation, read if an item of the request has an id that may be one of theirs."""
        if continued.record is None or all(item.get("id") is None for item in self.items):
            return ()
        return list(items_of(await self.store.load(continued.conversation)))

    def _instructions(self, continued: ContinuedConversation, new_messages: Sequence[Message]) -> list[Message] | None:
        """The system messages of this call; None if those of the record are sent.

        They are the instructions of the request, which are not recorded, then the leading system messages that the client
        resent or, if it resent none, those of the record.
        """
        own_messages: Sequence[Message] | None = None
        if self.identity is not None and continued.new_messages is not None:
            own_messages = own_system_messages(self.messages, self.identity.resend)
        instructions = self.request.instructions
        if instructions is None and own_messages is None:
            return None
        if own_messages is None and continued.record is not None and continued.length:
            own_messages = continued.record.leading
        elif not continued.length:
            own_messages = new_messages[: leading_system_count(new_messages)]
        return [*([] if instructions is None else [{"role": "system", "content": instructions}]), *(own_messages or ())]

    async def _answer(self, call: ModelCall, *, recorded: bool = True) -> None:
        """Call the model, send the events and store the answer.

        Raises:
            BaseException: the call failed before the first event. A later failure is sent as an event.
        """
        completion, events = CompletionAccumulator(), ResponseEvents(item_ids(self._body))
        max_tokens = self.request.max_output_tokens or max_answer_tokens(self.service, call.settings.model, {})
        try:
            message = await self.call_model(
                call,
                completion,
                lambda: self._attempt(call, completion, events),
                max_output_tokens=max_tokens,
                may_shorten=self.request.truncation != "disabled",
            )
            await self._finish(call, completion, events, message, recorded=recorded)
        except BaseException as error:
            await self._fail(call, completion, events, error, recorded=recorded)
            if not self.run.events:
                raise

    async def _attempt(
        self, call: ModelCall, completion: CompletionAccumulator, events: ResponseEvents
    ) -> dict[str, Any]:
        """Send the events of the answer, except the last ones, and return the answer."""
        body = {**self._chat_parameters, "messages": call.messages}
        if not self.request.stream and not self.request.background:
            completion.add_completion(await self.service.upstream.complete(body, authorization=self.authorization))
            message = with_item_order(completion.message, ())
            self._send_start(events)
            for piece in answer_pieces(message, None):
                self._send(events.add(piece))
            return message
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        reader = DeltaReader()
        async with self.service.upstream.stream(body, authorization=self.authorization) as upstream_events:
            async for _, chunk in parse_chunks(upstream_events):
                self._send_start(events)  # not earlier: without a valid chunk, the client gets an HTTP error
                had_pieces = bool(events.pieces)
                completion.add_chunk(chunk)
                for choice in chunk.get("choices") or ():
                    if choice.get("index", 0) == 0:
                        for piece in reader.pieces(choice.get("delta") or {}):
                            self._send(events.add(piece))
                if events.pieces and not had_pieces:
                    self.note_first_token()
                if self.request.store is False:  # a disconnect cancels the run
                    await self.run.wait_for_reader()
        completion.require_answer()
        for piece in reader.incomplete_pieces():
            self._send(events.add(piece))
        message = with_item_order(completion.message, events.order)
        for item in answer_items(message):
            if item.slot not in events.order:
                self._send(events.add(AnswerPiece(item.slot, "", item.head)))
        return message

    async def _finish(
        self,
        call: ModelCall,
        completion: CompletionAccumulator,
        events: ResponseEvents,
        message: dict[str, Any],
        *,
        recorded: bool,
    ) -> None:
        """Store the answer, then send the last events."""
        status = "incomplete" if completion.finish in {"length", "content_filter"} else "completed"
        self._body |= {
            **completion.outcome(),
            "status": status,
            "completed_at": int(time.time()),
            "pieces": _pieces_json(events),
        }
        if recorded:
            await self.finish(call, message, completion.outcome(), lambda start: [self._document(answer=start)])
        self.response = StoredResponse(self.run.id, dict(self._body), message)
        output = output_items(self._body, message, status)
        self._send(events.finish(response_object(self.run.id, self._body, status, output)))

    async def _fail(
        self,
        call: ModelCall,
        completion: CompletionAccumulator,
        events: ResponseEvents,
        error: BaseException,
        *,
        recorded: bool,
    ) -> None:
        """Store the failure, and send it if an event was sent before.

        A partial answer is stored in the run's document only: the conversation cannot continue from it.
        """
        is_cancelled = isinstance(error, asyncio.CancelledError) and self.run.cancelled
        if isinstance(error, asyncio.CancelledError) and not is_cancelled:
            error = self.run.interruption_error  # the server stops, or has lost the lease
        self.error = error
        message = with_item_order(completion.message, events.order) if events.pieces else None
        self._body |= {
            **completion.outcome(),
            "status": "cancelled" if is_cancelled else "failed",
            "error": None if is_cancelled else _error_object(failure_of(error)),
            "completed_at": int(time.time()),
            "pieces": _pieces_json(events),
            "partial": message,
        }
        if recorded:
            outcome = {**failure_fields(error), "partial": None}
            with suppress(MinutebookError):  # for example, the conversation was erased meanwhile
                await _wait_despite_cancellation(call.fail(outcome, [self._document()]))
        self.response = StoredResponse(self.run.id, dict(self._body), message)
        if is_cancelled and not self.run.events:
            self._send_start(events)
        if self.run.events:
            self._send(events.fail(self.response.to_json()))

    @asynccontextmanager
    async def _watch_for_cancellation(self) -> AsyncIterator[None]:
        """Cancel the current task if another server requests it. Only background responses can be cancelled by id."""
        if not self.request.background:
            yield
            return
        owner = asyncio.current_task()

        async def poll() -> None:
            while True:
                await asyncio.sleep(_CANCEL_POLL_SECONDS)
                with suppress(DocumentNotFound, StoreUnavailable):
                    await self.store.document(CANCEL_KIND, self.run.id)
                    self.run.cancelled = True
                    if owner is not None:
                        owner.cancel()
                    return

        watcher = asyncio.create_task(poll())
        try:
            yield
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    def _document(self, **fields: Any) -> NewDocument:
        return NewDocument(RUN_KIND, self.run.id, {**self._body, **fields}, replace=True)

    def _send_start(self, events: ResponseEvents) -> None:
        if not self.run.events:
            self._send(events.start(response_object(self.run.id, self._body, "in_progress", [])))

    def _send(self, events: Iterable[bytes]) -> None:
        for event in events:
            self.run.send(event)


async def _wait_despite_cancellation(work: Coroutine[Any, Any, None]) -> None:
    """Wait for the cleanup after a failure. A cancellation meanwhile is ignored: the run is ending already."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


def _pieces_json(events: ResponseEvents) -> list[list[Any]]:
    return [[slot, lengths] for slot, lengths in events.pieces]


def _error_object(failure: Failure) -> dict[str, Any]:
    """A failure as the `error` of a response, which has few codes."""
    code = {429: "rate_limit_exceeded", 400: "invalid_prompt"}.get(failure.status, "server_error")
    return {"code": code, "message": failure.message}
