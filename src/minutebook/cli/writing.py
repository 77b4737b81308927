"""Conversations back into the shape they were read from; what did not change is written byte for byte."""

import gzip
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from minutebook.cli.reading import BOM, Conversation, Reading, Shape
from minutebook.record.message import Message

Change: TypeAlias = Callable[[Conversation], Sequence[Message] | None]
"""What a conversation's messages become, or None if they stay as they are."""


def rewritten(reading: Reading, change: Change) -> Iterator[bytes]:
    """The whole input, each conversation changed, piece by piece."""
    changes: dict[int, Sequence[Message]] = {}
    for conversation in reading:
        messages = change(conversation)
        if reading.shape is Shape.DOCUMENT:
            if messages is not None:
                changes[conversation.place] = messages
        elif messages is None:
            yield from conversation.raw
        elif reading.shape is Shape.LINES:
            yield json_like(conversation.raw[0], _with(conversation.data, messages)) + b"\n"
        else:
            yield from _message_lines(conversation, messages)
    if changes:
        yield json_like(reading.tail[0], _document(reading.document, changes)) + b"\n"
    else:
        yield from reading.tail


def write_atomically(target: Path, chunks: Iterable[bytes], *, gzipped: bool) -> Path:
    """Write beside the target under another name; `os.replace` then makes it the target, whole or not at all.

    Returns the path of the finished file, which is still to be put in place with `put_in_place`, or removed.
    """
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    made = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            if gzipped:
                with gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0) as packed:
                    packed.writelines(chunks)
            else:
                out.writelines(chunks)
            out.flush()
            os.fsync(out.fileno())
    except BaseException:
        made.unlink()
        raise
    return made


def put_in_place(made: Path, target: Path) -> None:
    """Give the finished file the target's permissions and name."""
    if target.exists():
        shutil.copymode(target, made)
    else:
        with suppress(OSError):
            made.chmod(0o666 & ~_umask())
    made.replace(target)


def json_like(original: bytes, value: Any) -> bytes:
    """A value as JSON, indented, spaced and escaped like the text it takes the place of; always valid."""
    indent = re.search(rb"^[\[{]\s*\n([ \t]+)", original.removeprefix(BOM).lstrip())
    compact = not indent and b'": ' not in original
    layout: dict[str, Any] = {
        "indent": None if indent is None else indent[1].decode(),
        "separators": (",", ":") if compact else None,
    }
    if not original.isascii():
        with suppress(UnicodeEncodeError):
            return json.dumps(value, ensure_ascii=False, **layout).encode()
    return json.dumps(value, **layout).encode()


def _message_lines(conversation: Conversation, messages: Sequence[Message]) -> Iterator[bytes]:
    raw_of = {id(message): raw for message, raw in zip(conversation.messages, conversation.raw, strict=True)}
    for message in messages:
        raw = raw_of.get(id(message))
        raw = json_like(conversation.raw[0], message) if raw is None else raw
        yield raw if raw.endswith(b"\n") else raw + b"\n"


def _document(document: Any, changes: Mapping[int, Sequence[Message]]) -> Any:
    many = isinstance(document, list) and (isinstance(document[0], list) or "messages" in document[0])
    if not many:
        return _with(document, changes[0])
    return [_with(data, changes[place]) if place in changes else data for place, data in enumerate(document)]


def _with(data: Any, messages: Sequence[Message]) -> Any:
    return {**data, "messages": list(messages)} if isinstance(data, Mapping) else list(messages)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
