"""Taking the payloads of old tool calls out of the record: the one loss that retention is allowed (document 002).

When a message is written its turn is the newest, so nothing can be trimmed then. Turns are trimmed when they leave the
window of turns that are preserved, each once; `trim_all` does the same for what was there before anybody trimmed.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypedDict

from minutebook.conversation.config import Kept, RetentionConfig, kept
from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.record.exchange import exchanges
from minutebook.record.message import Message, call_ids, call_names, is_result, is_user, result_id, role_of, text_of
from minutebook.store.base import ConversationStore

TRIMMED: Final = "[trimmed: {status}]"
"""What stands in place of a result that is no longer kept, and says how it ended."""
_MARKERS: Final = frozenset({"", TRIMMED.format(status="ok"), TRIMMED.format(status="error")})
Status = Literal["ok", "error", "pending"]


class ToolUsed(TypedDict):
    """One use of a tool."""

    id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""
    status: Status
    """`pending` while there is no result."""
    result: str | None


def tools_used(messages: Sequence[Message]) -> list[ToolUsed]:
    """Every call in the messages with what became of it, in the order of the calls."""
    used: list[ToolUsed] = []
    waiting: dict[str, ToolUsed] = {}
    for message in messages:
        if is_result(message):
            call = waiting.pop(result_id(message), None)
            if call is not None:
                call["status"], call["result"] = status_of(message), text_of(message)
        elif role_of(message) == "assistant" and call_ids(message):
            waiting = {}  # a result answers the calls before it, whatever its id
            for call_id, name, arguments in zip(
                call_ids(message), call_names(message), _arguments(message), strict=True
            ):
                one = ToolUsed(id=call_id, name=name, arguments=arguments, status="pending", result=None)
                used.append(one)
                waiting[call_id] = one
    return used


def sanitised(used: Iterable[Mapping[str, Any]], *, expose_tool_details: bool = False) -> list[dict[str, Any]]:
    """What clients are told of the tools: names and status, and no more unless it is configured."""
    if expose_tool_details:
        return [dict(each) for each in used]
    return [{"name": each["name"], "status": each["status"]} for each in used]


def is_trimmed(message: Message) -> bool:
    """Whether a tool's result is what trimming leaves of one."""
    return is_result(message) and text_of(message) in _MARKERS


def status_of(message: Message) -> Status:
    """How a tool's result ended, as far as the message says."""
    if message.get("is_error") is True or text_of(message) == TRIMMED.format(status="error"):
        return "error"
    return "ok"


def expanded(rows: Sequence[Message]) -> list[Message]:
    """Rows of dialogue (`text`, `tools_used`) as messages that a provider takes; messages stay as they are.

    A provider rejects keys that it does not know, so what a row says it used becomes the calls and results that there
    were: the calls, each with its result, and then the words.
    """
    messages: list[Message] = []
    for at, row in enumerate(rows):
        if "tools_used" not in row and "text" not in row:
            messages.append(row)
            continue
        used = [each for each in row.get("tools_used") or () if isinstance(each, Mapping)]
        left = {key: value for key, value in row.items() if key not in {"text", "tools_used"}}
        said: Message = {**left, "content": row["text"] if "text" in row else row.get("content")}
        if role_of(row) == "assistant" and used:
            messages += _exchange(used, at)
        messages.append(said)
    return messages


def _exchange(used: Sequence[Mapping[str, Any]], at: int) -> list[Message]:
    ids = [str(each["id"]) if each.get("id") else f"call_{at}_{number}" for number, each in enumerate(used)]
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": str(each.get("name", "")), "arguments": _text(each.get("arguments"), "{}")},
        }
        for call_id, each in zip(ids, used, strict=True)
    ]
    results: list[Message] = [
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": _text(each.get("result"), TRIMMED.format(status=each.get("status", "ok"))),
            **({"is_error": True} if each.get("status") == "error" else {}),
        }
        for call_id, each in zip(ids, used, strict=True)
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _text(value: Any, otherwise: str) -> str:
    if value is None:
        return otherwise
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _arguments(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    if calls:
        functions = [call.get("function") or call.get("custom") or {} for call in calls]
        return [str(each.get("arguments", each.get("input", ""))) for each in functions]
    old = message.get("function_call")
    return [str(old.get("arguments", ""))] if isinstance(old, Mapping) else []


_PAGE: Final = 500
"""Entries that are read at a time."""


@dataclass(frozen=True, slots=True)
class Aged:
    """What trimming did, or would have done."""

    trimmed: int = 0
    """Messages that became smaller."""
    freed_bytes: int = 0
    written: bool = False
    """Whether it was done; in shadow mode and in a dry run it was not."""

    def __add__(self, other: "Aged") -> "Aged":
        return Aged(self.trimmed + other.trimmed, self.freed_bytes + other.freed_bytes, self.written or other.written)


def trims(config: RetentionConfig) -> bool:
    """Whether turns are trimmed at all, or in shadow mode looked at."""
    return config.mode != "off" and kept(config, mode="on").older is not Kept.ALL


async def age_out(store: ConversationStore, conversation: str, config: RetentionConfig) -> Aged:
    """Trim the turns that are no longer preserved and were not trimmed yet, as the configuration says.

    The newest turn is never among them. Turns are looked at from the newest backwards, until there is one with nothing
    to trim: what is older than that was seen to before. In shadow mode nothing is written.
    """
    if not trims(config):
        return Aged()
    how = kept(config, mode="on").older
    turns, span, done = max(1, config.preserve_turns), 1, Aged()
    before: int | None = None
    while True:
        loaded = await store.load(conversation, last_turns=turns + span)
        pairs = list(zip(loaded.positions, loaded.messages, strict=True))
        starts = [at for at, message in pairs if is_user(message)]
        if len(starts) <= turns:
            return done
        stop = starts[-turns] if before is None else before
        older = [pair for pair in pairs if pair[0] < stop]
        trimmed = await _trim(store, conversation, older, loaded.pins, how, write=config.mode == "on")
        if not trimmed.trimmed:
            return done
        done += trimmed
        before, span = starts[0], span * 2


async def trim_all(
    store: ConversationStore,
    conversation: str,
    *,
    older_than_turns: int,
    how: Kept,
    write: bool,
    advance: Callable[[int], None] = lambda _count: None,
) -> Aged:
    """Trim every turn but the newest ones of a conversation. `advance` is told how many messages were looked at.

    Raises:
        InvalidSetting: not even the newest turn would be kept.
        ConversationNotFound: there is no such conversation.
    """
    if older_than_turns < 1:
        raise InvalidSetting("older_than_turns", older_than_turns, "1 or more: the newest turn is in use")
    newest = await store.load(conversation, last_turns=older_than_turns)
    done = Aged()
    if how is not Kept.ALL:
        async for page in _pages(store, conversation, newest.conversation.first, newest.start):
            done += await _trim(store, conversation, page, newest.pins, how, write=write)
            advance(len(page))
    return done


async def _pages(
    store: ConversationStore, conversation: str, start: int, stop: int
) -> AsyncIterator[list[tuple[int, Message]]]:
    """The messages of a stretch, a few hundred at a time; an exchange is never in two pages."""
    held: list[tuple[int, Message]] = []
    while start < stop:
        try:
            loaded = await store.load(conversation, since=start, limit=min(_PAGE, stop - start))
        except ConversationNotFound:
            return  # erased meanwhile: nothing is left to trim
        pairs = held + list(zip(loaded.positions, loaded.messages, strict=True))
        start += len(loaded.entries)
        if not loaded.entries or start >= stop:
            held, start = [], stop
        else:
            cut = max((at for at, (_, message) in enumerate(pairs) if not is_result(message)), default=0)
            pairs, held = pairs[:cut], pairs[cut:]
        if pairs:
            yield pairs


async def _trim(
    store: ConversationStore,
    conversation: str,
    pairs: Sequence[tuple[int, Message]],
    pins: frozenset[int],
    how: Kept,
    *,
    write: bool,
) -> Aged:
    """Trim those of these messages that get smaller by it. What is pinned stays, with its exchange."""
    changes: dict[int, Message] = {}
    freed = 0
    for exchange in exchanges([message for _, message in pairs]):
        part = pairs[exchange.start : exchange.stop]
        for at, message in () if any(at in pins for at, _ in part) else part:
            short = without_payload(message, how)
            if short is not message:
                changes[at] = short
                freed += _size(message) - _size(short)
    if not changes or not write:
        return Aged(len(changes), freed)
    return Aged(await store.trim(conversation, changes), freed, written=True)


def without_payload(message: Message, how: Kept) -> Message:
    """A message without what its tools were asked and answered; the message itself where that is no smaller."""
    short = message
    if is_result(message):
        short = {**message, "content": TRIMMED.format(status=status_of(message)) if how is Kept.STATUS else ""}
    elif role_of(message) == "assistant" and call_ids(message):
        short = _without_arguments(message)
    return short if how is not Kept.ALL and _size(short) < _size(message) else message


def _without_arguments(message: Message) -> Message:
    made = dict(message)
    if message.get("tool_calls"):
        made["tool_calls"] = [
            {key: _emptied(value) if key in {"function", "custom"} else value for key, value in call.items()}
            for call in message["tool_calls"]
        ]
    if isinstance(message.get("function_call"), Mapping):
        made["function_call"] = _emptied(message["function_call"])
    return made


def _emptied(function: Any) -> Any:
    if not isinstance(function, Mapping):
        return function
    empty = {"arguments": "{}", "input": ""}
    return {
        key: empty[key] if key in empty and len(str(value)) > len(empty[key]) else value
        for key, value in function.items()
    }


def _size(message: Message) -> int:
    """Bytes of a message as stores keep it: its text apart, in UTF-8, and the rest as JSON."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    rest = {**message, "content": 0} if isinstance(content, str) else message
    said = json.dumps(rest, default=dict, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + len(said.encode("utf-8", "surrogatepass"))
