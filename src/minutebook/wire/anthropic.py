"""Chat messages to the format of Anthropic's Messages API and back.

A reply may contain blocks that only Anthropic can read: signed thinking, blocks of Anthropic's server tools. The message of
such a reply also stores its blocks, and they are sent back byte for byte while the message is unchanged. If a manager has
changed it (removed calls, shortened text), the blocks are left out: Anthropic rejects a signature that does not match, and
thinking belongs to the calls it led to. Newer models also reject thinking if any earlier message has changed, as after a
cut. So a message that stores the digest of its prompt (`PROMPT_DIGEST_KEY`) is sent without its blocks if the prompt is
now a different one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from minutebook.record.message import (
    Message,
    is_result,
    is_system,
    is_user,
    leading_system_count,
    result_id,
    role_of,
    text_of,
)

BLOCKS_KEY: Final = "anthropic_blocks"
"""The key of the original blocks in an assistant message."""

PROMPT_DIGEST_KEY: Final = "anthropic_prompt"
"""The key of the digest of the prompt that such a message answered."""

_EMPTY: Final = "[empty]"
"""Replaces empty and blank texts, which Anthropic rejects."""


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    """A conversation in the format of a Messages request."""

    system: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    prompt_digest: str = ""
    """The digest of tools, system prompt and messages, to be stored with the reply."""
    thinking_dropped: bool = False
    """True if the last assistant message has calls and was sent without its thinking. The request must disable thinking."""


def to_anthropic(messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = ()) -> AnthropicMessages:
    """The conversation as system blocks and alternating user and assistant messages.

    Leading system messages become the system prompt; later ones become user messages at their position. Adjacent messages of
    one role become one message. `tools` are part of the prompt digest.
    """
    leading = leading_system_count(messages)
    system = [block for message in messages[:leading] for block in _blocks(message) if block != _text(_EMPTY)]
    converted: list[dict[str, Any]] = []
    digest = _PromptDigest([list(tools), system], converted)
    thinking_dropped = False
    for message in messages[leading:]:
        role = "assistant" if role_of(message) == "assistant" else "user"
        if role == "assistant":
            original_prompt = message.get(PROMPT_DIGEST_KEY)
            prompt_changed = original_prompt is not None and original_prompt != digest.update()
            thinking_dropped = prompt_changed and bool(message.get("tool_calls"))
            blocks = _assistant_blocks(without_blocks(message) if prompt_changed else message)
        else:
            blocks = _user_blocks(message)
        if converted and converted[-1]["role"] == role:
            converted[-1]["content"] += blocks
        else:
            converted.append({"role": role, "content": blocks})
    return AnthropicMessages(system, converted, digest.update(), thinking_dropped)


def from_anthropic(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The assistant message for the content blocks of a reply."""
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
    """The message without its Anthropic blocks, for other providers."""
    if BLOCKS_KEY not in message:
        return message
    return {key: value for key, value in message.items() if key not in {BLOCKS_KEY, PROMPT_DIGEST_KEY}}


class _PromptDigest:
    """The digest of a preamble and a growing list of messages. It ignores `cache_control` marks."""

    def __init__(self, preamble: Any, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._hashed_count = 0
        self._hash = sha256(_canonical_json(preamble))

    def update(self) -> str:
        """Add the new messages of the list, and return the digest."""
        for message in self._messages[self._hashed_count :]:
            self._hash.update(_canonical_json(message))
        self._hashed_count = len(self._messages)
        return self._hash.hexdigest()


def _canonical_json(value: Any) -> bytes:
    return json.dumps(_without_cache_control(value), sort_keys=True, separators=(",", ":")).encode()


def _without_cache_control(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_cache_control(inner) for key, inner in value.items() if key != "cache_control"}
    return [_without_cache_control(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _assistant_blocks(message: Message) -> list[dict[str, Any]]:
    original_blocks = message.get(BLOCKS_KEY)
    if original_blocks:
        current = {key: value for key, value in message.items() if key in {"role", "content", "tool_calls"}}
        original = {key: value for key, value in from_anthropic(original_blocks).items() if key != BLOCKS_KEY}
        if current == original:
            return [dict(block) for block in original_blocks]
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
    """The arguments as an object; text that is not a JSON object is wrapped in one, so that it is not lost."""
    if arguments is None or arguments == "":
        return {}
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    return dict(value) if isinstance(value, Mapping) else {"arguments": arguments}


def _user_blocks(message: Message) -> list[dict[str, Any]]:
    if is_result(message):
        result = {"type": "tool_result", "tool_use_id": result_id(message), "content": _result_content(message)}
        return [{**result, "is_error": True} if message.get("is_error") else result]
    return _blocks(message) if is_user(message) or is_system(message) else []


def _result_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, str) else [block for block in _blocks(message) if block != _text(_EMPTY)]


def _blocks(message: Message) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        blocks = [_block_of(part) for part in content if isinstance(part, Mapping)]
        return [block for block in blocks if not _is_blank(block)] or [_text(_EMPTY)]
    text = text_of(message)
    return [_text(text if text.strip() else str(message.get("refusal") or _EMPTY))]


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Whether the block is an empty or blank text, which Anthropic rejects."""
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _block_of(part: Mapping[str, Any]) -> dict[str, Any]:
    cache_control = {key: value for key, value in part.items() if key == "cache_control"}
    kind = part.get("type")
    if kind in {"text", "input_text", "output_text", "refusal"}:
        return {**_text(str(part.get("text", part.get("refusal", "")))), **cache_control}
    if kind == "image_url":
        image = part.get("image_url")
        url = image.get("url", "") if isinstance(image, Mapping) else str(image)
        return {"type": "image", "source": _source(url), **cache_control}
    return dict(part)


def _source(url: str) -> dict[str, Any]:
    if url.startswith("data:") and ";base64," in url:
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}
