"""Sessions of Google's Agent Development Kit: a session as JSON, or the SQLite database of its session service."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

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
from minutebook.formats.value_errors import shape_test, skip_malformed, skip_unknown_role
from minutebook.wire.gemini import numbered_messages


@shape_test
def matches(value: Any) -> bool:
    if not has_keys(value, "events") or not isinstance(value["events"], list):
        return False
    is_named = bool(value.keys() & {"appName", "app_name", "userId", "user_id"})
    return is_named and all(has_keys(event, "author") for event in value["events"])


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversation, source))


def _conversation(source: Source, value: Mapping[str, Any], place: str) -> SourceConversation:
    events = [(event, f"{place}, events[{index}]") for index, event in enumerate(value["events"])]
    return _session(
        source, events, text_id(value.get("id")), value.get("lastUpdateTime", value.get("last_update_time"))
    )


def _session(
    source: Source, events: list[tuple[Mapping[str, Any], str]], name: str | None, updated_at: Any
) -> SourceConversation:
    contents, sources = [], list[SourceMessage]()
    for event, place in events:
        content: Any = event.get("content")
        if not has_keys(content, "parts") or not content["parts"] or event.get("partial"):
            continue
        if content.get("role") not in {None, "user", "model", "function"}:
            skip_unknown_role(source, place, content["role"])
            continue
        contents.append(
            {
                **content,
                "role": "user" if content.get("role", event["author"]) == "user" else content.get("role", "model"),
            }
        )
        usage = _usage(event.get("usageMetadata", event.get("usage_metadata")))
        model = event.get("modelVersion", event.get("model_version"))
        sources.append(SourceMessage({}, place, time_of(event.get("timestamp")), model, usage))
    items = [replace(sources[index], message=message) for index, message in numbered_messages(contents)]
    return SourceConversation(items=items, id=name, created_at=items[0].at if items else time_of(updated_at))


def _usage(counts: Any) -> Any:
    """The usage with the field names of Gemini's API. A database has them in snake case."""
    if not isinstance(counts, Mapping):
        return None
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), name): count for name, count in counts.items()}


FORMAT: Final = Format(name="adk", title="Google ADK sessions (JSON)", matches=matches, read=read)


_JSON_COLUMNS: Final = ("content", "usage_metadata")
"""Columns with JSON text."""


@shape_test
def matches_tables(tables: Any) -> bool:
    return has_keys(tables, "sessions", "events") and tables["events"] >= {"app_name", "user_id", "session_id"}


def read_database(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        for session in database.execute("SELECT * FROM sessions ORDER BY rowid").fetchall():
            rows = database.execute(
                "SELECT * FROM events WHERE app_name = ? AND user_id = ? AND session_id = ? ORDER BY timestamp, rowid",
                (session["app_name"], session["user_id"], session["id"]),
            )
            events: list[tuple[Mapping[str, Any], str]] = []
            for row in rows:
                place = f"event {row['id']}"
                with skip_malformed(source, place):
                    columns = dict(row)
                    event = json.loads(columns["event_data"]) if columns.get("event_data") else columns
                    parsed = {
                        name: json.loads(event[name]) for name in _JSON_COLUMNS if isinstance(event.get(name), str)
                    }
                    events.append(({**event, **parsed}, place))
            conversations: list[SourceConversation] = []
            with skip_malformed(source, f"session {session['id']}"):
                conversations = [_session(source, events, session["id"], session["update_time"])]
            yield from conversations


DATABASE_FORMAT: Final = Format(
    name="adk-db", title="Google ADK sessions (SQLite)", matches=matches_tables, read=read_database, kind="sqlite"
)
