"""JSON objects of conversations, and operations that several of their endpoints share."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from minutebook.errors import DocumentNotFound, RequestRefused
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.config.schema import LimitsConfig
from minutebook.service.http.requests import require_access
from minutebook.service.http.responses import new_id, require_version
from minutebook.service.idempotency import IdempotencyKey
from minutebook.service.responses.items import Item, items_of, require_new_ids, require_room
from minutebook.service.runs import hold_lease
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, Lease, LoadedConversation, NewDocument
from minutebook.wire.chat import provider_message_to_entry
from minutebook.wire.responses import items_to_messages

_METADATA_KIND: Final = "metadata"


def metadata_document(conversation: str, metadata: Mapping[str, str]) -> NewDocument:
    """The document that stores a conversation's metadata."""
    return NewDocument(_METADATA_KIND, conversation, {"metadata": dict(metadata)}, replace=True)


async def read_metadata(store: ConversationStore, conversation: str) -> dict[str, str]:
    """The metadata of a conversation; empty if it has none."""
    try:
        return dict((await store.document(_METADATA_KIND, conversation)).body["metadata"])
    except DocumentNotFound:
        return {}


async def conversation_object(store: ConversationStore, conversation: ConversationHeader) -> dict[str, Any]:
    """A conversation in OpenAI's format, with the fields of this service."""
    origin = conversation.origin
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": await read_metadata(store, conversation.id),
        "version": conversation.version,
        "status": conversation.status.value,
        "recipient": conversation.recipient,
        "turn_count": conversation.turns,
        "item_count": conversation.length,
        "updated_at": int(conversation.updated_at.timestamp()),
        "forked_from": None if origin is None else origin.conversation,
    }


async def read_header(service: Service, caller: Caller, conversation_id: str) -> ConversationHeader:
    """The header of a conversation.

    Raises:
        ConversationNotFound: it does not exist, or the caller may not access it.
    """
    return require_access(caller, await service.store_of(caller).header(conversation_id))


@asynccontextmanager
async def hold_for_writing(
    service: Service, caller: Caller, conversation_id: str, *, expected_version: int | None = None
) -> AsyncIterator[tuple[ConversationStore, Lease]]:
    """Hold a conversation's lease for this block, so that no answer is created in it meanwhile.

    Raises:
        ConversationNotFound: it does not exist, or the caller may not access it.
        ConversationBusy: another request has the lease.
        VersionConflict: it is not at the expected version.
    """
    await read_header(service, caller, conversation_id)
    store = service.store_of(caller)
    async with hold_lease(store, conversation_id, new_id("write"), seconds=service.lease_seconds) as lease:
        if expected_version is not None:
            require_version(await store.header(conversation_id), expected_version)
        yield store, lease.lease


def require_item_count(items: Sequence[object], limits: LimitsConfig) -> None:
    """Raise `RequestRefused` if a request has too many items."""
    if len(items) > limits.items_per_call:
        problem = f"items has {len(items)} items; the maximum per request is {limits.items_per_call}."
        raise RequestRefused(400, problem, "too_many_items", "items")


async def create_with_items(
    store: ConversationStore,
    conversation_id: str,
    items: Sequence[Item],
    *,
    recipient: str | None,
    documents: Sequence[NewDocument] = (),
) -> ConversationHeader:
    """Create a conversation with these items, atomically."""
    require_new_ids(items, ())
    entries = entries_of(items_to_messages(items))
    await store.append(conversation_id, entries, recipient=recipient, expected_version=0, documents=documents)
    return await store.header(conversation_id)


async def append_items(
    service: Service,
    caller: Caller,
    conversation_id: str,
    items: Sequence[Item],
    *,
    expected_version: int | None,
    idempotency_key: IdempotencyKey,
) -> tuple[ConversationHeader, list[Item]]:
    """Append items to a conversation, atomically. Return the new header and the items as stored.

    Raises:
        VersionConflict: the conversation is at another version than the client expects.
        BrokenConversation: the items break the pairing of tool calls and results.
    """
    async with hold_for_writing(service, caller, conversation_id) as (store, lease):
        loaded = await store.load(conversation_id)
        require_version(loaded.conversation, expected_version)
        require_new_ids(items, items_of(loaded))
        messages = items_to_messages(items)
        require_room(loaded.conversation.length + len(messages), service.config.limits)
        start = loaded.conversation.length
        await store.append(
            conversation_id,
            entries_of(messages),
            expected_version=loaded.conversation.version,
            lease=lease,
            documents=[idempotency_key.document(f"{start}-{start + len(messages)}")],
        )
        appended: LoadedConversation = await store.load(conversation_id, since=start)
        return appended.conversation, list(items_of(appended))


def entries_of(messages: Sequence[Message]) -> list[ConversationEntry]:
    """Messages as entries of the record."""
    evaluation_id, now = uuid4(), datetime.now(UTC)
    return [
        provider_message_to_entry(
            message, evaluation_id=evaluation_id, sequence=index, created_at=now, provider="openai"
        )
        for index, message in enumerate(messages)
    ]
