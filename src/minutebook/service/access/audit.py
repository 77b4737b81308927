"""The audit log: administrative actions of a service, stored in its database.

The log is a conversation of the reserved tenant. A conversation is append-only and numbers its entries, so several
replicas can write to the same log.
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
from minutebook.service.access.api_keys import Caller
from minutebook.service.observability.logs import without_secrets
from minutebook.store.base import ConversationStore
from minutebook.store.rules import now
from minutebook.store.types import RESERVED_TENANT
from minutebook.wire.chat import provider_message_to_entry

AuditAction = Literal[
    "key.create", "key.revoke", "key.rotate", "erase", "undo", "fork", "rewind", "clear", "config.reload"
]
_LOG: Final = logging.getLogger("minutebook.audit")
_CONVERSATION: Final = "audit"
_PAGE_SIZE: Final = 500
_EVALUATION_ID: Final = uuid5(NAMESPACE_URL, "minutebook:audit")
MAX_TARGET_CHARACTERS: Final = 512


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One administrative action."""

    number: int
    """Position in the log, from 0."""
    at: str
    act: str
    target: str
    tenant: str
    key_id: str | None
    """The API key of the caller; None for the command line and for a service without keys."""


class AuditLog:
    """Appends to the audit log of a service, and reads it."""

    def __init__(self, store: ConversationStore, *, clock: Callable[[], datetime] = now) -> None:
        self._store = store.for_tenant(RESERVED_TENANT).with_expiry(None)
        self._clock = clock

    async def note(self, caller: Caller, act: AuditAction, target: str) -> AuditEntry:
        """Append an action. `target` is an id or a name; anything in it that looks like a secret is redacted.

        The target of an erasure is stored as its SHA-256: the log does not reveal the id, but an auditor who knows it
        can verify the erasure.
        """
        if len(target) > MAX_TARGET_CHARACTERS:
            raise InvalidSetting("target", target, f"an id or a name of up to {MAX_TARGET_CHARACTERS} characters")
        at = self._clock().astimezone(UTC)
        fields: dict[str, Any] = {
            "at": at.isoformat(),
            "act": act,
            "target": erased_target(target) if act == "erase" else without_secrets(target),
            "tenant": caller.tenant,
            "key_id": caller.key_id,
        }
        message = {"role": "user", "content": json.dumps(fields, sort_keys=True)}
        stored_entry = provider_message_to_entry(message, evaluation_id=_EVALUATION_ID, sequence=0, created_at=at)
        version = await self._store.append(_CONVERSATION, [stored_entry])
        entry = AuditEntry(version - 1, **fields)
        _LOG.info("audit", extra=asdict(entry))
        return entry

    async def entries(self, *, since: int = 0) -> AsyncIterator[AuditEntry]:
        """The actions from number `since` on, oldest first."""
        while True:
            try:
                loaded = await self._store.load(_CONVERSATION, since=since, limit=_PAGE_SIZE)
            except ConversationNotFound:
                return
            for position, stored_entry in zip(loaded.positions, loaded.entries, strict=True):
                yield AuditEntry(position, **json.loads(stored_entry.content or ""))
            if not loaded.entries:
                return
            since = loaded.positions[-1] + 1


def erased_target(target: str) -> str:
    """The hash that the log has in place of an erased id."""
    return f"sha256:{hashlib.sha256(target.encode('utf-8', 'surrogatepass')).hexdigest()}"
