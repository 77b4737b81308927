"""A response as an object: built from what is written down of it and from the record, wherever it was made."""

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
from minutebook.service.idempotency import RUN, UNFINISHED, fail_if_abandoned, find_run, wait_for_end
from minutebook.service.responses.events import NameOf, Telling, cut
from minutebook.service.responses.items import Item, item_id, shown
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document
from minutebook.wire.chat import entry_to_provider_message

SURFACE: Final = "responses"
DIED: Final = {"code": "server_error", "message": "The server that made this response is gone. Ask again."}


@dataclass(frozen=True, slots=True)
class Told:
    """A response that is written down, with its answer."""

    id: str
    body: Mapping[str, Any]
    message: Message | None

    @property
    def status(self) -> str:
        status: str = self.body["status"]
        return status

    def object(self) -> dict[str, Any]:
        """The response, as it is now."""
        output = [] if self.message is None else outputs(self.body, self.message, self.status)
        return response_object(self.id, self.body, self.status, output)

    def events(self, *, after: int = -1) -> Iterator[bytes]:
        """Everything that was told while it was made, and how it ended; only what comes after a number, if one is given."""
        telling = Telling(name_of(self.body))
        events = [*telling.begin(response_object(self.id, self.body, "in_progress", []))]
        if self.message is not None:
            for piece in cut(self.message, self.body.get("pieces")):
                events += telling.take(*piece)
        if self.status not in {"completed", "incomplete"}:
            yield from events[after + 1 :]
            yield from telling.fail(self.object(), after=after)
            return
        events += telling.end(self.object())
        yield from events[min(after + 1, len(events) - 1) :]


def name_of(body: Mapping[str, Any]) -> NameOf:
    """How the items of a response are called."""
    position, evaluation = body["input"][1], UUID(body["evaluation"])
    return lambda kind, part: item_id(kind, position, part, evaluation)


def outputs(body: Mapping[str, Any], message: Message, status: str) -> list[Item]:
    """The items of an answer."""
    last = "completed" if status == "completed" else "incomplete"
    return shown(message, body["input"][1], UUID(body["evaluation"]), last=last)


def response_object(name: str, body: Mapping[str, Any], status: str, output: list[Item]) -> dict[str, Any]:
    """A response in OpenAI's shape."""
    ended = status not in UNFINISHED
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(str(body.get("finish")))
    return {
        "id": name,
        "object": "response",
        "created_at": body["created_at"],
        "completed_at": body.get("completed_at") if status == "completed" else None,
        "status": status,
        "error": body.get("error") if ended else None,
        "incomplete_details": {"reason": reason} if status == "incomplete" else None,
        **body["echo"],
        "output": output,
        "usage": usage_object(body.get("usage")) if ended else None,
    }


def usage_object(reported: Any) -> dict[str, Any] | None:
    """What the provider counted, in the words of this API; None where it counted nothing."""
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


async def found(service: Service, caller: Caller, name: str) -> Document:
    """What is written down of a response that the caller may see. One whose server died has failed.

    Raises:
        DocumentNotFound: there is none.
    """
    store = service.store_of(caller)
    document = await find_run(store, name, SURFACE)
    try:
        require_access(caller, await store.header(document.conversation))
    except ConversationNotFound:
        raise DocumentNotFound(RUN, name) from None
    return await fail_if_abandoned(service, store, document, lost())


def lost() -> dict[str, Any]:
    """What a response says whose server died."""
    return {"error": DIED, "completed_at": int(time.time())}


async def told(store: ConversationStore, document: Document) -> Told:
    """A response with its answer from the record."""
    body = document.body
    message: Message | None = body.get("partial")
    if "answer" in body:
        loaded = await store.load(document.conversation, since=body["answer"], limit=1)
        message = entry_to_provider_message(loaded.entries[0]) if loaded.entries else None
    return Told(document.id, body, message)


async def ended(service: Service, caller: Caller, name: str) -> Document:
    """Wait until a response has come to its end.

    Raises:
        DocumentNotFound: it was deleted meanwhile.
    """
    return await wait_for_end(service, service.store_of(caller), await found(service, caller, name), lost())


async def events_from(service: Service, caller: Caller, name: str, after: int) -> AsyncIterator[bytes]:
    """The events of a response after a number: as they come where it is made here, else once it has ended."""
    store, heartbeat = service.store_of(caller), service.config.server.heartbeat_seconds
    run = service.runs.get(name, caller.tenant)
    if run is not None and (run.events or not run.done):
        with contextlib.suppress(Exception):  # how it failed is written down
            async for event in run.told(after + 1, heartbeat_seconds=heartbeat):
                yield event
            return
    ending = asyncio.ensure_future(ended(service, caller, name))
    try:
        while not (await asyncio.wait({ending}, timeout=heartbeat))[0]:
            yield PING
    finally:
        ending.cancel()
    for event in (await told(store, ending.result())).events(after=after):
        yield event
