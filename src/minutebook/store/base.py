"""What every store of conversations does.

`minutebook.testing.StoreContract` is this page in executable form. What it says holds for each store:

- A handle sees one tenant. Another tenant's conversation is not found, whatever is asked about it.
- Every call is one atomic step: it happens as a whole or, if it raises, not at all. What it returned is stored.
- Bad input is refused before anything is written. Errors are those of `minutebook.errors`; a driver's never escape.
- A position counts entries from 0, without gaps, for ever. The record only grows, but for `purge`, `trim` and `erase`.
- An exchange is never split. The calls of the very last exchange may wait for their results, which the next append
  brings; until then nothing else is taken.
- Text is kept as it is: NUL and lone surrogates survive. Two surrogates that make a pair are the character they spell.
- Values are JSON: what JSON cannot say (bytes, NaN, keys that are not text) is refused.
- A call that is cancelled may still be carried out; an `idempotency_key` makes it safe to repeat.
"""

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from copy import copy
from hashlib import sha256
from types import TracebackType
from typing import Self

from minutebook.errors import InvalidSetting
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message
from minutebook.record.transcript import OnBroken
from minutebook.store.backend import AppendCommand, Backend, DocumentQuery, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import body_digest, pack
from minutebook.store.rules import require_labels, require_limit, require_part, require_status, require_target
from minutebook.store.search import query_words
from minutebook.store.transfer import exported, imported
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    Document,
    ErasureReceipt,
    ImportCounts,
    Lease,
    LoadedConversation,
    NewDocument,
    Page,
    SearchHit,
    StoredFold,
    require_document,
    require_documents,
    require_lease,
    require_name,
    require_own_lease,
)


class ConversationStore:
    """Keeps conversations. A handle is bound to one tenant and may be used from any thread and event loop.

    Every operation on a conversation raises `ConversationNotFound` if there is none of that id, and
    `ConversationErased`, which is one, if there was. Any may raise `StoreUnavailable`.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        require_name("tenant", backend.tenant)

    @property
    def tenant(self) -> str:
        """Whose conversations this handle sees."""
        return self.backend.tenant

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same store; closing one closes all."""
        other = copy(self)
        other.backend = self.backend.for_tenant(require_name("tenant", tenant))
        return other

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
        broken: OnBroken = "raise",
        documents: Sequence[NewDocument] = (),
        lease: Lease | None = None,
        release: bool = False,
    ) -> int:
        """Add entries at the end, all or none; return the new version.

        Makes the conversation if there is none, with this recipient and these labels; later appends may repeat the
        recipient, and no other. `expected_version` is the version that the caller knows, 0 for "there is none yet".
        With 0 the entries may be none: that makes an empty conversation.

        The same key with the same messages gives the first answer again and adds nothing, whatever the version is by
        now; the time, evaluation, provider and model of the entries do not count. A wrapper that changes the messages
        on their way, so that they differ each time, gives the `fingerprint` of what they were.

        `broken="mark"` takes messages that do not fit the ones before them, as a record found elsewhere may hold:
        views mend them.

        `documents` are put into the conversation in the same step; when a key is repeated they are not put again. With
        a `lease`, nothing is written unless that one stands; `release` gives it back in the same step, once they are
        written or were before. When they cannot be, it stands as it did.

        Raises:
            LeaseLost: it does not.
            VersionConflict: it is at another version.
            DocumentExists: there is another document of that kind and id.
            IdempotencyConflict: the key came with other messages before.
            BrokenConversation: a message does not fit the ones before it.
            InvalidMessage: an entry or a document is not JSON.
        """
        require_name("conversation", conversation)
        if recipient is not None:
            require_name("recipient", recipient)
        if idempotency_key is not None:
            require_name("idempotency_key", idempotency_key)
        if labels is not None:
            require_labels(labels)
        if expected_version is not None and expected_version < 0:
            raise InvalidSetting("expected_version", expected_version, "0 or more")
        if not entries and expected_version != 0:
            raise InvalidSetting("entries", [], "at least one entry, or expected_version=0 for an empty conversation")
        if release and lease is None:
            raise InvalidSetting("release", release, "a lease besides, which is given back")
        pairs = [pack(entry, index) for index, entry in enumerate(entries)]
        packed = tuple(one for one, _ in pairs)
        digest = b""
        if idempotency_key is not None:
            digest = body_digest(packed) if fingerprint is None else sha256(fingerprint).digest()[:16]
        command = AppendCommand(
            conversation,
            packed,
            tuple(message for _, message in pairs),
            recipient,
            labels,
            expected_version,
            idempotency_key,
            digest,
            broken,
            require_documents(documents),
            require_own_lease(conversation, lease),
            release,
        )
        return await self.backend.append(command)

    async def header(self, conversation: str) -> ConversationHeader:
        """What is known of a conversation without reading an entry."""
        return await self.backend.header(require_name("conversation", conversation))

    async def load(
        self,
        conversation: str,
        *,
        last_turns: int | None = None,
        last_messages: int | None = None,
        since: int | None = None,
        limit: int | None = None,
        folded: bool = False,
    ) -> LoadedConversation:
        """A part of a conversation; it costs what it returns, however long the record is. At most one of:

        - `last_turns`: that many user messages and what follows them; everything, if there are no more than that.
        - `last_messages`: that many, and the few more that complete the exchange the first of them belongs to.
        - `since`: exactly from that position on, `limit` entries at most: for whoever follows or pages through.

        Folds come along where they touch that part. With `folded` it is the part as a view shows it: what a fold
        covers is not read; every fold that stands comes along, and so do the leading system messages and the pinned
        exchanges that no fold covers, wherever they are. `LoadedConversation.transcript()` is then what `view_of` takes.
        """
        require_name("conversation", conversation)
        require_part(last_turns, last_messages, since, limit)
        return await self.backend.load(LoadQuery(conversation, last_turns, last_messages, since, limit, folded))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """Every fold there ever was, undone ones too, in the order in which they were added."""
        return await self.backend.folds(require_name("conversation", conversation))

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over whole, finished exchanges; it takes the place of the standing folds it covers.

        `replacing` names the standing folds in its range that its maker saw. If others stand there by now, the fold
        was made from something else and is refused. A fold that is there already is not added twice. The store does
        not read what a fold shows: whoever folds a pinned message shows it there.

        Raises:
            FoldConflict: it splits an exchange, covers another fold in part, reaches beyond the record or into a call
                that waits for its result, has another's id, or replaces other folds than `replacing` says.
        """
        require_name("conversation", conversation)
        return await self.backend.add_fold(conversation, fold, None if replacing is None else tuple(replacing))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Take a fold away; the ones it had covered stand again. Undoing twice is undoing once.

        Raises:
            FoldNotFound: there is none of that id.
            FoldConflict: what it covers was purged.
        """
        return await self.backend.undo_fold(require_name("conversation", conversation), fold_id)

    async def pin(self, conversation: str, position: int) -> None:
        """Have every view hold this entry."""
        await self.backend.set_pin(require_name("conversation", conversation), position, pinned=True)

    async def unpin(self, conversation: str, position: int) -> None:
        """Let views drop this entry again."""
        await self.backend.set_pin(require_name("conversation", conversation), position, pinned=False)

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, of which standing folds show all; return how many went.

        The folds stay and can no longer be undone; positions stay as they were. The views stay the same. Forks keep
        their own.

        Raises:
            FoldConflict: not all of them are covered by folds that end there.
        """
        return await self.backend.purge(require_name("conversation", conversation), before)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace messages by smaller ones: what tools were asked and what they answered; return how many changed.

        `changes` says which message is to stand at which position. Only the content of results and the arguments of
        calls may differ from what is there; what is the same already is not counted. All of them are replaced, or
        none. The version, the folds and the pins stay; what was there before is gone, from the search too. Forks keep
        their own, as with `purge`: one that shared the entries has copies of them from then on, of the whole stretch.

        Raises:
            InvalidSetting: there is no entry at a position, something else would change, or a message is larger.
            InvalidMessage: one of them is no message.
        """
        return await self.backend.trim(require_name("conversation", conversation), dict(changes))

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> ConversationHeader:
        """A new conversation that begins with the entries before `at` (all, if None), their folds and their pins.

        It has the same recipient and labels, status idle and version 1. Erasing what it was made from erases it too.
        Documents and leases are left behind.

        Raises:
            VersionConflict: `new_id` is taken.
            InvalidSetting: `at` is within an exchange or not within the record.
        """
        require_name("conversation", conversation)
        return await self.backend.fork(conversation, require_name("conversation", new_id), at)

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        """Say what the conversation is doing."""
        require_name("conversation", conversation)
        return await self.backend.set_status(conversation, require_status(status))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        """Set some of its labels; None removes one."""
        require_name("conversation", conversation)
        require_labels(labels)
        return await self.backend.set_labels(conversation, labels)

    async def list(
        self,
        *,
        recipient: str | None = None,
        status: ConversationStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[ConversationHeader]:
        """The conversations, newest first by the time they were made.

        Pages neither repeat nor skip one that was there from the first page on.
        """
        if recipient is not None:
            require_name("recipient", recipient)
        wanted = None if status is None else require_status(status)
        return await self.backend.list(ListQuery(recipient, wanted, cursor, require_limit(limit)))

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[SearchHit]:
        """The entries whose text has every word of the query, in any order; upper and lower case are one.

        An entry that forks share is found once, where it was said; with `conversation` it is found there. Newest
        conversations come first, and in each the newest entries.
        """
        for kind, name in (("conversation", conversation), ("recipient", recipient)):
            if name is not None:
                require_name(kind, name)
        words = query_words(query)
        return await self.backend.search(SearchQuery(words, conversation, recipient, cursor, require_limit(limit)))

    async def erase(self, *, conversation: str | None = None, recipient: str | None = None) -> ErasureReceipt:
        """Remove a conversation, or all of a recipient's, and every fork made from them, with all that was derived.

        What stays behind is a mark that holds no content and refuses whatever comes for these ids later. Erasing what
        is not there gives a receipt that says so. `vacuum` makes what was removed unreadable in files, too.
        """
        require_target(conversation, recipient)
        return await self.backend.erase(conversation, recipient)

    def export(self, conversation: str) -> AsyncIterator[str]:
        """A conversation as lines of JSON, in ASCII: a header, then its entries, folds and pins; no documents."""
        return exported(self, conversation)

    async def import_(self, lines: AsyncIterable[str] | Iterable[str]) -> ImportCounts:
        """Add the conversations that `export` wrote, one after the other, in constant memory.

        Not one step but many; the same import may be repeated, and goes on where an earlier try ended.

        Raises:
            UnreadableInput: a line is not what `export` writes.
            VersionConflict: there is a conversation of that id that this import did not make.
        """
        return await imported(self, lines)

    async def put_document(self, conversation: str, document: NewDocument) -> Document:
        """Put a document into a conversation that is there; return it as it is kept.

        If there is one of that kind and id with an equal body, in this conversation, that one is returned as it is.
        With `replace` its body and the time it expires are set anew. What has expired counts as not there.

        Documents are found by their kind and id, are not searched, and are erased with their conversation; `fork`,
        `export` and `import_` leave them behind. Kinds and ids may be read by whoever can read the store.

        Raises:
            DocumentExists: there is another, here or in another conversation.
            InvalidMessage: the body is not a JSON object.
        """
        require_name("conversation", conversation)
        return await self.backend.put_document(conversation, require_document(document))

    async def document(self, kind: str, document_id: str) -> Document:
        """The document of that kind and id, in whichever of the tenant's conversations it is.

        What has expired is not found, and is removed by the next write of that kind to its conversation, or by
        `vacuum` through a handle of its tenant.

        Raises:
            DocumentNotFound: there is none.
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
        """The documents of a kind in a conversation, by their number.

        Pages neither repeat nor skip one that was there from the first page on.
        """
        require_name("conversation", conversation)
        require_name("kind", kind)
        return await self.backend.documents(
            DocumentQuery(conversation, kind, cursor, require_limit(limit), newest_first)
        )

    async def delete_document(self, kind: str, document_id: str) -> bool:
        """Remove a document; return whether there was one."""
        require_name("kind", kind)
        return await self.backend.delete_document(kind, require_name("document id", document_id))

    async def acquire_lease(self, conversation: str, holder: str, *, seconds: float) -> Lease:
        """Have a conversation to oneself for a time. It need not be there yet.

        Who has the lease already has it for longer, with the same fence; who is new has a higher one than anybody
        before. Only those are kept out who acquire, too: an append is refused if it shows a lease that does not
        stand, and not because somebody else has one. The time is the server's where there is one. On SQLite a power
        cut, which ends every holder too, may take the lease with it.

        Raises:
            ConversationBusy: somebody else has it, and it has not run out.
            ConversationErased: the conversation was erased.
        """
        require_lease(conversation, holder, seconds)
        return await self.backend.acquire_lease(conversation, holder, seconds)

    async def renew_lease(self, lease: Lease, *, seconds: float) -> Lease:
        """Have a lease for so long from now on.

        Raises:
            LeaseLost: it has run out, was released, or is another's.
            ConversationErased: the conversation was erased.
        """
        require_lease(lease.conversation, lease.holder, seconds)
        return await self.backend.renew_lease(lease, seconds)

    async def release_lease(self, lease: Lease) -> None:
        """Give a lease back, so that the next need not wait; nothing, if it does not stand."""
        await self.backend.release_lease(lease)

    async def vacuum(self) -> None:
        """Give back the space of what was removed and leave no trace of it in files. May take long; run it seldom."""
        await self.backend.vacuum()

    async def close(self) -> None:
        """Finish what was begun and let go of files and connections, for every tenant's handle."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        """Open the store, so that what is wrong with it is known at once."""
        await self.backend.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()
