"""Chats exported from Open WebUI. Regenerated answers and edited prompts are branches."""

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
    items_of,
    read_each,
    time_of,
)
from minutebook.formats.source import Source
from minutebook.formats.value_errors import shape_test, skip_malformed, skip_unknown_role
from minutebook.record.message import ROLES


@shape_test
def matches(value: Any) -> bool:
    chat: Any = value.get("chat") if isinstance(value, Mapping) else None
    return has_keys(chat, "history") and has_keys(chat["history"], "messages")


def read(source: Source) -> Iterator[SourceConversation]:
    return read_each(source, matches, partial(_conversations, source))


def _conversations(source: Source, value: Mapping[str, Any], place: str) -> Iterator[SourceConversation]:
    chat, history = value["chat"], value["chat"]["history"]
    nodes = {}
    for name, message in history["messages"].items():
        node_place = f"{place}, message {name}"
        items: list[SourceMessage] = []
        with skip_malformed(source, node_place):
            items = _items(source, message, node_place)
        nodes[name] = Node(name, message.get("parentId") if isinstance(message, Mapping) else None, items)
    own_id = value.get("id") or chat.get("id")
    name = str(own_id or place)
    for ids, items in branches(name, nodes, history.get("currentId")):
        yield SourceConversation(
            items=items,
            **ids,
            is_id_derived=not own_id,
            title=value.get("title") or chat.get("title"),
            model=next(iter(chat.get("models") or ()), None),
            created_at=time_of(value.get("created_at")),
        )


def _items(source: Source, message: Mapping[str, Any], place: str) -> list[SourceMessage]:
    chat = {key: message[key] for key in ("role", "content", "tool_calls", "tool_call_id") if key in message}
    if message["role"] not in ROLES:
        skip_unknown_role(source, place, message["role"])
        return []
    images = []
    for index, file in enumerate(message.get("files") or ()):
        if file.get("type") == "image":
            images.append({"type": "image_url", "image_url": {"url": file["url"]}})
        else:
            source.skip(f"{place}, files[{index}]", "is a file that was not a part of the message")
    if images:
        chat["content"] = [{"type": "text", "text": chat["content"]}, *images]
    at, model = time_of(message.get("timestamp")), message.get("model")
    return items_of([chat], [place], at=at, model=model, usage=message.get("usage"))


FORMAT: Final = Format(name="open-webui", title="Open WebUI chats (JSON export)", matches=matches, read=read)
