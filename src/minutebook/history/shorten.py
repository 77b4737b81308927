"""Shorter forms of a message's content; every other field stays as it is."""

from collections.abc import Mapping
from typing import Any

from minutebook.record.message import Message, text_of


def truncated(message: Message, max_length: int, suffix: str) -> Message:
    """The message with its text cut to `max_length` characters, the suffix included; itself if it is short enough.

    Of a list of parts the text parts share the room in their order, and the others stay.
    """
    content = message.get("content")
    if isinstance(content, str):
        return message if len(content) <= max_length else {**message, "content": _cut(content, max_length, suffix)}
    if not isinstance(content, (list, tuple)) or _text_length(content) <= max_length:
        return message
    room = max_length
    parts: list[Any] = []
    for part in content:
        if not _is_text(part):
            parts.append(part)
        elif room > 0:
            text = part["text"] if len(part["text"]) < room else _cut(part["text"] + suffix, room, suffix)
            parts.append({**part, "text": text})
            room -= len(text)
    return {**message, "content": parts}


def clipped(message: Message, max_length: int) -> Message:
    """The message as text of at most `max_length` characters: its beginning, what is missing, and its end."""
    text = text_of(message)
    gap = f"\n[… {len(text):,} characters in all, cut here to fit …]\n"
    room = max(0, max_length - len(gap))
    head = room * 2 // 3
    tail = room - head
    return {**message, "content": text[:head] + gap[:max_length] + (text[-tail:] if tail else "")}


def has_media(message: Message) -> bool:
    """Whether some part of the content is not text."""
    content = message.get("content")
    return isinstance(content, (list, tuple)) and not all(map(_is_text, content))


def _cut(text: str, max_length: int, suffix: str) -> str:
    suffix = suffix[:max_length]
    return text[: max_length - len(suffix)] + suffix


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _text_length(parts: Any) -> int:
    return sum(len(part["text"]) for part in parts if _is_text(part))
