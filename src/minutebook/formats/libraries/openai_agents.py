"""The SQLite sessions of the OpenAI Agents SDK."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, has_keys, time_of
from minutebook.formats.requests.chat import read_valid
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import shape_test, skip_malformed


@shape_test
def matches(tables: Any) -> bool:
    return has_keys(tables, "agent_sessions", "agent_messages") and "message_data" in tables["agent_messages"]


def read(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        for session, created_at in database.execute("SELECT session_id, created_at FROM agent_sessions ORDER BY rowid"):
            values, times = [], {}
            rows = database.execute(
                "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id", (session,)
            )
            for row_id, data, at in rows:
                place = f"agent_messages {row_id}"
                with skip_malformed(source, place):
                    values.append(Value(json.loads(data), place))
                    times[place] = time_of(at)
            items = [replace(item, at=times[item.place]) for item in read_valid(source, values)]
            yield SourceConversation(items=items, id=str(session), created_at=time_of(created_at))


FORMAT: Final = Format(
    name="openai-agents", title="OpenAI Agents SDK sessions (SQLite)", matches=matches, read=read, kind="sqlite"
)
