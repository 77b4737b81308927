"""Conversations as objects, and what every endpoint for them needs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from minutebook.conversation.view_source import PROVIDER
from minutebook.errors import DocumentNotFound, RequestRefused
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import Message
from minutebook.service.access.api_keys import Caller
from minutebook.service.config.schema import LimitsConfig
from minutebook.service.http.requests import require_sight
from minutebook.service.http.responses import new_id, require_version
from minutebook.service.idempotency import Claim
from minutebook.service.responses.items import Item, items_of, require_new_ids, require_room
from minutebook.service.runs import held
from minutebook.service.state import Service
from minutebook.store.base import ConversationStore
from minutebook.store.types import Conversation, Lease, Loaded, NewDocument
from minutebook.wire.chat import provider_message_to_entry
from minutebook.wire.responses import items_to_messages

METADATA: Final = "metadata"
"""The kind of document that holds what a conversation's owner notes with it."""


def metadata_document(conversation: str, metadata: Mapping[str, str]) -> NewDocument:
    """The metadata of a conversation, to be written down."""
    return NewDocument(METADATA, conversation, {"metadata": dict(metadata)}, replace=True)


async def metadata_of(store: ConversationStore, conversation: str) -> dict[str, str]:
    """What its owner noted with a conversation."""
    try:
        return dict((await store.document(METADATA, conversation)).body["metadata"])
    except DocumentNotFound:
        return {}


async def object_of(store: ConversationStore, conversation: Conversation) -> dict[str, Any]:
    """A conversation in OpenAI's shape, with our fields."""
    origin = conversation.origin
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": await metadata_of(store, conversation.id),
        "version": conversation.version,
        "status": conversation.status.value,
        "recipient": conversation.recipient,
        "turn_count": conversation.turns,
        "item_count": conversation.length,
        "updated_at": int(conversation.updated_at.timestamp()),
        "forked_from": None if origin is None else origin.conversation,
    }


async def seen(service: Service, caller: Caller, name: str) -> Conversation:
    """The header of a conversation that the caller may see.

    Raises:
        ConversationNotFound: there is none for this caller.
    """
    return require_sight(caller, await service.store_of(caller).header(name))


@asynccontextmanager
async def writing(service: Service, caller: Caller, name: str) -> AsyncIterator[tuple[ConversationStore, Lease]]:
    """Have a conversation to oneself while writing to it, so that no answer is being made meanwhile.

    Raises:
        ConversationNotFound: there is none for this caller.
        ConversationBusy: an answer is being made in it.
    """
    await seen(service, caller, name)
    store = service.store_of(caller)
    async with held(store, name, new_id("write"), seconds=service.lease_seconds) as hold:
        yield store, hold.lease


def require_few(items: Sequence[object], limits: LimitsConfig) -> None:
    """Raises `RequestRefused` if these are more items than one call may bring."""
    if len(items) > limits.items_per_call:
        said = f"items has {len(items)} items; one call may bring {limits.items_per_call}."
        raise RequestRefused(400, said, "too_many_items", "items")


async def create(
    store: ConversationStore,
    name: str,
    items: Sequence[Item],
    *,
    recipient: str | None,
    documents: Sequence[NewDocument] = (),
) -> Conversation:
    """A new conversation with these items, all of them or none."""
    require_new_ids(items, None)
    entries = entries_of(items_to_messages(items))
    await store.append(name, entries, recipient=recipient, expected_version=0, documents=documents)
    return await store.header(name)


async def add(
    service: Service, caller: Caller, name: str, items: Sequence[Item], *, expected_version: int | None, claim: Claim
) -> tuple[Conversation, list[Item]]:
    """Append items to a conversation, all of them or none; return them as they are kept.

    Raises:
        VersionConflict: it is not where the client thinks it is.
        BrokenConversation: they do not fit what is there.
    """
    async with writing(service, caller, name) as (store, lease):
        loaded = await store.load(name)
        require_version(loaded.conversation, expected_version)
        require_new_ids(items, loaded)
        messages = items_to_messages(items)
        require_room(loaded.conversation.length + len(messages), service.config.limits)
        start = loaded.conversation.length
        await store.append(
            name,
            entries_of(messages),
            expected_version=loaded.conversation.version,
            lease=lease,
            documents=[claim.document(f"{start}-{start + len(messages)}")],
        )
        added: Loaded = await store.load(name, since=start)
        return added.conversation, list(items_of(added))


def entries_of(messages: Sequence[Message]) -> list[ConversationEntry]:
    """Messages as entries for the record."""
    evaluation, now = uuid4(), datetime.now(UTC)
    return [
        provider_message_to_entry(message, evaluation_id=evaluation, sequence=place, created_at=now, provider=PROVIDER)
        for place, message in enumerate(messages)
    ]
