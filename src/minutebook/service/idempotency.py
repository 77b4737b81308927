"""Idempotent requests: a retry gets the answer of the first attempt, and its messages are not recorded twice.

A client marks a retry with the same `Idempotency-Key`. The official clients send only a retry count: then a request with the
same body a short time before is the first attempt. Its answer may be in the record, or still be in progress on another
server.
"""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from minutebook.errors import ConversationBusy, DocumentExists, DocumentNotFound, IdempotencyConflict, RequestRefused
from minutebook.service.access.api_keys import Caller
from minutebook.service.http.json_codec import json_bytes
from minutebook.service.http.responses import new_id
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document, NewDocument

IDEMPOTENCY_KIND: Final = "reply"
"""Kind of the document that maps a request's idempotency key to its result."""
RUN_KIND: Final = "run"
"""Kind of the document with the status of a run."""
_HEADER_LIFETIME: Final = timedelta(hours=24)
_BODY_LIFETIME: Final = timedelta(minutes=10)
_MAX_KEY_CHARACTERS: Final = 255
_HASH_CHARACTERS: Final = 32
"""128 bits of a hash in hexadecimal: every request stores two of them."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """Identifies a request: two requests with the same key id are attempts of one request."""

    id: str
    fingerprint: str
    """Hash of the body."""
    from_header: bool
    """The client sent an `Idempotency-Key` header. Another body with the same key is then an error."""
    may_be_retry: bool

    def document(self, result_id: str) -> NewDocument:
        """The document that maps this key to the result of the request.

        `result_id` is the id of a run, a request or a conversation, or the range of the appended entries.
        """
        expires = datetime.now(UTC) + (_HEADER_LIFETIME if self.from_header else _BODY_LIFETIME)
        body = {"run": result_id, "fingerprint": self.fingerprint}
        return NewDocument(IDEMPOTENCY_KIND, self.id, body, expires_at=expires, replace=True)


def idempotency_key_of(
    caller: Caller, scope: Sequence[str | None], headers: Mapping[str, str], body: bytes
) -> IdempotencyKey:
    """The idempotency key of a request. Requests with a different `scope` are never the same.

    The scope is the endpoint, the conversation and the recipient. `body` is the body as the client sent it.

    Raises:
        RequestRefused: the `Idempotency-Key` header is empty or too long.
    """
    key = headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _MAX_KEY_CHARACTERS:
        problem = f"Idempotency-Key must be 1 to {_MAX_KEY_CHARACTERS} characters."
        raise RequestRefused(400, problem, "invalid_idempotency_key", "Idempotency-Key")
    fingerprint = hashlib.sha256(body).hexdigest()[:_HASH_CHARACTERS]
    api_key = caller.key_id or ""
    parts = ["body", fingerprint] if key is None else ["key", key]
    retries = headers.get("x-stainless-retry-count", "0")
    may_be_retry = key is not None or (retries.isdigit() and int(retries) > 0)
    key_id = hashlib.sha256(json_bytes([api_key, *scope, *parts])).hexdigest()[:_HASH_CHARACTERS]
    return IdempotencyKey(key_id, fingerprint, key is not None, may_be_retry)


async def store_key(store: ConversationStore, key: IdempotencyKey, conversation: str, result_id: str) -> None:
    """Map a request without an `Idempotency-Key` that starts a new conversation to its result.

    Equal requests may start any number of conversations; a retry is matched with the newest one. The document is not
    part of the append, because the append must not fail when two equal requests are stored at the same time.
    """
    await store.delete_document(IDEMPOTENCY_KIND, key.id)
    with suppress(DocumentExists):
        await store.put_document(conversation, key.document(result_id))


def in_flight_error() -> RequestRefused:
    """The error for a retry that comes before the first attempt is answered."""
    problem = "A request with this Idempotency-Key is in progress. Retry to get its answer."
    return RequestRefused(409, problem, "idempotency_in_flight", "Idempotency-Key", (("retry-after-ms", "250"),))


async def find_earlier_result_id(store: ConversationStore, key: IdempotencyKey) -> str | None:
    """The `result_id` that an earlier attempt of the same request stored; None if there was none.

    Raises:
        IdempotencyConflict: the key was used with another body.
    """
    if not key.may_be_retry:
        return None
    try:
        key_document = await store.document(IDEMPOTENCY_KIND, key.id)
    except DocumentNotFound:
        return None
    if key_document.body["fingerprint"] != key.fingerprint:
        raise IdempotencyConflict(key_document.conversation, "Idempotency-Key")
    result_id: str = key_document.body["run"]
    return result_id


UNFINISHED: Final = frozenset({"queued", "in_progress"})
"""Statuses of a run that has not ended."""
_POLL_SECONDS: Final = 0.2
"""How often the status of another server's run is read."""


async def find_run(store: ConversationStore, run_id: str, api_name: str, *, kind: str = RUN_KIND) -> Document:
    """The stored document of a run.

    Raises:
        DocumentNotFound: this API has no run with this id.
    """
    document = await store.document(kind, run_id)
    if document.body.get("surface") != api_name:
        raise DocumentNotFound(kind, run_id)
    return document


async def find_earlier_answer(
    store: ConversationStore, key: IdempotencyKey, api_name: str, *, kind: str = RUN_KIND
) -> Document | None:
    """The document of an earlier attempt's run; None if there was none. It has an `answer` if any attempt has one.

    Before answering, call it again while holding the lease.

    Raises:
        IdempotencyConflict: the key was used with another body.
    """
    run_id = await find_earlier_result_id(store, key)
    if run_id is None:
        return None
    try:
        return await find_answered_attempt(store, await find_run(store, run_id, api_name, kind=kind))
    except DocumentNotFound:
        return None


async def find_answered_attempt(store: ConversationStore, run: Document) -> Document:
    """The attempt of the same request that stored an answer; `run` itself if there is none.

    The idempotency key may lead to another attempt: a slow server that has lost its lease notices that only after it
    has stored its own run under the key.
    """
    body = run.body
    if "answer" in body or "input" not in body:
        return run
    page = await store.documents(run.conversation, RUN_KIND, newest_first=True)
    answered_runs = (
        item for item in page.items if item.body.get("surface") == body["surface"] and "answer" in item.body
    )
    return next((item for item in answered_runs if item.body.get("input") == body["input"]), run)


async def fail_if_abandoned(
    service: Service, store: ConversationStore, run: Document, lost_fields: Mapping[str, Any]
) -> Document:
    """Mark an unfinished run as failed if the server that worked on it has died.

    `lost_fields` are fields of the failed run's document, such as its error.

    The lease of a dead server expires, so a lease that can be acquired means that no server works on the run.
    """
    local_run = service.runs.get(run.id, store.tenant)
    if run.body["status"] not in UNFINISHED or (local_run is not None and not local_run.done):
        return run
    try:
        lease = await store.acquire_lease(run.conversation, new_id("check"), seconds=service.lease_seconds)
    except ConversationBusy:
        return run
    try:
        run = await store.document(RUN_KIND, run.id)
        if run.body["status"] in UNFINISHED:
            document = NewDocument(RUN_KIND, run.id, {**run.body, **lost_fields, "status": "failed"}, replace=True)
            run = await store.put_document(run.conversation, document)
    finally:
        await store.release_lease(lease)
    return run


async def wait_for_end(
    service: Service,
    store: ConversationStore,
    run: Document,
    lost_fields: Mapping[str, Any],
    *,
    timeout_seconds: float | None = None,
) -> Document:
    """Wait until a run of another server has ended or the timeout has passed, and return its document.

    `lost_fields` are those of `fail_if_abandoned`.

    Raises:
        DocumentNotFound: the run was deleted meanwhile.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    run = await fail_if_abandoned(service, store, run, lost_fields)
    while run.body["status"] in UNFINISHED and (deadline is None or time.monotonic() < deadline):
        await asyncio.sleep(_POLL_SECONDS)
        run = await fail_if_abandoned(service, store, await store.document(RUN_KIND, run.id), lost_fields)
    return run
