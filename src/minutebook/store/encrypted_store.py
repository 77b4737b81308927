"""A store that hands another one what nobody can read there."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Self

from minutebook.errors import ConversationNotFound, DocumentExists
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.transcript import Broken
from minutebook.store.cipher import Cipher
from minutebook.store.documents import NewDocument, PackedDocument
from minutebook.store.encrypted_append import KEY_LABEL, Append, appended, cipher_of, require_free_labels
from minutebook.store.encrypted_desk import EncryptedDesk
from minutebook.store.leases import Lease
from minutebook.store.lineage import Line
from minutebook.store.request import require_append
from minutebook.store.rules import require_limit, require_target
from minutebook.store.scan import scanned
from minutebook.store.seal import opened_entry, opened_fold, sealed_fold
from minutebook.store.types import Conversation, ConversationStatus, Hit, Loaded, Page, Receipt, StoredFold
from minutebook.store.words import query_words


class EncryptedStore(EncryptedDesk):
    """Hands another store what nobody can read there."""

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant, whose data keys are others."""
        return type(self)(self._store.for_tenant(tenant), self._keys, self._masters)

    async def rotate(self, new_key: bytes) -> int:
        """Wrap this tenant's data keys with another master key; return how many were wrapped anew.

        Others that use the store must know the new key by then: give it to them as `key`, with the old one in `old_keys`.
        Afterwards the old one is needed no more, once it was done for every tenant.
        """
        return await self._ring.rotate(new_key)

    async def append(
        self,
        conversation: str,
        entries: Sequence[ConversationEntry],
        *,
        recipient: str | None = None,
        labels: Mapping[str, str] | None = None,
        expected_version: int | None = None,
        idempotency_key: str | None = None,
        fingerprint: bytes | None = None,
        broken: Broken = "raise",
        documents: Sequence[NewDocument] = (),
        lease: Lease | None = None,
        release: bool = False,
    ) -> int:
        """Add entries at the end, all or none; return the new version."""
        request = require_append(
            *(conversation, entries, recipient, labels, expected_version, idempotency_key, fingerprint),
            *(documents, lease, release),
        )
        require_free_labels(labels or {})
        wanted = Append(conversation, request, recipient, dict(labels or {}), expected_version, idempotency_key, broken)
        async with self._lock(conversation):
            while True:
                try:
                    answer = await appended(self._store, self._ring, wanted)
                except DocumentExists as problem:  # the same, sealed twice, looks different to the store
                    known = next(one for one in wanted.request.documents if _is(one, problem))
                    if await self._same(conversation, known) is None:
                        raise
                    wanted = wanted.without(known.kind, known.id)
                    continue
                if answer is not None:
                    return answer

    async def header(self, conversation: str) -> Conversation:
        """What is known of a conversation without reading an entry."""
        return await self._shown(await self._store.header(conversation))

    async def load(
        self,
        conversation: str,
        *,
        last_turns: int | None = None,
        last_messages: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        folded: bool = False,
    ) -> Loaded:
        """A part of a conversation."""
        part = await self._store.load(
            conversation,
            last_turns=last_turns,
            last_messages=last_messages,
            since=since,
            limit=limit,
            folded=folded,
        )
        header = part.conversation
        cipher, line = await cipher_of(self._ring, header), await self._lineage.of(header)
        entries = [
            self._opened(header, f"entry {at}", opened_entry, cipher, entry, self.tenant, line.home(at), at)
            for at, entry in zip(part.positions, part.entries, strict=True)
        ]
        folds = tuple(self._opened_fold(header, cipher, fold, line) for fold in part.folds)
        return replace(part, conversation=await self._shown(header), entries=tuple(entries), folds=folds)

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was."""
        header = await self._store.header(conversation)
        cipher, line = await cipher_of(self._ring, header), await self._lineage.of(header)
        return tuple(
            replace(stored, fold=self._opened_fold(header, cipher, stored.fold, line))
            for stored in await self._store.folds(conversation)
        )

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges."""
        header = await self._store.header(conversation)
        cipher, line = await cipher_of(self._ring, header), await self._lineage.of(header)
        sealed = sealed_fold(cipher, fold, self.tenant, line.root)
        stored = await self._store.add_fold(conversation, sealed, replacing=replacing)
        return replace(stored, fold=self._opened_fold(header, cipher, stored.fold, line))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away."""
        stored = await self._store.undo_fold(conversation, fold_id)
        header = await self._store.header(conversation)
        cipher, line = await cipher_of(self._ring, header), await self._lineage.of(header)
        return replace(stored, fold=self._opened_fold(header, cipher, stored.fold, line))

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        await self._store.pin(conversation, position)

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        await self._store.unpin(conversation, position)

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all."""
        return await self._store.purge(conversation, before=before)

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> Conversation:
        """A new conversation that begins with the entries before `at`, under the same data key."""
        return await self._shown(await self._store.fork(conversation, new_id, at=at))

    async def set_status(self, conversation: str, status: ConversationStatus) -> Conversation:
        """Say what the conversation is doing."""
        return await self._shown(await self._store.set_status(conversation, status))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> Conversation:
        """Set some of its labels; None removes one. There is room for one less than without encryption."""
        require_free_labels(labels)
        return await self._shown(await self._store.set_labels(conversation, labels))

    async def list(
        self,
        *,
        recipient: str | None = None,
        status: ConversationStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[Conversation]:
        """The conversations, newest first by the time they were made."""
        page = await self._store.list(recipient=recipient, status=status, cursor=cursor, limit=limit)
        items: list[Conversation] = []
        for header in page.items:
            with suppress(ConversationNotFound):  # its recipient was just erased
                items.append(await self._shown(header))
        return Page(tuple(items), page.cursor)

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[Hit]:
        """The entries whose text has every word of the query, found by decrypting them."""
        wanted = query_words(query)
        require_limit(limit)
        return await scanned(self, wanted, conversation, recipient, cursor, limit)

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> Receipt:
        """Remove a conversation, or all of a recipient's and the data key with which they could be read."""
        require_target(conversation, recipient)
        if recipient is None:
            return await self._store.erase(conversation=conversation)
        first = await self._store.erase(recipient=recipient)
        await self._ring.destroy(recipient)
        # Whoever began a conversation while the key was going has one that cannot be read: it goes, too.
        late = await self._store.erase(recipient=recipient)
        return replace(
            first,
            conversations=first.conversations + late.conversations,
            entries=first.entries + late.entries,
            folds=first.folds + late.folds,
            pins=first.pins + late.pins,
        )

    async def vacuum(self) -> None:
        """Leave no trace of what was removed, nor of destroyed keys."""
        await self._store.vacuum()
        if self._keys is not self._store:
            await self._keys.vacuum()

    async def close(self) -> None:
        """Close what it is made of."""
        await self._store.close()
        if self._keys is not self._store:
            await self._keys.close()

    async def __aenter__(self) -> Self:
        await self._store.__aenter__()
        if self._keys is not self._store:
            await self._keys.__aenter__()
        try:
            await self._ring.check()
        except BaseException:
            await self.close()  # whom nobody entered, nobody leaves
            raise
        return self

    def _lock(self, conversation: str) -> asyncio.Lock:
        """Who appends on this loop takes turns, so that they do not outrun each other's positions."""
        name = (id(asyncio.get_running_loop()), conversation)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock

    async def _shown(self, header: Conversation) -> Conversation:
        """A header as its owner knows it."""
        labels = {name: value for name, value in header.labels.items() if name != KEY_LABEL}
        if not header.open_calls:
            return replace(header, labels=labels)
        cipher = await cipher_of(self._ring, header)
        calls = tuple(self._opened(header, "a call", cipher.call_id, token) for token in header.open_calls)
        return replace(header, labels=labels, open_calls=calls)

    def _opened_fold(self, header: Conversation, cipher: Cipher, fold: Fold, line: Line) -> Fold:
        return self._opened(header, f"fold {fold.id!r}", opened_fold, cipher, fold, self.tenant, line.root)


def _is(document: PackedDocument, problem: DocumentExists) -> bool:
    return (document.kind, document.id) == (problem.kind, problem.document_id)
