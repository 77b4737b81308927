"""Sessions of Codex: `~/.codex/sessions/**/rollout-*.jsonl`.

Most lines are items of the Responses API; others have the settings of a turn, the reported usage, or a compaction, which
becomes a fold. Turns that the user has rolled back become a branch. In the oldest versions each line is an item without an
envelope.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple

from minutebook.errors import InvalidMessage
from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.messages import json_text, system, user
from minutebook.formats.requests.responses import is_item
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_malformed
from minutebook.record.fold import Fold
from minutebook.record.message import leading_system_count
from minutebook.wire.responses import items_to_messages, message_to_items

_NOT_SENT: Final = frozenset({"ghost_snapshot", "other"})
"""Types of items that Codex records but does not send to the model."""
_OTHER_LINES: Final = frozenset(
    {"event_msg", "world_state", "token_usage_record", "dynamic_tools_updated", "security_risk_score"}
    | {"inter_agent_communication_metadata"}
)
"""Types of lines that are not sent to the model. The usage in them is also in `token_count` events."""
_CONTEXT_STARTS: Final = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>")
"""The beginnings of the user messages that Codex itself adds."""


@shape_test
def matches(value: Any) -> bool:
    if not isinstance(value, Mapping):
        return False
    if has_keys(value, "timestamp", "type", "payload") and isinstance(value["payload"], Mapping):
        return True
    return _is_old_header(value) or value.get("record_type") == "state"


def _is_old_header(value: Any) -> bool:
    """Whether a value is the first line of a session of the oldest versions."""
    return isinstance(value, Mapping) and value.keys() >= {"id", "timestamp", "instructions"} and "type" not in value


class _Item(NamedTuple):
    """An item of the Responses API, and what the file says about it."""

    data: Mapping[str, Any]
    place: str
    at: datetime | None
    model: str | None


@dataclass(slots=True)
class _Session:
    """The data that was read from the lines of a session so far."""

    id: str | None = None
    is_old: bool = False
    """Its lines have items without an envelope."""
    created_at: datetime | None = None
    model: str | None = None
    instructions: str | None = None
    items: list[_Item] = field(default_factory=list)
    usage: list[tuple[int, Mapping[str, Any]]] = field(default_factory=list)
    """Reports of usage, each with the number of items before it."""
    reported_total: Any = None
    """The total of the last report of usage. Codex may write the same report twice."""
    compactions: list[tuple[int, list[Any]]] = field(default_factory=list)
    """The number of items before a compaction, and the items that replace them."""

    rolled_back: list["_Session"] = field(default_factory=list)
    """Copies of the session before turns were removed from its history."""

    def roll_back(self, turn_count: int) -> None:
        """Remove the last turns from the history, as the user has asked Codex to do."""
        starts = [index for index, item in enumerate(self.items) if _starts_turn(item.data)][-turn_count:]
        if starts:
            self.rolled_back.append(replace(self, items=list(self.items)))
            del self.items[starts[0] :]
            self.usage = [report for report in self.usage if report[0] <= starts[0]]
            self.compactions = [compaction for compaction in self.compactions if compaction[0] <= starts[0]]

    def remove_item(self, index: int) -> _Item:
        self.usage = [(count - (count > index), usage) for count, usage in self.usage]
        self.compactions = [(count - (count > index), items) for count, items in self.compactions]
        return self.items.pop(index)


def read(source: Source) -> Iterator[SourceConversation]:
    session = _Session()
    for value in source.values():
        line = value.data
        if matches(line):
            with skip_malformed(source, value.place):
                _add_line(source, session, line, value.place)
        elif session.is_old and is_item(line):
            session.items.append(_Item(line, value.place, None, session.model))
        else:
            source.skip(value.place, "is not a line of a Codex session")
    current = _valid_conversation(source, session)
    yield current
    for number, earlier in enumerate(session.rolled_back, 1):
        branch = _valid_conversation(source, earlier)
        yield replace(branch, id=f"{current.id}.{number}", branch_of=current.id)


def _valid_conversation(source: Source, session: _Session) -> SourceConversation:
    """The conversation of a session without items that are malformed. They are skipped."""
    while True:
        try:
            return _conversation(session, source.stem)
        except InvalidMessage as error:
            invalid = session.remove_item(error.index or 0)
            source.skip(invalid.place, str(error))


def _starts_turn(item: Mapping[str, Any]) -> bool:
    """Whether an item is a message of the user, and not a context that Codex has added."""
    if item.get("role") != "user":
        return False
    content = item.get("content")
    first = content[0] if isinstance(content, list) and content else {"text": content}
    return not str(first.get("text")).lstrip().startswith(_CONTEXT_STARTS)


def _add_line(source: Source, session: _Session, line: Mapping[str, Any], place: str) -> None:
    payload, at = line.get("payload", line), time_of(line.get("timestamp"))
    kind = line.get("type", "session_meta" if "instructions" in line else None)
    session.is_old = session.is_old or _is_old_header(line)
    if kind == "session_meta":
        base = payload.get("base_instructions")
        text = base.get("text") if isinstance(base, Mapping) else base
        session.id, session.created_at = session.id or payload.get("id"), session.created_at or at
        session.instructions = session.instructions or text or payload.get("instructions")
    elif kind == "turn_context":
        session.model = payload.get("model") or session.model
    elif kind == "response_item":
        if payload.get("type") not in _NOT_SENT:
            session.items.append(_Item(_item(payload), place, at, session.model))
    elif kind == "compacted":
        replacement = payload.get("replacement_history") or [user(str(payload.get("message") or ""))]
        session.compactions.append((len(session.items), replacement))
    elif kind == "event_msg" and payload["type"] == "token_count" and payload.get("info"):
        info = payload["info"]
        if info.get("total_token_usage") != session.reported_total or session.reported_total is None:
            session.usage.append((len(session.items), _usage(info["last_token_usage"])))
        session.reported_total = info.get("total_token_usage")
    elif kind == "event_msg" and payload["type"] == "thread_rolled_back":
        session.roll_back(payload["num_turns"])
    elif kind == "event_msg" and "info" in payload and payload["type"] != "token_count":
        source.skip(place, f"has usage in an event of the unknown type {payload['type']!r}")
    elif kind not in _OTHER_LINES and line.get("record_type") != "state":
        source.skip(place, f"is a line of the unknown type {kind!r}")


def _item(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item. The output of a `local_shell_call` is a `function_call_output`, so the call becomes a function call.

    Some versions write the text of an output into an object.
    """
    output: Any = payload.get("output")
    if has_keys(output, "content") and isinstance(output["content"], (str, list)):
        return {**payload, "output": output["content"]}
    if payload.get("type") != "local_shell_call":
        return payload
    call_id, arguments = payload.get("call_id") or payload.get("id"), json_text(payload["action"])
    return {"type": "function_call", "call_id": call_id, "name": "local_shell", "arguments": arguments}


def _usage(counts: Mapping[str, Any]) -> dict[str, Any]:
    """The usage in the form of the Responses API."""
    return {
        "input_tokens": counts.get("input_tokens", 0),
        "input_tokens_details": {"cached_tokens": counts.get("cached_input_tokens", 0)},
        "output_tokens": counts.get("output_tokens", 0),
        "output_tokens_details": {"reasoning_tokens": counts.get("reasoning_output_tokens", 0)},
        "total_tokens": counts.get("total_tokens", 0),
    }


def _conversation(session: _Session, stem: str) -> SourceConversation:
    messages: list[SourceMessage] = []
    message_indexes: dict[int, int] = {}  # index of a message's first item → index of the message
    item_index = 0
    for message in items_to_messages(item.data for item in session.items):
        message_indexes[item_index] = len(messages)
        first_item = session.items[min(item_index, len(session.items) - 1)]
        model = first_item.model if message.get("role") == "assistant" else None
        messages.append(SourceMessage(message, first_item.place, first_item.at, model))
        item_index += len(message_to_items(message))
    for item_count, usage in session.usage:  # it belongs to the last answer before the report
        answers = [
            index
            for first_item_index, index in message_indexes.items()
            if first_item_index < item_count and messages[index].message["role"] == "assistant"
        ]
        if answers:
            messages[answers[-1]] = replace(messages[answers[-1]], usage=usage)
    if session.instructions:
        messages.insert(0, SourceMessage(system(session.instructions), "session_meta", session.created_at))
    folds = tuple(
        _fold(session, item_count, replacement, message_indexes, messages)
        for item_count, replacement in session.compactions
    )
    return SourceConversation(
        items=messages,
        id=session.id or stem,
        is_id_derived=not session.id,
        model=session.model,
        created_at=session.created_at,
        folds=tuple(fold for fold in folds if fold is not None),
    )


def _fold(
    session: _Session,
    item_count: int,
    replacement: list[Any],
    message_indexes: Mapping[int, int],
    messages: list[SourceMessage],
) -> Fold | None:
    """The fold of a compaction after `item_count` items; None if there was nothing to compact."""
    offset = 1 if session.instructions else 0
    start = offset + leading_system_count([item.message for item in messages[offset:]])
    stop = offset + next(
        (index for item_index, index in sorted(message_indexes.items()) if item_index >= item_count),
        len(messages) - offset,
    )
    if start >= stop:
        return None
    return Fold.over(range(start, stop), shown=items_to_messages(replacement), reason="compacted by Codex")


FORMAT: Final = Format(
    name="codex",
    title="Codex sessions (~/.codex/sessions/**/rollout-*.jsonl)",
    matches=matches,
    read=read,
    also_matches=lambda value, first: _is_old_header(first) and is_item(value),
)
