"""Trimming: removes the arguments and results of old tool calls from the record.

The module also has `tool_uses`, the list of tool calls that clients get. It reads the status of trimmed calls.

A turn is trimmed once, when it is no longer among the preserved newest turns (`trim_old_turns`). `trim_all` trims
conversations that were stored before trimming was enabled.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from minutebook.conversation.config import Persistence, RetentionConfig, persistence_rule
from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.record.exchange import exchanges
from minutebook.record.message import (
    Message,
    MessageRole,
    call_ids,
    call_names,
    is_result,
    is_user,
    result_id,
    role_of,
    text_of,
)
from minutebook.store.base import ConversationStore
from minutebook.store.types import LoadedConversation
from minutebook.wire.chat import entry_to_provider_message

TRIMMED_MARKER: Final = "[trimmed: {status}]"
"""Replaces the content of a trimmed tool result."""
_MARKERS: Final = frozenset({"", TRIMMED_MARKER.format(status="ok"), TRIMMED_MARKER.format(status="error")})
Status = Literal["ok", "error", "pending"]


class ToolUse(TypedDict):
    """A tool call and its result."""

    id: str
    name: str
    arguments: str
    """JSON text from the model, which may be invalid."""
    status: Status
    """`pending` if there is no result yet."""
    result: str | None


def tool_uses(messages: Sequence[Message]) -> list[ToolUse]:
    """Every tool call in the messages with its result, in the order of the calls."""
    uses: list[ToolUse] = []
    pending: dict[str, ToolUse] = {}
    for message in messages:
        if is_result(message):
            use = pending.pop(result_id(message), None)
            if use is not None:
                use["status"], use["result"] = status_of(message), text_of(message)
        elif role_of(message) == "assistant" and call_ids(message):
            pending = {}  # ids may repeat: a result belongs to the calls of the assistant message just before it
            for call_id, name, arguments in zip(
                call_ids(message), call_names(message), _arguments(message), strict=True
            ):
                use = ToolUse(id=call_id, name=name, arguments=arguments, status="pending", result=None)
                uses.append(use)
                pending[call_id] = use
    return uses


def tool_uses_for_clients(
    uses: Iterable[Mapping[str, Any]], *, expose_tool_details: bool = False
) -> list[dict[str, Any]]:
    """The tool uses that clients get: name and status, with `expose_tool_details` all fields."""
    if expose_tool_details:
        return [dict(use) for use in uses]
    return [{"name": use["name"], "status": use["status"]} for use in uses]


def is_trimmed(message: Message) -> bool:
    """Whether a message is a trimmed tool result."""
    return is_result(message) and text_of(message) in _MARKERS


def status_of(message: Message) -> Status:
    """The status of a tool result: `error` if the message is marked as one, else `ok`."""
    if message.get("is_error") is True or text_of(message) == TRIMMED_MARKER.format(status="error"):
        return "error"
    return "ok"


def messages_of_rows(rows: Sequence[Message]) -> list[Message]:
    """Convert rows with the keys `text` and `tools_used` to provider messages. Other messages stay unchanged.

    Providers reject unknown keys, so `tools_used` becomes an assistant message with the calls, then their results, then
    the assistant's text.
    """
    messages: list[Message] = []
    for index, row in enumerate(rows):
        if "tools_used" not in row and "text" not in row:
            messages.append(row)
            continue
        uses = [use for use in row.get("tools_used") or () if isinstance(use, Mapping)]
        other_keys = {key: value for key, value in row.items() if key not in {"text", "tools_used"}}
        if role_of(row) == "assistant" and uses:
            messages += _exchange(uses, index)
        messages.append({**other_keys, "content": row["text"] if "text" in row else row.get("content")})
    return messages


def _exchange(uses: Sequence[Mapping[str, Any]], row_index: int) -> list[Message]:
    ids = [str(use["id"]) if use.get("id") else f"call_{row_index}_{number}" for number, use in enumerate(uses)]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": str(use.get("name", "")), "arguments": _text(use.get("arguments"), "{}")},
        }
        for call_id, use in zip(ids, uses, strict=True)
    ]
    results: list[Message] = [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": _text(use.get("result"), TRIMMED_MARKER.format(status=use.get("status", "ok"))),
            **({"is_error": True} if use.get("status") == "error" else {}),
        }
        for call_id, use in zip(ids, uses, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _text(value: Any, default: str) -> str:
    if value is None:
        return default
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _arguments(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    if calls:
        functions = [call.get("function") or call.get("custom") or {} for call in calls]
        return [str(function.get("arguments", function.get("input", ""))) for function in functions]
    legacy_call = message.get("function_call")
    return [str(legacy_call.get("arguments", ""))] if isinstance(legacy_call, Mapping) else []


_PAGE_SIZE: Final = 500
"""Entries per read."""


@dataclass(frozen=True, slots=True)
class TrimResult:
    """How much was trimmed, or would be in shadow mode and in a dry run."""

    trimmed: int = 0
    """The number of trimmed messages."""
    freed_bytes: int = 0
    written: bool = False
    """False in shadow mode and in a dry run."""

    def __add__(self, other: "TrimResult") -> "TrimResult":
        return TrimResult(
            self.trimmed + other.trimmed, self.freed_bytes + other.freed_bytes, self.written or other.written
        )


def trims(config: RetentionConfig) -> bool:
    """Whether old turns are trimmed or, in shadow mode, checked for what would be trimmed."""
    return config.mode != "off" and persistence_rule(config, mode="on").older is not Persistence.ALL


async def trim_old_turns(store: ConversationStore, conversation: str, config: RetentionConfig) -> TrimResult:
    """Trim the turns that are no longer preserved. The newest turn always is. In shadow mode nothing is written.

    Reads backwards from the newest turn, in steps of 1, 2, 4, … turns, and stops at the first step with nothing to trim:
    an earlier call has trimmed everything before it.
    """
    result = TrimResult()
    if not trims(config):
        return result
    persistence = persistence_rule(config, mode="on").older
    preserve_turns = max(1, config.preserve_turns)
    step_turns = 1
    stop: int | None = None
    while True:
        loaded = await store.load(conversation, last_turns=preserve_turns + step_turns)
        messages = list(zip(loaded.positions, loaded.messages, strict=True))
        turn_starts = [position for position, message in messages if is_user(message)]
        if len(turn_starts) <= preserve_turns:
            return result
        if stop is None:
            stop = turn_starts[-preserve_turns]
        older = [(position, message) for position, message in messages if position < stop]
        step_result = await _trim(store, conversation, older, loaded.pins, persistence, write=config.mode == "on")
        if not step_result.trimmed:
            return result
        result += step_result
        stop, step_turns = turn_starts[0], step_turns * 2


async def trim_all(
    store: ConversationStore,
    conversation: str,
    *,
    older_than_turns: int,
    persistence: Persistence,
    write: bool,
    advance: Callable[[int], None] = lambda _count: None,
) -> TrimResult:
    """Trim all but the newest `older_than_turns` turns. `advance` is called with the number of messages checked.

    `persistence` is what stays of each tool call; without `write` nothing is changed.

    Raises:
        InvalidSetting: `older_than_turns` is below 1, so that the newest turn would be trimmed.
        ConversationNotFound: the conversation does not exist.
    """
    if older_than_turns < 1:
        raise InvalidSetting("older_than_turns", older_than_turns, "1 or more, because the newest turn is in use")
    result = TrimResult()
    if persistence is Persistence.ALL:
        return result
    loaded = await store.load(conversation, since=0, limit=_PAGE_SIZE)
    if loaded.start + len(loaded.entries) == loaded.conversation.length:  # most conversations have one page
        messages = _older_messages(loaded, older_than_turns)
        advance(len(loaded.entries))
        return await _trim(store, conversation, messages, loaded.pins, persistence, write=write)
    newest = await store.load(conversation, last_turns=older_than_turns)
    async for page in _pages(store, conversation, newest.conversation.first, newest.start):
        result += await _trim(store, conversation, page, newest.pins, persistence, write=write)
        advance(len(page))
    return result


def _older_messages(loaded: LoadedConversation, turns: int) -> list[tuple[int, Message]]:
    """The messages before the newest turns of a whole conversation, with their positions; empty if no tool was called."""
    turn_starts = [index for index, entry in enumerate(loaded.entries) if entry.role is MessageRole.USER]
    older = loaded.entries[: turn_starts[-turns] if len(turn_starts) >= turns else 0]
    if not any(entry.tool_calls or entry.extras or entry.role is MessageRole.TOOL for entry in older):
        return []
    return list(zip(loaded.positions, map(entry_to_provider_message, older), strict=False))


async def _pages(
    store: ConversationStore, conversation: str, start: int, stop: int
) -> AsyncIterator[list[tuple[int, Message]]]:
    """The messages of a range with their positions, in pages of about `_PAGE_SIZE`. An exchange is never split."""
    carried_over: list[tuple[int, Message]] = []
    while start < stop:
        try:
            loaded = await store.load(conversation, since=start, limit=min(_PAGE_SIZE, stop - start))
        except ConversationNotFound:
            return  # erased meanwhile
        page = carried_over + list(zip(loaded.positions, loaded.messages, strict=True))
        start += len(loaded.entries)
        if not loaded.entries or start >= stop:
            carried_over, start = [], stop
        else:
            # The last exchange may continue on the next page.
            cut = max((index for index, (_, message) in enumerate(page) if not is_result(message)), default=0)
            page, carried_over = page[:cut], page[cut:]
        if page:
            yield page


async def _trim(
    store: ConversationStore,
    conversation: str,
    messages: Sequence[tuple[int, Message]],
    pins: frozenset[int],
    persistence: Persistence,
    *,
    write: bool,
) -> TrimResult:
    """Trim messages, given with their positions, if that makes them smaller. Exchanges with a pin stay unchanged."""
    changes: dict[int, Message] = {}
    freed_bytes = 0
    if all(without_payload(message, persistence) is message for _, message in messages):
        return TrimResult()  # most often nothing is due, and finding the exchanges takes longer
    for exchange in exchanges([message for _, message in messages]):
        exchange_messages = messages[exchange.start : exchange.stop]
        if any(position in pins for position, _ in exchange_messages):
            continue
        for position, message in exchange_messages:
            trimmed = without_payload(message, persistence)
            if trimmed is not message:
                changes[position] = trimmed
                freed_bytes += _size(message) - _size(trimmed)
    if not changes or not write:
        return TrimResult(len(changes), freed_bytes)
    return TrimResult(await store.trim(conversation, changes), freed_bytes, written=True)


def without_payload(message: Message, persistence: Persistence) -> Message:
    """The message without tool arguments or result; the message itself if that is not smaller."""
    trimmed = message
    if is_result(message):
        if persistence is Persistence.STATUS and is_trimmed(message):
            return message
        trimmed = {
            **message,
            "content": TRIMMED_MARKER.format(status=status_of(message)) if persistence is Persistence.STATUS else "",
        }
    elif role_of(message) == "assistant" and call_ids(message):
        trimmed = _without_arguments(message)
    if trimmed is message or persistence is Persistence.ALL:
        return message
    return trimmed if _size(trimmed) < _size(message) else message


def _without_arguments(message: Message) -> Message:
    trimmed = dict(message)
    if message.get("tool_calls"):
        trimmed["tool_calls"] = [
            {
                key: _with_empty_arguments(value) if key in {"function", "custom"} else value
                for key, value in call.items()
            }
            for call in message["tool_calls"]
        ]
    if isinstance(message.get("function_call"), Mapping):
        trimmed["function_call"] = _with_empty_arguments(message["function_call"])
    return trimmed


def _with_empty_arguments(function: Any) -> Any:
    if not isinstance(function, Mapping):
        return function
    empty = {"arguments": "{}", "input": ""}
    return {
        key: empty[key] if key in empty and len(str(value)) > len(empty[key]) else value
        for key, value in function.items()
    }


def _size(message: Message) -> int:
    """The bytes of a message in a store: its text in UTF-8 and the other fields as JSON."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    other_fields = {**message, "content": 0} if isinstance(content, str) else message
    other_json = json.dumps(other_fields, default=dict, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + len(other_json.encode("utf-8", "surrogatepass"))
