"""The parts of a message's content that each provider accepts, by role.

Every provider rejects a part without the field that its type requires (`is_part`): such a message is refused when it is
appended. A complete part of a type that the provider does not have, or not in messages of that role, stays in the record,
and views contain a text in its place (`with_known_parts`).
"""

import re
from collections.abc import Mapping
from operator import is_
from typing import Any, Final

from minutebook.record.message import RESULT_ROLES, Message, Provider, is_system, role_of, type_of
from minutebook.tokens.counter import ITEMS_KEY

_OPENAI_PARTS: Final[dict[str, frozenset[str]]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file", "audio_url", "video_url", "document_url"}),
    "assistant": frozenset({"text", "refusal"}),
}
"""Types of parts by role in chat completions. Messages of other roles have only text. OpenAI itself has no parts for the
URLs of audio, videos and documents; other servers with this API have, for example those of Mistral and vLLM."""
_TEXTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})
"""Types of parts that become text blocks for Anthropic."""
_ANTHROPIC_MEDIA: Final = frozenset({"image", "image_url", "document", "file", "search_result"})
_ANTHROPIC_USER_PARTS: Final = _ANTHROPIC_MEDIA | {"container_upload"}
_ANTHROPIC_RESULT_PARTS: Final = _ANTHROPIC_MEDIA | {"tool_reference"}
_ANTHROPIC_ASSISTANT_PARTS: Final = frozenset({"thinking", "redacted_thinking"})
_ANTHROPIC_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "search_result": ("source", "title", "content"),
    "container_upload": ("file_id",),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
}
"""The fields that Anthropic requires in parts of these types."""
_ANTHROPIC_SOURCES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "image": {"base64": ("data",), "url": ("url",), "file": ("file_id",)},
    "document": {
        "base64": ("data",),
        "url": ("url",),
        "file": ("file_id",),
        "text": ("media_type", "data"),
        "content": ("content",),
    },
}
"""The fields that Anthropic requires in the source of a part, by the type of the part and of its source."""
_ANTHROPIC_MEDIA_TYPES: Final = {
    "image": ("image/jpeg", "image/png", "image/gif", "image/webp"),
    "document": ("application/pdf",),
}
_ANTHROPIC_FILE_PREFIXES: Final = ("data:application/pdf;base64,", "data:text/", "data:image/")
_ANTHROPIC_IMAGES: Final = re.compile(r"https?://|data:image/(jpeg|png|gif|webp);base64,.")
_URL_PARTS: Final = frozenset({"image_url", "audio_url", "video_url", "document_url"})
_FILE_KEYS: Final = ("file_data", "file_id", "file_url")


def is_part(part: Any) -> bool:
    """Whether this is a mapping with a type and, if the type is a common one, with the field that it requires."""
    return isinstance(part, Mapping) and isinstance(part.get("type"), str) and not missing_field(part)


def missing_field(part: Mapping[str, Any]) -> str | None:
    """The field that a part of this type requires and that is missing or invalid."""
    kind = type_of(part)
    value = part.get(kind)
    if kind in {"text", "refusal"}:
        return None if isinstance(value, str) else kind
    if kind in _URL_PARTS:
        url = value.get("url") if isinstance(value, Mapping) else value
        return None if isinstance(url, str) and url else f"{kind}.url"
    if kind == "input_audio":
        return None if isinstance(value, Mapping) and isinstance(value.get("data"), str) else "input_audio.data"
    if kind == "file":
        is_file = isinstance(value, Mapping) and any(isinstance(value.get(key), str) for key in _FILE_KEYS)
        return None if is_file else "file.file_data"
    return None


def with_known_parts(message: Message, provider: Provider) -> Message:
    """The message with a placeholder text for each part that the provider does not accept in a message of its role.

    Returns the same object if there is no such part. Gemini's parts are not checked, because `wire.gemini` makes them. Nor
    are those of messages from the Responses API for OpenAI: it accepts images in tool results.
    """
    content = message.get("content")
    if isinstance(content, str) or provider == "gemini" or not isinstance(content, (list, tuple)):
        return message
    if provider == "openai" and ITEMS_KEY in message:
        return message
    known_part = _openai_part if provider == "openai" else _anthropic_part
    role = "system" if is_system(message) else role_of(message)
    parts = [known_part(part, role) if isinstance(part, Mapping) else part for part in content]
    return message if all(map(is_, parts, content)) else {**message, "content": parts}


def placeholder_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """A text part that says which part was left out."""
    file = part.get("file")
    name = file.get("filename") or file.get("file_id") if isinstance(file, Mapping) else None
    label = f"{part.get('type')} {name}" if name else str(part.get("type"))
    return {"type": "text", "text": f"[{label}: left out, the model cannot read it]"}


def _openai_part(part: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    kind = type_of(part)
    if kind == "text":
        return part
    if missing_field(part) or kind not in _OPENAI_PARTS.get(role, ()):
        return placeholder_part(part)
    if kind == "image_url" and isinstance(part["image_url"], str):  # accepted by some other servers
        return {**part, "image_url": {"url": part["image_url"]}}
    has_only_url = kind == "file" and not {"file_data", "file_id"} & part["file"].keys()
    has_no_format = kind == "input_audio" and not isinstance(part["input_audio"].get("format"), str)
    return placeholder_part(part) if has_only_url or has_no_format else part


def _anthropic_part(part: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """The part, or a placeholder if Anthropic has no block for it in a message of this role.

    It has none for audio, video and files that only OpenAI stores. Messages of the system have only text, and those of the
    assistant no media. Blocks of server tools are not checked.
    """
    kind = type_of(part)
    if kind in _TEXTS or (kind.endswith(("_tool_result", "server_tool_use")) and role not in RESULT_ROLES):
        return part
    if role == "user":
        known_parts = _ANTHROPIC_USER_PARTS
    elif role == "assistant":
        known_parts = _ANTHROPIC_ASSISTANT_PARTS
    else:
        known_parts = _ANTHROPIC_RESULT_PARTS if role in RESULT_ROLES else frozenset()
    if kind not in known_parts or missing_field(part):
        return placeholder_part(part)
    if any(not isinstance(part.get(name), (str, list)) for name in _ANTHROPIC_FIELDS.get(kind, ())):
        return placeholder_part(part)
    if kind in _ANTHROPIC_SOURCES and not _is_anthropic_source(part.get("source"), kind):
        return placeholder_part(part)
    if kind == "image_url":
        image = part["image_url"]
        url = image["url"] if isinstance(image, Mapping) else image
        return part if _ANTHROPIC_IMAGES.match(url) else placeholder_part(part)
    if kind == "file":
        data = part["file"].get("file_data")
        is_readable = isinstance(data, str) and (
            not data.startswith("data:") or data.startswith(_ANTHROPIC_FILE_PREFIXES)
        )
        return part if is_readable else placeholder_part(part)
    return part


def _is_anthropic_source(source: Any, kind: str) -> bool:
    """Whether this is a source that Anthropic accepts in a part of this type."""
    if not isinstance(source, Mapping) or (fields := _ANTHROPIC_SOURCES[kind].get(type_of(source))) is None:
        return False
    is_supported = type_of(source) != "base64" or source.get("media_type") in _ANTHROPIC_MEDIA_TYPES[kind]
    return is_supported and all(source.get(field) for field in fields)
