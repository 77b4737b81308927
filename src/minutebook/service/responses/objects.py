"""Responses as JSON objects and events, built from the stored run and the record. Any server can do that."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from minutebook.agent.messages import usage_from
from minutebook.errors import ConversationNotFound, DocumentNotFound
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import PING
from minutebook.service.idempotency import RUN_KIND, UNFINISHED, fail_if_abandoned, find_run, wait_for_end
from minutebook.service.responses.events import REFUSAL, TEXT, ItemIds, ResponseEvents, answer_pieces
from minutebook.service.responses.items import Item, item_id, items_for_clients
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document
from minutebook.wire.chat import entry_to_provider_message

API_NAME: Final = "responses"
"""The name of this API in stored runs and minutes."""
_SERVER_LOST: Final = {"code": "server_error", "message": "The server that ran this response has stopped. Retry."}


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response with its answer."""

    id: str
    body: Mapping[str, Any]
    """The body of the run's document."""
    message: Message | None
    """The answer, or the part of it that was received before the failure."""

    @property
    def status(self) -> str:
        status: str = self.body["status"]
        return status

    def to_json(self) -> dict[str, Any]:
        output = [] if self.message is None else output_items(self.body, self.message, self.status)
        return response_object(self.id, self.body, self.status, output)

    def events(self, *, after: int = -1) -> Iterator[bytes]:
        """The events of the response, the same as were streamed, without those up to the number `after`."""
        stream = ResponseEvents(item_ids(self.body))
        events = [*stream.start(response_object(self.id, self.body, "in_progress", []))]
        if self.message is not None:
            for piece in answer_pieces(self.message, self.body.get("pieces")):
                events += stream.add(piece)
        if self.status not in {"completed", "incomplete"}:
            yield from events[after + 1 :]
            yield from stream.fail(self.to_json(), after=after)
            return
        events += stream.finish(self.to_json())
        yield from events[min(after + 1, len(events) - 1) :]


def item_ids(body: Mapping[str, Any]) -> ItemIds:
    """The function that gives the items of a response their ids."""
    position, evaluation_id = body["input"][1], UUID(body["evaluation"])
    return lambda kind, part: item_id(kind, position, part, evaluation_id)


def output_items(body: Mapping[str, Any], message: Message, status: str) -> list[Item]:
    """The items of an answer. Their parts are in the order in which they were streamed."""
    last_status = "completed" if status == "completed" else "incomplete"
    items = items_for_clients(message, body["input"][1], UUID(body["evaluation"]), last_status=last_status)
    slots = list(dict.fromkeys(slot for slot, _ in body.get("pieces") or ()))
    if {TEXT, REFUSAL} <= set(slots) and slots.index(REFUSAL) < slots.index(TEXT):
        for item in items:  # the record has the text first
            if item["type"] == "message":
                item["content"] = item["content"][::-1]
    return items


def response_object(response_id: str, body: Mapping[str, Any], status: str, output: list[Item]) -> dict[str, Any]:
    """A response in OpenAI's format."""
    has_ended = status not in UNFINISHED
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(str(body.get("finish")))
    return {
        "id": response_id,
        "object": "response",
        "created_at": body["created_at"],
        "completed_at": body.get("completed_at") if status == "completed" else None,
        "status": status,
        "error": body.get("error") if has_ended else None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        **body["echo"],
        "output": output,
        "usage": usage_object(body.get("usage")) if has_ended else None,
    }


def usage_object(reported: Any) -> dict[str, Any] | None:
    """The provider's usage in the format of this API; None if the provider reported none."""
    if not isinstance(reported, Mapping):
        return None
    usage = usage_from(reported)
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.cache_write_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


async def find_response(service: Service, caller: Caller, response_id: str) -> Document:
    """The run document of a response. If the server that ran it has died, the response is marked as failed.

    Raises:
        DocumentNotFound: the response does not exist, or the caller has no access.
    """
    store = service.store_of(caller)
    document = await find_run(store, response_id, API_NAME)
    try:
        require_access(caller, await store.header(document.conversation))
    except ConversationNotFound:
        raise DocumentNotFound(RUN_KIND, response_id) from None
    return await fail_if_abandoned(service, store, document, lost_fields())


def lost_fields() -> dict[str, Any]:
    """The fields of a response whose server died."""
    return {"error": _SERVER_LOST, "completed_at": int(time.time())}


async def load_response(store: ConversationStore, document: Document) -> StoredResponse:
    """Load the answer of a response from the record."""
    body = document.body
    message: Message | None = body.get("partial")
    if "answer" in body:
        loaded = await store.load(document.conversation, since=body["answer"], limit=1)
        message = entry_to_provider_message(loaded.entries[0]) if loaded.entries else None
    return StoredResponse(document.id, body, message)


async def wait_for_response(service: Service, caller: Caller, response_id: str) -> Document:
    """Wait until a response has ended, and return its run document.

    Raises:
        DocumentNotFound: the response was deleted meanwhile.
    """
    document = await find_response(service, caller, response_id)
    return await wait_for_end(service, service.store_of(caller), document, lost_fields())


async def stream_response(service: Service, caller: Caller, response_id: str, after: int) -> AsyncIterator[bytes]:
    """Yield the events of a response after a number: as they are sent if this server runs it, else after its end."""
    store, heartbeat_seconds = service.store_of(caller), service.config.server.heartbeat_seconds
    run = service.runs.get(response_id, caller.tenant)
    if run is not None and (run.events or not run.done):
        with contextlib.suppress(Exception):  # the stored run has the failure
            async for event in run.stream(after + 1, heartbeat_seconds=heartbeat_seconds):
                yield event
            return
    end_task = asyncio.ensure_future(wait_for_response(service, caller, response_id))
    try:
        while not (await asyncio.wait({end_task}, timeout=heartbeat_seconds))[0]:
            yield PING
    finally:
        end_task.cancel()
    for event in (await load_response(store, end_task.result())).events(after=after):
        yield event
