"""Items of the Responses and Conversations APIs to chat messages and back without loss.

One assistant message corresponds to several items: its reasoning, text and calls. So adjacent items become one message,
and parallel calls stay in one exchange. What the message cannot express (ids, `phase`, annotations, items of types that
chat completions do not have) is stored in it under `ITEMS_KEY`, which is never sent to a provider. If the message was
changed, the change takes precedence over the stored data.

`ITEMS_KEY` has a list of `marks`, one per original item. A mark has the whole item, or the index `of` an item that
`derived_items` builds from the message and a patch for it. `cuts` are the numbers of content parts of each message item.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from minutebook.errors import InvalidMessage
from minutebook.record.message import FUNCTION_ID_PREFIX, Message, call_ids, plain_copy, result_id, role_of
from minutebook.record.parts import placeholder_part, with_known_parts
from minutebook.tokens.counter import ITEMS_KEY
from minutebook.wire.json_patch import patch_between, with_patch

Item: TypeAlias = Mapping[str, Any]

_CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})
_OUTPUT_TYPES: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_MESSAGE_TYPES: Final = _CALL_TYPES | _OUTPUT_TYPES | {"message"}
_ROLES: Final = frozenset({"user", "system", "developer", "assistant"})
_CHAT_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})
_ITEM_PART_STARTS: Final = ("input_", "output_", "summary_")
"""What the types of parts begin with that only the Responses API has."""


def items_to_messages(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The chat messages for a list of items.

    Raises:
        InvalidMessage: an item lacks a required field; `index` is the item's.
    """
    groups = _ItemGroups()
    for index, item in enumerate(items):
        groups.add(item, index)
    return groups.messages()


def message_to_items(message: Message) -> list[dict[str, Any]]:
    """The items of a chat message. If it was created from items, these are returned with later changes of the message."""
    stored = message.get(ITEMS_KEY)
    marks, part_counts = (stored.get("marks"), stored.get("cuts")) if isinstance(stored, Mapping) else (None, None)
    if not isinstance(marks, list):
        return derived_items(message)
    derived = derived_items(message, _valid_part_counts(part_counts))
    items: list[dict[str, Any]] = []
    for mark in marks:
        if not isinstance(mark, Mapping):
            continue
        opaque, index = mark.get("item"), mark.get("of")
        if isinstance(opaque, Mapping):
            items.append(plain_copy(opaque))
        elif isinstance(index, int) and 0 <= index < len(derived):
            items.append(with_patch(derived[index], mark.get("patch")))
    return items


def _valid_part_counts(value: Any) -> Sequence[int]:
    return value if isinstance(value, list) and all(type(count) is int and count > 0 for count in value) else ()


_Slot: TypeAlias = Literal["text", "call", "opaque"]
"""How a message contains an item: in its text, as one of its calls, or only under `ITEMS_KEY`."""


@dataclass(slots=True)
class _ItemGroup:
    """The items of one message while it is built."""

    message: dict[str, Any]
    layout: list[tuple[_Slot, Item]] = field(default_factory=list)
    """The items in their order."""
    parts: list[dict[str, Any]] = field(default_factory=list)
    part_counts: list[int] = field(default_factory=list)
    """How many of `parts` belong to each message item."""
    calls: list[dict[str, Any]] = field(default_factory=list)

    def finish(self) -> dict[str, Any]:
        """Complete the message and return it."""
        message = self.message
        if message.get("role") == "assistant" and "content" not in message:
            message["content"] = _chat_content(self.parts) if self.part_counts else None
            if self.calls:
                message["tool_calls"] = self.calls
        cuts = {"cuts": self.part_counts} if len(self.part_counts) > 1 else {}
        marks = self._marks()
        # Chat completions do not have all of its parts, so views must know that the message came from items.
        has_item_parts = with_known_parts(message, "openai") is not message
        if cuts or has_item_parts or marks != [{"of": index} for index in range(len(derived_items(message)))]:
            message[ITEMS_KEY] = {**cuts, "marks": marks}
        return message

    def _marks(self) -> list[dict[str, Any]]:
        """The marks of the items."""
        derived = derived_items(self.message, self.part_counts if len(self.part_counts) > 1 else ())
        first_call = len(derived) - len(self.calls)
        next_index = {"text": 0, "call": first_call}
        marks: list[dict[str, Any]] = []
        for slot, item in self.layout:
            index = next_index.get(slot, len(derived))
            if index >= (len(derived) if slot == "call" else first_call):
                marks.append({"item": plain_copy(item)})
                continue
            next_index[slot] += 1
            patch = patch_between(derived[index], item)
            marks.append({"of": index} if patch is None else {"of": index, "patch": patch})
        return marks


class _ItemGroups:
    """Groups items that are added one by one into messages."""

    def __init__(self) -> None:
        self._groups: list[_ItemGroup] = []
        self._open_group: _ItemGroup | None = None
        """The group of an assistant message at the end, to which more items may be added."""
        self._pending_items: list[Item] = []
        """Opaque items that will be added to the next message."""

    def add(self, item: Item, index: int) -> None:
        if not isinstance(item, Mapping):
            raise InvalidMessage("", "is not an object with a type", index)
        kind = item_type(item)
        if kind == "message" and _require_role(item, index) == "assistant":
            self._add_text(item, index)
        elif kind == "message":
            content = _chat_content(_message_parts(item, index))
            self._add_message({"role": item["role"], "content": content}, item)
        elif kind in _CALL_TYPES:
            call = _chat_call(item, index)
            group = self._open_group or self._start_assistant_group()
            group.calls.append(call)
            group.layout.append(("call", item))
        elif kind in _OUTPUT_TYPES:
            self._add_message(_chat_result(item, index), item)
        elif not kind:
            raise InvalidMessage("type", "is missing", index)
        elif self._open_group is not None and self._open_group.calls:
            self._open_group.layout.append(("opaque", item))
        else:
            self._pending_items.append(item)
            self._open_group = None

    def messages(self) -> list[dict[str, Any]]:
        """Complete the messages of all added items and return them."""
        if self._pending_items and not self._groups:  # no message can store them, so their JSON becomes a message
            text = json.dumps(
                [plain_copy(item) for item in self._pending_items], ensure_ascii=False, separators=(",", ":")
            )
            self._groups.append(_ItemGroup({"role": "assistant", "content": text}))
        if self._pending_items:
            self._groups[-1].layout += [("opaque", item) for item in self._pending_items]
        return [group.finish() for group in self._groups]

    def _add_text(self, item: Item, index: int) -> None:
        parts = _message_parts(item, index)
        group = self._open_group
        if group is None or (group.part_counts and not group.calls):
            group = self._start_assistant_group()
        group.parts += parts or [{"type": "text", "text": ""}]
        group.part_counts.append(max(1, len(parts)))
        group.layout.append(("text", item))

    def _add_message(self, message: dict[str, Any], item: Item) -> None:
        self._add_group(message).layout.append(("text", item))
        self._open_group = None

    def _start_assistant_group(self) -> _ItemGroup:
        self._open_group = self._add_group({"role": "assistant"})
        return self._open_group

    def _add_group(self, message: dict[str, Any]) -> _ItemGroup:
        group = _ItemGroup(message, [("opaque", item) for item in self._pending_items])
        self._pending_items = []
        self._groups.append(group)
        return group


def item_type(item: Item) -> str:
    """The item's type, which a message item may leave out. Empty if it is missing in another item or not a string."""
    kind = item.get("type", "message" if "role" in item else None)
    return kind if isinstance(kind, str) else ""


def becomes_message(item: Item) -> bool:
    """Whether the item is the whole or a part of a chat message. Other items are only stored in the message next to them."""
    return item_type(item) in _MESSAGE_TYPES


def _require_role(item: Item, index: int) -> str:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise InvalidMessage("role", f"must be one of {', '.join(sorted(_ROLES))}", index)
    return role


def _require_text(item: Item, key: str, index: int) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise InvalidMessage(key, "is missing or not a string", index)
    return value


def _message_parts(item: Item, index: int) -> list[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return _chat_parts(content, "content", index)


def _chat_parts(content: Any, path: str, index: int) -> list[dict[str, Any]]:
    if not isinstance(content, (list, tuple)):
        raise InvalidMessage(path, "must be text or a list of parts", index)
    for part_index, part in enumerate(content):
        if not isinstance(part, Mapping):
            raise InvalidMessage(f"{path}[{part_index}]", "must be an object with a type", index)
    return [_chat_part(part) for part in content]


def _chat_content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """The content of a chat message: a string if there is only one plain text part."""
    if not parts:
        return ""
    part = parts[0]
    is_plain_text = len(parts) == 1 and list(part) == ["type", "text"] and part["type"] == "text"
    return part["text"] if is_plain_text else parts


def _chat_call(item: Item, index: int) -> dict[str, Any]:
    call_id, name = _require_text(item, "call_id", index), _require_text(item, "name", index)
    if not call_id:
        raise InvalidMessage("call_id", "is empty; every call has an id", index)
    if item_type(item) == "custom_tool_call":
        return {"id": call_id, "type": "custom", "custom": {"name": name, "input": _require_text(item, "input", index)}}
    function = {"name": name, "arguments": _require_text(item, "arguments", index)}
    return {"id": call_id, "type": "function", "function": function}


def _chat_result(item: Item, index: int) -> dict[str, Any]:
    call_id, output = _require_text(item, "call_id", index), item.get("output")
    if not call_id:
        raise InvalidMessage("call_id", "is empty; a result names the call it answers", index)
    content = output if isinstance(output, str) else _chat_parts(output, "output", index) or ""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def _chat_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part in the chat-completions format; a part of an unknown type becomes a text with its JSON."""
    kind, text = part.get("type"), part.get("text")
    if kind in {"input_text", "output_text", "text", "summary_text", "reasoning_text"} and isinstance(text, str):
        return {"type": "text", "text": text}
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return {"type": "refusal", "refusal": part["refusal"]}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        # "auto" is the default, which is written again.
        detail = {"detail": part["detail"]} if isinstance(part.get("detail"), str) and part["detail"] != "auto" else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and any(isinstance(part.get(key), str) for key in ("file_data", "file_id")):
        file = {key: part[key] for key in ("file_data", "file_id", "filename") if isinstance(part.get(key), str)}
        return {"type": "file", "file": file}
    if kind in _CHAT_PARTS and kind not in {"text", "refusal"}:
        return plain_copy(part)  # type: ignore[no-any-return]  # JSON in, JSON out
    return {"type": "text", "text": json.dumps(plain_copy(part), ensure_ascii=False, separators=(",", ":"))}


def derived_items(message: Message, part_counts: Sequence[int] = ()) -> list[dict[str, Any]]:
    """The items built from a chat message alone, without `ITEMS_KEY`.

    `part_counts` are the numbers of content parts of each message item. Without them there is one message item.
    """
    role = role_of(message)
    if role in {"tool", "function"}:
        content = message.get("content")
        output = (
            [_item_part(part, "input") for part in content] if isinstance(content, (list, tuple)) else content or ""
        )
        return [{"type": "function_call_output", "call_id": result_id(message), "output": output}]
    if role != "assistant":
        content = [_item_part(part, "input") for part in _content_parts(message)]
        return [{"type": "message", "role": role or "user", "content": content}]
    return [*_reasoning_items(message), *_message_items(message, part_counts), *_call_items(message)]


def _reasoning_items(message: Message) -> Iterator[dict[str, Any]]:
    for key in ("reasoning_content", "reasoning"):
        if isinstance(message.get(key), str) and message[key]:
            content = [{"type": "reasoning_text", "text": message[key]}]
            yield {"type": "reasoning", "summary": [], "content": content}
            return


def _message_items(message: Message, part_counts: Sequence[int]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    parts = [_item_part(part, "output") for part in _content_parts(message)]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        parts = [part for part in parts if part.get("text") != ""]
        parts.append({"type": "refusal", "refusal": message["refusal"]})
    if not parts or (not content and not message.get("refusal") and call_ids(message) and not part_counts):
        return  # a message with calls only
    start = 0
    for count in part_counts[:-1]:
        yield {"type": "message", "role": "assistant", "content": parts[start : start + count]}
        start += count
    yield {"type": "message", "role": "assistant", "content": parts[start:]}


def _call_items(message: Message) -> Iterator[dict[str, Any]]:
    function_call = message.get("function_call")
    if not message.get("tool_calls") and isinstance(function_call, Mapping):
        name, arguments = str(function_call.get("name") or ""), str(function_call.get("arguments") or "")
        yield {"type": "function_call", "call_id": f"{FUNCTION_ID_PREFIX}{name}", "name": name, "arguments": arguments}
    for call_id, call in zip(call_ids(message), message.get("tool_calls") or (), strict=False):
        function, custom = call.get("function"), call.get("custom")
        if isinstance(custom, Mapping):
            name, text = custom.get("name", ""), custom.get("input", "")
            yield {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": text}
        else:
            function = function if isinstance(function, Mapping) else {}
            name, text = function.get("name", ""), _argument_text(function.get("arguments"))
            yield {"type": "function_call", "call_id": call_id, "name": name, "arguments": text}


def _argument_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "{}" if value is None else json.dumps(plain_copy(value), ensure_ascii=False, separators=(",", ":"))


def _content_parts(message: Message) -> list[Any]:
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        return list(content)
    return [{"type": "text", "text": content or ""}]


def is_item_part(kind: Any) -> bool:
    """Whether a type of a content part is one that the Responses API has and chat completions do not have."""
    return isinstance(kind, str) and kind.startswith(_ITEM_PART_STARTS) and kind not in _CHAT_PARTS


def _item_part(part: Any, direction: Literal["input", "output"]) -> dict[str, Any]:
    """A part of a chat message as a part of a message item that is sent to the model or comes from it."""
    if not isinstance(part, Mapping):
        return {"type": f"{direction}_text", "text": str(part)}
    part_type = part.get("type")
    if part_type == "text" and isinstance(part.get("text"), str):
        defaults: dict[str, Any] = {"annotations": [], "logprobs": []} if direction == "output" else {}
        return {"type": f"{direction}_text", "text": part["text"], **defaults}
    if part_type == "refusal" and direction == "output":
        return plain_copy(part)  # type: ignore[no-any-return]  # JSON in, JSON out
    image, file = part.get("image_url"), part.get("file")
    image = {"url": image} if isinstance(image, str) else image  # other servers accept the URL alone
    # Answers have only text and refusals, and the Responses API does not support audio.
    if direction == "output" or part_type == "input_audio":
        return {"type": f"{direction}_text", "text": placeholder_part(part)["text"]}
    if part_type == "image_url" and isinstance(image, Mapping) and isinstance(image.get("url"), str):
        return {"type": "input_image", "image_url": image["url"], "detail": image.get("detail") or "auto"}
    if part_type == "file" and isinstance(file, Mapping):
        return {"type": "input_file", **plain_copy(file)}
    document = part.get("document_url")
    if part_type == "document_url" and isinstance(document, str):  # only Mistral has it
        return {"type": "input_file", "file_data" if document.startswith("data:") else "file_url": document}
    if is_item_part(part_type):
        return plain_copy(part)  # type: ignore[no-any-return]  # JSON in, JSON out
    return {"type": f"{direction}_text", "text": placeholder_part(part)["text"]}
