"""Conversations from a file or stdin, in any of the shapes that OpenAI chat data comes in.

| the file | is |
|---|---|
| a JSON list of messages | one conversation |
| a JSON object with `messages` | one conversation, with its `id` and `model` if it has them |
| a JSON list of such objects, or of lists of messages | many conversations |
| JSONL, a message a line | one conversation |
| JSONL, such an object or a list of messages a line | many conversations, read one at a time |

Any of them may be gzipped.

Conversations back into the shape they were read from; what did not change is written byte for byte.
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
    "or JSONL with one of these or one message a line"
)
BOM: Final = b"\xef\xbb\xbf"
INCOMPLETE: Final = object()


class Shape(StrEnum):
    """How conversations are laid out in a file."""

    DOCUMENT = "one JSON document"
    LINES = "a conversation a line"
    MESSAGES = "a message a line"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation of a file."""

    messages: list[Message]
    place: int
    """Its place in the file, counted from 0."""
    data: Any
    """What held the messages: the list itself, or an object with other keys besides."""
    line: int | None
    raw: tuple[bytes, ...]
    """The lines it was read from, where it has lines of its own."""

    @property
    def id(self) -> str | None:
        return _text(self.data, "id")

    @property
    def model(self) -> str | None:
        return _text(self.data, "model")

    @property
    def name(self) -> str:
        """What people call it: its place, and its id if it has one."""
        where = f"conversation {self.place}" if self.line is None else f"conversation {self.place}, line {self.line}"
        return where if self.id is None else f"{where}, id {self.id!r}"


class Reading:
    """One input, to be iterated over once. `advance` is told how many bytes were read.

    Raises, while iterating:
        UnreadableInput: the input does not hold conversations; the message names the file and the line.
    """

    def __init__(self, source: str, advance: Callable[[int], None] | None = None) -> None:
        self.source = source
        self.name = "stdin" if source == "-" else source
        self.shape = Shape.DOCUMENT
        self.gzipped = False
        self.document: Any = None
        """The whole of a JSON document."""
        self.tail: list[bytes] = []
        """What follows the last conversation; for a JSON document, all of its bytes."""
        self._advance = advance

    def __iter__(self) -> Iterator[Conversation]:
        return self.conversations(self.lines())

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines of the input, unpacked, each with its number; for those who must look before they choose how to read."""
        with _opened(self.source) as opened:
            stream = io.BufferedReader(_Counted(opened, self._advance))
            self.gzipped = stream.peek(2)[:2] == b"\x1f\x8b"
            try:
                yield from enumerate(gzip.GzipFile(fileobj=stream) if self.gzipped else stream, 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise UnreadableInput(self.name, f"the gzip data is damaged: {error}") from None

    def conversations(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[Conversation]:
        """The conversations on these lines, which are all that the input has."""
        found = 0
        for conversation in self._conversations(lines):
            found += 1
            yield conversation
        if not found:
            raise UnreadableInput(self.name, f"holds no conversation; {EXPECTED}")

    def message(self, line: bytes, index: int, number: int) -> Message:
        """The message on one line, where every line is one."""
        return self._message(self._parsed(line, number), index, number)

    def _conversations(self, lines: Iterator[tuple[int, bytes]]) -> Iterator[Conversation]:
        number, first = self._next_line(lines)
        if number is None:
            raise UnreadableInput(self.name, f"is empty; {EXPECTED}")
        value = self._complete(first)
        before, self.tail = self.tail, []
        more, second = self._next_line(lines) if value is not INCOMPLETE else (None, b"")
        if isinstance(value, Mapping) and "role" in value and "messages" not in value:
            yield self._one_a_line(value, number, b"".join(before), (more, second), lines)
        elif more is not None and (isinstance(value, list) or _holds_messages(value)):
            self.shape = Shape.LINES
            yield self._conversation(value, 0, number, b"".join(before))
            yield from self._many_lines((more, second), lines)
        elif more is not None:
            self._refuse(value, 0, number)
        else:
            rest = [line for _, line in lines]
            self.tail = [b"".join([*before, *self.tail, *rest])]
            yield from self._whole(self._parsed(self.tail[0], 1))

    def _next_line(self, lines: Iterator[tuple[int, bytes]]) -> tuple[int | None, bytes]:
        """The next line with something on it; it and the empty ones before it are put on the tail."""
        for number, line in lines:
            self.tail.append(line)
            if line.strip() and line.strip() != BOM:
                return number, line
        return None, b""

    def _one_a_line(
        self,
        first: Message,
        number: int,
        raw: bytes,
        second: tuple[int | None, bytes],
        lines: Iterator[tuple[int, bytes]],
    ) -> Conversation:
        self.shape = Shape.MESSAGES
        messages, raws = [self._message(first, 0, number)], [raw]
        at, line = second
        while at is not None:
            messages.append(self.message(line, len(messages), at))
            raws.append(b"".join(self.tail))
            self.tail = []
            at, line = self._next_line(lines)
        return Conversation(messages, 0, messages, None, tuple(raws))

    def _many_lines(
        self, second: tuple[int | None, bytes], lines: Iterator[tuple[int, bytes]]
    ) -> Iterator[Conversation]:
        at, line = second
        place = 1
        while at is not None:
            raw, self.tail = b"".join(self.tail), []
            yield self._conversation(self._parsed(line, at), place, at, raw)
            place += 1
            at, line = self._next_line(lines)

    def _whole(self, value: Any) -> Iterator[Conversation]:
        self.document = value
        if isinstance(value, list) and value and (isinstance(value[0], list) or _holds_messages(value[0])):
            for place, item in enumerate(value):
                yield self._conversation(item, place, None, b"")
        elif not isinstance(value, list) or value:
            yield self._conversation(value, 0, None, b"")

    def _conversation(self, value: Any, place: int, line: int | None, raw: bytes) -> Conversation:
        messages = value.get("messages") if isinstance(value, Mapping) else value
        if not isinstance(messages, list):
            self._refuse(value, place, line)
        checked = [self._message(message, index, line) for index, message in enumerate(messages)]
        return Conversation(checked, place, value, line, (raw,))

    def _message(self, value: Any, index: int, line: int | None) -> Message:
        try:
            return require_message(value, index)
        except InvalidMessage as error:
            raise UnreadableInput(self.name, f"{error}; {EXPECTED}", line) from None

    def _refuse(self, value: Any, place: int, line: int | None) -> NoReturn:
        if isinstance(value, Mapping):
            keys = ", ".join(map(repr, list(value)[:6])) or "no keys at all"
            what = f"an object with {keys}" if "messages" not in value else "an object whose 'messages' is no list"
        else:
            what = f"a {type(value).__name__}"
        raise UnreadableInput(self.name, f"conversation {place} is {what}; {EXPECTED}", line)

    def _complete(self, line: bytes) -> Any:
        """The value on one line, or INCOMPLETE where it goes on below, as in a document laid out for people."""
        try:
            return _loaded(line)
        except (ValueError, RecursionError):
            return INCOMPLETE

    def _parsed(self, text: bytes, line: int) -> Any:
        try:
            return _loaded(text)
        except UnicodeDecodeError as error:
            at = line + text[: error.start].count(b"\n")
            raise UnreadableInput(self.name, f"not UTF-8 ({error.reason}); {EXPECTED}", at) from None
        except json.JSONDecodeError as error:
            problem = f"not JSON ({error.msg}, column {error.colno}); {EXPECTED}"
            raise UnreadableInput(self.name, problem, line + error.lineno - 1) from None
        except (ValueError, RecursionError) as error:
            raise UnreadableInput(self.name, f"JSON that cannot be read ({error}); {EXPECTED}", line) from None


@contextmanager
def _opened(source: str) -> Iterator[io.BufferedIOBase]:
    if source == "-":
        yield cast("io.BufferedIOBase", sys.stdin.buffer)
    else:
        with Path(source).open("rb") as stream:
            yield stream


class _Counted(io.RawIOBase):
    """A stream that says how much of it was read, and leaves closing to whoever opened it."""

    def __init__(self, stream: io.BufferedIOBase, advance: Callable[[int], None] | None) -> None:
        self._stream = stream
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # What is there is enough: a line from a live pipe is read when it comes, not when the buffer is full.
        data = self._stream.read1(len(buffer))
        buffer[: len(data)] = data
        if self._advance:
            self._advance(len(data))
        return len(data)


def _loaded(text: bytes) -> Any:
    # Lone surrogates come escaped or, from some writers, as bytes; both are kept.
    return json.loads(text.removeprefix(BOM).rstrip().decode("utf-8", "surrogatepass"), parse_constant=_no_number)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _holds_messages(value: Any) -> bool:
    return isinstance(value, Mapping) and "messages" in value


def _text(data: Any, key: str) -> str | None:
    value = data.get(key) if isinstance(data, Mapping) else None
    return None if value is None or isinstance(value, (dict, list)) else str(value)


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


def replace_file(
    target: Path, chunks: Iterable[bytes], *, gzipped: bool, is_needed: Callable[[], bool] = lambda: True
) -> None:
    """Write a file, whole or not at all: under another name first. `is_needed` is asked once everything is written."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    written = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            if gzipped:
                with gzip.GzipFile(fileobj=out, mode="wb", filename="", mtime=0) as packed:
                    packed.writelines(chunks)
            else:
                out.writelines(chunks)
            out.flush()
            os.fsync(out.fileno())
        if not is_needed():
            return
        if target.exists():
            shutil.copymode(target, written)
        else:
            mask = os.umask(0)
            os.umask(mask)
            with suppress(OSError):
                written.chmod(0o666 & ~mask)
        written.replace(target)
    finally:
        written.unlink(missing_ok=True)


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
