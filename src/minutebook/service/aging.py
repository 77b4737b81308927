"""Taking the payloads of old tool calls out of the record: the one loss that retention is allowed (document 002).

When a message is written its turn is the newest, so nothing can be trimmed then. Turns are trimmed when they leave the
window of turns that are preserved, each once; `trim_all` does the same for what was there before anybody trimmed.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from minutebook.errors import ConversationNotFound, InvalidSetting
from minutebook.record.message import Message, call_ids, is_result, is_user, role_of
from minutebook.service.config import RetentionConfig
from minutebook.service.toolsused import TRIMMED, status_of
from minutebook.service.truth import Kept, kept
from minutebook.store.contract import ConversationStore

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


async def age_out(store: ConversationStore, conversation: str, config: RetentionConfig) -> Aged:
    """Trim the turns that are no longer preserved and were not trimmed yet, as the configuration says.

    The newest turn is never among them. Turns are looked at from the newest backwards, until there is one with nothing
    to trim: what is older than that was seen to before. In shadow mode nothing is written.
    """
    how = kept(config, mode="on").older
    if config.mode == "off" or how is Kept.ALL:
        return Aged()
    turns, span, done = max(1, config.preserve_turns), 1, Aged()
    before: int | None = None
    while True:
        loaded = await store.load(conversation, last_turns=turns + span)
        pairs = list(zip(loaded.positions, loaded.messages, strict=True))
        starts = [at for at, message in pairs if is_user(message)]
        if len(starts) <= turns:
            return done
        stop = starts[-turns] if before is None else before
        fresh = dict(smaller(((at, each) for at, each in pairs if at < stop), loaded.pins, how))
        if not fresh:
            return done
        done += await _trimmed(store, conversation, fresh, dict(pairs), write=config.mode == "on")
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
            fresh = dict(smaller(page, newest.pins, how))
            if fresh:
                done += await _trimmed(store, conversation, fresh, dict(page), write=write)
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


def smaller(messages: Iterable[tuple[int, Message]], pins: Iterable[int], how: Kept) -> Iterator[tuple[int, Message]]:
    """The messages that can be smaller, as they then are, by position. What is pinned stays, with its exchange."""
    pinned = frozenset(pins)
    exchange: list[tuple[int, Message]] = []
    for at, message in messages:
        if not is_result(message):
            yield from _of_exchange(exchange, pinned, how)
            exchange = []
        exchange.append((at, message))
    yield from _of_exchange(exchange, pinned, how)


def _of_exchange(
    exchange: list[tuple[int, Message]], pinned: frozenset[int], how: Kept
) -> Iterator[tuple[int, Message]]:
    if any(at in pinned for at, _ in exchange):
        return
    for at, message in exchange:
        short = without_payload(message, how)
        if short is not message:
            yield at, short


def without_payload(message: Message, how: Kept) -> Message:
    """A message without what its tools were asked and answered; the message itself where that is no smaller."""
    made = message
    if how is Kept.ALL:
        return message
    if is_result(message):
        marker = TRIMMED.format(status=status_of(message)) if how is Kept.STATUS else ""
        made = {**message, "content": marker}
    elif role_of(message) == "assistant" and call_ids(message):
        made = _without_arguments(message)
    return made if _size(made) < _size(message) else message


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


async def _trimmed(
    store: ConversationStore,
    conversation: str,
    changes: Mapping[int, Message],
    before: Mapping[int, Message],
    *,
    write: bool,
) -> Aged:
    freed = sum(_size(before[at]) - _size(message) for at, message in changes.items())
    if not write:
        return Aged(len(changes), freed)
    return Aged(await store.trim(conversation, changes), freed, written=True)


def _size(message: Message) -> int:
    """Bytes of a message as stores keep it: its text apart, in UTF-8, and the rest as JSON."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    rest = {**message, "content": 0} if isinstance(content, str) else message
    said = json.dumps(rest, default=dict, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass")) + len(said.encode("utf-8", "surrogatepass"))
