"""Sessions of opencode: its database, and what `opencode export` writes.

A compaction is a request for a summary and its answer. What is before them is not sent any more: it becomes a fold.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    SourceConversation,
    SourceMessage,
    has_keys,
    list_places,
    read_each,
    read_items,
    time_of,
)
from minutebook.formats.messages import assistant, call, json_text, media, result, user
from minutebook.formats.source import Source, Value
from minutebook.formats.value_errors import known_parts, shape_test, skip_malformed, skip_unknown_role
from minutebook.record.fold import Fold

_NOT_SENT: Final = frozenset({"snapshot", "patch", "agent", "retry"})
"""Types of parts that opencode records but does not send to the model."""
_NOT_SENT_FILES: Final = frozenset({"text/plain", "application/x-directory"})
"""Types of files that opencode does not send: the text of one is in another part."""
_TEXTS: Final = {"compaction": "What did we do so far?", "subtask": "The following tool was executed by the user"}
"""The text that opencode sends for a part of the type."""


@shape_test
def matches(value: Any) -> bool:
    if not has_keys(value, "info", "messages") or not isinstance(value["messages"], list):
        return False
    return all(map(_is_message, value["messages"]))


def _is_message(value: Any) -> bool:
    return has_keys(value, "info", "parts")


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversation, source))


def _conversation(source: Source, value: Mapping[str, Any], place: str) -> SourceConversation:
    info = value["info"]
    items: list[SourceMessage] = []
    folds: list[Fold] = []
    for message in map(Value, value["messages"], list_places(place)):
        new_items = read_items(source, [message], _is_message, partial(_items, source))
        if len(items) > 1 and new_items and message.data["info"].get("summary") is True:
            folds.append(Fold.over(range(len(items) - 1), reason="compacted by opencode"))
        items += new_items
    model = next((item.model for item in reversed(items) if item.model), None)
    created_at = time_of((info.get("time") or {}).get("created"))
    return SourceConversation(
        items=items,
        id=info.get("id"),
        title=info.get("title"),
        model=model,
        created_at=created_at,
        folds=tuple(folds),
    )


def _items(source: Source, message: Mapping[str, Any], place: str) -> Iterator[SourceMessage]:
    info = message["info"]
    at, role = time_of((info.get("time") or {}).get("created")), info.get("role")
    if role == "user":
        parts = known_parts(source, message["parts"], place, {"text", "file", *_TEXTS}, ignored=_NOT_SENT)
        yield SourceMessage(user(_user_content(parts)), place, at)
        return
    if role != "assistant":
        skip_unknown_role(source, place, role)
        return
    types = {"text", "reasoning", "tool", "step-start", "step-finish"}
    parts = known_parts(source, message["parts"], place, types, ignored=_NOT_SENT)
    steps = list(_steps(parts))
    for index, step in enumerate(steps):
        tools = [part for part in step if part.get("type") == "tool"]
        text = "".join(str(part.get("text") or "") for part in step if part.get("type") == "text")
        reasoning = "".join(str(part.get("text") or "") for part in step if part.get("type") == "reasoning")
        calls = [call(part.get("callID"), part.get("tool"), (part.get("state") or {}).get("input")) for part in tools]
        # The tokens in the information about a message are those of its last step.
        last_tokens = info.get("tokens") if index == len(steps) - 1 else None
        tokens = next((part["tokens"] for part in step if "tokens" in part), last_tokens)
        answer = assistant(text, calls, reasoning=reasoning)
        yield SourceMessage(answer, place, at, info.get("modelID"), _usage(tokens))
        for part in tools:
            state = part.get("state") or {}
            if state.get("status") in {"completed", "error"}:
                output = state.get("output", state.get("error", ""))
                if files := state.get("attachments"):
                    output = [{"type": "text", "text": json_text(output)}, *map(_file, files)]
                message = result(part.get("callID"), output, is_error=state["status"] == "error")
                yield SourceMessage(message, place, time_of((state.get("time") or {}).get("end")) or at)


def _steps(parts: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The parts of each model call that had an answer."""
    step: list[Mapping[str, Any]] = []
    for part in [*parts, {"type": "step-start"}]:
        if part["type"] != "step-start":
            step.append(part)
            continue
        if any(other["type"] != "step-finish" for other in step):
            yield step
        step = []


def _user_content(parts: list[Mapping[str, Any]]) -> Any:
    texts = [
        _TEXTS.get(part["type"], str(part.get("text") or ""))
        for part in parts
        if part["type"] != "file" and not part.get("ignored")
    ]
    files = [part for part in parts if part["type"] == "file" and part.get("mime") not in _NOT_SENT_FILES]
    if not files:
        return "\n".join(texts)
    return [{"type": "text", "text": text} for text in texts] + [_file(part) for part in files]


def _file(part: Mapping[str, Any]) -> dict[str, Any]:
    file = media(str(part.get("mime")), str(part.get("url")), part.get("filename"))
    return file or {"type": "text", "text": json_text({key: part.get(key) for key in ("filename", "mime", "url")})}


def _usage(tokens: Any) -> dict[str, Any] | None:
    if not isinstance(tokens, Mapping):
        return None
    cache = tokens.get("cache") or {}
    return {
        "input_tokens": tokens.get("input", 0),
        "output_tokens": tokens.get("output", 0),
        "cache_read_input_tokens": cache.get("read", 0),
        "cache_creation_input_tokens": cache.get("write", 0),
    }


FORMAT: Final = Format(name="opencode", title="opencode sessions (opencode export)", matches=matches, read=read)


@shape_test
def matches_tables(tables: Any) -> bool:
    return has_keys(tables, "session", "message", "part") and "data" in tables["message"] & tables["part"]


def read_database(source: Source) -> Iterator[SourceConversation]:
    with source.database() as database:
        for session in database.execute("SELECT * FROM session ORDER BY time_created, id").fetchall():
            place, messages = f"session {session['id']}", list[Any]()
            with skip_malformed(source, place):
                for message_id, data in database.execute(
                    "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session["id"],)
                ):
                    parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (message_id,))
                    messages.append({"info": json.loads(data), "parts": [json.loads(part) for (part,) in parts]})
                info = {**dict(session), "time": {"created": session["time_created"]}}
                yield _conversation(source, {"info": info, "messages": messages}, place)


DATABASE_FORMAT: Final = Format(
    name="opencode-db",
    title="opencode sessions (opencode.db)",
    matches=matches_tables,
    read=read_database,
    kind="sqlite",
)
