"""Items of the Responses and Conversations APIs as chat messages, and back, losing nothing.

A chat message of an assistant is several items: what it thought, said and called. So neighbours become one message, which
keeps calls that were made together in one exchange. What a message cannot say of its items (ids, `phase`, annotations,
items of kinds that chat completions have no word for) it carries under `ITEMS_KEY`, a key that never leaves the house:
`without_items` takes it off. Change the message and the change wins over what is remembered.

The items of the Responses API, each in the words of chat completions, and back in its usual spelling.

What one JSON value says that another does not, so that the one can be had back from the other, byte for byte.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.message import FUNCTION_ID_PREFIX, Message, call_ids, plain_copy, result_id, role_of

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_ROLES: Final = frozenset({"user", "system", "developer", "assistant"})
_CHAT_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


def item_type(item: Mapping[str, Any]) -> str:
    """Its type; a message may leave it out."""
    kind = item.get("type", "message" if "role" in item else None)
    return kind if isinstance(kind, str) else ""


def role_in(item: Mapping[str, Any], index: int | None) -> str:
    """Who speaks in a message.

    Raises:
        InvalidMessage: nobody that we know.
    """
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessage("role", f"must be one of {', '.join(sorted(_ROLES))}", index)
    return role


def chat_parts(item: Mapping[str, Any], index: int | None) -> list[dict[str, Any]]:
    """The content of a message item, as parts of a chat message.

    Raises:
        InvalidMessage: it has none that can be read.
    """
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return _parts(content, "content", index)


def joined(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a chat message: plain text where it is nothing else."""
    if not parts:
        return ""
    only = parts[0]
    return only["text"] if len(parts) == 1 and list(only) == ["type", "text"] and only["type"] == "text" else parts


def chat_call(item: Mapping[str, Any], index: int | None) -> dict[str, Any]:
    """A call, as an assistant's message has it.

    Raises:
        InvalidMessage: it lacks its id, its name or what it was called with.
    """
    call_id, name = _text(item, "call_id", index), _text(item, "name", index)
    if not call_id:
        raise InvalidMessage("call_id", "is empty; every call has an id", index)
    if item_type(item) == "custom_tool_call":
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": _text(item, "input", index)}}
    function = {"name": name, "arguments": _text(item, "arguments", index)}
    return {"id": call_id, "type": "function", "function": function}


def chat_result(item: Mapping[str, Any], index: int | None) -> dict[str, Any]:
    """A tool's answer.

    Raises:
        InvalidMessage: it names no call, or has no output that can be read.
    """
    call_id, output = _text(item, "call_id", index), item.get("output")
    if not call_id:
        raise InvalidMessage("call_id", "is empty; a result names the call it answers", index)
    content = output if isinstance(output, str) else _parts(output, "output", index)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def derived_items(message: Message, cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """The items that a chat message stands for. `cuts` says how many parts of its content belong to each message item."""
    role = role_of(message)
    if role in {"tool", "function"}:
        content = message.get("content")
        output = (
            [_item_part(part, "input") for part in content] if isinstance(content, (list, tuple)) else content or ""
        )
        return [{"type": "function_call_output", "call_id": result_id(message), "output": output}]
    if role != "assistant":
        content = [_item_part(part, "input") for part in _content(message)]
        return [{"type": "message", "role": role or "user", "content": content}]
    return [*_thoughts(message), *_texts(message, cuts), *_calls(message)]


def _thoughts(message: Message) -> Iterator[dict[str, Any]]:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            content = [{"type": "reasoning_text", "text": message[key]}]
            yield {"type": "reasoning", "summary": [], "content": content}
            return


def _texts(message: Message, cuts: Sequence[int]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    parts = [_item_part(part, "output") for part in _content(message)]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        parts = [part for part in parts if part.get("text") != ""]
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    if not parts or (not content and not message.get("refusal") and call_ids(message) and not cuts):
        return  # only calls
    start = 0
    for count in cuts[:-1]:
        yield {"type": "message", "role": "assistant", "content": parts[start : start + count]}
        start += count
    yield {"type": "message", "role": "assistant", "content": parts[start:]}


def _calls(message: Message) -> Iterator[dict[str, Any]]:
    old = message.get("function_call")
    if not message.get("tool_calls") and isinstance(old, Mapping):
        name, arguments = str(old.get("name") or ""), str(old.get("arguments") or "")
        yield {"type": "function_call", "call_id": f"{FUNCTION_ID_PREFIX}{name}", "name": name, "arguments": arguments}
    for call_id, call in zip(call_ids(message), message.get("tool_calls") or (), strict=False):
        function, custom = call.get("function"), call.get("custom")
        if isinstance(custom, Mapping):
            head = {"type": "custom_tool_call", "call_id": call_id}
            yield {**head, "name": custom.get("name", ""), "input": custom.get("input", "")}
        else:
            function = function if isinstance(function, Mapping) else {}
            head = {"type": "function_call", "call_id": call_id}
            yield {**head, "name": function.get("name", ""), "arguments": _argument_text(function.get("arguments"))}


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "{}" if value is None else json.dumps(plain_copy(value), ensure_ascii=False, separators=(",", ":"))


def _content(message: Message) -> list[Any]:
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        return list(content)
    return [{"type": "text", "text": content or ""}]


def _parts(content: Any, path: str, index: int | None) -> list[dict[str, Any]]:
    if not isinstance(content, (list, tuple)):
        raise InvalidMessage(path, "must be text or a list of parts", index)
    for place, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise InvalidMessage(f"{path}[{place}]", "must be an object with a type", index)
    return [_chat_part(part) for part in content]


def _chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part that a provider of chat completions reads; one that it does not know is told as its JSON."""
    kind, text = part.get("type"), part.get("text")
    if kind in {"input_text", "output_text", "text", "summary_text", "reasoning_text"} and isinstance(text, str):
        return {"type": "text", "text": text}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "refusal", "refusal": part["refusal"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and any(isinstance(part.get(key), str) for key in ("file_data", "file_id")):
        known = {key: part[key] for key in ("file_data", "file_id", "filename") if isinstance(part.get(key), str)}
        return {"type": "file", "file": known}
    if kind in _CHAT_PARTS and kind not in {"text", "refusal"}:
        return plain_copy(part)  # type: ignore[no-any-return]  # JSON in, JSON out
    return {"type": "text", "text": json.dumps(plain_copy(part), ensure_ascii=False, separators=(",", ":"))}


def _item_part(part: Any, side: str) -> dict[str, Any]:
    if not isinstance(part, Mapping):
        return {"type": f"{side}_text", "text": str(part)}
    kind = part.get("type")
    if kind == "text" and isinstance(part.get("text"), str):
        more: dict[str, Any] = {"annotations": [], "logprobs": []} if side == "output" else {}
        return {"type": f"{side}_text", "text": part["text"], **more}
    image, file = part.get("image_url"), part.get("file")
    if kind == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    if kind == "file" and isinstance(file, Mapping):
        return {"type": "input_file", **plain_copy(file)}
    return plain_copy(part)  # type: ignore[no-any-return]  # JSON in, JSON out


def _text(item: Mapping[str, Any], key: str, index: int | None) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise InvalidMessage(key, "is missing, or is not text", index)
    return value


def difference(plain: Any, value: Any) -> dict[str, Any] | None:
    """What has to be done to `plain` to get `value`; None if they are the same, in the order of their keys too."""
    if isinstance(plain, Mapping) and isinstance(value, Mapping):
        return _between_objects(plain, value)
    if isinstance(plain, list) and isinstance(value, list) and len(plain) == len(value):
        changes = [
            [at, change] for at, pair in enumerate(zip(plain, value, strict=True)) if (change := difference(*pair))
        ]
        return {"of": len(plain), "at": changes} if changes else None
    return None if type(plain) is type(value) and plain == value else {"=": plain_copy(value)}


def patched(plain: Any, patch: Any) -> Any:
    """The value again. Where `plain` is no longer what the patch was made for, it stays as it is: what changed wins."""
    if not isinstance(patch, Mapping):
        return plain
    if "=" in patch:
        return plain_copy(patch["="])
    if isinstance(plain, list):
        changes = patch.get("at") if patch.get("of") == len(plain) else None
        return _patched_list(plain, changes) if isinstance(changes, list) else plain
    return _patched_object(plain, patch) if isinstance(plain, Mapping) else plain


def _between_objects(plain: Mapping[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    patch: dict[str, Any] = {}
    missing = object()
    changes = {key: change for key in value if (change := difference(plain.get(key, missing), value[key]))}
    if changes:
        patch["in"] = changes
    gone = [key for key in plain if key not in value]
    if gone:
        patch["without"] = gone
    if list(_patched_object(plain, patch)) != list(value):
        patch["order"] = list(value)
    return patch or None


def _patched_object(plain: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    gone, changes, order = patch.get("without"), patch.get("in"), patch.get("order")
    made = {key: value for key, value in plain.items() if not (isinstance(gone, list) and key in gone)}
    for key, change in changes.items() if isinstance(changes, Mapping) else ():
        if key in made or (isinstance(change, Mapping) and "=" in change):
            made[key] = patched(made.get(key), change)
    if isinstance(order, list):
        rank = {key: place for place, key in enumerate(order) if isinstance(key, str)}
        made = dict(sorted(made.items(), key=lambda item: rank.get(item[0], len(rank))))
    return made


def _patched_list(plain: list[Any], changes: list[Any]) -> list[Any]:
    made = list(plain)
    for change in changes:
        if isinstance(change, list) and len(change) == 2 and type(change[0]) is int and 0 <= change[0] < len(made):
            made[change[0]] = patched(made[change[0]], change[1])
    return made


ITEMS_KEY: Final = "~items"
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
    memory = message.get(ITEMS_KEY)
    marks = memory.get("marks") if isinstance(memory, Mapping) else None
    if not isinstance(marks, list):
        return derived_items(message)
    plain = derived_items(message, _cuts(memory))
    found: list[dict[str, Any]] = []
    for mark in marks:
        carried, of = (mark.get("item"), mark.get("of")) if isinstance(mark, Mapping) else (None, None)
        if isinstance(carried, Mapping):
            found.append(plain_copy(carried))
        elif isinstance(of, int) and 0 <= of < len(plain) and isinstance(mark, Mapping):
            found.append(patched(plain[of], mark.get("patch")))
    return found


def without_items(message: Message) -> Message:
    """The message as a provider may see it."""
    return {key: value for key, value in message.items() if key != ITEMS_KEY} if ITEMS_KEY in message else message


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
        usual = [{"of": place} for place in range(len(derived_items(message)))]
        if len(self.cuts) > 1 or marks != usual:
            cuts = {"cuts": self.cuts} if len(self.cuts) > 1 else {}
            message[ITEMS_KEY] = {**cuts, "marks": marks}
        return message

    def _marks(self) -> list[dict[str, Any]]:
        plain = derived_items(self.message, self.cuts if len(self.cuts) > 1 else ())
        calls = len(plain) - len(self.calls)
        at = {"text": 0, "call": calls}
        marks: list[dict[str, Any]] = []
        for what, item in self.layout:
            place = at.get(what, len(plain))
            limit = len(plain) if what == "call" else calls
            if place >= limit:
                marks.append({"item": plain_copy(item)})
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
        kind = item_type(item)
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
            told = json.dumps([plain_copy(item) for item in self._carried], ensure_ascii=False, separators=(",", ":"))
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
