"""The items of the Responses API, each in the words of chat completions, and back in its usual spelling."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.record.frozen import thawed
from minutebook.record.message import BY_NAME, Message, call_ids, result_id, role_of

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
OUTPUTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})
_ROLES: Final = frozenset({"user", "system", "developer", "assistant"})
_CHAT_PARTS: Final = frozenset({"text", "image_url", "input_audio", "file", "refusal"})


def kind_of(item: Mapping[str, Any]) -> str:
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
    if kind_of(item) == "custom_tool_call":
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


def derived(message: Message, cuts: Sequence[int] = ()) -> list[dict[str, Any]]:
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
        yield {"type": "function_call", "call_id": f"{BY_NAME}{name}", "name": name, "arguments": arguments}
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
    return "{}" if value is None else json.dumps(thawed(value), ensure_ascii=False, separators=(",", ":"))


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
        return thawed(part)  # type: ignore[no-any-return]  # JSON in, JSON out
    return {"type": "text", "text": json.dumps(thawed(part), ensure_ascii=False, separators=(",", ":"))}


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
        return {"type": "input_file", **thawed(file)}
    return thawed(part)  # type: ignore[no-any-return]  # JSON in, JSON out


def _text(item: Mapping[str, Any], key: str, index: int | None) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise InvalidMessage(key, "is missing, or is not text", index)
    return value
