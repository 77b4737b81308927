"""`conversations.json` of a ChatGPT data export. Regenerated answers and edited prompts are branches.

The export has no ids of tool calls. A message to a tool is a call, and the next message of a tool is its result. Calls of
some tools are not exported; their results then get a call without arguments.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from minutebook.formats.conversation import (
    Format,
    Node,
    SourceConversation,
    SourceMessage,
    branches,
    has_keys,
    read_each,
    time_of,
)
from minutebook.formats.messages import assistant, call, json_text, result, system, user
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_unknown_role
from minutebook.record.message import Message

_CONTENT_TYPES: Final = frozenset(
    {"text", "multimodal_text", "code", "execution_output", "tether_quote", "tether_browsing_display", "system_error"}
    | {"user_editable_context", "model_editable_context"}
)
"""Types of contents with a text or parts. Contents of other types become their JSON."""
_TEXT_KEYS: Final = (
    *("user_profile", "user_instructions", "model_set_context", "name", "title", "url", "text", "summary", "result"),
)
"""Keys of a content without parts that have a text."""


@shape_test
def matches(value: Any) -> bool:
    mapping = value.get("mapping") if isinstance(value, Mapping) else None
    return isinstance(mapping, Mapping) and all(
        has_keys(node, "parent") or has_keys(node, "children") for node in mapping.values()
    )


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversations, source))


def _conversations(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceConversation]:
    nodes = {
        name: Node(name, node.get("parent"), [SourceMessage({"node": node.get("message")}, f"{place}, node {name}")])
        for name, node in value["mapping"].items()
    }
    own_id = value.get("conversation_id") or value.get("id")
    name = str(own_id or place)
    for ids, path in branches(name, nodes, value.get("current_node")):
        items = list(_items(source, path))
        yield SourceConversation(
            items=items,
            **ids,
            is_id_derived=not own_id,
            title=value.get("title"),
            model=next((item.model for item in reversed(items) if item.model), value.get("default_model_slug")),
            created_at=time_of(value.get("create_time")),
        )


def _items(source: Source, path: list[SourceMessage]) -> Iterator[SourceMessage]:
    open_call: str | None = None
    thoughts = ""
    for item in path:
        node = item.message["node"]
        if not isinstance(node, Mapping):
            continue
        if thoughts_of_node := _thoughts(node.get("content") or {}):
            thoughts = "\n".join(filter(None, [thoughts, thoughts_of_node]))
            continue
        at, model = time_of(node.get("create_time")), (node.get("metadata") or {}).get("model_slug")
        role = (node.get("author") or {}).get("role")
        text, content = _content(node.get("content") or {})
        messages: list[Message] = []
        if role == "tool":
            call_id = open_call or f"call_{node.get('id')}"
            if open_call is None:
                messages.append(assistant(None, [call(call_id, (node.get("author") or {}).get("name"), {})]))
            messages.append(result(call_id, text))
            open_call = None
        elif role == "assistant" and node.get("recipient", "all") != "all":
            open_call = f"call_{node.get('id')}"
            messages.append(assistant(None, [call(open_call, node["recipient"], text)], reasoning=thoughts))
        elif role == "assistant" and text:
            messages.append(assistant(text, reasoning=thoughts))
        elif role == "user":
            messages.append(user(content))
        elif role == "system" and text:
            messages.append(system(text))
        elif role not in {"assistant", "system"}:
            skip_unknown_role(source, item.place, role)
        thoughts = "" if messages else thoughts
        for message in messages:
            yield SourceMessage(message, item.place, at, model if role == "assistant" else None)


def _thoughts(content: Mapping[str, Any]) -> str:
    if content.get("content_type") != "thoughts":
        return ""
    return "\n".join(str(thought.get("content") or thought.get("summary") or "") for thought in content["thoughts"])


def _content(content: Mapping[str, Any]) -> tuple[str, Any]:
    """The text of a content, and the text or list of parts for a user message."""
    kind = content.get("content_type")
    if kind == "reasoning_recap":  # how long the model thought
        return "", ""
    if content and kind not in _CONTENT_TYPES:
        return json_text(content), json_text(content)
    parts = content.get("parts")
    if not isinstance(parts, list):
        text = "\n".join(str(content[key]) for key in _TEXT_KEYS if content.get(key))
        return text, text
    texts = [part["text"] if _is_transcription(part) else json_text(part) for part in parts]
    text = "\n".join(texts)
    if all(isinstance(part, str) for part in parts):
        return text, text
    return text, [{"type": "text", "text": part} for part in texts]


def _is_transcription(part: Any) -> bool:
    return has_keys(part, "content_type", "text") and part["content_type"] == "audio_transcription"


FORMAT: Final = Format(name="chatgpt", title="ChatGPT data export (conversations.json)", matches=matches, read=read)
