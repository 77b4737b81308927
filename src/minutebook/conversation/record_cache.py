"""The record of a stored conversation in memory, and a cache of records between requests.

A request compares the client's messages with the record and builds a view of it. Both need the decoded messages, and
the view also their index: tokens, exchanges, and where earlier views were cut. A cached record keeps these, so that only
the messages that were added since the last request are read, decoded and counted.

The cache is an optimisation only. The store says with every load whether entries were changed or removed, and what was
added to the record is compared with what the index has. If anything differs, the record is read and indexed again. So
the view is the same with a cached record, after a restart, and on another server.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from minutebook.conversation.trimming import is_trimmed
from minutebook.conversation.view_source import ViewSource, load_record, purged_messages
from minutebook.errors import ConversationErased, ConversationNotFound
from minutebook.record.fold import Fold
from minutebook.record.message import Message, leading_system_count, result_id
from minutebook.store.base import ConversationStore
from minutebook.store.types import ConversationHeader, LoadedConversation
from minutebook.tokens import TokenCounter
from minutebook.wire.chat import json_bytes

T = TypeVar("T")
MAX_INLINE_MESSAGES: Final = 1_000
"""Work on each of more messages is done in a thread."""
_MAX_INLINE_CHARACTERS: Final = 256 * 1024
_PART_CHARACTERS: Final = 256
"""A content part takes at least as long as a text of this many characters."""
_MESSAGE_BYTES: Final = 1_500
"""Estimated memory of a message and its index, without its text."""
_MAX_IDLE_SECONDS: Final = 900.0
"""How long a record that no request uses stays in the cache, at most."""


def new_messages_of(loaded: LoadedConversation, header: ConversationHeader, length: int) -> list[Message] | None:
    """The messages after the first `length` ones, which were read with `header`.

    `loaded` is from `load(since=length, folded=True)`. None if the earlier messages must be read again: some were
    trimmed or purged, the conversation has expired and was started again, or a fold covers new messages.
    """
    now = loaded.conversation
    if (now.first, now.created_at, now.revision) != (header.first, header.created_at, header.revision):
        return None
    new = [
        (position, message)
        for position, message in zip(loaded.positions, loaded.messages, strict=True)
        if position >= length
    ]
    is_complete = [position for position, _ in new] == list(range(length, now.length))
    return [message for _, message in new] if is_complete else None


class CachedRecord:
    """The messages, folds and pins of a conversation, and the index of the messages for views.

    It has one user at a time.
    """

    def __init__(self, loaded: LoadedConversation) -> None:
        """`loaded` starts at the first entry that was not purged. It may end before the end of the conversation."""
        self.header = loaded.conversation
        self.first = loaded.start
        """The position of the first message that was not purged."""
        self.messages: list[Message] = [*purged_messages(loaded.start), *loaded.messages]
        """The messages by position. Purged ones are empty."""
        self.trimmed_calls: set[str] = set()
        """Ids of the tool calls whose payloads were trimmed."""
        self.size = 0
        """Estimated bytes in memory."""
        self._source: ViewSource | None = None
        self._copies: dict[int, Message] = {}
        """The client's copies of messages that the index has."""
        self._compared = 0
        """Number of messages of the index that are known to be those of the record."""
        self._note_messages(self.messages[self.first :])
        self._set_marks(loaded)

    def _note_messages(self, messages: Sequence[Message]) -> None:
        self.trimmed_calls.update(result_id(message) for message in messages if is_trimmed(message))
        self.size += sum(_MESSAGE_BYTES + 2 * len(str(message.get("content"))) for message in messages)

    def _set_marks(self, loaded: LoadedConversation) -> None:
        self.folds: tuple[Fold, ...] = tuple(fold for fold in loaded.folds if fold.stop <= len(self.messages))
        self.pins = frozenset(position for position in loaded.pins if self.first <= position < len(self.messages))

    @property
    def leading(self) -> list[Message]:
        """The leading system messages."""
        return self.messages[self.first : self.first + leading_system_count(self.messages[self.first :])]

    def read_new(self, loaded: LoadedConversation) -> bool:
        """Add what `load(since=len(messages), folded=True)` has. Return False if the record must be read again."""
        new = new_messages_of(loaded, self.header, len(self.messages))
        if new is None:
            return False
        self.messages += new
        self.header = loaded.conversation
        self._note_messages(new)
        self._set_marks(loaded)
        return True

    def unindexed(self, counter: TokenCounter) -> Sequence[Message]:
        """The messages that `source` would have to count, at least."""
        source = self._source
        return self.messages[0 if source is None or source.record.counter is not counter else len(source.record) :]

    def source(self, counter: TokenCounter, copies: Mapping[int, Message] | None = None) -> ViewSource:
        """The messages for a view. `copies` has, by position, the client's own copy of messages that it has resent."""
        copies = copies or {}
        source = self._source
        if source is None or source.record.counter is not counter or not self._is_indexed(source, copies):
            source = self._source = ViewSource(None, (), counter=counter, whole_record=True)
        start = len(source.record)
        source.extend([copies.get(position, self.messages[position]) for position in range(start, len(self.messages))])
        self._copies, self._compared = dict(copies), len(self.messages)
        source.folds, source.front = self.folds, []
        source.set_pins(self.pins)
        return source

    def _is_indexed(self, source: ViewSource, copies: Mapping[int, Message]) -> bool:
        """Whether the index has the messages of the record, with these copies.

        It may have messages of requests that were not stored, or that were stored in another form.
        """
        record = source.record
        length = len(record)
        if length > len(self.messages):
            return False
        earlier = {position: copy for position, copy in copies.items() if position < self._compared}
        return (
            earlier.keys() == self._copies.keys()
            and all(is_identical(copy, self._copies[position]) for position, copy in earlier.items())
            and all(
                is_identical(record[position], copies.get(position, self.messages[position]))
                for position in range(self._compared, length)
            )
        )


def is_identical(message: Message, other: Message) -> bool:
    """Whether two messages have the same JSON text: also the order of keys is compared, and 1, 1.0 and true differ."""
    return message is other or (message == other and repr(message) == repr(other))


class RecordCache:
    """Records that were used last, up to a size. A record in use is not in the cache, so it never has two users."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.size = 0
        self._records: dict[tuple[str, str], tuple[CachedRecord, int, float]] = {}
        """Tenant and conversation → the record, its size and when it was last used; the least recently used first."""

    def take(self, tenant: str, conversation: str) -> CachedRecord | None:
        """Remove a record from the cache and return it."""
        cached = self._records.pop((tenant, conversation), None)
        if cached is None:
            return None
        self.size -= cached[1]
        return cached[0]

    def put(self, record: CachedRecord) -> None:
        """Add a record that is no longer in use."""
        name = record.header.tenant, record.header.id
        self.take(*name)
        self._records[name] = record, record.size, time.monotonic()
        self.size += record.size
        oldest_use = time.monotonic() - _MAX_IDLE_SECONDS
        for old_name, (_, _, used_at) in list(self._records.items()):
            if self.size <= self.max_bytes and used_at >= oldest_use:
                break
            self.take(*old_name)

    def clear(self, tenant: str) -> None:
        """Remove all records of a tenant."""
        for name in [name for name in self._records if name[0] == tenant]:
            self.take(*name)

    async def load(self, store: ConversationStore, conversation: str) -> CachedRecord | None:
        """The record of a conversation, taken from the cache if it is there; None if the conversation does not exist.

        Raises:
            ConversationErased: it was erased.
        """
        cached = self.take(store.tenant, conversation)
        try:
            if cached is None:
                loaded = await load_record(store, conversation)
            else:
                loaded = await store.load(conversation, since=len(cached.messages), folded=True)
        except ConversationErased:
            raise
        except ConversationNotFound:
            return None
        return await update_record(store, cached, loaded)


async def update_record(
    store: ConversationStore, cached: CachedRecord | None, loaded: LoadedConversation
) -> CachedRecord:
    """The record of a conversation. `loaded` is what was added to the cached record, or all if that is None."""
    if cached is not None:
        if cached.read_new(loaded):
            return cached
        loaded = await load_record(store, loaded.conversation.id)
    return await compute(CachedRecord, loaded, is_large=len(loaded.entries) > MAX_INLINE_MESSAGES)


async def compute(function: Callable[..., T], *arguments: Any, is_large: bool) -> T:
    """The result of a function that only computes. If its input is large, the function runs in a thread.

    A cancellation waits for the thread, because the thread may use what others use next.
    """
    if not is_large:
        return function(*arguments)
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        while not thread.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({thread})
        raise


def are_large(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether work on each of these messages or items would block the event loop."""
    return len(messages) > MAX_INLINE_MESSAGES or sum(map(_size, messages)) > _MAX_INLINE_CHARACTERS


def _size(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    if isinstance(content, str):
        return len(content)
    parts = len(content) if isinstance(content, list | tuple) else 1
    return max(len(json_bytes(content)), parts * _PART_CHARACTERS)
