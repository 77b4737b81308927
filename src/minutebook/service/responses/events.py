"""The events of a streamed response, built from the provider's deltas, or again from the record with equal bytes.

The record does not have the boundaries of the deltas. The run's document stores their lengths as `pieces`: with them the
recorded answer is divided into the same pieces and goes through the same code.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from minutebook.agent.providers.openai import call_arguments, text_deltas
from minutebook.record.message import Message
from minutebook.service.http.responses import DONE, new_id, sse
from minutebook.tokens.counter import ITEMS_KEY
from minutebook.wire.responses import derived_items

REASONING: Final = "thought"
TEXT: Final = "text"
REFUSAL: Final = "refusal"
CALL: Final = "call"
"""Slots of an answer, as stored in `pieces`. Calls are numbered: `call:0`, `call:1`, …"""
PieceLengths = list[tuple[str, list[int]]]
"""The lengths of consecutive pieces of the same slot, in the order of the stream."""
ItemIds = Callable[[str, int], str]
"""Returns the id of an item, given its type and its index in the output."""
_EVENT_NAMES: Final = {TEXT: "output_text", REFUSAL: "refusal", REASONING: "reasoning_text"}


class AnswerPiece(NamedTuple):
    """A piece of text of an answer."""

    slot: str
    text: str
    head: Mapping[str, str]
    """The `call_id` and `name` of a call so far; empty for other slots."""


class AnswerItem(NamedTuple):
    """An item of a complete answer."""

    slot: str
    texts: dict[str, str]
    """Text by slot. A message has the slots `TEXT` and `REFUSAL`."""
    head: dict[str, str]


@dataclass(slots=True)
class _OutputItem:
    """An item of the stream."""

    index: int
    slot: str
    item: dict[str, Any]
    """The item as it was announced, without content."""
    parts: dict[str, list[str]] = field(default_factory=dict)
    """The text pieces of each content part, by slot."""


class ResponseEvents:
    """Builds the events of one response: call `start`, `add` for each piece, then `finish` or `fail`.

    Each method yields the events to send.
    """

    def __init__(self, item_ids: ItemIds) -> None:
        self.pieces: PieceLengths = []
        self._item_ids = item_ids
        self._number = 0
        self._items: dict[str, _OutputItem] = {}

    @property
    def order(self) -> list[str]:
        """The slots of the items in the order in which they were announced."""
        return list(self._items)

    def start(self, response: Mapping[str, Any]) -> Iterator[bytes]:
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def add(self, piece: AnswerPiece) -> Iterator[bytes]:
        slot, text, head = piece
        output = self._items.get(_item_slot(slot))  # may be an earlier item: a provider can return to its text
        if output is None:
            output = self._new_item(slot, head)
            yield self._event("response.output_item.added", output_index=output.index, item=output.item)
        item_location = {"item_id": output.item["id"], "output_index": output.index}
        if not slot.startswith(CALL) and slot not in output.parts:
            output.parts[slot] = []
            content_index = len(output.parts) - 1
            part = _part(slot, "")
            yield self._event("response.content_part.added", **item_location, content_index=content_index, part=part)
        self._note_length(slot, len(text))
        if not text:
            return
        output.parts.setdefault(slot, []).append(text)
        if slot.startswith(CALL):
            yield self._event("response.function_call_arguments.delta", **item_location, delta=text)
            return
        item_location["content_index"] = list(output.parts).index(slot)
        yield self._event(f"response.{_EVENT_NAMES[slot]}.delta", **item_location, delta=text, **_logprobs(slot))

    def finish(self, response: Mapping[str, Any]) -> Iterator[bytes]:
        """Complete the items and the response, according to its status.

        Items are completed here and not before: a provider can return to its text or to an earlier call.
        """
        status = response["status"]
        if not self._items:
            yield from self.add(AnswerPiece(TEXT, "", {}))
        *earlier, last = self._items.values()
        for output in earlier:
            yield from self._close(output, "completed")
        yield from self._close(last, "completed" if status == "completed" else "incomplete")
        yield self._event(f"response.{status}", response=response)
        yield DONE

    def fail(self, response: Mapping[str, Any], *, after: int = -1) -> Iterator[bytes]:
        """End a response that failed or was cancelled. The events get numbers greater than `after`."""
        self._number = max(self._number, after + 1)
        error = response.get("error") or {}
        message = error.get("message") or "The response was cancelled."
        yield self._event("error", code=error.get("code"), message=message, param=None)
        yield self._event("response.failed", response=response)
        yield DONE

    def _new_item(self, slot: str, head: Mapping[str, Any]) -> _OutputItem:
        kind = {REASONING: "reasoning", CALL: "function_call"}.get(slot.partition(":")[0], "message")
        key = _item_slot(slot)
        index = len(self._items)
        item: dict[str, Any] = {"id": self._item_ids(kind, index), "type": kind, "status": "in_progress"}
        if kind == "reasoning":
            item |= {"summary": [], "content": []}
        elif kind == "message":
            item |= {"role": "assistant", "content": []}
        else:
            item |= {"call_id": head.get("call_id", ""), "name": head.get("name", ""), "arguments": ""}
        self._items[key] = _OutputItem(index, key, item)
        return self._items[key]

    def _close(self, output: _OutputItem, status: str) -> Iterator[bytes]:
        """Complete an item."""
        item_location = {"item_id": output.item["id"], "output_index": output.index}
        item = {**output.item, "status": status}
        if item["type"] == "function_call":
            item["arguments"] = "".join(output.parts.get(output.slot, ()))
            call = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **item_location, **call)
        else:
            item["content"] = [_part(slot, "".join(pieces)) for slot, pieces in output.parts.items()]
            for index, (slot, pieces) in enumerate(output.parts.items()):
                item_location["content_index"] = index
                text = "".join(pieces)
                content = {"refusal" if slot == REFUSAL else "text": text}
                yield self._event(f"response.{_EVENT_NAMES[slot]}.done", **item_location, **content, **_logprobs(slot))
                yield self._event("response.content_part.done", **item_location, part=_part(slot, text))
        yield self._event("response.output_item.done", output_index=output.index, item=item)

    def _note_length(self, slot: str, length: int) -> None:
        if not self.pieces or self.pieces[-1][0] != slot:
            self.pieces.append((slot, []))
        if length:
            self.pieces[-1][1].append(length)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number = self._number
        self._number += 1
        return sse({"type": kind, "sequence_number": number, **fields}, event=kind)


class DeltaReader:
    """Divides the deltas of a streamed chat completion into pieces of one slot each."""

    def __init__(self) -> None:
        self._heads: dict[int, dict[str, str]] = {}
        self._call_numbers: dict[int, int] = {}
        self._incomplete: dict[str, str] = {}
        """The first half of a surrogate pair by slot. The second half comes with the next delta."""

    def pieces(self, delta: Mapping[str, Any]) -> Iterator[AnswerPiece]:
        for key, value in text_deltas(delta):
            slot = {"content": TEXT, "refusal": REFUSAL}.get(key, REASONING)
            if text := self._complete_characters(slot, value):
                yield AnswerPiece(slot, text, {})
        for index, call in enumerate(delta.get("tool_calls") or ()):
            yield from self._call_pieces(call, index)

    def incomplete_pieces(self) -> Iterator[AnswerPiece]:
        """The incomplete characters at the end of the answer."""
        for slot, text in self._incomplete.items():
            yield AnswerPiece(slot, text, {})

    def _call_pieces(self, call: Mapping[str, Any], default_index: int) -> Iterator[AnswerPiece]:
        index = call.get("index")
        index = default_index if index is None else index
        function = call.get("function") or {}
        is_new = index not in self._heads
        head = self._heads.setdefault(index, {"call_id": "", "name": ""})
        slot = f"{CALL}:{self._call_numbers.setdefault(index, len(self._call_numbers))}"
        head["call_id"] = call.get("id") or head["call_id"]
        head["name"] += function.get("name") or ""
        text = self._complete_characters(slot, call_arguments(call))
        if is_new or text:
            yield AnswerPiece(slot, text, dict(head))

    def _complete_characters(self, slot: str, text: str) -> str:
        """The text up to its last complete character. Half a surrogate pair waits for the other half."""
        text = self._incomplete.pop(slot, "") + text
        if text and _is_high_surrogate(text[-1]):
            self._incomplete[slot] = text[-1]
            text = text[:-1]
        if not any(map(_is_high_surrogate, text)):
            return text
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def with_item_order(message: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """The message with the streamed order of its items, if that is not the default. Calls without an id get one."""
    for call in message.get("tool_calls") or ():
        call["id"] = call.get("id") or new_id("call")
    default_order = [item.slot for item in answer_items(message)]
    streamed_order = [slot for slot in order if slot in default_order]
    if len(streamed_order) < len(default_order) or streamed_order == default_order:
        return message
    return {**message, ITEMS_KEY: {"marks": [{"of": default_order.index(slot)} for slot in streamed_order]}}


def answer_items(message: Message) -> Iterator[AnswerItem]:
    """The items of an answer, in their default order."""
    calls = 0
    for item in derived_items(message):
        if item["type"] == "reasoning":
            yield AnswerItem(REASONING, {REASONING: item["content"][0]["text"]}, {})
        elif item["type"] == "message":
            yield AnswerItem(TEXT, _message_texts(item["content"]), {})
        else:
            head = {"call_id": item["call_id"], "name": item["name"]}
            yield AnswerItem(f"{CALL}:{calls}", {f"{CALL}:{calls}": item["arguments"]}, head)
            calls += 1


def answer_pieces(message: Message, lengths: Sequence[Any] | None) -> Iterator[AnswerPiece]:
    """A recorded answer in the pieces in which it was streamed; one piece per slot if their lengths are unknown."""
    texts: dict[str, str] = {}
    heads: dict[str, dict[str, str]] = {}
    for item in answer_items(message):
        texts |= item.texts
        heads[item.slot] = item.head
    if lengths is None:
        lengths = [(slot, [len(text)] if text else []) for slot, text in texts.items()]
    last_index = {slot: index for index, (slot, _) in enumerate(lengths)}
    for index, (slot, slot_lengths) in enumerate(lengths):
        text, head = texts.get(slot, ""), heads.get(slot, {})
        if not slot_lengths:
            yield AnswerPiece(slot, "", head)
        for number, length in enumerate(slot_lengths, 1):
            is_last = number == len(slot_lengths) and last_index[slot] == index
            yield AnswerPiece(slot, text if is_last else text[:length], head)
            text = text[length:]
        texts[slot] = text


def _message_texts(content: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for part in content:
        if isinstance(part.get("text"), str):
            texts[TEXT] = texts.get(TEXT, "") + part["text"]
        elif isinstance(part.get("refusal"), str):
            texts[REFUSAL] = part["refusal"]
    return texts


def _item_slot(slot: str) -> str:
    """The slot of the item: a refusal is a part of the message."""
    return TEXT if slot == REFUSAL else slot


def _part(slot: str, text: str) -> dict[str, Any]:
    if slot == REFUSAL:
        return {"type": "refusal", "refusal": text}
    if slot == REASONING:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _logprobs(slot: str) -> dict[str, Any]:
    return {"logprobs": []} if slot == TEXT else {}


def _is_high_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udbff"
