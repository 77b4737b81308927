"""The database of the command `llm`: `logs.db`.

Current versions store a tree of messages, and threads that point at their last messages. Earlier ones have a row for each
response, and a database may have both.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.messages import assistant, call, result, system, user
from minutebook.formats.source import Source
from minutebook.formats.value_errors import known_parts, shape_test, skip_malformed, skip_unknown_role
from minutebook.record.message import Message

_UNREAD_TABLES: Final = frozenset({"prompt_attachments", "prompt_fragments", "system_fragments"})
"""Tables with parts of prompts, by response."""
_PART_TYPES: Final = frozenset({"text", "reasoning", "tool_call", "tool_result"})
_CHAIN: Final = """
WITH RECURSIVE chain (hash, parent_hash, role, depth) AS (
    SELECT hash, parent_hash, role, 0 FROM messages WHERE hash = ?
    UNION ALL
    SELECT parent.hash, parent.parent_hash, parent.role, depth + 1
    FROM chain JOIN messages AS parent ON parent.hash = chain.parent_hash
    LIMIT (SELECT count(*) FROM messages)
)
SELECT hash, role FROM chain ORDER BY depth
"""
"""A message and those before it, the newest first."""


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
        threads = database.execute("SELECT * FROM threads ORDER BY id").fetchall() if "threads" in tables else []
        for thread in threads:
            yield _thread(source, database, thread)
        # The messages of a thread include those of the conversation that it continues.
        read_ids = {thread["id"] for thread in threads}
        conversations = database.execute("SELECT id, name, model FROM conversations ORDER BY id").fetchall()
        without_conversation = "SELECT id, NULL AS name, model FROM responses WHERE conversation_id IS NULL ORDER BY id"
        for conversation in [*conversations, *database.execute(without_conversation).fetchall()]:
            if conversation["id"] in read_ids:
                continue
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
    answer = assistant(row["response"], calls, reasoning=columns.get("reasoning"))
    yield SourceMessage(answer, place, at, row["model"], _usage(columns))


def _usage(columns: Mapping[str, Any]) -> dict[str, Any] | None:
    if columns.get("input_tokens") is None:
        return None
    details = json.loads(columns.get("token_details") or "{}")
    counts = {"input_tokens": columns["input_tokens"], "output_tokens": columns["output_tokens"]}
    return {**(details if isinstance(details, dict) else {}), **counts}


def _thread(source: Source, database: sqlite3.Connection, thread: sqlite3.Row) -> SourceConversation:
    turns = {
        turn["tip_message_hash"]: turn
        for turn in database.execute("SELECT * FROM turns WHERE thread_id = ? ORDER BY id", (thread["id"],))
    }
    messages: list[list[SourceMessage]] = []
    turn: sqlite3.Row | None = None
    for row in database.execute(_CHAIN, (thread["tip_message_hash"],)).fetchall():
        own_turn = turns.pop(row["hash"], None)
        turn = own_turn or turn
        items: list[SourceMessage] = []
        with skip_malformed(source, f"message {row['hash']}"):
            items = list(_thread_items(source, database, row, turn, own_turn))
        messages.append(items)
    for other_turn in turns.values():
        source.skip(f"turn {other_turn['id']}", "is not before the last message of its thread")
    items = [item for items in reversed(messages) for item in items]
    return SourceConversation(
        items=items,
        id=thread["id"],
        title=thread["name"],
        model=next((item.model for item in reversed(items) if item.model), None),
        created_at=items[0].at if items else None,
        branch_of=thread["forked_from"],
    )


def _thread_items(
    source: Source,
    database: sqlite3.Connection,
    row: sqlite3.Row,
    turn: sqlite3.Row | None,
    own_turn: sqlite3.Row | None,
) -> Iterator[SourceMessage]:
    """The messages of a row. `turn` is the model call that it was sent in or answered, `own_turn` the one that it answered."""
    place, at = f"message {row['hash']}", None if turn is None else time_of(turn["datetime_utc"])
    rows = database.execute("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", (row["hash"],)).fetchall()
    parts = known_parts(source, [_part(database, part) for part in rows], place, _PART_TYPES)
    text = "".join(part["text"] for part in parts if part["type"] == "text")
    results: list[Message] = []
    for part in parts:
        if part["type"] == "tool_result":
            is_error = part.get("exception") is not None
            results.append(result(part.get("tool_call_id"), part["output"], is_error=is_error))
            for _ in part.get("attachments") or ():
                source.skip(place, "has an attachment of a tool result, which is not read")
    if row["role"] == "assistant":
        calls = [
            call(part.get("tool_call_id"), part["name"], part["arguments"])
            for part in parts
            if part["type"] == "tool_call"
        ]
        reasoning = "".join(part["text"] for part in parts if part["type"] == "reasoning")
        model, usage = (None, None) if own_turn is None else (own_turn["model"], _usage(dict(own_turn)))
        yield SourceMessage(assistant(text, calls, reasoning=reasoning), place, at, model, usage)
    elif row["role"] in {"user", "system"}:
        yield SourceMessage(user(text) if row["role"] == "user" else system(text), place, at)
    elif row["role"] != "tool":
        skip_unknown_role(source, place, row["role"])
        return
    yield from (SourceMessage(message, place, at) for message in results)


def _part(database: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    """The fields of a part. Its text may consist of fragments, which several prompts share."""
    part = {**json.loads(row["payload"] or "{}"), "type": row["type"]}
    if row["text"] is not None:
        part["text"] = row["text"]
    elif "text_ref" in part:
        part["text"] = "".join(_piece_text(database, piece) for piece in part["text_ref"])
    return part


def _piece_text(database: sqlite3.Connection, piece: Mapping[str, Any]) -> str:
    if "literal" in piece:
        return str(piece["literal"])
    fragment = database.execute("SELECT content FROM fragments WHERE id = ?", (piece["fragment"],)).fetchone()
    return str(fragment["content"])


def _rows(database: sqlite3.Connection, table: str, response_id: str, order: str = "id") -> list[sqlite3.Row]:
    return database.execute(f"SELECT * FROM {table} WHERE response_id = ? ORDER BY {order}", (response_id,)).fetchall()  # noqa: S608 - our own table names


FORMAT: Final = Format(
    name="llm", title="the database of the command llm (logs.db)", matches=matches, read=read, kind="sqlite"
)
