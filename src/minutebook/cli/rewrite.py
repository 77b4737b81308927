"""Rewrite files of conversations. The layout is preserved.

Conversations that are not edited are written byte for byte as they were read.
"""

import errno
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

from minutebook.cli.files import BOM, ConversationReader, FileConversation, FileLayout
from minutebook.record.message import Message

MessageEdit: TypeAlias = Callable[[FileConversation], Sequence[Message] | None]
"""Returns the new messages of a conversation, or None if they do not change."""


def rewrite(reader: ConversationReader, edit: MessageEdit) -> Iterator[bytes]:
    """Yield the input in chunks, with every conversation edited."""
    changes: dict[int, Sequence[Message]] = {}
    for conversation in reader:
        messages = edit(conversation)
        if reader.layout is FileLayout.DOCUMENT:
            if messages is not None:
                changes[conversation.index] = messages
        elif messages is None:
            yield from conversation.raw
        elif reader.layout is FileLayout.LINES:
            yield json_like(conversation.raw[0], _with_messages(conversation.data, messages)) + b"\n"
        elif reader.layout is FileLayout.EXPORT:
            yield from _export_lines(conversation, messages)
        else:
            yield from _message_lines(conversation, messages)
    if changes:
        yield json_like(reader.pending_lines[0], _with_changes(reader.document, changes)) + b"\n"
    else:
        yield from reader.pending_lines


def require_folder(target: Path) -> None:
    """Check that a file can be created.

    Raises:
        FileNotFoundError: its folder does not exist.
    """
    if not target.parent.is_dir():
        problem = f"there is no folder {target.parent}; create it, or choose another path"
        raise FileNotFoundError(errno.ENOENT, problem, str(target))


def replace_file(
    target: Path, chunks: Iterable[bytes], *, gzipped: bool, is_needed: Callable[[], bool] = lambda: True
) -> None:
    """Write a file atomically, through a temporary file in its folder.

    `is_needed` is called when all chunks are written; if it returns False, the target is not changed.

    Raises:
        FileNotFoundError: the folder of the target does not exist.
    """
    require_folder(target)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            if gzipped:
                with gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0) as compressed:
                    compressed.writelines(chunks)
            else:
                out.writelines(chunks)
            out.flush()
            os.fsync(out.fileno())
        if not is_needed():
            return
        if target.exists():
            shutil.copymode(target, temporary)
        else:
            mask = os.umask(0)
            os.umask(mask)
            with suppress(OSError):
                temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def json_like(original: bytes, value: Any) -> bytes:
    """The value as JSON with the indentation, spacing and escaping of the original text."""
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


def _message_lines(conversation: FileConversation, messages: Sequence[Message]) -> Iterator[bytes]:
    raw_of = {id(message): raw for message, raw in zip(conversation.messages, conversation.raw, strict=True)}
    for message in messages:
        raw = raw_of.get(id(message))
        raw = json_like(conversation.raw[0], message) if raw is None else raw
        yield raw if raw.endswith(b"\n") else raw + b"\n"


def _export_lines(conversation: FileConversation, messages: Sequence[Message]) -> Iterator[bytes]:
    """The lines of an edited conversation of an export. Folds and pins are left out: their positions have changed."""
    header, *lines = conversation.raw
    kinds = [(line, json.loads(line)) for line in lines]
    entries = [(line, value["entry"]) for line, value in kinds if "entry" in value]
    entry_of = {id(message): entry for message, entry in zip(conversation.messages, entries, strict=True)}
    yield from (header, *(line for line, value in kinds if "purged" in value))
    last_entry = entries[0][1] if entries else {}
    for message in messages:
        if line_and_entry := entry_of.get(id(message)):
            line, last_entry = line_and_entry
        else:  # a new message gets the time, provider and model of the one before it
            line = json.dumps({"entry": {**last_entry, "message": message}}).encode()
        yield line if line.endswith(b"\n") else line + b"\n"


def _with_changes(document: Any, changes: Mapping[int, Sequence[Message]]) -> Any:
    has_many = isinstance(document, list) and (isinstance(document[0], list) or "messages" in document[0])
    if not has_many:
        return _with_messages(document, changes[0])
    return [_with_messages(data, changes[index]) if index in changes else data for index, data in enumerate(document)]


def _with_messages(data: Any, messages: Sequence[Message]) -> Any:
    return {**data, "messages": list(messages)} if isinstance(data, Mapping) else list(messages)
