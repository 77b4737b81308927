"""Sessions of Google's Agent Development Kit: a session as JSON, or the SQLite database of its session service."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    read_each,
    text_id,
    time_of,
)
from minutebook.formats.source import Source
from minutebook.wire.gemini import numbered_messages


def matches(value: Any) -> bool:
    if not has_keys(value, "events") or not isinstance(value["events"], list):
        return False
    is_named = bool(value.keys() & {"appName", "app_name", "userId", "user_id"})
    return is_named and all(has_keys(event, "author") for event in value["events"])


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, _conversation)


def _conversation(value: Mapping[str, Any], place: str) -> SourceConversation:
    events = [(event, f"{place}, events[{index}]") for index, event in enumerate(value["events"])]
    return _session(events, text_id(value.get("id")), value.get("lastUpdateTime", value.get("last_update_time")))


def _session(events: list[tuple[Mapping[str, Any], str]], name: str | None, updated_at: Any) -> SourceConversation:
    contents, sources = [], list[SourceMessage]()
    for event, place in events:
        content: Any = event.get("content")
        if not has_keys(content, "parts") or not content["parts"] or event.get("partial"):
            continue
        contents.append(
            {
                **content,
                "role": "user" if content.get("role", event["author"]) == "user" else content.get("role", "model"),
            }
        )
        usage = event.get("usageMetadata", event.get("usage_metadata"))
        model = event.get("modelVersion", event.get("model_version"))
        sources.append(SourceMessage({}, place, time_of(event.get("timestamp")), model, usage))
    items = [replace(sources[index], message=message) for index, message in numbered_messages(contents)]
    return SourceConversation(items=items, id=name, created_at=items[0].at if items else time_of(updated_at))


FORMAT: Final = Format(name="adk", title="Google ADK sessions (JSON)", matches=matches, read=read)


def matches_tables(tables: Any) -> bool:
    return has_keys(tables, "sessions", "events") and tables["events"] >= {"app_name", "session_id"}


def read_database(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        for session in database.execute("SELECT * FROM sessions ORDER BY rowid").fetchall():
            rows = database.execute(
                "SELECT * FROM events WHERE session_id = ? ORDER BY timestamp, rowid", (session["id"],)
            )
            events: list[tuple[Mapping[str, Any], str]] = []
            for row in rows:
                place = f"event {row['id']}"
                try:
                    columns = dict(row)
                    event = json.loads(columns["event_data"]) if columns.get("event_data") else columns
                    content = event.get("content")
                    events.append(
                        ({**event, "content": json.loads(content) if isinstance(content, str) else content}, place)
                    )
                except ValueError as error:
                    source.skip(place, f"is not JSON ({error})")
            try:
                yield _session(events, session["id"], session["update_time"])
            except InvalidMessage as error:
                source.skip(f"session {session['id']}", str(error))


DATABASE_FORMAT: Final = Format(
    name="adk-db", title="Google ADK sessions (SQLite)", matches=matches_tables, read=read_database, kind="sqlite"
)
