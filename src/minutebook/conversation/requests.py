"""Recorded requests: reads the minutes of a conversation, numbers them, and says why a message was not sent."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from minutebook.agent.messages import Usage, usage_from
from minutebook.conversation.minutes import REQUEST_KIND, sent_messages
from minutebook.errors import DocumentNotFound, InvalidSetting, RequestNotFound
from minutebook.history.curation import NoteStatus
from minutebook.record.message import Message, role_of
from minutebook.store.base import ConversationStore
from minutebook.store.types import Document
from minutebook.wire.write import without_own_keys

_PAGE_SIZE: Final = 200


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

    A request that was stored without a number has the one after the request before it.
    """
    number, cursor = 0, None
    while True:
        page = await store.documents(conversation, REQUEST_KIND, cursor=cursor, limit=_PAGE_SIZE)
        for document in page.items:
            number = document.body.get("number") or number + 1
            yield number, document
        if (cursor := page.cursor) is None:
            return


async def last_request_number(store: ConversationStore, conversation: str) -> int:
    """The number of the newest request; 0 if there is none."""
    newest = (await store.documents(conversation, REQUEST_KIND, limit=1, newest_first=True)).items
    number: int | None = newest[0].body.get("number") if newest else 0
    if number is None:
        async for read_number, _ in read_requests(store, conversation):
            number = read_number
    return number or 0


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
