"""SQLite databases of minutebook: every conversation of every tenant, with its folds and the usage of its requests.

A copy of the database is read, so that neither a migration nor a lock changes or blocks the file.
"""

import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

from minutebook.conversation.requests import read_requests
from minutebook.errors import DocumentNotFound, MinutebookError, MissingKey, UnreadableInput
from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys
from minutebook.formats.source import Source
from minutebook.store.base import ConversationStore
from minutebook.store.loop_thread import run_sync
from minutebook.store.types import ConversationHeader
from minutebook.store.url import open_store
from minutebook.wire.chat import entry_to_provider_message

USAGE_KIND: Final = "imported_usage"
"""The kind of the document with the usage that an imported file had. Its id is that of the conversation."""
_PAGE: Final = 100


def matches(tables: Any) -> bool:
    return has_keys(tables, "conversation", "entry", "fold", "document", "setting") and {
        *("tenant", "recipient", "lead", "open_calls")
    } <= set(tables["conversation"])


def read(source: Source) -> Iterator[SourceConversation]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        with source.database() as database, closing(sqlite3.connect(copy)) as target:
            database.backup(target)
            tenants = [row[0] for row in database.execute("SELECT DISTINCT tenant FROM conversation ORDER BY tenant")]
        for tenant in tenants:
            store = open_store(str(copy), tenant=tenant)
            try:
                yield from _conversations(store)
            except MissingKey:
                problem = "is an encrypted database; export its conversations with its key: minutebook export --all"
                raise UnreadableInput(source.name, problem) from None
            except MinutebookError as error:
                raise UnreadableInput(source.name, f"cannot be read as a minutebook database: {error}") from error
            finally:
                run_sync(store.close())


def _conversations(store: ConversationStore) -> Iterator[SourceConversation]:
    """The conversations of a tenant, oldest first: a branch follows the conversation that it is a branch of."""
    for header in reversed(run_sync(_headers(store))):
        yield run_sync(_conversation(store, header))


async def _headers(store: ConversationStore) -> list[ConversationHeader]:
    return [header async for header in _pages(store)]


async def _pages(store: ConversationStore) -> AsyncIterator[ConversationHeader]:
    cursor: str | None = None
    while True:
        page = await store.list(cursor=cursor, limit=_PAGE)
        for header in page.items:
            yield header
        if (cursor := page.cursor) is None:
            return


async def _conversation(store: ConversationStore, header: ConversationHeader) -> SourceConversation:
    loaded = await store.load(header.id, since=0)
    usage: dict[int, Mapping[str, Any]] = {}
    with suppress(DocumentNotFound):
        imported = await store.document(USAGE_KIND, header.id)
        usage = {call["position"]: call["usage"] for call in imported.body["calls"]}
    async for _, document in read_requests(store, header.id):
        if document.body.get("usage") and isinstance(document.body.get("answer"), int):
            usage[document.body["answer"]] = document.body["usage"]
    items = [
        SourceMessage(
            entry_to_provider_message(entry),
            f"conversation {header.id!r}, message {position}",
            entry.created_at,
            entry.model or None,
            usage.get(position),
        )
        for position, entry in zip(loaded.positions, loaded.entries, strict=True)
    ]
    return SourceConversation(
        items=items,
        place=f"conversation {header.id!r} of tenant {header.tenant!r}",
        id=header.id,
        title=header.labels.get("title"),
        model=next((item.model for item in reversed(items) if item.model), None),
        created_at=header.created_at,
        branch_of=None if header.origin is None else header.origin.conversation,
        folds=() if loaded.start else loaded.folds,
    )


FORMAT: Final = Format(
    name="minutebook-db",
    title="minutebook databases (SQLite)",
    matches=matches,
    read=read,
    kind="sqlite",
)
