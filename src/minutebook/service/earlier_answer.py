"""An answer that the same request got before, or that another server is making."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Final

from minutebook.errors import ConversationBusy, DocumentNotFound
from minutebook.service.http.pages import new_id
from minutebook.service.idempotency import RUN, Claim, earlier_run
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document, NewDocument

UNFINISHED: Final = frozenset({"queued", "in_progress"})
_POLL_SECONDS: Final = 0.2
"""How often it is looked whether another server is done."""


async def find_run(store: ConversationStore, run_id: str, surface: str, *, kind: str = RUN) -> Document:
    """What is written down of an answer.

    Raises:
        DocumentNotFound: there is none of that id on these endpoints.
    """
    found = await store.document(kind, run_id)
    if found.body.get("surface") != surface:
        raise DocumentNotFound(kind, run_id)
    return found


async def find_earlier_answer(
    store: ConversationStore, claim: Claim, surface: str, *, kind: str = RUN
) -> Document | None:
    """What is written down of an earlier try of the same request; None if there was none.

    It has an `answer` if any try has. Ask again while you hold the lease, before you make one.

    Raises:
        IdempotencyConflict: the key came with another body.
    """
    run_id = await earlier_run(store, claim)
    if run_id is None:
        return None
    try:
        return await answered_try(store, await find_run(store, run_id, surface, kind=kind))
    except DocumentNotFound:
        return None


async def answered_try(store: ConversationStore, known: Document) -> Document:
    """Another try of the same request that stored its answer, whoever wrote down last that it tries; else the same.

    A server that is slow may lose its lease, and find out only when it has said that the next one is its turn.
    """
    body = known.body
    if "answer" in body or "input" not in body:
        return known
    page = await store.documents(known.conversation, RUN, newest_first=True)
    tries = (each for each in page.items if each.body.get("surface") == body["surface"] and "answer" in each.body)
    return next((each for each in tries if each.body.get("input") == body["input"]), known)


async def settle(service: Service, store: ConversationStore, known: Document, lost: Mapping[str, Any]) -> Document:
    """The same, unless nobody makes it any more though it says so: then it has failed, and says `lost` from now on.

    A server that died is known by its lease, which runs out.
    """
    run = service.runs.get(known.id, store.tenant)
    if known.body["status"] not in UNFINISHED or (run is not None and not run.done):
        return known
    try:
        lease = await store.acquire_lease(known.conversation, new_id("look"), seconds=service.lease_seconds)
    except ConversationBusy:
        return known
    try:
        known = await store.document(RUN, known.id)
        if known.body["status"] in UNFINISHED:
            document = NewDocument(RUN, known.id, {**known.body, **lost, "status": "failed"}, replace=True)
            known = await store.put_document(known.conversation, document)
    finally:
        await store.release_lease(lease)
    return known


async def wait_for_end(
    service: Service,
    store: ConversationStore,
    known: Document,
    lost: Mapping[str, Any],
    *,
    seconds: float | None = None,
) -> Document:
    """Wait until an answer that another server makes has come to its end, or for so many seconds.

    Raises:
        DocumentNotFound: it was deleted meanwhile.
    """
    until = None if seconds is None else time.monotonic() + seconds
    known = await settle(service, store, known, lost)
    while known.body["status"] in UNFINISHED and (until is None or time.monotonic() < until):
        await asyncio.sleep(_POLL_SECONDS)
        known = await settle(service, store, await store.document(RUN, known.id), lost)
    return known
