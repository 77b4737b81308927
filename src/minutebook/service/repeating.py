"""A request for a response that came before: what became of the first try, and whether it has to be made again."""

import asyncio
import time
from typing import Final, Protocol

from minutebook.errors import DocumentNotFound
from minutebook.service.asked import ResponseRequest
from minutebook.service.caller import Caller
from minutebook.service.replies import RUN, Claim, earlier_run
from minutebook.service.response import SURFACE, UNFINISHED, found, settled
from minutebook.service.state import Service
from minutebook.store.contract import ConversationStore
from minutebook.store.documents import Document

POLL_SECONDS: Final = 0.2
"""How often it is looked whether another server is done."""
_ANSWERED: Final = frozenset({"completed", "incomplete"})


class Repeating(Protocol):
    """Whoever may ask for the second time."""

    service: Service
    caller: Caller
    asked: ResponseRequest
    claim: Claim
    earlier: str | None


async def earlier_response(making: Repeating) -> Document | None:
    """The response that the same request got before. None if it is to be made: in the place of one that failed, if any."""
    store = making.service.store_of(making.caller)
    name = await earlier_run(store, making.claim)
    if name is None:
        return None
    try:
        document = await _outcome(making, store, name)
    except DocumentNotFound:
        return None
    if document.body["status"] in UNFINISHED | _ANSWERED:
        return document
    answered = await _answered(store, document)
    making.earlier = name if answered is None else None
    return answered


async def _outcome(making: Repeating, store: ConversationStore, name: str) -> Document:
    """What became of an earlier try, as far as it has to be known: one whose server died is to be made again.

    A server that died is known by its lease, which runs out. So whoever is streamed to waits that long before hearing
    from a server that lives: it would hear nothing before the end in any case. Others wait for the end.
    """
    service, caller, asked = making.service, making.caller, making.asked
    document = await settled(service, store, await store.document(RUN, name))
    if asked.background or (asked.stream and service.runs.get(name, caller.tenant) is not None):
        return document
    until = time.monotonic() + service.lease_seconds + 2 * POLL_SECONDS
    while document.body["status"] in UNFINISHED and not (asked.stream and time.monotonic() > until):
        await asyncio.sleep(POLL_SECONDS)
        document = await found(service, caller, name)
    return document


async def _answered(store: ConversationStore, failed: Document) -> Document | None:
    """The response of another try that stored its answer to the same words, whoever wrote down last that it tries.

    A server that is slow may lose its lease, and find out only when it has said that the next one is its turn.
    """
    page = await store.documents(failed.conversation, RUN, newest_first=True)
    for known in page.items:
        body = known.body
        if body.get("surface") == SURFACE and body["status"] in _ANSWERED and body.get("input") == failed.body["input"]:
            return known
    return None
