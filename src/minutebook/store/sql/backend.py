"""The operations of a store as transactions, for SQLite and PostgreSQL."""

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, TypeVar

from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.store.backend import Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.sql import conversations, documents, folds, headers, search
from minutebook.store.sql.transaction import ConversationRow, SqlTransaction
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    Document,
    ErasureReceipt,
    LoadedConversation,
    PackedDocument,
    Page,
    SearchHit,
    StoredFold,
)

T = TypeVar("T")
TransactionFunction: TypeAlias = Callable[[SqlTransaction], Coroutine[Any, Any, T]]
"""Runs statements in a transaction."""
RowFunction: TypeAlias = Callable[[SqlTransaction, ConversationRow], Coroutine[Any, Any, T]]
"""Runs statements in a transaction that has locked the row of a conversation."""
MAX_INLINE_ROWS: Final = 64
"""Maximum number of rows that SQLite reads or writes in the event loop's thread."""


class SqlBackend(Backend):
    """All operations except append, leases and vacuum.

    The flags of `read` and `write` are hints. With `single_query`, PostgreSQL takes one round trip less. The others are for
    SQLite. `inline_ok`: the function touches few rows, so it may run in the event loop's thread. `cache_safe`: it changes no
    header, so the cached headers stay valid. `no_fsync`: a power cut may undo it.
    """

    @abstractmethod
    async def read(self, work: TransactionFunction[T], *, inline_ok: bool = False, single_query: bool = False) -> T:
        """Run a function that reads, on one snapshot. With `single_query`, each of its queries may have its own snapshot."""

    @abstractmethod
    async def write(
        self, work: TransactionFunction[T], *, inline_ok: bool = False, cache_safe: bool = False, no_fsync: bool = False
    ) -> T:
        """Run a function that writes, in a transaction; return its result after the commit."""

    async def set_setting(self, name: str, value: str) -> None:
        upsert = (
            "INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"
        )
        await self.write(lambda tx: tx.execute(upsert, name, value))

    async def search_mode(self) -> str:
        return await self.read(lambda tx: tx.search_mode(), inline_ok=True)

    async def search(self, query: SearchQuery) -> Page[SearchHit]:
        return await self.read(lambda tx: search.search(tx, query))

    async def header(self, conversation: str) -> ConversationHeader:
        return (
            await self.read(lambda tx: headers.get(tx, conversation), inline_ok=True, single_query=True)
        ).conversation

    async def load(self, query: LoadQuery) -> LoadedConversation:
        return await self.read(lambda tx: conversations.load(tx, query), inline_ok=True)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        async def work(tx: SqlTransaction) -> tuple[StoredFold, ...]:
            return await folds.load_folds(tx, await headers.get(tx, conversation))

        return await self.read(work)

    async def add_fold(self, conversation: str, fold: Fold, replacing: Sequence[str] | None) -> StoredFold:
        return await self._change(conversation, lambda tx, row: folds.add(tx, row, fold, replacing, self.now()))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        return await self._change(conversation, lambda tx, row: folds.undo(tx, row, fold_id, self.now()))

    async def set_pin(self, conversation: str, position: int, *, pinned: bool) -> None:
        await self._change(conversation, lambda tx, row: folds.set_pin(tx, row, position, pinned=pinned))

    async def purge(self, conversation: str, before: int) -> int:
        return await self._change(conversation, lambda tx, row: conversations.purge(tx, row, before))

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        return await self._change(conversation, lambda tx, row: conversations.trim(tx, row, changes))

    async def fork(self, conversation: str, new_id: str, at: int | None) -> ConversationHeader:
        """Fork a conversation. A long one takes no more time than a short one."""
        return await self._change(conversation, lambda tx, row: conversations.fork(tx, row, new_id, at, self.now()))

    async def rewind(self, conversation: str, to: int, expected_version: int | None, reason: str) -> ConversationHeader:
        return await self._change(
            conversation, lambda tx, row: folds.rewind(tx, row, to, expected_version, reason, self.now())
        )

    async def erase(self, conversation: str | None, recipient: str | None, *, block: bool = False) -> ErasureReceipt:
        return await self.write(lambda tx: conversations.erase(tx, conversation, recipient, self.now(), block=block))

    async def readmit(self, recipient: str) -> bool:
        return await self.write(lambda tx: headers.readmit(tx, recipient), cache_safe=True)

    async def remove_expired(self, conversation: str, before: datetime) -> ErasureReceipt:
        return await self.write(lambda tx: conversations.remove_expired(tx, conversation, before, self.now()))

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        return await self._change(conversation, lambda tx, row: headers.set_status(tx, row, status, self.now()))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        return await self._change(conversation, lambda tx, row: headers.set_labels(tx, row, labels))

    async def list(self, query: ListQuery) -> Page[ConversationHeader]:
        return await self.read(lambda tx: headers.list_page(tx, query))

    async def put_document(self, conversation: str, document: PackedDocument) -> Document:
        return await self._change(
            conversation,
            lambda tx, row: documents.put(tx, row, document, self.now()),
            inline_ok=True,
            cache_safe=True,
        )

    async def document(self, kind: str, document_id: str) -> Document:
        return await self.read(
            lambda tx: documents.get(tx, kind, document_id, self.now()), inline_ok=True, single_query=True
        )

    async def documents(self, query: DocumentQuery) -> Page[Document]:
        async def work(tx: SqlTransaction) -> Page[Document]:
            return await documents.list_page(tx, await headers.get(tx, query.conversation), query, self.now())

        return await self.read(work, inline_ok=query.limit <= MAX_INLINE_ROWS)

    async def requests_before(self, before: datetime, cursor: str | None, limit: int) -> Page[Document]:
        return await self.read(lambda tx: documents.requests_before(tx, before, cursor, limit))

    async def delete_documents(self, kind: str, document_ids: Sequence[str]) -> int:
        return await self.write(
            lambda tx: documents.delete(tx, kind, document_ids, self.now()),
            inline_ok=len(document_ids) <= MAX_INLINE_ROWS,
            cache_safe=True,
        )

    async def _change(
        self, conversation: str, work: RowFunction[T], *, inline_ok: bool = False, cache_safe: bool = False
    ) -> T:
        """Run a function that changes one conversation. Its row is locked until the transaction ends."""

        async def run_locked(tx: SqlTransaction) -> T:
            return await work(tx, await headers.get(tx, conversation, lock=True))

        return await self.write(run_locked, inline_ok=inline_ok, cache_safe=cache_safe)
