"""The SQLite sessions of the OpenAI Agents SDK."""

import json
from collections.abc import Iterator
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.formats.conversation import Format, SourceConversation, has_keys, items_of, time_of
from minutebook.formats.source import Source


def matches(tables: Any) -> bool:
    return has_keys(tables, "agent_sessions", "agent_messages") and "message_data" in tables["agent_messages"]


def read(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        for session, created_at in database.execute("SELECT session_id, created_at FROM agent_sessions ORDER BY rowid"):
            items, places = [], []
            rows = database.execute(
                "SELECT id, message_data FROM agent_messages WHERE session_id = ? ORDER BY id", (session,)
            )
            for row_id, data in rows:
                place = f"agent_messages {row_id}"
                try:
                    items.append(json.loads(data))
                    places.append(place)
                except ValueError as error:
                    source.skip(place, f"is not JSON ({error})")
            try:
                yield SourceConversation(items=items_of(items, places), id=str(session), created_at=time_of(created_at))
            except InvalidMessage as error:
                source.skip(f"session {session}", str(error))


FORMAT: Final = Format(
    name="openai-agents", title="OpenAI Agents SDK sessions (SQLite)", matches=matches, read=read, kind="sqlite"
)
