"""The public interface of every conversation store.

`minutebook.testing.StoreContract` tests these rules for each store:

- A handle sees one tenant. For every operation, another tenant's conversation does not exist.
- Every call is atomic: if it raises, nothing has changed. When it returns, the change is stored.
- Invalid input is rejected before anything is written. Errors are those of `minutebook.errors`, never a driver's.
- Positions count entries from 0, without gaps, and never change. The record only grows, except by `purge`, `trim`,
  `erase` and expiry.
- An exchange is never split. Only the tool calls of the last exchange may have no results yet; the next append must bring
  them.
- Text is stored unchanged: NUL and lone surrogates survive. A surrogate pair becomes the character that it encodes.
- Values are JSON: bytes, NaN and keys that are not strings are rejected.
- A cancelled call may still be executed; an `idempotency_key` makes it safe to repeat.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from hashlib import sha256
from types import TracebackType
from typing import Any, Final, Self

from minutebook.errors import InvalidMessage, InvalidSetting, MissingSetting, require_type
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import CLEAR, REWIND, Fold
from minutebook.record.message import Message
from minutebook.record.transcript import OnBroken
from minutebook.store.backend import AppendCommand, Backend, ListQuery, LoadQuery, SearchQuery
from minutebook.store.codec import Packed, body_digest, pack
from minutebook.store.operations import DocumentOperations, LeaseOperations
from minutebook.store.rules import (
    require_labels,
    require_limit,
    require_part,
    require_status,
    require_target,
)
from minutebook.store.search import parse_query, require_roles
from minutebook.store.transfer import export_lines, import_lines
from minutebook.store.types import (
    ConversationHeader,
    ConversationStatus,
    ErasureReceipt,
    ImportCounts,
    Lease,
    LoadedConversation,
    NewDocument,
    Page,
    SearchHit,
    StoredFold,
    StoreStatistics,
    require_documents,
    require_lease_on,
    require_name,
)

_MAX_INLINE_ENTRIES: Final = 1_000
"""More entries are encoded in a thread, so that the event loop can serve others meanwhile."""


class ConversationStore(DocumentOperations, LeaseOperations):
    """Stores conversations. A handle is bound to one tenant and may be used from any thread and event loop.

    Every operation on a conversation raises `ConversationNotFound` if the id does not exist, and its subclass
    `ConversationErased` if the conversation was erased. Every operation may raise `StoreUnavailable`.
    """

    def __init__(self, backend: Backend, *, expire_after: timedelta | None = None) -> None:
        require_name("tenant", backend.tenant)
        self.backend = backend if expire_after is None else backend.with_expiry(expire_after)
        self.shared: dict[object, Any] = {}
        """State that all handles on this store share, such as the leases to renew."""

    @property
    def tenant(self) -> str:
        """The tenant whose conversations this handle sees."""
        return self.backend.tenant

    def for_tenant(self, tenant: str) -> Self:
        """A handle for another tenant on the same store. Closing one handle closes all."""
        other = copy(self)
        other.backend = self.backend.for_tenant(require_name("tenant", tenant))
        return other

    @property
    def expire_after(self) -> timedelta | None:
        """The time without an append after which a conversation expires; None for never."""
        return self.backend.expire_after

    def with_expiry(self, expire_after: timedelta | None) -> Self:
        """A handle on the same store whose conversations expire after this time without an append; None for never.

        A conversation has expired if neither it nor a fork of it was appended to for that time. Creating a fork counts as
        an append; writing documents, folds, labels or the status does not. This handle does not find an expired
        conversation, and its id may be used again. The data is removed by `expire`, by the first operation of this handle
        that meets it, and some of it by opening the store; until then, handles without expiry find it.

        Raises:
            InvalidSetting: the time is not positive, or longer than 100 years.
        """
        other = copy(self)
        other.backend = self.backend.with_expiry(expire_after)
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
        """Append all entries or none; return the new version.

        The first append creates the conversation with this recipient and these labels; a later one may only repeat the
        recipient. `expected_version` is the version that the caller has seen, 0 if the conversation must not exist.
        With 0 the entries may be empty, which creates an empty conversation.

        An `idempotency_key` that was used before with the same messages returns the version of the first append and
        adds nothing, whatever the current version is. The time, evaluation, provider and model of the entries are not
        compared. With `fingerprint`, these bytes are compared instead of the messages: an encrypted store needs that,
        because it encodes the same messages differently each time.

        `broken="mark"` accepts messages that do not fit the ones before them, for importing records from elsewhere.
        Views repair them.

        `documents` are put atomically with the entries, but not again if the key is repeated. With a `lease`, nothing is
        written if it was released or another holder has it. `release` releases it with the append, also if the key is
        repeated; if the append fails, the lease is not released.

        Raises:
            LeaseLost: the lease was released, or another holder has it.
            VersionConflict: the conversation has another version than expected.
            DocumentExists: there is a different document with the same kind and id.
            IdempotencyConflict: the key was used before with other messages.
            BrokenConversation: a message does not fit the ones before it.
            InvalidMessage: an entry or a document cannot be stored as JSON.
        """
        require_name("conversation", conversation)
        if recipient is not None:
            require_name("recipient", recipient)
        if idempotency_key is not None:
            require_name("idempotency_key", idempotency_key)
        if labels is not None:
            require_labels(labels)
        if expected_version is not None:
            require_type("expected_version", expected_version, int, "0 or more")
            if expected_version < 0:
                raise InvalidSetting("expected_version", expected_version, "0 or more")
        for index, entry in enumerate(entries or ()):
            if not isinstance(entry, ConversationEntry):
                problem = (
                    f"is of type {type(entry).__name__}; expected an entry, see minutebook.wire.new_entries(messages)"
                )
                raise InvalidMessage("", problem, index)
        if not entries and expected_version != 0:
            raise InvalidSetting("entries", [], "at least one entry, or expected_version=0 for an empty conversation")
        if release and lease is None:
            raise MissingSetting("lease", "release=True needs it: pass the lease that the append releases")
        pairs = await asyncio.to_thread(_pack_all, entries) if _are_large(entries) else _pack_all(entries)
        packed = tuple(entry for entry, _ in pairs)
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
            require_lease_on(conversation, lease),
            release,
        )
        return await self.backend.append(command)

    async def header(self, conversation: str) -> ConversationHeader:
        """The metadata of a conversation. No entry is read."""
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
        """Load a conversation or a part of it. The cost depends on the part, not on the length of the record.

        At most one of these selects the part:

        - `last_turns`: this many user messages and everything after them, or all entries if there are fewer.
        - `last_messages`: this many messages, and those before them that belong to the same exchange.
        - `since`: the entries from this position on, at most `limit`. Use it for pagination or to read new entries.

        The result has the folds that overlap the part. With `folded`, it is the part as a view shows it: entries that a
        fold covers are not read. All active folds are returned, and also the leading system messages and the pinned
        exchanges that no fold covers. Pass `LoadedConversation.transcript()` to `view_of`.
        """
        require_name("conversation", conversation)
        require_part(last_turns, last_messages, since, limit)
        return await self.backend.load(LoadQuery(conversation, last_turns, last_messages, since, limit, folded))

    async def folds(self, conversation: str) -> tuple[StoredFold, ...]:
        """All folds, undone ones too, in the order in which they were added."""
        return await self.backend.folds(require_name("conversation", conversation))

    async def add_fold(self, conversation: str, fold: Fold, *, replacing: Iterable[str] | None = None) -> StoredFold:
        """Add a fold over complete exchanges. It replaces the active folds that it covers.

        `replacing` lists the active folds in its range that the caller has seen. If others are active now, the fold was
        made from different entries and is rejected. Adding the same fold twice has no effect. The store does not check
        the messages of a fold: if it covers a pinned message, the caller must include that message in `shown`.

        Raises:
            FoldConflict: it splits an exchange, covers another fold partly, extends beyond the record or to a call that
                has no result yet, has the id of another fold, or replaces other folds than `replacing`.
        """
        require_name("conversation", conversation)
        return await self.backend.add_fold(conversation, fold, None if replacing is None else tuple(replacing))

    async def undo_fold(self, conversation: str, fold_id: str) -> StoredFold:
        """Undo a fold. The folds that it had replaced are active again. Undoing it twice has no effect.

        Raises:
            FoldNotFound: no fold has this id.
            FoldConflict: entries that it covers were purged.
        """
        return await self.backend.undo_fold(require_name("conversation", conversation), fold_id)

    async def pin(self, conversation: str, position: int) -> None:
        """Pin an entry: every view must include it. Pinning it twice has no effect.

        Raises:
            InvalidSetting: there is no entry at this position.
        """
        await self.backend.set_pin(require_name("conversation", conversation), position, pinned=True)

    async def unpin(self, conversation: str, position: int) -> None:
        """Remove a pin: views may leave the entry out again. Does nothing if it is not pinned."""
        await self.backend.set_pin(require_name("conversation", conversation), position, pinned=False)

    async def purge(self, conversation: str, *, before: int) -> int:
        """Delete the entries before a position, all of which active folds must cover; return the number deleted.

        Positions and views do not change. The folds can no longer be undone. Forks keep their own entries.

        Raises:
            FoldConflict: folds do not cover all these entries, or one ends after the position.
        """
        return await self.backend.purge(require_name("conversation", conversation), before)

    async def trim(self, conversation: str, changes: Mapping[int, Message]) -> int:
        """Replace tool arguments and results by smaller ones; return the number of messages changed.

        `changes` maps positions to the new messages. They may differ from the stored ones only in the content of tool
        results and the arguments of tool calls; a message that is the same is not counted. All are replaced, or none.
        Version, folds and pins do not change. The old content is deleted, also from the search index. Forks keep their
        own entries: a fork that shared an entry with the conversation gets copies of all entries that it shares.

        Raises:
            InvalidSetting: there is no entry at a position, something else would change, or a message is larger.
            InvalidMessage: a new message is not a valid message.
        """
        return await self.backend.trim(require_name("conversation", conversation), dict(changes))

    async def fork(self, conversation: str, new_id: str, *, at: int | None = None) -> ConversationHeader:
        """Create a conversation that starts with the entries before `at` (None: all), their folds and their pins.

        A fold that leaves out the newest of these entries is not copied. The fork has the same recipient and labels,
        status idle and version 1. Erasing the original erases the fork too.
        Documents and leases are not copied.

        Raises:
            VersionConflict: `new_id` is taken.
            InvalidSetting: `at` is within an exchange or outside the record.
        """
        require_name("conversation", conversation)
        return await self.backend.fork(conversation, require_name("conversation", new_id), at)

    async def rewind(self, conversation: str, to: int, *, expected_version: int | None = None) -> ConversationHeader:
        """Hide the entries from position `to` on and continue from there; return the new header.

        The entries stay in the record and can be loaded, but no view shows them: a fold with reason `rewind` covers them.
        It replaces the folds in its range. A fold that covers entries on both sides of `to` is undone, and so is one that
        leaves out the newest entries before `to`. New entries get the next positions, as always. Tool calls without results
        are hidden too, so any message may follow. Pins of hidden entries are removed.

        Raises:
            VersionConflict: the conversation has another version than expected.
            InvalidSetting: `to` is purged, beyond the end, or within an exchange.
            FoldConflict: a fold covers entries on both sides of `to`, and can no longer be undone.
        """
        require_name("conversation", conversation)
        require_type("to", to, int, "the position of an entry")
        return await self.backend.rewind(conversation, to, expected_version, REWIND)

    async def clear(self, conversation: str, *, expected_version: int | None = None) -> ConversationHeader:
        """Hide all entries and summaries and begin again under the same id; return the new header. See `rewind`.

        Raises:
            VersionConflict: the conversation has another version than expected.
        """
        require_name("conversation", conversation)
        return await self.backend.rewind(conversation, 0, expected_version, CLEAR)

    async def set_status(self, conversation: str, status: ConversationStatus) -> ConversationHeader:
        """Set the status of a conversation; return the new header. The version does not change."""
        require_name("conversation", conversation)
        return await self.backend.set_status(conversation, require_status(status))

    async def set_labels(self, conversation: str, labels: Mapping[str, str | None]) -> ConversationHeader:
        """Set labels of a conversation; return the new header. The value None removes a label. Other labels stay.

        Raises:
            InvalidSetting: a label is too long, or there would be too many.
        """
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
        """A page of the conversations, newest first by creation time.

        Pages neither repeat nor skip a conversation that existed when the first page was read. A page may have fewer items
        than `limit`, or none; only a `cursor` of None means that there are no more.
        """
        if recipient is not None:
            require_name("recipient", recipient)
        status = None if status is None else require_status(status)
        return await self.backend.list(ListQuery(recipient, status, cursor, require_limit(limit)))

    async def search(
        self,
        query: str,
        *,
        conversation: str | None = None,
        recipient: str | None = None,
        roles: Iterable[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        cursor: str | None = None,
        limit: int = 20,
    ) -> Page[SearchHit]:
        """A page of the entries and summaries that match a query, with a snippet of each.

        A query has words, which must all occur, in any order. `"late order"` is a phrase, `ord*` a prefix, `-late` excludes
        a word or a phrase, and `OR` separates alternatives. Case and accents are ignored. Texts, and the names and arguments
        of tool calls are searched. In Chinese, Japanese, Korean and Thai, a word is found within others.

        `roles` are the roles of the entries to find; without it, all. Entries were created from `since` on and before
        `until`. An entry that forks share is found once, in the conversation that it was appended to. With
        `conversation`, only that conversation is searched, with the entries that it shares. The newest conversations come
        first; in each, summaries of active folds, then the newest entries. Pages are as in `list`.

        Raises:
            InvalidQuery: the query has no word, or a syntax that is not supported.
            InvalidSetting: there is no such role, or a time has no time zone.
            MissingSetting: the database was created with `search=False`.
        """
        for name, value in (("conversation", conversation), ("recipient", recipient)):
            if value is not None:
                require_name(name, value)
        for name, time in (("since", since), ("until", until)):
            if time is not None and time.tzinfo is None:
                raise InvalidSetting(name, time, "a time with a time zone")
        return await self.backend.search(
            SearchQuery(
                *(parse_query(query), conversation, recipient, cursor, require_limit(limit)),
                *(require_roles(roles), since, until),
            )
        )

    async def erase(
        self, *, conversation: str | None = None, recipient: str | None = None, block: bool = False
    ) -> ErasureReceipt:
        """Erase a conversation, or all conversations of a recipient, with all their forks, folds, pins and documents.

        A tombstone without content remains, which rejects later writes to these ids. The recipient may start a new
        conversation with another id, unless `block` is true: then `RecipientBlocked` is raised until `readmit`. Erasing a
        conversation that does not exist returns a receipt with zeros. Call `vacuum` afterwards to remove the data from
        files too.

        Raises:
            MissingSetting: `block` is true without a recipient.
        """
        require_target(conversation, recipient)
        if block and recipient is None:
            raise MissingSetting("recipient", "block=True needs it: pass the recipient that is erased and blocked")
        return await self.backend.erase(conversation, recipient, block=block)

    async def readmit(self, recipient: str) -> bool:
        """Allow new conversations with a recipient that was erased with `block=True`; return whether it was blocked.

        Conversations that were erased stay erased.
        """
        return await self.backend.readmit(require_name("recipient", recipient))

    async def expire(self) -> ErasureReceipt:
        """Remove this tenant's conversations that have expired, with their folds, pins and documents; return the counts.

        Each conversation is removed in its own transaction, so appends do not wait for long, and a conversation that is
        appended to meanwhile stays. Several processes may do this at the same time. Call `vacuum` afterwards to remove
        the data from files too.

        Raises:
            MissingSetting: the store has no `expire_after`.
        """
        return await self.backend.expire()

    def export(self, conversation: str) -> AsyncIterator[str]:
        """A conversation as lines of ASCII JSON: a header, then its entries, folds and pins. Documents are not exported."""
        return export_lines(self, conversation)

    async def import_(self, lines: AsyncIterable[str] | Iterable[str]) -> ImportCounts:
        """Add conversations that `export` wrote, in constant memory.

        An import is not atomic: it writes a few hundred entries at a time. If it fails, repeat it: it continues where
        it stopped. A conversation that the store has with the same messages gets those that it does not have yet.

        Raises:
            UnreadableInput: a line is not in the format of `export`.
            VersionConflict: a conversation with the same id and other messages exists.
        """
        return await import_lines(self, lines)

    async def statistics(self) -> StoreStatistics:
        """Figures of the store in this process, for metrics: waiting writes, connections and jobs."""
        return await self.backend.statistics()

    async def vacuum(self, *, rewrite: bool = False) -> None:
        """Free the space of deleted data, while others read and write. Run it after an erasure.

        On Redis no deleted data remains in the files then. On SQLite and PostgreSQL some may remain in unused space until
        new rows overwrite it. `rewrite` rewrites the SQLite file or PostgreSQL's tables without it; writers wait meanwhile.
        """
        await self.backend.vacuum(rewrite=rewrite)

    async def close(self) -> None:
        """Finish running operations and close files and connections, for the handles of all tenants."""
        await self.backend.close()

    async def __aenter__(self) -> Self:
        """Open the store, so that a problem with it is reported now and not by the first operation.

        With `expire_after`, some expired conversations are removed: at most 200.
        """
        try:
            await self.backend.open()
        except BaseException:  # `async with` does not close a store that failed to open
            await self.backend.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        await self.close()


def _are_large(entries: Sequence[ConversationEntry]) -> bool:
    """Whether encoding the entries takes so long that it is done in a thread. Most entries with parts have few."""
    return len(entries) > _MAX_INLINE_ENTRIES or any(
        len(entry.extras.get("content") or ()) > _MAX_INLINE_ENTRIES for entry in entries if entry.extras
    )


def _pack_all(entries: Sequence[ConversationEntry]) -> list[tuple[Packed, Message]]:
    return [pack(entry, index) for index, entry in enumerate(entries)]
