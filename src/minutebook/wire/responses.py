"""Items of the Responses and Conversations APIs as chat messages, and back, losing nothing.

A chat message of an assistant is several items: what it thought, said and called. So neighbours become one message, which
keeps calls that were made together in one exchange. What a message cannot say of its items (ids, `phase`, annotations,
items of kinds that chat completions have no word for) it carries under `REMEMBERED`, a key that never leaves the house:
`bare` takes it off. Change the message and the change wins over what is remembered.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.frozen import thawed
from minutebook.record.message import Message
from minutebook.wire.item import CALLS, OUTPUTS, chat_call, chat_parts, chat_result, derived, joined, kind_of, role_in
from minutebook.wire.patch import difference, patched

REMEMBERED: Final = "~items"
"""The key of a message under which it remembers the items it was made from."""
Item = Mapping[str, Any]


def items_to_messages(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The chat messages that say what the items say.

    Raises:
        InvalidMessage: an item lacks what its kind must have; `index` says which.
    """
    grouping = _Grouping()
    for index, item in enumerate(items):
        grouping.add(item, index)
    return grouping.messages()


def message_to_items(message: Message) -> list[dict[str, Any]]:
    """The items that a chat message stands for, as they were if it was made from items."""
    memory = message.get(REMEMBERED)
    marks = memory.get("marks") if isinstance(memory, Mapping) else None
    if not isinstance(marks, list):
        return derived(message)
    plain = derived(message, _cuts(memory))
    found: list[dict[str, Any]] = []
    for mark in marks:
        carried, of = (mark.get("item"), mark.get("of")) if isinstance(mark, Mapping) else (None, None)
        if isinstance(carried, Mapping):
            found.append(thawed(carried))
        elif isinstance(of, int) and 0 <= of < len(plain) and isinstance(mark, Mapping):
            found.append(patched(plain[of], mark.get("patch")))
    return found


def bare(message: Message) -> Message:
    """The message as a provider may see it."""
    return {key: value for key, value in message.items() if key != REMEMBERED} if REMEMBERED in message else message


@dataclass(slots=True)
class _Draft:
    """A message in the making, and the items it stands for."""

    message: dict[str, Any]
    layout: list[tuple[str, Item]] = field(default_factory=list)
    """Each item with what it is in the message: its `text`, one of its `call`s, or only carried along."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def finished(self) -> dict[str, Any]:
        message = self.message
        if message.get("role") == "assistant" and "content" not in message:
            message["content"] = joined(self.parts) if self.cuts else None
            if self.calls:
                message["tool_calls"] = self.calls
        marks = self._marks()
        usual = [{"of": place} for place in range(len(derived(message)))]
        if len(self.cuts) > 1 or marks != usual:
            cuts = {"cuts": self.cuts} if len(self.cuts) > 1 else {}
            message[REMEMBERED] = {**cuts, "marks": marks}
        return message

    def _marks(self) -> list[dict[str, Any]]:
        plain = derived(self.message, self.cuts if len(self.cuts) > 1 else ())
        calls = len(plain) - len(self.calls)
        at = {"text": 0, "call": calls}
        marks: list[dict[str, Any]] = []
        for what, item in self.layout:
            place = at.get(what, len(plain))
            limit = len(plain) if what == "call" else calls
            if place >= limit:
                marks.append({"item": thawed(item)})
                continue
            at[what] += 1
            patch = difference(plain[place], item)
            marks.append({"of": place} if patch is None else {"of": place, "patch": patch})
        return marks


class _Grouping:
    """Takes items one by one, and puts those together that are one message."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._open: _Draft | None = None
        """The assistant's message that may still grow."""
        self._carried: list[Item] = []
        """What goes with the message that comes next."""

    def add(self, item: Item, index: int) -> None:
        if not isinstance(item, Mapping):
            raise InvalidMessage("it", "is no object; an item has a type", index)
        kind = kind_of(item)
        if kind == "message" and role_in(item, index) == "assistant":
            self._say(item, index)
        elif kind == "message":
            self._put(_Draft({"role": item["role"], "content": joined(chat_parts(item, index))}), "text", item)
        elif kind in CALLS:
            call = chat_call(item, index)
            draft = self._open or self._begin()
            draft.calls.append(call)
            draft.layout.append(("call", item))
        elif kind in OUTPUTS:
            self._put(_Draft(chat_result(item, index)), "text", item)
        elif not kind:
            raise InvalidMessage("type", "is missing", index)
        elif self._open is not None and self._open.calls:
            self._open.layout.append(("", item))
        else:
            self._carried.append(item)
            self._open = None

    def messages(self) -> list[dict[str, Any]]:
        if self._carried and not self._drafts:  # nothing to go with: it is told as it is
            told = json.dumps([thawed(item) for item in self._carried], ensure_ascii=False, separators=(",", ":"))
            self._drafts.append(_Draft({"role": "assistant", "content": told}))
        if self._carried:
            self._drafts[-1].layout += [("", item) for item in self._carried]
        return [draft.finished() for draft in self._drafts]

    def _say(self, item: Item, index: int) -> None:
        parts = chat_parts(item, index)
        draft = self._open
        if draft is None or (draft.cuts and not draft.calls):
            draft = self._begin()
        draft.parts += parts or [{"type": "text", "text": ""}]
        draft.cuts.append(max(1, len(parts)))
        draft.layout.append(("text", item))

    def _begin(self) -> _Draft:
        self._open = self._added(_Draft({"role": "assistant"}))
        return self._open

    def _put(self, draft: _Draft, what: str, item: Item) -> None:
        self._added(draft).layout.append((what, item))
        self._open = None

    def _added(self, draft: _Draft) -> _Draft:
        draft.layout += [("", item) for item in self._carried]
        self._carried = []
        self._drafts.append(draft)
        return draft


def _cuts(memory: Any) -> Sequence[int]:
    cuts = memory.get("cuts")
    return cuts if isinstance(cuts, list) and all(type(count) is int and count > 0 for count in cuts) else ()
