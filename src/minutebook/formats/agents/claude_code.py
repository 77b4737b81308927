"""Sessions of Claude Code: `~/.claude/projects/*/*.jsonl`.

Each line has an id and the id of its parent. One assistant message is several lines with the same message id, one per
content block, and the results of its calls may be between them. When the user edits an earlier prompt, the
old lines stay in the file: they become a branch. Subagents (sidechains) are separate conversations. A compaction is a
boundary line and a summary that replaces the messages before it: it becomes a fold.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from minutebook.formats.conversation import Format, SourceConversation, SourceMessage, has_keys, time_of
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_malformed, skip_unknown_role
from minutebook.record.fold import Fold
from minutebook.record.message import Message, leading_system_count
from minutebook.wire.read import read as read_messages

_MESSAGE_TYPES: Final = frozenset({"user", "assistant"})
_KEYS: Final = frozenset(
    {"sessionId", "uuid", "parentUuid", "leafUuid", "messageId", "isSidechain", "snapshot", "timestamp"}
)
"""Each line of a session has at least one of these keys."""
_OTHER_TYPES: Final = frozenset(
    {
        "system",
        "summary",
        "file-history-snapshot",
        "queue-operation",
        "progress",
        "attachment",
        "custom-title",
        "ai-title",
    }
    | {"agent-name", "agent-setting", "last-prompt", "permission-mode", "mode", "pr-link", "tag", "worktree-state"}
    | {"content-replacement", "attribution-snapshot", "agent-color", "speculation-accept"}
    | {"result", "stream_event", "rate_limit_event"}  # in the output of `claude -p --output-format stream-json`
)


@shape_test
def matches(value: Any) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str) or not value.keys() & _KEYS:
        return False
    if value["type"] in _MESSAGE_TYPES:
        return isinstance(value.get("message"), Mapping) and ("uuid" in value or "sessionId" in value)
    return value["type"] in _OTHER_TYPES


@dataclass(slots=True)
class _Line:
    """A line of the file or, after `_merged_lines`, all lines of an assistant message."""

    data: Mapping[str, Any]
    place: str
    """Where the line is in the file, for error messages."""
    parent: str
    """The id of the line before it in its conversation; empty if there is none."""
    blocks: list[Any] = field(default_factory=list)
    """The content blocks of an assistant message, those of its later lines included."""
    usage: Mapping[str, Any] | None = None

    @property
    def id(self) -> str:
        return str(self.data.get("uuid"))


def read(source: Source) -> Iterator[SourceConversation]:
    groups: dict[tuple[str, str], list[_Line]] = {}
    group_of: dict[str, tuple[str, str]] = {}
    titles: dict[str, Any] = {}
    seen: dict[str, Mapping[str, Any]] = {}
    for value in source.values():
        if not matches(value.data):
            source.skip(value.place, "is not a line of a Claude Code session")
            continue
        data = _with_message(value.data)
        if data["type"] in _MESSAGE_TYPES and data["message"].get("role") != data["type"]:
            skip_unknown_role(source, value.place, data["message"].get("role"))
            continue
        session, agent = _group_of(data, group_of)
        if title := data.get("summary") or data.get("customTitle") or data.get("aiTitle"):
            titles[group_of.get(str(data.get("leafUuid")), (session,))[0]] = title
        if data["type"] in _MESSAGE_TYPES and "uuid" not in data:
            source.skip(value.place, "is a message without a uuid")
        elif (earlier := seen.get(str(data.get("uuid")))) is not None:
            if earlier.get("message") != data.get("message"):
                source.skip(value.place, "has the id of an earlier line, but another message")
        elif "uuid" in data:
            seen[str(data["uuid"])] = data
            lines = groups.setdefault((session, agent), [])
            parent = data.get("parentUuid") or data.get("logicalParentUuid")
            if "parentUuid" not in data and lines:  # the lines of stream-json have no parents
                parent = lines[-1].id
            lines.append(_Line(data, value.place, str(parent or "")))
            group_of[str(data["uuid"])] = (session, agent)
    for (session, agent), lines in groups.items():
        _connect(lines)
        name = session or source.stem
        title = None if agent else titles.get(session, titles.get(""))
        for conversation in _conversations(source, lines, f"{name}.{agent}" if agent else name, title):
            yield replace(conversation, is_id_derived=not session)


def _connect(lines: Sequence[_Line]) -> None:
    """Connect each line whose parent could not be read to the previous line, so that one damaged line is only a gap."""
    ids = {line.id for line in lines}
    for previous, line in pairwise(lines):
        if line.parent and line.parent not in ids:
            line.parent = previous.id


def _with_message(line: Mapping[str, Any]) -> Mapping[str, Any]:
    """The line. A prompt that the user typed while the agent worked is recorded as an attachment: it becomes a message."""
    attachment: Any = line.get("attachment")
    if not has_keys(attachment, "type", "prompt") or attachment["type"] != "queued_command":
        return line
    return {**line, "type": "user", "message": {"role": "user", "content": attachment["prompt"]}}


def _group_of(line: Mapping[str, Any], group_of: Mapping[str, tuple[str, str]]) -> tuple[str, str]:
    """The ids of the line's session and subagent. The second one is empty for the main conversation.

    A session that was resumed may contain lines of the earlier one, before its own: they have the id of the earlier one.
    """
    parent = str(line.get("parentUuid") or line.get("logicalParentUuid"))
    parent_session, parent_agent = group_of.get(parent, ("", ""))
    session = parent_session or str(line.get("sessionId") or line.get("session_id") or "")
    if not line.get("isSidechain") and not line.get("agentId") and not line.get("parent_tool_use_id"):
        return session, ""
    own_agent = line.get("agentId") or line.get("parent_tool_use_id")
    return session, str(own_agent or parent_agent or str(line.get("uuid"))[:8])


def _conversations(
    source: Source, lines: Sequence[_Line], name: str, title: str | None
) -> Iterator[SourceConversation]:
    current = _current_path(lines)
    path = [line for line in lines if id(line) in current]
    former_ids = tuple(f"{name}.{line.id}" for line in reversed(path))
    yield replace(_conversation(source, path, name, title), former_ids=former_ids)
    abandoned_lines = [line for line in lines if id(line) not in current]
    by_id = {line.id: line for line in lines}
    branches: dict[str, list[_Line]] = {}
    root_of: dict[str, str] = {}
    for line in abandoned_lines:
        root = root_of.get(line.parent, line.id)
        root_of[line.id] = root
        branches.setdefault(root, []).append(line)
    for root, branch in branches.items():
        parent = by_id.get(branch[0].parent)
        shared = lines[: lines.index(parent) + 1] if parent is not None else []
        path = [line for line in shared if id(line) in current] + branch
        yield replace(_conversation(source, path, f"{name}.{root}", title), branch_of=name)


def _current_path(lines: Sequence[_Line]) -> set[int]:
    """The `id()` of the lines of the current conversation.

    They are the last line, its ancestors, the other lines of their messages, and the results of their calls.
    """
    by_id = {line.id: line for line in lines}
    path: set[int] = set()
    line: _Line | None = lines[-1] if lines else None
    while line is not None and id(line) not in path:
        path.add(id(line))
        line = by_id.get(line.parent)
    messages = {message_id for line in lines if id(line) in path and (message_id := _message_id(line)) is not None}
    for line in lines:  # parallel calls: each result has its own call's line as parent
        if _message_id(line) in messages or (_is_result(line) and id(by_id.get(line.parent)) in path):
            path.add(id(line))
    return path


def _message_id(line: _Line) -> str | None:
    message = line.data.get("message")
    message_id = message.get("id") if isinstance(message, Mapping) and line.data["type"] == "assistant" else None
    return message_id if isinstance(message_id, str) else None


def _is_result(line: _Line) -> bool:
    content = (line.data.get("message") or {}).get("content")
    return isinstance(content, list) and any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content
    )


def _conversation(source: Source, lines: Sequence[_Line], name: str, title: str | None) -> SourceConversation:
    items: list[SourceMessage] = []
    folds: list[Fold] = []
    for line in _merged_lines(lines):
        if line.data["type"] not in _MESSAGE_TYPES:
            continue
        messages: list[Message] = []
        with skip_malformed(source, line.place):
            messages = read_messages([_provider_message(line)])
        at, model = time_of(line.data.get("timestamp")), line.data["message"].get("model")
        if line.data.get("isCompactSummary") and items and messages:
            start = leading_system_count([item.message for item in items])
            folds.append(Fold.over(range(start, len(items)), shown=messages, reason="compacted by Claude Code"))
            continue
        items += [SourceMessage(message, line.place, at, model, line.usage) for message in messages]
    model = next((item.model for item in reversed(items) if item.model and item.model != "<synthetic>"), None)
    return SourceConversation(
        items=items, id=name, title=title, model=model, created_at=items[0].at if items else None, folds=tuple(folds)
    )


def _provider_message(line: _Line) -> Mapping[str, Any]:
    """The message of a line. An answer gets the keys of a whole response, so that it is read as one of Anthropic's."""
    message = {**line.data["message"], "content": line.blocks or line.data["message"].get("content")}
    return {"stop_reason": None, **message, "type": "message"} if message.get("role") == "assistant" else message


def _merged_lines(lines: Sequence[_Line]) -> list[_Line]:
    """The lines with all blocks of an assistant message in its first line."""
    merged: list[_Line] = []
    line_of_message: dict[str, _Line] = {}
    for line in lines:
        message_id = _message_id(line)
        message = line.data.get("message") or {}
        if message_id is None:
            merged.append(line)
            continue
        merged_line = line_of_message.setdefault(message_id, _Line(line.data, line.place, line.parent))
        if not merged_line.blocks:
            merged.append(merged_line)
        content = message.get("content")
        merged_line.blocks += content if isinstance(content, list) else [{"type": "text", "text": str(content or "")}]
        merged_line.usage = message.get("usage") or merged_line.usage
    return merged


FORMAT: Final = Format(
    name="claude-code",
    title="Claude Code sessions (~/.claude/projects/**/*.jsonl)",
    matches=matches,
    read=read,
    provider="anthropic",
)
