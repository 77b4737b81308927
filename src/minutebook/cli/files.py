"""Read and rewrite files of conversations, in all layouts of OpenAI chat data.

| input | content |
|---|---|
| a JSON list of messages | one conversation |
| a JSON object with `messages` | one conversation, with its `id` and `model` if it has them |
| a JSON list of such objects, or of lists of messages | many conversations |
| JSONL with a message per line | one conversation |
| JSONL with such an object or a list of messages per line | many conversations, read one at a time |

All of them may be gzipped. Rewriting preserves the layout. Conversations that are not edited are written byte for byte as
they were read.
"""

import gzip
import io
import json
import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, cast

from minutebook.errors import InvalidMessage, UnreadableInput
from minutebook.record.message import Message, require_message

EXPECTED: Final = (
    "expected OpenAI chat data: a list of messages, an object with 'messages', a list of such objects, "
    "or JSONL with one of these or one message per line"
)
BOM: Final = b"\xef\xbb\xbf"
INCOMPLETE: Final = object()
"""A line that is not a complete JSON value."""


class FileLayout(StrEnum):
    """The layout of conversations in a file."""

    DOCUMENT = "one JSON document"
    LINES = "a conversation per line"
    MESSAGES = "a message per line"


@dataclass(frozen=True, slots=True)
class FileConversation:
    """One conversation of a file."""

    messages: list[Message]
    index: int
    """Its index in the file."""
    data: Any
    """The JSON value that contains the messages: the list itself, or an object with other keys."""
    line: int | None
    """The line it starts at, if the layout is LINES."""
    raw: tuple[bytes, ...]
    """The lines it was read from, if the layout is LINES or MESSAGES."""

    @property
    def id(self) -> str | None:
        return _text_value(self.data, "id")

    @property
    def model(self) -> str | None:
        return _text_value(self.data, "model")

    @property
    def name(self) -> str:
        """Its index, line and id, for output."""
        location = f"conversation {self.index}" if self.line is None else f"conversation {self.index}, line {self.line}"
        return location if self.id is None else f"{location}, id {self.id!r}"


class ConversationReader:
    """Iterates over the conversations of one input, once. `advance` is called with the number of bytes read.

    Raises, while iterating:
        UnreadableInput: the input is not in a known layout; the message names the file and the line.
    """

    def __init__(self, source: str, advance: Callable[[int], None] | None = None) -> None:
        self.source = source
        self.name = "stdin" if source == "-" else source
        self.layout = FileLayout.DOCUMENT
        self.gzipped = False
        self.document: Any = None
        """The parsed input, if its layout is DOCUMENT."""
        self.pending_lines: list[bytes] = []
        """The lines read since the last conversation. At the end of a DOCUMENT, one item with the whole input."""
        self._advance = advance

    def __iter__(self) -> Iterator[FileConversation]:
        return self.conversations(self.lines())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines of the input, decompressed, with their numbers. Pass them to `conversations` to parse them."""
        with _open(self.source) as raw_stream:
            stream = io.BufferedReader(_CountingStream(raw_stream, self._advance))
            self.gzipped = stream.peek(2)[:2] == b"\x1f\x8b"
            try:
                yield from enumerate(gzip.GzipFile(fileobj=stream) if self.gzipped else stream, 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise UnreadableInput(self.name, f"the gzip data is damaged: {error}") from None

    def conversations(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[FileConversation]:
        """The conversations of the input. `lines` must be all of its lines."""
        count = 0
        for conversation in self._read_by_layout(lines):
            count += 1
            yield conversation
        if not count:
            raise UnreadableInput(self.name, f"contains no conversation; {EXPECTED}")

    def message(self, line: bytes, index: int, number: int) -> Message:
        """Parse one line of the layout MESSAGES."""
        return self._checked_message(self._parse(line, number), index, number)

    def _read_by_layout(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[FileConversation]:
        number, first = self._next_line(lines)
        if number is None:
            raise UnreadableInput(self.name, f"is empty; {EXPECTED}")
        value = _parse_line(first)
        first_raw, self.pending_lines = self.pending_lines, []
        second_number, second = self._next_line(lines) if value is not INCOMPLETE else (None, b"")
        if isinstance(value, Mapping) and "role" in value and "messages" not in value:
            yield self._read_message_lines(value, number, b"".join(first_raw), (second_number, second), lines)
        elif second_number is not None and (isinstance(value, list) or _has_messages(value)):
            self.layout = FileLayout.LINES
            yield self._conversation(value, 0, number, b"".join(first_raw))
            yield from self._read_conversation_lines((second_number, second), lines)
        elif second_number is not None:
            self._reject(value, 0, number)
        else:
            other_lines = [line for _, line in lines]
            self.pending_lines = [b"".join([*first_raw, *self.pending_lines, *other_lines])]
            yield from self._document_conversations(self._parse(self.pending_lines[0], 1))

    def _next_line(self, lines: Iterator[tuple[int, bytes]]) -> tuple[int | None, bytes]:
        """Return the next line that is not blank. It and the blank lines before it are added to `pending_lines`."""
        for number, line in lines:
            self.pending_lines.append(line)
            if line.strip() and line.strip() != BOM:
                return number, line
        return None, b""

    def _read_message_lines(
        self,
        first: Message,
        number: int,
        raw: bytes,
        second: tuple[int | None, bytes],
        lines: Iterator[tuple[int, bytes]],
    ) -> FileConversation:
        self.layout = FileLayout.MESSAGES
        messages, raw_lines = [self._checked_message(first, 0, number)], [raw]
        next_number, line = second
        while next_number is not None:
            messages.append(self.message(line, len(messages), next_number))
            raw_lines.append(b"".join(self.pending_lines))
            self.pending_lines = []
            next_number, line = self._next_line(lines)
        return FileConversation(messages, 0, messages, None, tuple(raw_lines))

    def _read_conversation_lines(
        self, second: tuple[int | None, bytes], lines: Iterator[tuple[int, bytes]]
    ) -> Iterator[FileConversation]:
        number, line = second
        index = 1
        while number is not None:
            raw, self.pending_lines = b"".join(self.pending_lines), []
            yield self._conversation(self._parse(line, number), index, number, raw)
            index += 1
            number, line = self._next_line(lines)

    def _document_conversations(self, value: Any) -> Iterator[FileConversation]:
        self.document = value
        if isinstance(value, list) and value and (isinstance(value[0], list) or _has_messages(value[0])):
            for index, item in enumerate(value):
                yield self._conversation(item, index, None, b"")
        elif not isinstance(value, list) or value:
            yield self._conversation(value, 0, None, b"")

    def _conversation(self, value: Any, index: int, line: int | None, raw: bytes) -> FileConversation:
        messages = value.get("messages") if isinstance(value, Mapping) else value
        if not isinstance(messages, list):
            self._reject(value, index, line)
        checked = [
            self._checked_message(message, message_index, line) for message_index, message in enumerate(messages)
        ]
        return FileConversation(checked, index, value, line, (raw,))

    def _checked_message(self, value: Any, index: int, line: int | None) -> Message:
        try:
            return require_message(value, index)
        except InvalidMessage as error:
            raise UnreadableInput(self.name, f"{error}; {EXPECTED}", line) from None

    def _reject(self, value: Any, index: int, line: int | None) -> NoReturn:
        if isinstance(value, Mapping):
            keys = ", ".join(map(repr, list(value)[:6]))
            content = f"an object with the keys {keys}" if keys else "an empty object"
            if "messages" in value:
                content = "an object whose 'messages' is not a list"
        else:
            content = f"a {type(value).__name__}"
        raise UnreadableInput(self.name, f"conversation {index} is {content}; {EXPECTED}", line)

    def _parse(self, text: bytes, line: int) -> Any:
        try:
            return _parse_json(text)
        except UnicodeDecodeError as error:
            bad_line = line + text[: error.start].count(b"\n")
            raise UnreadableInput(self.name, f"not UTF-8 ({error.reason}); {EXPECTED}", bad_line) from None
        except json.JSONDecodeError as error:
            problem = f"not JSON ({error.msg}, column {error.colno}); {EXPECTED}"
            raise UnreadableInput(self.name, problem, line + error.lineno - 1) from None
        except (ValueError, RecursionError) as error:
            raise UnreadableInput(self.name, f"invalid JSON ({error}); {EXPECTED}", line) from None


@contextmanager
def _open(source: str) -> Iterator[io.BufferedIOBase]:
    if source == "-":
        yield cast("io.BufferedIOBase", sys.stdin.buffer)
    else:
        with Path(source).open("rb") as stream:
            yield stream


class _CountingStream(io.RawIOBase):
    """A stream that calls `advance` with the number of bytes read. Closing it leaves the wrapped stream open."""

    def __init__(self, stream: io.BufferedIOBase, advance: Callable[[int], None] | None) -> None:
        self._stream = stream
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # read1 returns available bytes: a line from a pipe is read immediately, not when the buffer is full.
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        if self._advance:
            self._advance(len(data))
        return len(data)


def _parse_line(line: bytes) -> Any:
    """The value on one line, or INCOMPLETE: the first line of an indented document is not valid JSON."""
    try:
        return _parse_json(line)
    except (ValueError, RecursionError):
        return INCOMPLETE


def _parse_json(text: bytes) -> Any:
    # Lone surrogates are escaped or, by some programs, written as bytes. Both are preserved.
    return json.loads(text.removeprefix(BOM).rstrip().decode("utf-8", "surrogatepass"), parse_constant=_reject_constant)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _has_messages(value: Any) -> bool:
    return isinstance(value, Mapping) and "messages" in value


def _text_value(data: Any, key: str) -> str | None:
    value = data.get(key) if isinstance(data, Mapping) else None
    return None if value is None or isinstance(value, (dict, list)) else str(value)


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
        else:
            yield from _message_lines(conversation, messages)
    if changes:
        yield json_like(reader.pending_lines[0], _with_changes(reader.document, changes)) + b"\n"
    else:
        yield from reader.pending_lines


def replace_file(
    target: Path, chunks: Iterable[bytes], *, gzipped: bool, is_needed: Callable[[], bool] = lambda: True
) -> None:
    """Write a file atomically, through a temporary file in its folder.

    `is_needed` is called when all chunks are written; if it returns False, the target is not changed.
    """
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


def _with_changes(document: Any, changes: Mapping[int, Sequence[Message]]) -> Any:
    has_many = isinstance(document, list) and (isinstance(document[0], list) or "messages" in document[0])
    if not has_many:
        return _with_messages(document, changes[0])
    return [_with_messages(data, changes[index]) if index in changes else data for index, data in enumerate(document)]


def _with_messages(data: Any, messages: Sequence[Message]) -> Any:
    return {**data, "messages": list(messages)} if isinstance(data, Mapping) else list(messages)
