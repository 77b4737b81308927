"""The operations of a store on documents and leases. `ConversationStore` inherits them."""

from minutebook.store.backend import Backend, DocumentQuery
from minutebook.store.rules import require_limit
from minutebook.store.types import Document, Lease, NewDocument, Page, require_document, require_lease, require_name


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

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Delete a document; return whether it existed and had not expired."""
        require_name("kind", kind)
        return await self.backend.delete_document(kind, require_name("document id", document_id))


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

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Extend a lease to this many seconds from now.

        Raises:
            LeaseLost: it has expired, was released, or another holder has it.
            ConversationErased: the conversation was erased.
        """
        require_lease(lease.conversation, lease.holder, seconds)
        return await self.backend.renew_lease(lease, seconds)

    async def release_lease(self, lease: Lease) -> None:
        """Release a lease before it expires. Does nothing if it is not active."""
        await self.backend.release_lease(lease)
