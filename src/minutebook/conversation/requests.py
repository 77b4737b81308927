"""Recorded requests: reads the minutes of a conversation, says why a message was not sent, and removes old minutes.

The usage of removed minutes is added to totals per day and model. They are documents of a conversation of the reserved
tenant, one conversation per tenant. Each batch of removed minutes is an append to it, which expects the version that was
read before. The append stores the new totals and the ids of the batch atomically, and the minutes are deleted after it. So
two processes cannot count the same minutes, and after a crash the ids say which minutes were counted but not deleted.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Final

from minutebook.agent.messages import Usage, usage_from
from minutebook.conversation.minutes import sent_messages, usage_json
from minutebook.errors import (
    ConversationNotFound,
    DocumentNotFound,
    InvalidSetting,
    RequestNotFound,
    VersionConflict,
)
from minutebook.history.curation import NoteStatus
from minutebook.record.message import Message, role_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import REQUEST_KIND, RESERVED_TENANT, Document, NewDocument
from minutebook.wire.chat import new_entries
from minutebook.wire.write import without_own_keys

_PAGE_SIZE: Final = 200
_TOTAL_KIND: Final = "usage"
_BATCH_KIND: Final = "usage_batch"
"""The document kind of the ids of minutes that were counted last. They may not be deleted yet."""


@dataclass(frozen=True, slots=True)
class MessageReason:
    """Whether a message was sent in a request and, if not unchanged, the reason."""

    position: int
    role: str
    status: NoteStatus
    reason: str

    def __str__(self) -> str:
        return f"{self.status.value}: {self.reason}" if self.reason else self.status.value


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """A recorded request: when it was made, with which policy, which messages were left out, and what it used."""

    number: int
    id: str
    at: datetime
    model: str | None
    policy: Mapping[str, Any]
    """The policy with all its settings."""
    length: int
    """The number of messages in the record at that time."""
    messages: list[Message]
    """The messages that were sent, in chat format. Messages that were deleted since then are missing."""
    left_out: Sequence[Mapping[str, Any]]
    """Ranges of the record that were changed or left out: `start`, `stop`, `status`, `reason`."""
    folds: Sequence[str]
    """The ids of the folds that were applied."""
    tokens_before: int
    tokens_after: int
    sha256: str
    """The digest of the messages that were sent."""
    usage: Usage | None
    """The token counts that the provider reported; None if they were not stored."""
    finish: str | None
    _roles: Mapping[int, str]

    @classmethod
    def of(cls, number: int, document: Document, record: Sequence[Message]) -> "Request":
        """The request of stored minutes. `record` has every message at its position."""
        body = document.body
        return cls(
            number=number,
            id=document.id,
            at=datetime.fromisoformat(body["asked_at"]),
            model=body["model"] or None,
            policy=body["policy"],
            length=body["length"],
            messages=[without_own_keys(message) for message in sent_messages(body["parts"], dict(enumerate(record)))],
            left_out=body["left_out"],
            folds=body["folds"],
            tokens_before=body["tokens_before"],
            tokens_after=body["tokens_after"],
            sha256=body["sha256"],
            usage=usage_from(body["usage"]) if body.get("usage") else None,
            finish=body.get("finish"),
            _roles={position: role_of(record[position]) for position in range(min(len(record), body["length"]))},
        )

    def why(self, position: int) -> MessageReason:
        """Whether the message at a position of the record was sent in this request, and why not.

        Raises:
            InvalidSetting: the record had no such message at that time.
        """
        if type(position) is int and -self.length <= position < 0:
            position += self.length  # from the end, as in a sequence
        if type(position) is not int or not 0 <= position < self.length:
            expected = f"0 to {self.length - 1}: the record had {self.length} messages at request {self.number}"
            raise InvalidSetting("message", position, expected)
        for left_out in self.left_out:
            if left_out["start"] <= position < left_out["stop"]:
                status, reason = NoteStatus(left_out["status"]), left_out["reason"]
                return MessageReason(position, self._roles.get(position, ""), status, reason)
        return MessageReason(position, self._roles.get(position, ""), NoteStatus.SENT, "")

    def __repr__(self) -> str:
        return (
            f"<Request {self.number}: {len(self.messages)} of {self.length} messages, {self.tokens_after:,} tokens, "
            f"{self.at:%Y-%m-%d %H:%M:%S}>"
        )


def request_id(conversation: str, number: int | None) -> str:
    """The document id of a numbered request, which is unique among all conversations of a tenant."""
    return f"{number or 'dry run'}-{conversation_digest(conversation)}"


def conversation_digest(conversation: str) -> str:
    """A short digest of a conversation's id, for the ids of its documents."""
    return hashlib.sha256(conversation.encode()).hexdigest()[:32]


async def read_requests(store: ConversationStore, conversation: str) -> AsyncIterator[tuple[int, Document]]:
    """The minutes of all requests of a conversation, oldest first, with their numbers.

    A request that was stored without a number gets the number after that of the previous request.
    """
    number, cursor = 0, None
    while True:
        page = await store.documents(conversation, REQUEST_KIND, cursor=cursor, limit=_PAGE_SIZE)
        for document in page.items:
            number = document.body.get("number") or number + 1
            yield number, document
        if (cursor := page.cursor) is None:
            return


async def find_request(store: ConversationStore, conversation: str, request: int | str) -> tuple[int, Document]:
    """The number and the minutes of one request, given by its number or its id.

    Raises:
        RequestNotFound: the conversation has no such request.
    """
    number = 0
    if isinstance(request, int):
        with suppress(DocumentNotFound):
            return request, await store.document(REQUEST_KIND, request_id(conversation, request))
    async for number, document in read_requests(store, conversation):
        if request in {number, document.id}:
            return number, document
    raise RequestNotFound(REQUEST_KIND, str(request), conversation, number)


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """The requests of one day (UTC) to one model, and the tokens that the provider reported for them."""

    day: date
    model: str
    requests: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def key(self) -> tuple[date, str]:
        return self.day, self.model

    def __add__(self, other: "UsageTotal") -> "UsageTotal":
        return replace(self, requests=self.requests + other.requests, usage=self.usage + other.usage)


async def usage_totals(store: ConversationStore) -> list[UsageTotal]:
    """The tenant's requests and tokens per day and model, oldest first, including requests whose minutes were removed.

    Reads all minutes of the tenant. Minutes that were deleted with their conversation before they were removed by age are
    not included.
    """
    ledger = _UsageLedger(store)
    totals, counted = await ledger.totals(), await ledger.last_batch_ids()
    async for batch in _requests_before(store, datetime.now(UTC)):
        _add(totals, (document for document in batch if document.id not in counted))
    return [totals[key] for key in sorted(totals)]


async def count_requests(store: ConversationStore, before: datetime) -> int:
    """The number of requests before a time whose minutes are stored."""
    return sum([len(batch) async for batch in _requests_before(store, before)])


async def remove_requests(store: ConversationStore, before: datetime) -> int:
    """Remove the minutes of requests before a time, in batches, and add their usage to the totals; return their number.

    Each is counted exactly once, also if several processes remove minutes or one is killed. The number of a conversation's
    next request does not change.
    """
    ledger = _UsageLedger(store)
    count, cursor = 0, None
    if not (await store.requests_before(before, limit=1)).items:
        return 0
    while True:
        version = await ledger.delete_counted()
        page = await store.requests_before(before, cursor=cursor, limit=_PAGE_SIZE)
        if page.items:
            try:
                await ledger.count(page.items, version)
            except VersionConflict:  # another process has counted a batch
                continue
            count += await store.delete_documents(REQUEST_KIND, [document.id for document in page.items])
        if (cursor := page.cursor) is None:
            return count


async def _requests_before(store: ConversationStore, before: datetime) -> AsyncIterator[Sequence[Document]]:
    cursor = None
    while True:
        page = await store.requests_before(before, cursor=cursor, limit=_PAGE_SIZE)
        yield page.items
        if (cursor := page.cursor) is None:
            return


def _add(totals: dict[tuple[date, str], UsageTotal], documents: Iterable[Document]) -> None:
    """Add the usage of minutes to totals by day and model."""
    for document in documents:
        body = document.body
        key = datetime.fromisoformat(body["asked_at"]).astimezone(UTC).date(), body["model"]
        totals[key] = totals.get(key, UsageTotal(*key)) + UsageTotal(*key, 1, usage_from(body.get("usage")))


class _UsageLedger:
    """The totals of removed minutes of a tenant."""

    def __init__(self, store: ConversationStore) -> None:
        self._tenant_store = store
        self._store = store.for_tenant(RESERVED_TENANT).with_expiry(None)
        self._id = f"usage-{conversation_digest(store.tenant)}"

    async def totals(self) -> dict[tuple[date, str], UsageTotal]:
        totals: dict[tuple[date, str], UsageTotal] = {}
        cursor = None
        while True:
            try:
                page = await self._store.documents(self._id, _TOTAL_KIND, cursor=cursor, limit=_PAGE_SIZE)
            except ConversationNotFound:
                return totals
            totals |= {_total(document).key: _total(document) for document in page.items}
            if (cursor := page.cursor) is None:
                return totals

    async def last_batch_ids(self) -> frozenset[str]:
        """The ids of the minutes of the last batch, which may not be deleted yet."""
        try:
            return frozenset((await self._store.document(_BATCH_KIND, self._id)).body["ids"])
        except DocumentNotFound:
            return frozenset()

    async def delete_counted(self) -> int:
        """Delete the minutes that were counted last, and return the version of the conversation at that time."""
        try:
            version = (await self._store.header(self._id)).version
        except ConversationNotFound:
            return 0
        await self._tenant_store.delete_documents(REQUEST_KIND, sorted(await self.last_batch_ids()))
        return version

    async def count(self, documents: Sequence[Document], version: int) -> None:
        """Add the usage of minutes to the totals.

        Raises:
            VersionConflict: another process has counted a batch since the version was read.
        """
        changes: dict[tuple[date, str], UsageTotal] = {}
        _add(changes, documents)
        new = [await self._document(total) for total in changes.values()]
        batch = {"ids": [document.id for document in documents]}
        message = {"role": "user", "content": f"counted and removed the minutes of {len(documents)} requests"}
        await self._store.append(
            self._id,
            new_entries([message]),
            expected_version=version,
            documents=[*new, NewDocument(_BATCH_KIND, self._id, batch, replace=True)],
        )

    async def _document(self, change: UsageTotal) -> NewDocument:
        """The total of a day and model with a change added, as a document."""
        digest = conversation_digest(f"{self._id} {change.model}")
        document_id = f"{change.day.isoformat()}-{digest}"
        with suppress(DocumentNotFound):
            change = _total(await self._store.document(_TOTAL_KIND, document_id)) + change
        body = {
            "tenant": self._tenant_store.tenant,
            "day": change.day.isoformat(),
            "model": change.model,
            "requests": change.requests,
            "usage": usage_json(change.usage),
        }
        return NewDocument(_TOTAL_KIND, document_id, body, replace=True)


def _total(document: Document) -> UsageTotal:
    body = document.body
    return UsageTotal(date.fromisoformat(body["day"]), body["model"], body["requests"], usage_from(body["usage"]))
