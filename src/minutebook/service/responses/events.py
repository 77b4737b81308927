"""The events that tell a response, made from pieces of text as they come; and made again from the record, the same bytes.

What the record does not have is where one piece ended and the next began. That is written down as lengths: with them the
finished answer is cut again as it came, and goes the same way through here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.record.message import Message
from minutebook.service.http.responses import DONE, new_id, sse
from minutebook.wire.responses import ITEMS_KEY, derived_items

THOUGHT: Final = "thought"
TEXT: Final = "text"
REFUSAL: Final = "refusal"
CALL: Final = "call"
"""What a piece belongs to; calls are numbered: `call:0`, `call:1`, …"""
Pieces = list[tuple[str, list[int]]]
NameOf = Callable[[str, int], str]
"""From the kind of an item and its number to its id."""
_TOLD: Final = {TEXT: "output_text", REFUSAL: "refusal", THOUGHT: "reasoning_text"}


@dataclass(slots=True)
class _Open:
    """An item that is being told."""

    index: int
    slot: str
    item: dict[str, Any]
    parts: dict[str, list[str]] = field(default_factory=dict)
    """The content parts begun so far, by slot, with their pieces."""


class Telling:
    """Tells one response: `begin`, then `take` piece by piece, then `end` or `fail`. Every method gives the events to send."""

    def __init__(self, name_of: NameOf) -> None:
        self.pieces: Pieces = []
        self._name_of = name_of
        self._number = 0
        self._open: _Open | None = None
        self._items: dict[str, _Open] = {}

    @property
    def order(self) -> list[str]:
        """What was told, in the order in which each began."""
        return list(self._items)

    def begin(self, response: Mapping[str, Any]) -> Iterator[bytes]:
        yield self._event("response.created", response=response)
        yield self._event("response.in_progress", response=response)

    def take(self, slot: str, text: str, head: Mapping[str, Any] | None = None) -> Iterator[bytes]:
        """A piece of the answer. `head` is the id and the name of a call."""
        opened = self._items.get(_item_slot(slot))  # one that has ended already, if a provider comes back to it
        if opened is None:
            yield from self._close("completed")
            opened = self._open = self._opened(slot, head or {})
            yield self._event("response.output_item.added", output_index=opened.index, item=opened.item)
        if not slot.startswith(CALL) and slot not in opened.parts:
            opened.parts[slot] = []
            where = {"item_id": opened.item["id"], "output_index": opened.index, "content_index": len(opened.parts) - 1}
            yield self._event("response.content_part.added", **where, part=_part(slot, ""))
        self._note(slot, len(text))
        if not text:
            return
        opened.parts.setdefault(slot, []).append(text)
        where = {"item_id": opened.item["id"], "output_index": opened.index}
        if slot.startswith(CALL):
            yield self._event("response.function_call_arguments.delta", **where, delta=text)
            return
        where["content_index"] = list(opened.parts).index(slot)
        more: dict[str, Any] = {"logprobs": []} if slot == TEXT else {}
        yield self._event(f"response.{_TOLD[slot]}.delta", **where, delta=text, **more)

    def end(self, response: Mapping[str, Any]) -> Iterator[bytes]:
        """The end of what was open, and of the response, whose status says how."""
        status = response["status"]
        if not self._items:
            yield from self.take(TEXT, "")
        yield from self._close("completed" if status == "completed" else "incomplete")
        yield self._event(f"response.{status}", response=response)
        yield DONE

    def fail(self, response: Mapping[str, Any], *, after: int = -1) -> Iterator[bytes]:
        """A response that broke off; `after` is the number that the next event is above, whatever was told here."""
        self._number = max(self._number, after + 1)
        error = response.get("error") or {}
        told = {"code": error.get("code"), "message": error.get("message") or "It was cancelled.", "param": None}
        yield self._event("error", **told)
        yield self._event("response.failed", response=response)
        yield DONE

    def _opened(self, slot: str, head: Mapping[str, Any]) -> _Open:
        kind = {THOUGHT: "reasoning", CALL: "function_call"}.get(slot.partition(":")[0], "message")
        key = _item_slot(slot)
        index = len(self._items)
        item: dict[str, Any] = {"id": self._name_of(kind, index), "type": kind, "status": "in_progress"}
        if kind == "reasoning":
            item |= {"summary": [], "content": []}
        elif kind == "message":
            item |= {"role": "assistant", "content": []}
        else:
            item |= {"call_id": head.get("call_id", ""), "name": head.get("name", ""), "arguments": ""}
        self._items[key] = _Open(index, key, item)
        return self._items[key]

    def _close(self, status: str) -> Iterator[bytes]:
        opened, self._open = self._open, None
        if opened is None:
            return
        where = {"item_id": opened.item["id"], "output_index": opened.index}
        item = {**opened.item, "status": status}
        if item["type"] == "function_call":
            item["arguments"] = "".join(opened.parts.get(opened.slot, ()))
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield self._event("response.function_call_arguments.done", **where, **done)
        else:
            item["content"] = [_part(slot, "".join(pieces)) for slot, pieces in opened.parts.items()]
            for at, (slot, pieces) in enumerate(opened.parts.items()):
                text = "".join(pieces)
                more: dict[str, Any] = {"logprobs": []} if slot == TEXT else {}
                said = {"refusal" if slot == REFUSAL else "text": text}
                yield self._event(f"response.{_TOLD[slot]}.done", **where, content_index=at, **said, **more)
                yield self._event("response.content_part.done", **where, content_index=at, part=_part(slot, text))
        yield self._event("response.output_item.done", output_index=opened.index, item=item)

    def _note(self, slot: str, length: int) -> None:
        if not self.pieces or self.pieces[-1][0] != slot:
            self.pieces.append((slot, []))
        if length:
            self.pieces[-1][1].append(length)

    def _event(self, kind: str, **facts: Any) -> bytes:
        number = self._number
        self._number += 1
        return sse({"type": kind, "sequence_number": number, **facts}, event=kind)


class Listening:
    """Takes a provider's chunks apart into pieces that can be told."""

    def __init__(self) -> None:
        self._heads: dict[int, dict[str, str]] = {}
        self._ranks: dict[int, int] = {}
        self._waiting: dict[str, str] = {}
        """Half a character, of which the other half comes with the next piece."""

    def pieces(self, delta: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
        """What a delta says: to what it belongs, the text, and for a call its id and name."""
        for key, slot in (
            ("reasoning_content", THOUGHT),
            ("reasoning", THOUGHT),
            ("content", TEXT),
            ("refusal", REFUSAL),
        ):
            text = delta.get(key)
            if isinstance(text, str) and text and (whole := self._whole(slot, text)):
                yield slot, whole, {}
        for place, piece in enumerate(delta.get("tool_calls") or ()):
            yield from self._called(piece, place)

    def rest(self) -> Iterator[tuple[str, str, dict[str, str]]]:
        """What still waited for its other half when the answer ended."""
        for slot, text in self._waiting.items():
            yield slot, text, {}

    def _called(self, piece: Mapping[str, Any], place: int) -> Iterator[tuple[str, str, dict[str, str]]]:
        index = piece.get("index")
        index = place if index is None else index
        function = piece.get("function") or {}
        begins = index not in self._heads
        head = self._heads.setdefault(index, {"call_id": "", "name": ""})
        slot = f"{CALL}:{self._ranks.setdefault(index, len(self._ranks))}"
        head["call_id"] = piece.get("id") or head["call_id"]
        head["name"] += function.get("name") or ""
        whole = self._whole(slot, function.get("arguments") or "")
        if begins or whole:
            yield slot, whole, dict(head)

    def _whole(self, slot: str, text: str) -> str:
        """The text, up to its last whole character: half a surrogate pair waits for the other half."""
        text = self._waiting.pop(slot, "") + text
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._waiting[slot] = text[-1]
            text = text[:-1]
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if _paired(text) else text


def arranged(message: dict[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """The message, which remembers in which order its items came where that is not the usual one."""
    for call in message.get("tool_calls") or ():
        call["id"] = call.get("id") or new_id("call")
    usual = [slot for slot, _, _ in slots_of(message)]
    came = [slot for slot in order if slot in usual]
    if len(came) < len(usual) or came == usual:
        return message
    return {**message, ITEMS_KEY: {"marks": [{"of": usual.index(slot)} for slot in came]}}


def slots_of(message: Message) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """What an answer is made of, in its usual order: each item's name here, its texts by slot, and a call's head."""
    calls = 0
    for item in derived_items(message):
        if item["type"] == "reasoning":
            yield THOUGHT, {THOUGHT: item["content"][0]["text"]}, {}
        elif item["type"] == "message":
            yield TEXT, _texts(item["content"]), {}
        else:
            head = {"call_id": item["call_id"], "name": item["name"]}
            yield f"{CALL}:{calls}", {f"{CALL}:{calls}": item["arguments"]}, head
            calls += 1


def cut(message: Message, pieces: Sequence[Any] | None) -> Iterator[tuple[str, str, dict[str, str]]]:
    """An answer in the pieces in which it came; without their lengths, in one piece each."""
    texts: dict[str, str] = {}
    heads: dict[str, dict[str, str]] = {}
    for slot, inner, head in slots_of(message):
        texts |= inner
        heads[slot] = head
    if pieces is None:
        pieces = [(slot, [len(text)] if text else []) for slot, text in texts.items()]
    last = {slot: place for place, (slot, _) in enumerate(pieces)}
    for place, (slot, lengths) in enumerate(pieces):
        text, head = texts.get(slot, ""), heads.get(slot, {})
        if not lengths:
            yield slot, "", head
        for at, length in enumerate(lengths):
            ends = at == len(lengths) - 1 and last[slot] == place
            yield slot, text if ends else text[:length], head
            text = text[length:]
        texts[slot] = text


def _texts(content: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for part in content:
        if isinstance(part.get("text"), str):
            texts[TEXT] = texts.get(TEXT, "") + part["text"]
        elif isinstance(part.get("refusal"), str):
            texts[REFUSAL] = part["refusal"]
    return texts


def _item_slot(slot: str) -> str:
    return TEXT if slot == REFUSAL else slot


def _part(slot: str, text: str) -> dict[str, Any]:
    if slot == REFUSAL:
        return {"type": "refusal", "refusal": text}
    if slot == THOUGHT:
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _paired(text: str) -> bool:
    return any("\ud800" <= character <= "\udbff" for character in text)
