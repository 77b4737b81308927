"""Chat messages to Anthropic's Messages form and back.

A reply may hold what only Anthropic can read: thinking that it signed, blocks of its own tools. Such a reply keeps its
blocks beside the chat form, and goes back byte for byte as long as the message is still what it was. Changed by a manager
(calls taken out, text cut), it goes back without them: a signature that no longer fits is refused, and thinking belongs
to the calls it led to. Newer models also refuse thinking when anything that stood before it has changed since, as after a
cut: a message that knows its prompt (`PROMPT_DIGEST_KEY`) then goes back without its thinking too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from minutebook.record.message import Message, is_result, is_system, is_user, result_id, role_of, text_of

BLOCKS_KEY: Final = "anthropic_blocks"
"""The key under which an assistant message keeps Anthropic's own blocks."""

PROMPT_DIGEST_KEY: Final = "anthropic_prompt"
"""The key under which such a message keeps the digest of the prompt that it answered."""

_EMPTY: Final = "[empty]"
"""What stands for a text that is empty or blank, which Anthropic refuses."""


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    """A conversation in the form that the Messages endpoint takes."""

    system: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    prompt: str = ""
    """The digest of it all, for the reply to remember."""
    unthought: bool = False
    """Whether the calls now being answered have lost their thinking: thinking must then be off for this request."""


def to_anthropic(messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> AnthropicMessages:
    """The conversation as system blocks and alternating messages.

    Leading system messages are the system prompt; later ones stand where they stood, as the user's. Results join one user
    message, and messages of one side that follow each other become one. `tools` belong to what thinking came after.
    """
    lead = next((at for at, message in enumerate(messages) if not is_system(message)), len(messages))
    found = [block for message in messages[:lead] for block in _blocks(message)]
    system = [block for block in found if block != _text(_EMPTY)]
    turns: list[dict[str, Any]] = []
    digest = _Digest([list(tools), system], turns)
    unthought = False
    for message in messages[lead:]:
        role = "assistant" if role_of(message) == "assistant" else "user"
        if role == "assistant":
            thought_after = message.get(PROMPT_DIGEST_KEY)
            moved = thought_after is not None and thought_after != digest.now()
            unthought = moved and bool(message.get("tool_calls"))
            blocks = _assistant(without_blocks(message) if moved else message)
        else:
            blocks = _user(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return AnthropicMessages(system, turns, digest.now(), unthought)


def from_anthropic(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The assistant message of a reply's content blocks."""
    text = "".join(block["text"] for block in content if block.get("type") == "text")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)},
        }
        for block in content
        if block.get("type") == "tool_use"
    ]
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if calls:
        message["tool_calls"] = calls
    if any(block.get("type") not in {"text", "tool_use"} for block in content):
        message[BLOCKS_KEY] = [dict(block) for block in content]
    return message


def without_blocks(message: Message) -> Message:
    """The message as every other provider reads it."""
    if BLOCKS_KEY not in message:
        return message
    return {key: value for key, value in message.items() if key not in {BLOCKS_KEY, PROMPT_DIGEST_KEY}}


class _Digest:
    """One number for all that stands before a place, whatever marks are on it; it grows with the turns."""

    def __init__(self, preamble: Any, turns: list[dict[str, Any]]) -> None:
        self._turns = turns
        self._seen = 0
        self._hash = sha256(_canonical(preamble))

    def now(self) -> str:
        for turn in self._turns[self._seen :]:
            self._hash.update(_canonical(turn))
        self._seen = len(self._turns)
        return self._hash.hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(_unmarked(value), sort_keys=True, separators=(",", ":")).encode()


def _unmarked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _assistant(message: Message) -> list[dict[str, Any]]:
    kept = message.get(BLOCKS_KEY)
    if kept:
        now = {key: value for key, value in message.items() if key in {"role", "content", "tool_calls"}}
        was = {key: value for key, value in from_anthropic(kept).items() if key != BLOCKS_KEY}
        if now == was:
            return [dict(block) for block in kept]
    blocks = [block for block in _blocks(message) if block != _text(_EMPTY) or not message.get("tool_calls")]
    return blocks + [_tool_use(call) for call in message.get("tool_calls") or ()]


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call.get("custom") or {}
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function.get("name", ""),
        "input": _arguments(function.get("arguments", function.get("input"))),
    }


def _arguments(arguments: Any) -> dict[str, Any]:
    """The arguments as an object; what is none is wrapped in one, and so not lost."""
    if arguments is None or arguments == "":
        return {}
    try:
        read = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        read = None
    return dict(read) if isinstance(read, Mapping) else {"arguments": arguments}


def _user(message: Message) -> list[dict[str, Any]]:
    if is_result(message):
        result = {"type": "tool_result", "tool_use_id": result_id(message), "content": _result(message)}
        return [{**result, "is_error": True} if message.get("is_error") else result]
    return _blocks(message) if is_user(message) or is_system(message) else []


def _result(message: Message) -> str | list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, str) else [block for block in _blocks(message) if block != _text(_EMPTY)]


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        blocks = [_part(part) for part in content if isinstance(part, Mapping)]
        return [block for block in blocks if not _is_blank(block)] or [_text(_EMPTY)]
    said = text_of(message)
    return [_text(said if said.strip() else str(message.get("refusal") or _EMPTY))]


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Whether it is a text without a word in it, which Anthropic refuses."""
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in part.items() if key == "cache_control"}
    kind = part.get("type")
    if kind in {"text", "input_text", "output_text", "refusal"}:
        return {**_text(str(part.get("text", part.get("refusal", "")))), **rest}
    if kind == "image_url":
        image = part.get("image_url")
        url = image.get("url", "") if isinstance(image, Mapping) else str(image)
        return {"type": "image", "source": _source(url), **rest}
    return dict(part)


def _source(url: str) -> dict[str, Any]:
    if url.startswith("data:") and ";base64," in url:
        kind, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": kind, "data": data}
    return {"type": "url", "url": url}
