"""Rewrite files of conversations in their own format. Parts that are not edited are copied byte for byte."""

import errno
import gzip
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from minutebook.errors import InvalidSetting, UnreadableInput
from minutebook.formats import Format, Source, SourceConversation, SourceMessage, formats, read
from minutebook.formats.libraries.export import FORMAT as EXPORT
from minutebook.formats.registry import with_messages
from minutebook.record.repairs import Repaired

BOM: Final = b"\xef\xbb\xbf"
MessageEdit: TypeAlias = Callable[[int, SourceConversation], Repaired | None]
"""Takes the index of a conversation and the conversation; returns its new messages, or None if they do not change."""


def require_writable(format_: Format, name: str) -> None:
    """Check that files of a format can be rewritten.

    Raises:
        InvalidSetting: they cannot. The message names the command that converts them.
    """
    if format_.write is None and format_ is not EXPORT:
        writable = ", ".join(sorted(other.name for other in formats().values() if other.write is not None))
        expected = (
            f"a format that can be written; convert the file first: minutebook convert {name} --to NAME ({writable})"
        )
        raise InvalidSetting("format", format_.name, expected)


def rewrite(source: Source, format_: Format, edit: MessageEdit) -> Iterator[bytes]:
    """Yield the file in chunks, with every conversation edited.

    Raises, while iterating:
        UnreadableInput: a part of the file is not understood.
    """
    copier = _LineCopier(source)
    changes: dict[str, Any] = {}
    for index, conversation in enumerate(read(source, format_.name)):
        repaired = edit(index, conversation)
        _require_complete(source)
        if repaired is None:
            continue
        if format_ is EXPORT:
            yield from copier.lines_before(_line_number(conversation.place or conversation.items[0].place))
            yield from _export_lines(copier.next_conversation(), conversation, repaired)
            continue
        value = with_messages(conversation, _items(conversation, repaired))
        if conversation.place.startswith("line "):
            yield from copier.lines_before(_line_number(conversation.place))
            yield json_like(copier.next_line(), value) + b"\n"
        elif not conversation.place and conversation.items[0].place.startswith("line "):
            yield from _message_lines(copier.remaining_lines(), value)
        else:
            changes[conversation.place] = value
    _require_complete(source)
    if changes:
        content = source.content()
        yield (
            json_like(
                content, _with_changes(json.loads(content.removeprefix(BOM).decode("utf-8", "surrogatepass")), changes)
            )
            + b"\n"
        )
    else:
        yield from copier.remaining_lines()


def _require_complete(source: Source) -> None:
    if source.skipped:
        part = source.skipped[0]
        line = _line_number(part.place) if part.place.startswith("line ") else None
        problem = str(part) if line is None else part.reason
        raise UnreadableInput(source.name, f"{problem}; remove or correct it first, nothing was written", line)


def _line_number(place: str) -> int:
    return int(place.removeprefix("line ").partition(",")[0])


def _items(conversation: SourceConversation, repaired: Repaired) -> list[SourceMessage]:
    return [
        SourceMessage(message) if origin is None else replace(conversation.items[origin], message=message)
        for message, origin in zip(repaired.messages, repaired.origins, strict=True)
    ]


class _LineCopier:
    """The lines of a file, copied in the order in which its conversations are read."""

    def __init__(self, source: Source) -> None:
        self._lines = (line for _, line in source.raw_lines())
        self._next_number = 1
        self._pending: list[bytes] = []

    def next_line(self) -> bytes:
        self._next_number += 1
        return self._pending.pop() if self._pending else next(self._lines)

    def lines_before(self, number: int) -> Iterator[bytes]:
        """The lines before the one with this number."""
        while self._next_number < number:
            yield self.next_line()

    def next_conversation(self) -> list[bytes]:
        """The lines of a conversation of an export: its header, and those before the next header."""
        lines = [self.next_line()]
        for line in self._lines:
            if is_export_header(line):
                self._pending.append(line)
                break
            self._next_number += 1
            lines.append(line)
        return lines

    def remaining_lines(self) -> Iterator[bytes]:
        yield from self._pending
        self._pending.clear()
        yield from self._lines


def is_export_header(line: bytes) -> bool:
    """Whether a line of an export starts a conversation."""
    return re.match(rb'\s*\{\s*"conversation"\s*:', line) is not None


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


def _message_lines(lines: Iterable[bytes], messages: Sequence[Any]) -> Iterator[bytes]:
    """Messages, one per line. The line of a message that did not change is copied."""
    originals: dict[str, list[bytes]] = {}
    first_line = b""
    for line in lines:
        if text := line.removeprefix(BOM).strip():
            first_line = first_line or line
            originals.setdefault(_canonical_json(json.loads(text.decode("utf-8", "surrogatepass"))), []).append(line)
    for message in messages:
        unchanged_lines = originals.get(_canonical_json(message))
        line = unchanged_lines.pop(0) if unchanged_lines else json_like(first_line, message)
        yield line if line.endswith(b"\n") else line + b"\n"


def _canonical_json(value: Any) -> str:
    """The same text for equal JSON values."""
    return json.dumps(value, sort_keys=True)


def _export_lines(lines: Sequence[bytes], conversation: SourceConversation, repaired: Repaired) -> Iterator[bytes]:
    """The lines of an edited conversation of an export. Folds and pins are left out: their positions have changed."""
    values = [(line, json.loads(line)) for line in lines if line.strip()]
    yield from (line for line, value in values if value.keys() & {"conversation", "purged"})
    entries = [(line, value) for line, value in values if not value.keys() & {"conversation", "purged", "fold", "pin"}]
    _, last_value = entries[0] if entries else (b"", {"entry": {}})
    for message, origin in zip(repaired.messages, repaired.origins, strict=True):
        if origin is not None:
            line, last_value = entries[origin]
        if origin is None or message is not conversation.items[origin].message:
            # a new message gets the time, provider and model of the one before it
            is_chat_file = "entry" not in last_value  # its lines are entries without a key
            entry = {**(last_value if is_chat_file else last_value["entry"]), "message": message}
            line = json.dumps(entry if is_chat_file else {"entry": entry}).encode()
        yield line if line.endswith(b"\n") else line + b"\n"


def _with_changes(document: Any, changes: dict[str, Any]) -> Any:
    """The document with its changed conversations. `changes` maps the place of a conversation to its new value."""
    if not isinstance(document, list) or changes.keys() & {"", "the document"}:
        return next(iter(changes.values()))
    return [changes.get(f"element {index}", element) for index, element in enumerate(document)]
