"""The database of the command `llm`: `logs.db`."""

import json
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.messages import assistant, call, result, system, user
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_malformed

_UNREAD_TABLES: Final = frozenset({"prompt_attachments", "prompt_fragments", "system_fragments"})
"""Tables with parts of prompts, by response."""


@shape_test
def matches(tables: Any) -> bool:
    return has_keys(tables, "conversations", "responses") and tables["responses"] >= {
        "prompt",
        "response",
        "conversation_id",
    }


def read(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        has_tools = {"tool_calls", "tool_results"} <= tables
        conversations = database.execute("SELECT id, name, model FROM conversations ORDER BY id").fetchall()
        without_conversation = "SELECT id, NULL AS name, model FROM responses WHERE conversation_id IS NULL ORDER BY id"
        for conversation in [*conversations, *database.execute(without_conversation).fetchall()]:
            rows = database.execute(
                "SELECT * FROM responses WHERE ? = coalesce(conversation_id, id) ORDER BY id", (conversation["id"],)
            ).fetchall()
            items: list[SourceMessage] = []
            prompt = None
            for index, row in enumerate(rows):
                prompt = prompt if index else row["system"]
                if row["system"] and row["system"] != prompt:
                    source.skip(f"response {row['id']}, system", "is not that of the first request")
                place = f"response {row['id']}"
                with skip_malformed(source, place):
                    items += list(_items(database, row, has_tools=has_tools, is_first=not index))
                for table in _UNREAD_TABLES & tables:
                    for _ in _rows(database, table, row["id"], order="rowid"):
                        source.skip(f"{place}, {table}", "is not read")
            yield SourceConversation(
                items=items,
                id=conversation["id"],
                title=conversation["name"],
                model=conversation["model"],
                created_at=items[0].at if items else None,
            )


def _items(
    database: sqlite3.Connection, row: sqlite3.Row, *, has_tools: bool, is_first: bool
) -> Iterator[SourceMessage]:
    place, at = f"response {row['id']}", time_of(row["datetime_utc"])
    if isinstance(row["prompt"], bytes) or isinstance(row["response"], bytes) or isinstance(row["system"], bytes):
        raise TypeError("a column has bytes instead of a text")
    if is_first and row["system"]:
        yield SourceMessage(system(row["system"]), place, at)
    for output in _rows(database, "tool_results", row["id"]) if has_tools else ():
        is_error = "exception" in output.keys() and output["exception"] is not None  # noqa: SIM118 - a row is not a mapping
        yield SourceMessage(result(output["tool_call_id"], output["output"] or "", is_error=is_error), place, at)
    if row["prompt"]:
        yield SourceMessage(user(row["prompt"]), place, at)
    calls = [
        call(tool_call["tool_call_id"], tool_call["name"], tool_call["arguments"])
        for tool_call in (_rows(database, "tool_calls", row["id"]) if has_tools else ())
    ]
    columns = dict(row)
    has_usage = columns.get("input_tokens") is not None
    usage = None
    if has_usage:
        details = json.loads(columns.get("token_details") or "{}")
        counts = {"input_tokens": columns["input_tokens"], "output_tokens": columns["output_tokens"]}
        usage = {**(details if isinstance(details, dict) else {}), **counts}
    yield SourceMessage(assistant(row["response"], calls), place, at, row["model"], usage)


def _rows(database: sqlite3.Connection, table: str, response_id: str, order: str = "id") -> list[sqlite3.Row]:
    return database.execute(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY {order}", (response_id,)).fetchall()  # noqa: S608 - our own table names


FORMAT: Final = Format(
    name="llm", title="the database of the command llm (logs.db)", matches=matches, read=read, kind="sqlite"
)
