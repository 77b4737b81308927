"""Chat messages to the format of Anthropic's Messages API and back.

A message that was read from Anthropic's format is written back unchanged.

A reply may contain blocks that a chat message cannot express: signed thinking, citations, calls of Anthropic's server
tools. The assistant message then also stores the original blocks (`BLOCKS_KEY`). They are not used in two cases:
- A manager has changed the message (removed calls, shortened text). Anthropic rejects a signature that does not match, and
  thinking belongs to the calls that followed it.
- An earlier message has changed, for example by a cut. Newer models reject thinking then. This is noticed only if the
  message also stores the digest of its prompt (`PROMPT_DIGEST_KEY`).

A user message or a tool result stores the difference between its original blocks and those that are built from the chat
message (`PATCH_KEY`).
"""

import json
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from minutebook.record.message import (
    Message,
    call_ids,
    is_result,
    is_system,
    is_user,
    leading_system_count,
    plain_copy,
    result_id,
    role_of,
    text_of,
)
from minutebook.record.parts import with_known_parts
from minutebook.tokens.counter import BLOCKS_KEY, PATCH_KEY
from minutebook.wire.json_patch import patch_between, with_patch

PROMPT_DIGEST_KEY: Final = "anthropic_prompt"
"""Message key for the digest of the prompt that the assistant message answered."""

START_KEY: Final = "anthropic_start"
"""Message key that prevents merging the message with the one before: it was a separate message of the same role, or a
system message within the conversation."""

FIELDS_KEY: Final = "anthropic_fields"
"""Message key for the fields of a message of a file other than its role and content, such as an id."""

_THINKING: Final = frozenset({"thinking", "redacted_thinking"})
_EMPTY_TEXT: Final = "[empty]"
"""Replaces empty and blank texts, which Anthropic rejects."""
FILE_NAME: Final = "document.pdf"
"""The name of a document without a title. Chat completions require one."""
_VALID_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class AnthropicMessages:
    """A conversation in the format of a Messages request."""

    system: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    prompt_digest: str = ""
    """The digest of tools, system prompt and messages. Store it in the reply's message under `PROMPT_DIGEST_KEY`."""
    thinking_dropped: bool = False
    """True if the last assistant message has calls and lost its thinking. The request must then disable thinking."""


def to_anthropic(
    messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] = (), as_read: bool = False
) -> AnthropicMessages:
    """The conversation as system blocks and alternating user and assistant messages.

    Leading system messages become the system prompt, and later ones become user messages at their position. Adjacent
    messages of one role are merged, as Anthropic would do, unless the second one has `START_KEY`. `tools` are part of the
    prompt digest.

    `as_read` is for files: blank texts in answers, parts, results in separate messages and unknown fields stay as they were
    read, although Anthropic rejects them.
    """
    messages = _with_valid_calls(
        [message if as_read else with_known_parts(message, "anthropic") for message in messages]
    )
    leading = leading_system_count(messages)
    system = [block for message in messages[:leading] for block in _blocks(message) if block != _text(_EMPTY_TEXT)]
    converted: list[dict[str, Any]] = []
    digest = _PromptDigest([list(tools), system], converted)
    thinking_dropped = False
    for message in messages[leading:]:
        role = "assistant" if role_of(message) == "assistant" else "user"
        if role == "assistant":
            original_prompt = message.get(PROMPT_DIGEST_KEY)
            prompt_changed = original_prompt is not None and original_prompt != digest.update()
            thinking_dropped = prompt_changed and bool(message.get("tool_calls"))
            content = _assistant_content(without_blocks(message) if prompt_changed else message, keep_blank=as_read)
        else:
            content = _user_content(message)
        # Results of one exchange must be in one message.
        is_separate = START_KEY in message and (as_read or not is_result(message))
        previous_role = converted[-1]["role"] if converted else None
        fields = message.get(FIELDS_KEY, {}) if as_read else {}
        if is_separate and is_system(message) and previous_role == "user":
            converted.append({"role": "system", "content": content, **fields})
        elif previous_role == role and not is_separate:
            converted[-1]["content"] = _as_blocks(converted[-1]["content"]) + _as_blocks(content)
        else:
            converted.append({"role": role, "content": content, **fields})
    return AnthropicMessages(system, converted, digest.update(), thinking_dropped)


def _with_valid_calls(messages: list[Message]) -> list[Message]:
    """The messages with calls that Anthropic accepts.

    A deprecated `function_call` becomes a tool call with its own id. In ids, characters that Anthropic rejects become
    underscores.
    """
    new_ids: dict[str, str] = {}
    used_ids = {call_id for message in messages for call_id in call_ids(message)}

    def valid_id(call_id: str) -> str:
        if _VALID_CALL_ID.fullmatch(call_id):
            return call_id
        if call_id not in new_ids:
            new_id = re.sub(r"[^a-zA-Z0-9_-]", "_", call_id) or "call"
            while new_id in used_ids:
                new_id += "_"
            used_ids.add(new_id)
            new_ids[call_id] = new_id
        return new_ids[call_id]

    def with_valid_ids(message: Message) -> Message:
        function_call = message.get("function_call")
        if isinstance(function_call, Mapping) and not message.get("tool_calls"):
            call_id = call_ids(message)[0]
            new_ids.pop(call_id, None)  # the id is the function's name, so each call needs a new one
            call = {"id": valid_id(call_id), "type": "function", "function": function_call}
            other_keys = {key: value for key, value in message.items() if key != "function_call"}
            return {**other_keys, "tool_calls": [call]}
        if calls := message.get("tool_calls"):
            if all(_VALID_CALL_ID.fullmatch(call_id) for call_id in call_ids(message)):
                return message
            ids = map(valid_id, call_ids(message))
            return {
                **message,
                "tool_calls": [{**call, "id": call_id} for call, call_id in zip(calls, ids, strict=True)],
            }
        if is_result(message) and not _VALID_CALL_ID.fullmatch(call_id := result_id(message)):
            return {**message, "role": "tool", "tool_call_id": valid_id(call_id)}
        return message

    return [with_valid_ids(message) for message in messages]


def from_anthropic(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The assistant message for the content blocks of a reply. Blocks that it cannot express are stored in it."""
    message = _text_and_calls(content)
    if content and _as_blocks(_derived_assistant_content(message)) != [plain_copy(block) for block in content]:
        message[BLOCKS_KEY] = [plain_copy(block) for block in content]
    return message


def user_from_anthropic(content: Sequence[Mapping[str, Any]], role: str = "user") -> list[dict[str, Any]]:
    """The chat messages for the content blocks of a user or system message.

    The tool results are first, because they must directly follow their calls.
    """
    messages = [_with_patch_key(_result_message(block), [block]) for block in content if _is_tool_result(block)]
    other_blocks = [block for block in content if not _is_tool_result(block) and not _is_blank(block)]
    if other_blocks or not messages:
        message = {"role": role, "content": list(map(_chat_part, other_blocks)) or ""}
        messages.append(_with_patch_key(message, other_blocks))
    return messages


def has_thinking(message: Message) -> bool:
    """Whether the message stores blocks with signed thinking."""
    return any(block.get("type") in _THINKING for block in message.get(BLOCKS_KEY) or ())


def without_blocks(message: Message) -> Message:
    """The message without its original Anthropic blocks and their prompt digest."""
    if BLOCKS_KEY not in message:
        return message
    return {key: value for key, value in message.items() if key not in {BLOCKS_KEY, PROMPT_DIGEST_KEY}}


class _PromptDigest:
    """The digest of a preamble and a growing list of messages. `cache_control` is ignored, because it may move."""

    def __init__(self, preamble: Any, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._hashed_count = 0
        self._hash = sha256(_canonical_json(preamble))

    def update(self) -> str:
        """Hash the messages that were added to the list since the last call, and return the digest."""
        for message in self._messages[self._hashed_count :]:
            self._hash.update(_canonical_json(message))
        self._hashed_count = len(self._messages)
        return self._hash.hexdigest()


def _canonical_json(value: Any) -> bytes:
    if isinstance(value, Mapping):
        value = {**value, "content": _as_blocks(value["content"])}
    return json.dumps(_without_cache_control(value), sort_keys=True, separators=(",", ":")).encode()


def _without_cache_control(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_cache_control(inner) for key, inner in value.items() if key != "cache_control"}
    return [_without_cache_control(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _as_blocks(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [_text(content)] if isinstance(content, str) else content


def _text_and_calls(content: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The assistant message with the text and the calls of the blocks. Other blocks are ignored."""
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
    return {**message, "tool_calls": calls} if calls else message


def _assistant_content(message: Message, *, keep_blank: bool) -> str | list[dict[str, Any]]:
    blocks = message.get(BLOCKS_KEY)
    if blocks and (keep_blank or not all(map(_is_blank, blocks))):
        text_and_calls = {key: message[key] for key in ("role", "content", "tool_calls") if key in message}
        if text_and_calls == _text_and_calls(blocks):  # the message was not changed
            return [plain_copy(block) for block in blocks if keep_blank or not _is_blank(block)]
    return _derived_assistant_content(message)


def _derived_assistant_content(message: Message) -> str | list[dict[str, Any]]:
    """The content built from an assistant message alone, without `BLOCKS_KEY`."""
    calls = [_tool_use(call) for call in message.get("tool_calls") or ()]
    if not calls:
        return _content(message)
    return [block for block in _blocks(message) if block != _text(_EMPTY_TEXT)] + calls


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function") or call.get("custom") or {}
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function.get("name", ""),
        "input": argument_object(function.get("arguments", function.get("input"))),
    }


def argument_object(arguments: Any) -> dict[str, Any]:
    """The arguments as an object. Arguments that are not a JSON object are wrapped in one, so that they are not lost."""
    if arguments is None or arguments == "":
        return {}
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        value = None
    return dict(value) if isinstance(value, Mapping) else {"arguments": arguments}


def _user_content(message: Message) -> str | list[dict[str, Any]]:
    blocks = _derived_user_content(message)
    patch = message.get(PATCH_KEY)
    if patch is None or isinstance(blocks, str):
        return blocks
    original_blocks = with_patch(blocks, patch)
    if _is_read_from(message, original_blocks):
        return original_blocks  # type: ignore[no-any-return]  # JSON in, JSON out
    # The message has changed, so the patch no longer applies, except for `cache_control`.
    return [
        {**block, "cache_control": original["cache_control"]} if "cache_control" in original else block
        for block, original in zip(blocks, original_blocks, strict=False)
    ] + blocks[len(original_blocks) :]


def _is_read_from(message: Message, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Whether reading the blocks gives this message."""
    messages = user_from_anthropic(blocks, role_of(message))
    keys = ("role", "content", "tool_call_id")
    return len(messages) == 1 and all(messages[0].get(key) == message.get(key) for key in keys)


def _derived_user_content(message: Message) -> str | list[dict[str, Any]]:
    """The content built from a user message, a tool result or a system message alone, without `PATCH_KEY`."""
    if is_result(message):
        result = {"type": "tool_result", "tool_use_id": result_id(message), "content": _result_content(message)}
        return [{**result, "is_error": True} if message.get("is_error") else result]
    return _content(message) if is_user(message) or is_system(message) else []


def _with_patch_key(message: dict[str, Any], blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The message with the difference of its original `blocks` from those built from it, if there is any."""
    patch = patch_between(_derived_user_content(message), [plain_copy(block) for block in blocks])
    return message if patch is None else {**message, PATCH_KEY: patch}


def _is_tool_result(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "tool_result"


def _result_message(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content") or ""
    message: dict[str, Any] = {
        "role": "tool",
        "tool_call_id": block.get("tool_use_id", ""),
        "content": content if isinstance(content, str) else [_chat_part(part) for part in content],
    }
    return {**message, "is_error": True} if block.get("is_error") else message


def _result_content(message: Message) -> str | list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, str) else [block for block in _blocks(message) if block != _text(_EMPTY_TEXT)]


def _content(message: Message) -> str | list[dict[str, Any]]:
    """The content of a message without calls and results: a string if the message has one, else blocks."""
    content = message.get("content")
    return content if isinstance(content, str) and content.strip() else _blocks(message)


def _blocks(message: Message) -> list[dict[str, Any]]:
    """The content of a message as blocks without blank texts, or one block with `_EMPTY_TEXT` if there are none."""
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        blocks = [_block(part) for part in content if isinstance(part, Mapping)]
        return [block for block in blocks if not _is_blank(block)] or [_text(_EMPTY_TEXT)]
    text = text_of(message)
    return [_text(text if text.strip() else str(message.get("refusal") or _EMPTY_TEXT))]


def _is_blank(block: Mapping[str, Any]) -> bool:
    """Whether the block is an empty or blank text, which Anthropic rejects."""
    text = block.get("text")
    return isinstance(text, str) and not text.strip()


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _chat_part(block: Mapping[str, Any]) -> dict[str, Any]:
    """The block as a part of a chat message. A block that chat completions do not have becomes a text with its JSON."""
    block_type, text, source = block.get("type"), block.get("text"), block.get("source")
    if block_type == "text" and isinstance(text, str):
        return _text(text)
    source = source if isinstance(source, Mapping) else {}
    source_type = source.get("type")
    if block_type == "image" and source_type in {"base64", "url"}:
        return {"type": "image_url", "image_url": {"url": _url(source)}}
    if block_type == "document" and source_type == "base64":
        return {"type": "file", "file": {"filename": block.get("title") or FILE_NAME, "file_data": _url(source)}}
    if block_type == "document" and source_type == "text":
        return _text(str(source.get("data", "")))
    return _text(json.dumps(plain_copy(block), ensure_ascii=False, separators=(",", ":")))


def _block(part: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a chat message as a block. Unknown parts may be Anthropic's already and are copied."""
    cache_control = {key: value for key, value in part.items() if key == "cache_control"}
    part_type, file = part.get("type"), part.get("file")
    if part_type in {"input_text", "output_text", "refusal"}:
        return {**_text(str(part.get("text", part.get("refusal", "")))), **cache_control}
    if part_type == "image_url":
        image = part.get("image_url")
        url = image.get("url", "") if isinstance(image, Mapping) else str(image)
        return {"type": "image", "source": _source(url), **cache_control}
    if part_type == "file" and isinstance(file, Mapping) and isinstance(file.get("file_data"), str):
        title = {} if file.get("filename") in {None, FILE_NAME} else {"title": file["filename"]}
        source = _source(file["file_data"])
        if str(source.get("media_type")).startswith("image/"):
            return {"type": "image", "source": source, **cache_control}
        return {"type": "document", "source": _document_source(source), **title, **cache_control}
    return dict(part)


def _url(source: Mapping[str, Any]) -> str:
    """The URL or data URL of a source; the inverse of `_source`."""
    is_url = source["type"] == "url"
    return str(source.get("url")) if is_url else f"data:{source.get('media_type')};base64,{source.get('data')}"


def _document_source(source: dict[str, Any]) -> dict[str, Any]:
    """The source of a document in a form that Anthropic accepts: PDF as base64, text as text.

    A file that is neither a URL nor a data URL is taken as the base64 data of a PDF.
    """
    if source["type"] == "url" and not source["url"].startswith(("http://", "https://")):
        return {"type": "base64", "media_type": "application/pdf", "data": source["url"]}
    if source["type"] == "base64" and source["media_type"].startswith("text/"):
        text = b64decode(source["data"] + "==").decode(errors="replace")  # padding may be missing
        return {"type": "text", "media_type": "text/plain", "data": text if text.strip() else _EMPTY_TEXT}
    return source


def _source(url: str) -> dict[str, Any]:
    """The source of an image or a document that is given by a URL or a data URL."""
    if url.startswith("data:") and ";base64," in url:
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return {"type": "base64", "media_type": media_type, "data": data}
    return {"type": "url", "url": url}
