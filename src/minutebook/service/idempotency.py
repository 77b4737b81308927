"""Requests that come twice: the second gets the first one's answer, and nothing is said twice in the record.

A client that saw no answer asks again. It says so with an `Idempotency-Key`, or, as the official clients do, only by
counting its retries; the same body shortly after is then the same request.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from minutebook.errors import DocumentExists, DocumentNotFound, IdempotencyConflict, RequestRefused
from minutebook.service.access.api_keys import Caller
from minutebook.store.base import ConversationStore
from minutebook.store.types import NewDocument
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
