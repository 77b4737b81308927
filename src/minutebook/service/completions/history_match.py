"""How the messages of a request continue a record.

Clients of chat completions resend their history with each request, and it may differ from the record. Omitted details are
not edits: fields that the provider added, and messages of tool exchanges. Changed content is an edit: roles, texts, images
and other parts, calls with their arguments, and tool results.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, takewhile
from operator import eq
from typing import Any, Final, Literal, NamedTuple

from minutebook.conversation.trimming import is_trimmed
from minutebook.record.message import Message, call_ids, is_system, is_user, result_id, role_of

Decision = Literal["appended", "forked", "partial", "auxiliary", "replayed", "bypassed"]
"""Values of the header `X-History-Reconcile`."""
Resend = Literal["auto", "all", "new"]
"""How much of its history a client sends with each request: all of it, or only new messages. `auto` if unknown."""
_PART_HINTS: Final = frozenset({"cache_control", "annotations", "logprobs"})
"""Fields of a content part that are not content."""


@dataclass(frozen=True, slots=True)
class HistoryMatch:
    """How the messages of a request continue a record. Leading system messages are not counted."""

    decision: Decision
    shared: int
    """Number of messages of the record that the request continues; all of them unless the decision is `forked`."""
    new_messages: tuple[Message, ...]
    """The messages to append."""
    resent: Mapping[int, Message] = field(default_factory=dict)
    """Index in the record → the client's copy of that message, where it differs from the record's."""


def match_history(
    sent: Sequence[Message],
    record: Sequence[Message],
    *,
    resend: Resend = "auto",
    has_system: bool = False,
    may_be_auxiliary: bool = False,
    trimmed: Collection[str] | None = None,
) -> HistoryMatch:
    """How the sent messages continue a record, both without their leading system messages.

    `has_system` means that both have leading system messages: then at most one user message is the whole history. With
    `may_be_auxiliary`, a single message that is not in the record is an auxiliary request, such as one for a title.
    `trimmed` are the ids of the calls whose payloads were trimmed, if the caller knows them.
    """
    if resend == "new":
        return HistoryMatch("partial", len(record), tuple(sent))
    if trimmed is None:
        trimmed = {result_id(message) for message in record if is_trimmed(message)}
    shared, used, resent = _shared_prefix(sent, record, trimmed)
    if shared == len(record):
        return HistoryMatch("appended", shared, tuple(sent[used:]), resent)
    if used:
        return HistoryMatch("forked", shared, tuple(sent[used:]), resent)
    if may_be_auxiliary and _may_be_only_new_messages(sent):
        return HistoryMatch("auxiliary", len(record), tuple(sent))
    if resend == "auto":
        overlap = _overlap(sent, record, trimmed)
        if overlap:
            start = len(record) - overlap
            pairs = zip(record[start:], sent, strict=False)
            copies = {start + index: copy for index, (message, copy) in enumerate(pairs) if copy != message}
            return HistoryMatch("partial", len(record), tuple(sent[overlap:]), copies)
        if _may_be_only_new_messages(sent) and not (has_system and all(map(is_user, sent))):
            return HistoryMatch("partial", len(record), tuple(sent))
    return HistoryMatch("forked", 0, tuple(sent))


def equal_prefix_length(sent: Iterable[Message], record: Iterable[Message]) -> int:
    """The number of messages at the start that are equal."""
    return sum(1 for _ in takewhile(bool, map(eq, sent, record)))


class _SharedPrefix(NamedTuple):
    """The messages that a record and a request both begin with."""

    record_count: int
    """Their number in the record, with the messages that the client omitted."""
    sent_count: int
    """Their number in the request."""
    resent: dict[int, Message]
    """Index in the record → the client's copy of that message, where it differs."""


def _shared_prefix(sent: Sequence[Message], record: Sequence[Message], trimmed: Collection[str]) -> _SharedPrefix:
    """The messages that both begin with. Messages of tool exchanges that the client omitted are skipped in the record."""
    resent: dict[int, Message] = {}
    index = sent_count = equal_prefix_length(sent, record)  # most messages are resent unchanged
    while sent_count < len(sent):
        message = sent[sent_count]
        if index < len(record) and message == record[index]:
            index, sent_count = index + 1, sent_count + 1
            continue
        next_index = _skip_omitted(message, record, index, trimmed)
        if next_index == len(record):
            return _SharedPrefix(index if _has_open_calls(record[index:]) else next_index, sent_count, resent)
        if not is_same(record[next_index], message, trimmed):
            # A changed answer replaces the one after the tool exchange. Before a user message the exchange is dropped, too.
            return _SharedPrefix(next_index if role_of(message) == "assistant" else index, sent_count, resent)
        if call_ids(message) == call_ids(record[next_index]) and message != record[next_index]:
            resent[next_index] = message
        index, sent_count = next_index + 1, sent_count + 1
    return _SharedPrefix(index, sent_count, resent)


def _skip_omitted(message: Message, record: Sequence[Message], start: int, trimmed: Collection[str]) -> int:
    """The index of the next message of the record that the client cannot have omitted, given the message it sent.

    If the client sent calls that the record does not have, it has replaced those at `start` and omitted none.
    """
    sent_ids = {*call_ids(message), result_id(message) if role_of(message) == "tool" else None}
    index = start
    while index < len(record):
        stored = record[index]
        is_result = role_of(stored) == "tool"
        stored_ids = {result_id(stored)} if is_result else set(call_ids(stored))
        if stored_ids & sent_ids or is_same(stored, message, trimmed):
            return index
        if not stored_ids:
            break
        index += 1
    return start if call_ids(message) else index


def _has_open_calls(messages: Sequence[Message]) -> bool:
    calls = {call_id for message in messages for call_id in call_ids(message)}
    return not calls.issubset(result_id(message) for message in messages if role_of(message) == "tool")


def is_same(stored: Message, sent: Message, trimmed: Collection[str] = ()) -> bool:
    """Whether a client's copy of a message has the content of the recorded one. It may omit tool calls.

    `trimmed` are the ids of calls that the record no longer has in full: arguments and results are not compared.
    """
    if stored == sent:
        return True
    role = _role(stored)
    if role != _role(sent):
        return False
    if role == "tool":
        call_id = result_id(stored)
        return call_id == result_id(sent) and (call_id in trimmed or _content(stored) == _content(sent))
    if _content(stored) != _content(sent) or stored.get("refusal") != sent.get("refusal", stored.get("refusal")):
        return False
    calls = _calls(sent, trimmed)
    return calls == _calls(stored, trimmed) or (not calls and bool(_content(sent)))


def _role(message: Message) -> str:
    return "system" if is_system(message) else role_of(message)


def _content(message: Message) -> list[Any]:
    """The parts of a message. White space around a text is not content: clients strip it."""
    content = message.get("content")
    parts = content if isinstance(content, list | tuple) else [{"type": "text", "text": content or ""}]
    return [part for part in map(_part, parts) if part != ""]


def _part(part: Any) -> Any:
    if not isinstance(part, Mapping):
        return part
    text = part.get("text")
    if isinstance(text, str) and part.get("type", "text") in {"text", "input_text", "output_text"}:
        return text.strip()
    return {key: value for key, value in part.items() if key not in _PART_HINTS}


def _calls(message: Message, trimmed: Collection[str]) -> list[tuple[Any, Any, Any]]:
    return [_call(call, trimmed) for call in message.get("tool_calls") or () if isinstance(call, Mapping)]


def _call(call: Mapping[str, Any], trimmed: Collection[str]) -> tuple[Any, Any, Any]:
    function = call.get("function", call.get("custom"))
    if not isinstance(function, Mapping) or call.get("id") in trimmed:
        return call.get("id"), None, None
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)  # clients may write the same arguments with other white space
    return call.get("id"), function.get("name"), arguments


_MAX_OVERLAPS: Final = 20
"""Maximum number of overlaps whose messages are compared in full, longest first."""


def _overlap(sent: Sequence[Message], record: Sequence[Message], trimmed: Collection[str]) -> int:
    """The number of messages with which the record ends and the request begins."""
    for length in islice(_possible_overlaps(sent, record[max(1, len(record) - len(sent)) :]), _MAX_OVERLAPS):
        pairs = zip(record[len(record) - length :], sent, strict=False)
        if all(is_same(message, copy, trimmed) for message, copy in pairs):
            return length
    return 0


def _possible_overlaps(sent: Sequence[Message], end: Sequence[Message]) -> Iterator[int]:
    """The lengths with which `end` ends and `sent` begins, if only roles, contents and result ids are compared.

    The longest is first. They are the borders of both sequences together (Knuth-Morris-Pratt), found in linear time.
    """
    keys = [*map(_key, sent), None, *map(_key, end)]
    borders = [0]
    for key in keys[1:]:
        length = borders[-1]
        while length and key != keys[length]:
            length = borders[length - 1]
        borders.append(length + (key == keys[length]))
    length = borders[-1]
    while length:
        yield length
        length = borders[length - 1]


def _key(message: Message) -> str:
    """A text that is equal for two messages that are the same."""
    content = result_id(message) if role_of(message) == "tool" else _content(message)
    return json.dumps([_role(message), content], sort_keys=True, default=repr)


def _may_be_only_new_messages(sent: Sequence[Message]) -> bool:
    """Whether the client may have sent only new messages: tool results, or one user message."""
    return all(role_of(message) == "tool" for message in sent) or (len(sent) == 1 and is_user(sent[0]))
