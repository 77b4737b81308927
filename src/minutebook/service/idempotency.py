"""Requests that come twice: the second gets the first one's answer, and nothing is said twice in the record.

A client that saw no answer asks again. It says so with an `Idempotency-Key`, or, as the official clients do, only by
counting its retries; the same body shortly after is then the same request. The answer may be in the record, or another
server is making it.
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from minutebook.errors import ConversationBusy, DocumentExists, DocumentNotFound, IdempotencyConflict, RequestRefused
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.responses import new_id
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document, NewDocument
from minutebook.wire.chat import dumped

REPLY: Final = "reply"
RUN: Final = "run"
"""The kinds of documents that say which answer a request got, and what became of that answer."""
_KEYED: Final = timedelta(hours=24)
_UNKEYED: Final = timedelta(minutes=10)
_LONGEST_KEY: Final = 255


@dataclass(frozen=True, slots=True)
class Claim:
    """What tells that two requests are one."""

    id: str
    fingerprint: str
    keyed: bool
    """Whether the client gave a key, and so said that a second body under it is a mistake."""
    again: bool
    """Whether this may be a second try."""

    def document(self, run_id: str) -> NewDocument:
        """What remembers which answer the request got."""
        expires = datetime.now(UTC) + (_KEYED if self.keyed else _UNKEYED)
        body = {"run": run_id, "fingerprint": self.fingerprint}
        return NewDocument(REPLY, self.id, body, expires_at=expires, replace=True)


def claim_of(caller: Caller, where: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Claim:
    """What a request is known by. `where` tells requests of different endpoints and conversations apart.

    Raises:
        RequestRefused: its key is none.
    """
    key = headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _LONGEST_KEY:
        said = f"Idempotency-Key must be 1 to {_LONGEST_KEY} characters."
        raise RequestRefused(400, said, "invalid_idempotency_key", "Idempotency-Key")
    fingerprint = hashlib.sha256(dumped(body)).hexdigest()
    who = caller.key_id or ""
    known = ["key", who, key] if key is not None else ["body", who, where, fingerprint]
    retries = headers.get("x-stainless-retry-count", "0")
    again = key is not None or (retries.isdigit() and int(retries) > 0)
    return Claim(hashlib.sha256(dumped(known)).hexdigest(), fingerprint, key is not None, again)


async def remember(store: ConversationStore, claim: Claim, conversation: str, run_id: str) -> None:
    """Write down the answer of a request without a key that goes to a conversation of its own.

    The same words may be said to anybody, in any conversation; a retry means the newest. Of two at the same time, one is
    remembered. It is not written with the rest in one step, since the one must not fail for the other.
    """
    await store.delete_document(REPLY, claim.id)
    with suppress(DocumentExists):
        await store.put_document(conversation, claim.document(run_id))


def in_flight() -> RequestRefused:
    """Two requests came with one key, and the first is not answered yet."""
    said = "A request with this Idempotency-Key is being carried out. Ask again for its answer."
    return RequestRefused(409, said, "idempotency_in_flight", "Idempotency-Key", (("retry-after-ms", "250"),))


async def earlier_run(store: ConversationStore, claim: Claim) -> str | None:
    """The run that an earlier try of the same request began, if there was one.

    Raises:
        IdempotencyConflict: the key came with another body.
    """
    if not claim.again:
        return None
    try:
        known = await store.document(REPLY, claim.id)
    except DocumentNotFound:
        return None
    if known.body["fingerprint"] != claim.fingerprint:
        raise IdempotencyConflict(known.conversation, "Idempotency-Key")
    run: str = known.body["run"]
    return run


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
