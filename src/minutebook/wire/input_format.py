"""Which API's format a value has: a chat message, an item of the Responses API, a message of Anthropic or of Gemini."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from minutebook.record.message import CALL_BLOCKS, role_of, type_of
from minutebook.record.shapes import is_plain

_ANTHROPIC_BLOCKS: Final = CALL_BLOCKS | {
    *("search_result", "container_upload", "tool_reference", "server_tool_use", "mcp_tool_use", "mcp_tool_result"),
    *("redacted_thinking", "compaction"),
}
"""Types of content blocks that only Anthropic's Messages API has."""
_ANTHROPIC_FIELDS: Final = {"text": "citations", "thinking": "signature", "image": "source", "document": "source"}
"""Types of content blocks that other providers have too → the field that only Anthropic's blocks have."""
_RESPONSES_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file", "summary_text"})
"""Types of content parts that only the Responses API has."""
BLOCK_TYPES: Final = CALL_BLOCKS | _ANTHROPIC_FIELDS.keys() | _RESPONSES_PARTS | {"image_url"}
"""Types of content blocks that are not also types of items of the Responses API."""
_TEXT_KEYS: Final = frozenset({"role", "content", "tool_call_id", "name"})
_ITEM_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_EVENTS: Final = frozenset({"chunk", "message_start", "message_delta", "message_stop"})
"""Types of events of a client's stream. Others have a dot or start with `content_block_`."""


def is_plain_chat(value: Any) -> bool:
    """Whether a value is a chat message in which nothing has to be checked or converted. Most messages are."""
    return (
        type(value) is dict
        and type(value.get("role")) is str
        and ((type(value.get("content")) is str and value.keys() <= _TEXT_KEYS) or is_plain(value))
    )


def is_gemini_content(value: Mapping[str, Any]) -> bool:
    """Whether a value is a content of Gemini's API."""
    return "parts" in value and "content" not in value and "toolInvocations" not in value


def is_anthropic_response(value: Mapping[str, Any]) -> bool:
    """Whether the value is an answer of Anthropic's API. Some logs leave out its type and stop reason."""
    if value.get("type") == "message" and "stop_reason" in value:
        return True
    usage = value.get("usage")
    is_answer = role_of(value) == "assistant" and isinstance(value.get("content"), (list, tuple))
    has_usage = "model" in value and isinstance(usage, Mapping) and "input_tokens" in usage
    return is_answer and has_usage and value.get("type", "message") == "message"


def is_event_type(kind: str) -> bool:
    """Whether a type is that of an event in a stream of the openai or anthropic client."""
    return "." in kind or kind in _EVENTS or kind.startswith("content_block_")


def is_item(value: Mapping[str, Any]) -> bool:
    """Whether a value is an item of the Responses API. A message item may have no type."""
    item_type = value.get("type")
    if isinstance(item_type, str) and item_type != "message":
        is_item_type = item_type not in BLOCK_TYPES and not is_event_type(item_type)
        return is_item_type and ("role" not in value or "content" not in value)
    if any(type_of(part) in _RESPONSES_PARTS for part in parts_in(value)):
        return True
    return item_type == "message" and not is_anthropic_response(value) and not is_anthropic_message(value)


def is_message_in_both_apis(value: Mapping[str, Any]) -> bool:
    """Whether the value is a valid message both of the chat API and of the Responses API."""
    has_only_content = role_of(value) in _ITEM_ROLES and value.keys() <= {"role", "content"}
    return has_only_content and not is_anthropic_message(value)


def is_anthropic_message(value: Mapping[str, Any]) -> bool:
    """Whether the value is a message with a block that only Anthropic has."""
    return role_of(value) in {"user", "assistant"} and any(map(_is_anthropic_block, parts_in(value)))


def has_cache_marks(value: Mapping[str, Any]) -> bool:
    """Whether parts of a user or assistant message have `cache_control`.

    Some servers with a chat API accept that too, so it does not prove that the message is Anthropic's.
    """
    return role_of(value) in {"user", "assistant"} and any("cache_control" in part for part in parts_in(value))


def _is_anthropic_block(block: Mapping[str, Any]) -> bool:
    block_type = block.get("type")
    if not isinstance(block_type, str):
        return False
    field = _ANTHROPIC_FIELDS.get(block_type)
    if field is not None:
        return field in block
    return block_type in _ANTHROPIC_BLOCKS or block_type.endswith("_tool_result")


def parts_in(value: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parts of a content that is a list. Parts that are not objects are left out."""
    content = value.get("content")
    return (part for part in (content if isinstance(content, (list, tuple)) else ()) if isinstance(part, Mapping))
