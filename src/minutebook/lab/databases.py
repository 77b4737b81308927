"""Conversations of a minutebook database: as sessions to replay, and the requests that a service recorded for them."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

from minutebook.conversation.requests import read_requests
from minutebook.record.message import Message
from minutebook.store.base import ConversationStore
from minutebook.store.loop_thread import run_sync
from minutebook.store.sqlite.connection import APPLICATION_ID
from minutebook.store.types import ConversationHeader, Document
from minutebook.wire.chat import entry_to_provider_message

T = TypeVar("T")
_PAGE: Final = 500
_APPLICATION_ID_AT: Final = slice(68, 72)
"""Where a SQLite file has its application id."""


def is_database(path: str | Path) -> bool:
    """Whether this is the URL or the SQLite file of a minutebook database."""
    if "://" in str(path):
        return True
    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        header = opened.read(_APPLICATION_ID_AT.stop)
    return header[_APPLICATION_ID_AT] == APPLICATION_ID.to_bytes(4, "big")


class StoredConversations:
    """The conversations of an open database, read one at a time."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store

    def headers(self) -> Iterator[ConversationHeader]:
        cursor: str | None = None
        while True:
            page = run_sync(self._store.list(cursor=cursor, limit=_PAGE))
            yield from page.items
            if (cursor := page.cursor) is None:
                return

    def messages(self, conversation: str) -> tuple[list[Message], list[datetime | None], str | None]:
        """The messages of a conversation, the time of each, and the model that answered last."""
        loaded = run_sync(self._store.load(conversation))
        models = [entry.model for entry in loaded.entries if entry.model]
        times: list[datetime | None] = [entry.created_at for entry in loaded.entries]
        return [entry_to_provider_message(entry) for entry in loaded.entries], times, models[-1] if models else None

    def requests(self, conversation: str) -> list[Document]:
        """The recorded requests of a conversation, oldest first."""
        return run_sync(_collect(read_requests(self._store, conversation)))


async def _collect(requests: AsyncIterator[tuple[int, Document]]) -> list[Document]:
    return [document async for _, document in requests]


@contextmanager
def open_conversations(store: ConversationStore) -> Iterator[StoredConversations]:
    """Read from a store in this block, and close it."""
    try:
        run_sync(store.__aenter__())
        yield StoredConversations(store)
    finally:
        run_sync(store.close())
