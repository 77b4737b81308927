"""The SQLite sessions of the OpenAI Agents SDK."""

import json
from collections.abc import Iterator
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, has_keys, items_of, time_of
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_malformed


@shape_test
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
                with skip_malformed(source, place):
                    items.append(json.loads(data))
                    places.append(place)
            conversations: list[SourceConversation] = []
            with skip_malformed(source, f"session {session}"):
                messages = items_of(items, places)
                conversations = [SourceConversation(items=messages, id=str(session), created_at=time_of(created_at))]
            yield from conversations


FORMAT: Final = Format(
    name="openai-agents", title="OpenAI Agents SDK sessions (SQLite)", matches=matches, read=read, kind="sqlite"
)
