"""Read files of conversations, in all layouts of OpenAI chat data, and exports.

| input | content |
|---|---|
| a JSON list of messages | one conversation |
| a JSON object with `messages` | one conversation, with its `id` and `model` if it has them |
| a JSON list of such objects, or of lists of messages | many conversations |
| JSONL with a message per line | one conversation |
| JSONL with such an object or a list of messages per line | many conversations, read one at a time |
| the output of `minutebook export` | many conversations, read one at a time |

All of them may be gzipped.
"""

import gzip
import io
import itertools
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, Final, NoReturn, cast

from minutebook.cli.progress import read_progress
from minutebook.errors import InvalidMessage, UnreadableInput
from minutebook.record.message import Message, require_message

EXPECTED: Final = (
    "expected OpenAI chat data (a list of messages, an object with 'messages', a list of such objects, "
    "or JSONL with one of these or one message per line), or an export"
)
BOM: Final = b"\xef\xbb\xbf"
INCOMPLETE: Final = object()
"""A line that is not a complete JSON value."""


_JSON_TYPES: Final = {
    NoneType: "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
}


class FileLayout(StrEnum):
    """The layout of conversations in a file."""

    DOCUMENT = "one JSON document"
    LINES = "a conversation per line"
    MESSAGES = "a message per line"
    EXPORT = "an export"


@dataclass(frozen=True, slots=True)
class FileConversation:
    """One conversation of a file."""

    messages: list[Message]
    file: str
    index: int
    """Its index in the file."""
    data: Any
    """The JSON value that contains the messages: the list itself, or an object with other keys."""
    line: int | None
    """The line it starts at, if the layout is LINES or EXPORT."""
    raw: tuple[bytes, ...]
    """The lines it was read from, unless the layout is DOCUMENT."""

    @property
    def id(self) -> str | None:
        return _text_value(self.data, "id")

    @property
    def model(self) -> str | None:
        return _text_value(self.data, "model")

    @property
    def source(self) -> dict[str, Any]:
        """Its file, index, id and line, as JSON data."""
        return {"file": self.file, "index": self.index, "id": self.id, "line": self.line}

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
                raise UnreadableInput(
                    self.name, f"the gzip data is damaged ({error}); copy or compress the file again"
                ) from None

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
        if is_export_header(value):
            self.layout = FileLayout.EXPORT
            yield from self._read_export(number, first, b"".join(first_raw), (second_number, second), lines)
        elif isinstance(value, Mapping) and "role" in value and "messages" not in value:
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
        return FileConversation(messages, self.source, 0, messages, None, tuple(raw_lines))

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

    def _read_export(
        self,
        start: int,
        header: bytes,
        raw: bytes,
        second: tuple[int | None, bytes],
        lines: Iterator[tuple[int, bytes]],
    ) -> Iterator[FileConversation]:
        number, line = second
        for index in itertools.count():
            data, raw_lines = {**self._parse(header, start)["conversation"]}, [raw]
            messages: list[Message] = []
            while number is not None:
                value = self._parse(line, number)
                if is_export_header(value):
                    break
                if isinstance(value, Mapping) and isinstance(value.get("entry"), Mapping):
                    entry = value["entry"]
                    messages.append(self._checked_message(entry.get("message"), len(messages), number))
                    data["model"] = entry.get("model") or data.get("model")
                elif not isinstance(value, Mapping) or not value.keys() & {"fold", "pin", "purged"}:
                    raise UnreadableInput(self.name, "not a line of an export; export the conversations again", number)
                raw_lines.append(b"".join(self.pending_lines))
                self.pending_lines = []
                number, line = self._next_line(lines)
            if number is not None:
                raw, self.pending_lines = b"".join(self.pending_lines), []
            yield FileConversation(messages, self.source, index, data, start, tuple(raw_lines))
            if number is None:
                return
            start, header = number, line
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
        return FileConversation(checked, self.source, index, value, line, (raw,))

    def _checked_message(self, value: Any, index: int, line: int | None) -> Message:
        if not isinstance(value, Mapping):
            raise UnreadableInput(self.name, f"message {index} is {_JSON_TYPES[type(value)]}; {EXPECTED}", line)
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
            content = _JSON_TYPES[type(value)]
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


def is_export_header(value: Any) -> bool:
    """Whether a JSON value is the first line of a conversation in an export."""
    return isinstance(value, Mapping) and isinstance(value.get("conversation"), Mapping) and "messages" not in value


def _has_messages(value: Any) -> bool:
    return isinstance(value, Mapping) and "messages" in value


def _text_value(data: Any, key: str) -> str | None:
    value = data.get(key) if isinstance(data, Mapping) else None
    return None if value is None or isinstance(value, (dict, list)) else str(value)


def read_conversations(files: Sequence[str]) -> Iterator[tuple[str, FileConversation]]:
    """The conversations of all files, each with its name, which includes the file if there are several."""
    for file in files:
        with read_progress(file) as advance:
            for conversation in ConversationReader(file, advance):
                yield conversation.name if len(files) == 1 else f"{file}: {conversation.name}", conversation
