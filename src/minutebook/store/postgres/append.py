"""Appends are planned in Python and written by one server function, a group at a time.

Each append of a group is checked against the state that the earlier ones leave, and a failed check fails that append
only. A plan is made either from cached headers, without a query, or from rows that were read under locks. The server
function writes the whole plan, or nothing if the database is not in the state that the plan assumes.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Final, Self

from psycopg import AsyncConnection
from psycopg.pq import Format

from minutebook.errors import ConversationErased, IdempotencyConflict, LeaseLost, MinutebookError, RecipientBlocked
from minutebook.store.backend import AppendCommand
from minutebook.store.codec import compress_document, microseconds, moment
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.postgres.entries import EntryRows, StoredPieces
from minutebook.store.postgres.functions import ServerFunction
from minutebook.store.postgres.search import index_rows
from minutebook.store.rules import (
    header_after_append,
    id_hash,
    new_header,
    recipient_hash,
    require_recipient,
    require_version,
)
from minutebook.store.sql import documents as sql_documents
from minutebook.store.sql.documents import DocumentName
from minutebook.store.sql.headers import SELECT, json_of, row_of
from minutebook.store.types import ConversationHeader, Document, Lease, document_key, kind_key, require_own_lease

NeedsJob = Callable[[ConversationHeader], bool]
"""Whether an append queues a background job for the conversation, given its new header. Labels and status may be older."""
NumberedHeader = tuple[int, ConversationHeader]
"""The row number and the header of a conversation."""
HeaderCache = MutableMapping[tuple[str, str], NumberedHeader]
"""Tenant and conversation id → the header that this process last read or wrote. Other processes may have changed it."""

_APPEND: Final = ServerFunction("append", "text", "text", "jsonb", "bytea", result_format=Format.TEXT)
# Fields of the JSON objects that the server function takes.
_UPDATE_FIELDS: Final = (
    *("ordinal", "number", "expected_version", "version", "length", "turns"),
    *("lead", "open_at", "open_calls", "updated_at", "documents", "requests"),
)
_INSERT_FIELDS: Final = ("id", "id_hash", "recipient", "recipient_hash", "status", "labels", "created_at")
_ENTRY_FIELDS: Final = ("ordinal", "position", "role", "turn", "metadata", "text", "rest")
_WORD_FIELDS: Final = ("ordinal", "position", "part", "size", "words")
_USED_KEY_FIELDS: Final = ("ordinal", "key", "digest", "version")
_DOCUMENT_FIELDS: Final = ("ordinal", "verdict", "kind", "id", "kind_hash", "hash", "at", "expires_at", "body")
_SELECT_USED_KEYS: Final = (
    "SELECT header.id, stored.key, stored.digest, stored.version"
    " FROM minutebook.conversation AS header CROSS JOIN LATERAL ("
    "  SELECT key, digest, version FROM minutebook.idempotency_key AS used WHERE used.tenant = header.tenant"
    "  AND used.conversation = header.number AND key = ANY(%s::bytea[]) OFFSET 0"  # OFFSET 0 makes it use the index
    ") AS stored WHERE header.tenant = %s AND header.id = ANY(%s::text[])"
)
_LOCK_HEADERS: Final = f"{SELECT} AND id = ANY(?::text[]) ORDER BY id FOR UPDATE"
_SELECT_TOMBSTONES: Final = (
    "SELECT stored.id FROM unnest(?::bytea[]) AS erased (id) CROSS JOIN LATERAL ("
    "  SELECT id FROM tombstone WHERE tenant = ? AND id = erased.id OFFSET 0"  # OFFSET 0 makes it use the index
    ") AS stored"
)
_LOCK_RECIPIENTS: Final = "SELECT pg_advisory_xact_lock_shared(key) FROM unnest(?::bigint[]) AS locked (key)"
_SELECT_BLOCKED: Final = (
    "SELECT stored.id FROM unnest(?::bytea[]) AS blocked (id) CROSS JOIN LATERAL ("
    "  SELECT id FROM blocked_recipient WHERE tenant = ? AND id = blocked.id OFFSET 0"
    ") AS stored"
)
_LOCK_LEASES: Final = (
    "SELECT stored.* FROM unnest(?::bytea[]) AS leased (id) CROSS JOIN LATERAL ("
    "  SELECT id, holder, fence, until FROM lease WHERE tenant = ? AND id = leased.id OFFSET 0 FOR SHARE"
    ") AS stored"
)


@dataclass(slots=True, eq=False)
class PendingAppend:
    """An append that waits to be written."""

    tenant: str
    command: AppendCommand
    stored_pieces: Sequence[StoredPieces]
    """The entries as their rows store them."""
    at: datetime
    tokens: Sequence[list[str]] = ()
    """The tokens of each entry for the search index."""
    future: "asyncio.Future[int]" = field(init=False)
    """Resolves to the new version."""

    @property
    def name(self) -> tuple[str, str]:
        """The tenant and the conversation."""
        return self.tenant, self.command.conversation


@dataclass(slots=True)
class AppendPlan:
    """The rows that a group of one tenant's appends writes, and the stored state it was planned from.

    A plan from cached headers has no other stored state. It assumes that no lease is lost and that documents and
    idempotency keys are new; the server function checks this.
    """

    tenant: str
    headers: Mapping[str, NumberedHeader]
    used_keys: dict[tuple[str, bytes], tuple[bytes, int]] = field(default_factory=dict)
    """Conversation and idempotency key → digest and version of the append that used the key."""
    erased: set[str] = field(default_factory=set)
    blocked: set[bytes] = field(default_factory=set)
    """Hashes of the recipients that are blocked."""
    documents: dict[DocumentName, Document] = field(default_factory=dict)
    leases: Mapping[str, Lease] | None = None
    """None if the stored state was not read."""
    _headers_after: dict[str, ConversationHeader] = field(default_factory=dict)
    _ordinals: dict[str, int] = field(default_factory=dict)
    """Conversation → its number within the plan, from 1."""
    _rows: EntryRows = field(default_factory=EntryRows)
    _changes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Idempotency keys, documents, and leases to check or release, as the server function takes them."""

    @classmethod
    async def load(cls, conn: TenantConnection, group: Sequence[PendingAppend]) -> Self:
        """Lock the conversations of a group, and read everything that its appends are checked against."""
        commands = [pending.command for pending in group]
        conversations = sorted({command.conversation for command in commands})
        keys = [command.idempotency_hash for command in commands if command.idempotency_hash]
        names_by_hash = {id_hash(conn.tenant, name): name for name in conversations}
        leased_hashes = [
            id_hash(conn.tenant, command.conversation) for command in commands if command.lease is not None
        ]
        documents = sorted({(document.kind, document.id) for command in commands for document in command.documents})
        recipients = sorted(
            {recipient_hash(conn.tenant, command.recipient or command.conversation) for command in commands}
        )
        # Every process locks in the order of ids, so there is no deadlock.
        _, header_rows, used_keys, erased, blocked, leases, *document_rows = await conn.query(
            (_LOCK_RECIPIENTS, (sorted(map(recipient_lock, recipients)),)),
            (_LOCK_HEADERS, (conn.tenant, conversations)),
            (_SELECT_USED_KEYS, (keys, conn.tenant, conversations)),
            (_SELECT_TOMBSTONES, (list(names_by_hash), conn.tenant)),
            (_SELECT_BLOCKED, (recipients, conn.tenant)),
            (_LOCK_LEASES, (sorted(leased_hashes), conn.tenant)),
            *(sql_documents.find_query(conn.tenant, name) for name in documents),
        )
        headers = map(row_of, header_rows)
        return cls(
            conn.tenant,
            {row.conversation.id: (row.number, row.conversation) for row in headers},
            used_keys={(name, key): (digest, version) for name, key, digest, version in used_keys},
            erased={names_by_hash[key] for (key,) in erased},
            blocked={stored for (stored,) in blocked},
            documents=sql_documents.documents_of(document_rows),
            leases={
                names_by_hash[key]: Lease(names_by_hash[key], holder, fence, moment(until))
                for key, holder, fence, until in leases
            },
        )

    def add(self, pending: PendingAppend) -> int:
        """Check an append and add its rows to the plan; return the new version.

        Raises:
            MinutebookError: the append is rejected. The plan is unchanged.
        """
        command, at = pending.command, pending.at
        name, key, lease = command.conversation, command.idempotency_hash, command.lease
        if name in self.erased:
            raise ConversationErased(name)
        if key and (name, key) in self.used_keys:
            digest, version = self.used_keys[name, key]
            if digest != command.digest:
                raise IdempotencyConflict(name, command.idempotency_key or "")
            self._add_release(command)
            return version
        if lease is not None and any(lease.fence == row["fence"] for row in self._changes.get("releases", ())):
            raise LeaseLost(lease.conversation, lease.holder, lease.fence)
        if lease is not None and self.leases is not None:
            require_own_lease(self.leases.get(lease.conversation), lease)
        header = self._headers_after.get(name) or (self.headers[name][1] if name in self.headers else None)
        require_version(header, name, command.expected_version)
        before = header or new_header(self.tenant, name, command.recipient, command.labels or {}, at)
        if header is None and recipient_hash(self.tenant, before.recipient) in self.blocked:
            raise RecipientBlocked(before.recipient)
        require_recipient(before, command.recipient)
        write_actions = sql_documents.write_actions(name, command.documents, self.documents, at)
        self._headers_after[name] = after = header_after_append(
            before, command.messages, broken=command.on_broken_exchange, at=at
        )
        requests = max((document.request for document in command.documents), default=0)
        if requests > after.requests:
            self._headers_after[name] = after = replace(after, requests=requests)
        ordinal = self._ordinals.setdefault(name, len(self._ordinals) + 1)
        self._rows.add(ordinal, before.length, before.turns, command.packed, pending.stored_pieces)
        self._add_words(ordinal, before, pending.tokens)
        row: tuple[Any, ...]
        for document, action in zip(command.documents, write_actions, strict=True):
            kind, document_id = document.kind, document.id
            self.documents[kind, document_id] = document.stored(name, 0, at)
            hashes = (kind_key(kind), document_key(kind, document_id))
            times = (microseconds(at), document.expires_at)
            # A document that may be replaced is written without knowing whether it exists.
            verdict = "put" if document.replace else action.value
            row = (ordinal, verdict, kind, document_id, *hashes, *times, compress_document(document.body))
            self._changes["documents"].append(dict(zip(_DOCUMENT_FIELDS, row, strict=True)))
        if key:
            self.used_keys[name, key] = (command.digest, after.version)
            row = (ordinal, key, command.digest, after.version)
            self._changes["idempotency_keys"].append(dict(zip(_USED_KEY_FIELDS, row, strict=True)))
        if lease is not None:
            self._changes["leases"].append(self._lease_row(lease))
        self._add_release(command)
        return after.version

    def _add_words(self, ordinal: int, header: ConversationHeader, tokens: Sequence[list[str]]) -> None:
        """Add the rows of the search index."""
        for row in index_rows(header, header.length, tokens):
            self._changes["words"].append(dict(zip(_WORD_FIELDS, (ordinal, *row), strict=True)))

    def _add_release(self, command: AppendCommand) -> None:
        if command.lease is not None and command.release:
            self._changes["releases"].append(self._lease_row(command.lease))

    def _lease_row(self, lease: Lease) -> dict[str, Any]:
        return {"id": id_hash(self.tenant, lease.conversation), "holder": lease.holder, "fence": lease.fence}

    async def write(
        self, db: AsyncConnection, lock_seconds: float, needs_job: NeedsJob | None = None, *, commits: bool = False
    ) -> dict[tuple[str, str], NumberedHeader]:
        """Write the plan in one statement; return the new headers. With `commits`, the open transaction ends."""
        payloads = self._rows.payloads
        starts = accumulate((len(body) for _, body in payloads.values()), initial=1)
        changes = {
            **self._changes,
            # Every process updates in the order of ids, so there is no deadlock.
            "conversations": [self._conversation_row(name) for name in sorted(self._headers_after)],
            "entries": [dict(zip(_ENTRY_FIELDS, row, strict=True)) for row in zip(*self._rows.columns, strict=True)],
            "payloads": [
                {"hash": digest, "uses": uses, "start": start, "size": len(body)}
                for (digest, (uses, body)), start in zip(payloads.items(), starts, strict=False)
            ],
            "jobs": [
                name for name, header in self._headers_after.items() if needs_job is not None and needs_job(header)
            ],
        }
        changes_json = json.dumps({kind: rows for kind, rows in changes.items() if rows}, default=_hex)
        bodies = b"".join(body for _, body in payloads.values())
        call = _APPEND.call_and_commit if commits else _APPEND.call
        result = await call(db, self.tenant, int(1000 * lock_seconds), changes_json, bodies)
        numbers = json.loads(result.get_value(0, 0) or b"[]")
        headers = enumerate(self._headers_after.items())
        return {(self.tenant, name): (numbers[index], header) for index, (name, header) in headers}

    def _conversation_row(self, name: str) -> dict[str, Any]:
        header = self._headers_after[name]
        number, before = self.headers.get(name, (None, None))
        identity = (self._ordinals[name], number, before and before.version)
        counts = (header.version, header.length, header.turns, header.lead, header.open_at, json_of(header.open_calls))
        written = [row for row in self._changes.get("documents", ()) if row["ordinal"] == identity[0]]
        document_count = sum(row["verdict"] in {"new", "put"} for row in written)
        values = (*identity, *counts, microseconds(header.updated_at), document_count, header.requests)
        row: dict[str, Any] = dict(zip(_UPDATE_FIELDS, values, strict=True))
        if number is None:
            labels, created_at = json_of(dict(header.labels)), microseconds(header.created_at)
            names = (name, id_hash(self.tenant, name), header.recipient, recipient_hash(self.tenant, header.recipient))
            new_values = (*names, header.status.value, labels, created_at)
            row |= zip(_INSERT_FIELDS, new_values, strict=True)
        return row


async def append_all(
    conn: TenantConnection,
    group: Sequence[PendingAppend],
    cache: HeaderCache,
    lock_seconds: float,
    needs_job: NeedsJob | None,
) -> list[int | Exception]:
    """Lock the group's conversations and append to them; return the new version or the error of each append."""
    plan = await AppendPlan.load(conn, group)
    results: list[int | Exception] = []
    for pending in group:
        try:
            results.append(plan.add(pending))
        except MinutebookError as error:
            results.append(error)
    cache.update(await conn.run(lambda db: plan.write(db, lock_seconds, needs_job, commits=True)))
    return results


def recipient_lock(recipient_hash: bytes) -> int:
    """The key of the lock on a recipient, as `lock_new_recipients` computes it."""
    return int.from_bytes(recipient_hash[:8], signed=True)


def _hex(data: bytes) -> str:
    return f"\\x{data.hex()}"
