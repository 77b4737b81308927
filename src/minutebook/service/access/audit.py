"""The audit log: the administrative acts of a service, kept in its store.

The log is a conversation of the reserved tenant. Stores only append and give each entry its place, so several replicas
write one log.
"""

import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import NAMESPACE_URL, uuid5

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.service.access.api_keys import RESERVED_TENANT, Caller
from minutebook.service.observability.logs import redacted
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now
from minutebook.wire.chat import provider_message_to_entry

Act = Literal["key.create", "key.revoke", "key.rotate", "erase", "undo", "fork", "config.reload"]
_LOG: Final = logging.getLogger("minutebook.audit")
_CONVERSATION: Final = "audit"
_PAGE: Final = 500
_EVALUATION: Final = uuid5(NAMESPACE_URL, "minutebook:audit")
LONGEST_TARGET: Final = 512


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One act: who did what to what, and when."""

    number: int
    """Counted from 0."""
    at: str
    act: str
    target: str
    tenant: str
    key_id: str | None
    """The API key it was done with; None for whoever has the database, or a service without keys."""


class Audit:
    """The log of administrative acts."""

    def __init__(self, store: ConversationStore, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store.for_tenant(RESERVED_TENANT)
        self._clock = clock

    async def note(self, caller: Caller, act: Act, target: str) -> AuditEntry:
        """Write down an act. Targets are ids and names; what looks like a secret is redacted.

        What was erased is written as its SHA-256: nobody reads the name of who was forgotten there, and whoever knows
        it can still see that it was done.
        """
        if len(target) > LONGEST_TARGET:
            raise InvalidSetting("target", target, f"an id or a name of up to {LONGEST_TARGET} characters")
        at = self._clock().astimezone(UTC)
        facts: dict[str, Any] = {
            "at": at.isoformat(),
            "act": act,
            "target": forgotten(target) if act == "erase" else redacted(target),
            "tenant": caller.tenant,
            "key_id": caller.key_id,
        }
        message = {"role": "user", "content": json.dumps(facts, sort_keys=True)}
        stored = provider_message_to_entry(message, evaluation_id=_EVALUATION, sequence=0, created_at=at)
        version = await self._store.append(_CONVERSATION, [stored])
        entry = AuditEntry(version - 1, **facts)
        _LOG.info("audit", extra=asdict(entry))
        return entry

    async def entries(self, *, since: int = 0) -> AsyncIterator[AuditEntry]:
        """The acts, the oldest first."""
        while True:
            try:
                loaded = await self._store.load(_CONVERSATION, since=since, limit=_PAGE)
            except ConversationNotFound:
                return
            for position, stored in zip(loaded.positions, loaded.entries, strict=True):
                yield AuditEntry(position, **json.loads(stored.content or ""))
            if not loaded.entries:
                return
            since = loaded.positions[-1] + 1


def forgotten(target: str) -> str:
    """What the log calls something that was erased."""
    return f"sha256:{hashlib.sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()}"
