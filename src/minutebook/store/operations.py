"""The operations of a store on documents and leases. `ConversationStore` inherits them."""

from collections.abc import Sequence
from datetime import datetime

from minutebook.errors import ConversationErased, ConversationNotFound, InvalidSetting, LeaseLost
from minutebook.store.backend import Backend, DocumentQuery, LoadQuery
from minutebook.store.rules import MAX_PAGE_ITEMS, require_limit, require_part
from minutebook.store.types import (
    Document,
    Lease,
    LeasedConversation,
    NewDocument,
    Page,
    require_document,
    require_lease,
    require_name,
)


class DocumentOperations:
    """Documents: JSON objects that belong to a conversation and are erased with it."""

    backend: Backend

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into an existing conversation; return the stored document.

        If the conversation has a document with the same kind, id and body, that one is returned. With `replace`, its
        body and expiry time are replaced. An expired document counts as not existing.

        Documents are found by kind and id, are not searched, and are erased with their conversation. `fork`, `export`
        and `import_` do not copy them. Kinds and ids are not encrypted in an encrypted store.

        Raises:
            DocumentExists: there is a different document with the same kind and id, in this or another conversation.
            InvalidMessage: the body is not a JSON object.
        """
        require_name("conversation", conversation)
        return await self.backend.put_document(conversation, require_document(document))

    async def document(self, kind: str, document_id: str) -> Document:
        """The document with this kind and id, in any conversation of the tenant.

        An expired document is not found. It is deleted by the next write of that kind to its conversation, or by
        `vacuum` on a handle of its tenant.

        Raises:
            DocumentNotFound: it does not exist or has expired.
        """
        return await self.backend.document(require_name("kind", kind), require_name("document id", document_id))

    async def documents(
        self,
        conversation: str,
        kind: str,
        *,
        cursor: str | None = None,
        limit: int = 20,
        newest_first: bool = False,
    ) -> Page[Document]:
        """A page of a conversation's documents of one kind, in the order in which they were added, or newest first.

        Pages neither repeat nor skip a document that existed when the first page was read.
        """
        require_name("conversation", conversation)
        require_name("kind", kind)
        return await self.backend.documents(
            DocumentQuery(conversation, kind, cursor, require_limit(limit), newest_first)
        )

    async def requests_before(self, before: datetime, *, cursor: str | None = None, limit: int = 20) -> Page[Document]:
        """A page of the minutes of requests that were created before a time, of all conversations, oldest first.

        Minutes are documents of kind `request`.

        Raises:
            InvalidSetting: the time has no time zone.
        """
        if before.tzinfo is None:
            raise InvalidSetting("before", before, "a time with a time zone, such as datetime.now(UTC)")
        return await self.backend.requests_before(before, cursor, require_limit(limit))

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Delete a document; return whether it existed and had not expired."""
        return await self.delete_documents(kind, [document_id]) == 1

    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        """Delete documents of one kind; return how many existed and had not expired.

        SQLite and PostgreSQL delete all of them in one transaction.
        """
        require_name("kind", kind)
        names = [require_name("document id", document_id) for document_id in dict.fromkeys(document_ids)]
        if len(names) > MAX_PAGE_ITEMS:
            raise InvalidSetting("document_ids", len(names), f"at most {MAX_PAGE_ITEMS} ids")
        return await self.backend.delete_documents(kind, names) if names else 0


class LeaseOperations:
    """Leases: one run at a time works on a conversation, across processes."""

    backend: Backend

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Acquire the lease on a conversation, which may not exist yet.

        If the holder has the lease already, it is extended and keeps its fence; a new lease has a higher fence than all
        before. A lease is cooperative: it excludes other calls of `acquire_lease`, and an append with a lease that is
        not active, but not an append without a lease. The time is the database server's, if there is a server. In
        SQLite, a power failure may lose the lease, but it also ends every holder.

        Raises:
            ConversationBusy: another holder has the lease.
            ConversationErased: the conversation was erased.
        """
        require_lease(conversation, holder, seconds)
        return await self.backend.acquire_lease(conversation, holder, seconds)

    async def acquire_and_load(
        self,
        conversation: str,
        holder: str,
        *,
        seconds: float,
        last_turns: int | None = None,
        last_messages: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        folded: bool = False,
    ) -> LeasedConversation:
        """Acquire the lease as `acquire_lease` does, and load a part of the conversation as `load` does, if it exists.

        PostgreSQL does both in one round trip. No other holder can append between the two.

        Raises:
            ConversationBusy: another holder has the lease.
            ConversationErased: the conversation was erased.
        """
        require_lease(conversation, holder, seconds)
        require_part(last_turns, last_messages, since, limit)
        query = LoadQuery(conversation, last_turns, last_messages, since, limit, folded)
        return await self.backend.acquire_and_load(holder, seconds, query)

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend a lease to this many seconds from now, also if it has expired but no other holder has acquired it.

        Raises:
            LeaseLost: it was released, or another holder has it.
            ConversationErased: the conversation was erased.
        """
        renewed_lease = None
        if lease.tenant == self.backend.tenant:
            (renewed_lease,) = await self.renew_leases([lease], seconds=seconds)
        if renewed_lease is None:
            try:
                await self.backend.header(lease.conversation)
            except ConversationErased:
                raise
            except ConversationNotFound:
                pass
            raise LeaseLost(lease.conversation, lease.holder, lease.fence)
        return renewed_lease

    async def renew_leases(self, leases: Sequence[Lease], *, seconds: float) -> Sequence[Lease | None]:
        """Extend leases of any tenants to this many seconds from now, in one transaction.

        A server with many open streams renews all its leases with one call. The result has None for a lease that was
        released, that another holder has, or whose conversation was erased.
        """
        for lease in leases:
            require_lease(lease.conversation, lease.holder, seconds)
        return await self.backend.renew_leases(leases, seconds) if leases else []

    async def release_lease(self, lease: Lease) -> None:
        """Release a lease before it expires. Does nothing if it is not active."""
        await self.backend.release_lease(lease)
