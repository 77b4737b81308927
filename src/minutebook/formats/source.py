"""A file as JSON values, lines of text or a SQLite database.

A file is read part by part. Standard input, and a single JSON document that is not an array, are held in memory completely.

Gzip and byte-order marks are handled here. A file that is one JSON array is read element by element, JSONL line by line.
Both give the same values, so a format does not need to know which of the two it is in.
"""

import gzip
import io
import json
import sqlite3
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, cast

from minutebook.errors import UnreadableInput

Kind = Literal["json", "text", "sqlite"]
CONVERSATION_EXTENSIONS: Final = (
    *(".json", ".jsonl", ".ndjson", ".traj", ".db", ".sqlite", ".sqlite3", ".chat.history.md"),
    *(".json.gz", ".jsonl.gz", ".ndjson.gz"),
)
"""Extensions of the files that are read in a folder."""
_BOM: Final = b"\xef\xbb\xbf"
_SQLITE_START: Final = b"SQLite format 3\x00"
_CHUNK_SIZE: Final = 1 << 16
_SAMPLE_VALUES: Final = 60
_SAMPLE_CHARACTERS: Final = 20_000
_MAX_LIST_LINE: Final = 4_000_000
"""Maximum number of characters of a line of JSONL that is a list. A longer list is taken for the whole file."""
_EXPECTED: Final = "expected JSON, JSONL, text or SQLite in a format that `minutebook formats` lists"
_END_MARGIN: Final = 24
"""A syntax error within this many characters of the end of the buffer may be due to the text that was not read yet."""


@dataclass(frozen=True, slots=True)
class Value:
    """One JSON value of a file: a line of JSONL, an element of the array, or the whole document."""

    data: Any
    place: str
    """Where it is, for messages to the user: "line 12", "element 3", or "the document"."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A part of a file that was not understood."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


class Source:
    """A file, standard input ("-") or bytes. `advance` is called with the number of bytes read from a file.

    Raises, while reading:
        UnreadableInput: the file is empty, damaged or not JSON where JSON is expected.
    """

    def __init__(
        self, source: str | Path | bytes, *, name: str | None = None, advance: Callable[[int], None] | None = None
    ) -> None:
        if source == "-":
            source, name = sys.stdin.buffer.read(), "stdin"
        self._bytes = source if isinstance(source, bytes) else None
        self._path = None if isinstance(source, bytes) else Path(source)
        self.name = name or (str(self._path) if self._path is not None else "input")
        self.skipped: list[Skipped] = []
        """The parts that the format did not understand, as far as the file was read."""
        self._advance = advance
        with self._open(advance=None) as stream:
            start = _read_start(stream, self.name)
        self.kind = _kind_of(start)

    @property
    def path(self) -> Path | None:
        """The path of the file; None for bytes and standard input."""
        return self._path

    @property
    def stem(self) -> str:
        """The file's name without its extensions, for conversations that have no id."""
        return self.name if self._path is None else self._path.name.removesuffix(".gz").partition(".")[0] or "file"

    def skip(self, place: str, reason: str) -> None:
        """Note that a part of the file was not understood."""
        self.skipped.append(Skipped(place, reason))

    def sample(self) -> list[Any]:
        """The values that a format is detected by: the first JSON values, the text's beginning, or the tables."""
        if self.kind == "sqlite":
            with self.database() as database:
                return [_tables(database)]
        if self.kind == "text":
            with self._text(advance=None) as text:
                return [text.read(_SAMPLE_CHARACTERS)]
        values = self._values(advance=None)
        sample: list[Any] = []
        skipped_before = list(self.skipped)
        try:
            sample.extend(value.data for value in islice(values, _SAMPLE_VALUES))
        except UnreadableInput:
            if not sample:
                raise  # otherwise the damage is reported when the file is read
        finally:
            values.close()
            self.skipped = skipped_before
        return sample

    def values(self) -> Iterator[Value]:
        """The JSON values of the file. In JSONL, every line that is not JSON is skipped and noted in `skipped`."""
        return self._values(self._advance)

    def content(self) -> bytes:
        """The whole file, decompressed."""
        with self._open(advance=None) as stream:
            return stream.read()

    def text_lines(self) -> Iterator[tuple[int, str]]:
        """The lines of a text with their numbers."""
        with self._text(self._advance) as text:
            yield from enumerate(text, 1)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """The SQLite database, opened for reading."""
        with tempfile.TemporaryDirectory() as folder:
            path = self._path
            if path is None or self.is_gzipped():
                path = Path(folder) / "copy.db"
                with self._open(advance=None) as stream, path.open("wb") as copy:
                    copy.writelines(iter(lambda: stream.read(_CHUNK_SIZE), b""))
            try:
                with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
                    connection.row_factory = sqlite3.Row
                    yield connection
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the second one from a damaged schema
                raise UnreadableInput(
                    self.name, f"the SQLite database cannot be read ({error}); copy it again"
                ) from None

    def is_gzipped(self) -> bool:
        if self._bytes is not None:
            return self._bytes[:2] == b"\x1f\x8b"
        assert self._path is not None
        with self._path.open("rb") as stream:
            return stream.read(2) == b"\x1f\x8b"

    @contextmanager
    def _open(self, advance: Callable[[int], None] | None) -> Iterator[io.BufferedIOBase]:
        """Open the content, decompressed."""
        with io.BytesIO(self._bytes) if self._bytes is not None else cast("Path", self._path).open("rb") as raw:
            stream: Any = raw if advance is None else io.BufferedReader(_CountingReader(raw, advance))
            try:
                yield cast("io.BufferedIOBase", gzip.GzipFile(fileobj=stream) if self.is_gzipped() else stream)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                problem = f"the gzip data is damaged ({error}); copy or compress the file again"
                raise UnreadableInput(self.name, problem) from None

    @contextmanager
    def _text(
        self, advance: Callable[[int], None] | None, errors: str = "surrogatepass"
    ) -> Iterator["io.TextIOWrapper[Any]"]:
        with self._open(advance) as stream:
            text = io.TextIOWrapper(cast("Any", stream), encoding="utf-8-sig", errors=errors, newline="\n")
            try:
                yield text
            except UnicodeDecodeError as error:
                raise UnreadableInput(self.name, f"not UTF-8 ({error.reason}); {_EXPECTED}") from None

    def _values(self, advance: Callable[[int], None] | None) -> Generator[Value, None, None]:
        with self._text(advance=None, errors="replace") as text:
            is_jsonl = _Buffer(text, self.name).is_jsonl()
        if is_jsonl:
            yield from self._line_values(advance)
            return
        with self._text(advance) as text:
            buffer = _Buffer(text, self.name)
            if buffer.is_array():
                yield from buffer.elements()
            else:
                yield Value(buffer.document(), "the document")

    def _line_values(self, advance: Callable[[int], None] | None) -> Iterator[Value]:
        for number, line in self._raw_lines(advance):
            if not line.removeprefix(_BOM).strip():
                continue
            try:
                value = parse_json(line.removeprefix(_BOM).decode("utf-8", "surrogatepass"))
            except UnicodeDecodeError as error:
                self.skip(f"line {number}", f"not UTF-8 ({error.reason})")
            except (ValueError, RecursionError) as error:
                self.skip(f"line {number}", "is incomplete" if not line.endswith(b"\n") else f"not JSON ({error})")
            else:
                yield Value(value, f"line {number}")

    def raw_lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines of the file, decompressed, with their numbers."""
        return self._raw_lines(self._advance)

    def _raw_lines(self, advance: Callable[[int], None] | None) -> Iterator[tuple[int, bytes]]:
        with self._open(advance) as stream:
            yield from enumerate(stream, 1)


def parse_json(text: str) -> Any:
    """Parse JSON strictly: NaN and infinities are refused."""
    return _DECODER.decode(text)


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant)


class _Buffer:
    """The text of a JSON file, read in growing chunks."""

    def __init__(self, text: "io.TextIOWrapper[Any]", name: str) -> None:
        self._text = text
        self._name = name
        self._buffer = text.read(_CHUNK_SIZE)
        self._position = 0

    def is_array(self) -> bool:
        """Whether the file is one array, if it is not JSONL."""
        return self._buffer.lstrip()[:1] == "["

    def is_jsonl(self) -> bool:
        """Whether the first line is a complete value and others follow."""
        line, newline, following = self._buffer.lstrip().partition("\n")
        while not newline and len(line) < self._max_line_length() and self._grow():
            line, newline, following = self._buffer.lstrip().partition("\n")
        try:
            parse_json(line)
        except (ValueError, RecursionError):
            return False
        while newline and not following.strip() and (following := self._text.read(_CHUNK_SIZE)):
            pass
        return bool(following.strip())

    def _max_line_length(self) -> float:
        """Maximum length of the first line of JSONL. There is no maximum if it is an object."""
        return _MAX_LIST_LINE if self._buffer.lstrip()[:1] == "[" else inf

    def document(self) -> Any:
        self._buffer += self._text.read()
        document = self._buffer.lstrip()
        skipped_lines = self._buffer[: len(self._buffer) - len(document)].count("\n")
        try:
            return parse_json(document.rstrip())
        except json.JSONDecodeError as error:
            problem = f"not JSON ({error.msg}, column {error.colno}); {_EXPECTED}"
            raise UnreadableInput(self._name, problem, skipped_lines + error.lineno) from None
        except (ValueError, RecursionError) as error:
            raise UnreadableInput(self._name, f"invalid JSON ({error}); {_EXPECTED}") from None

    def elements(self) -> Iterator[Value]:
        """The elements of the array, one at a time."""
        self._position = self._buffer.index("[") + 1
        index = 0
        while self._next_character() not in {"]", ""}:
            yield Value(self._element(index), f"element {index}")
            index += 1
            if self._next_character() == ",":
                self._position += 1
            elif self._next_character() not in {"]", ""}:
                problem = f"not JSON (expected ',' or ']' after element {index - 1}); {_EXPECTED}"
                raise UnreadableInput(self._name, problem)
            self._buffer, self._position = self._buffer[self._position :], 0
        if self._next_character() == "":
            place = f"after element {index - 1}" if index else "before the first element"
            raise UnreadableInput(self._name, f"is incomplete: it ends {place}; copy the file again")
        self._position += 1
        if self._next_character():
            raise UnreadableInput(self._name, f"not JSON (text after the end of the array); {_EXPECTED}")

    def _element(self, index: int) -> Any:
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._position)
            except json.JSONDecodeError as error:
                may_continue = error.msg.startswith("Unterminated") or error.pos > len(self._buffer) - _END_MARGIN
                if may_continue and self._grow():
                    continue
                if may_continue:
                    raise UnreadableInput(
                        self._name, f"is incomplete: it ends within element {index}; copy the file again"
                    ) from None
                raise self._error(error, index) from None
            except (ValueError, RecursionError) as error:
                raise self._error(error, index) from None
            if end == len(self._buffer) and self._grow():
                continue  # a number may have more digits in the next chunk
            self._position = end
            return value

    def _next_character(self) -> str:
        while True:
            while self._position < len(self._buffer) and self._buffer[self._position].isspace():
                self._position += 1
            if self._position < len(self._buffer):
                return self._buffer[self._position]
            if not self._grow():
                return ""

    def _grow(self) -> bool:
        more = self._text.read(max(_CHUNK_SIZE, len(self._buffer)))
        self._buffer += more
        return bool(more)

    def _error(self, error: Exception, index: int) -> UnreadableInput:
        text = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
        return UnreadableInput(self._name, f"element {index}: not JSON ({text}); {_EXPECTED}")


class _CountingReader(io.RawIOBase):
    """A stream that calls `advance` with the number of bytes read."""

    def __init__(self, stream: Any, advance: Callable[[int], None]) -> None:
        self._stream = stream
        self._advance = advance

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = int(self._stream.readinto(buffer))
        self._advance(count)
        return count


def _read_start(stream: io.BufferedIOBase, name: str) -> bytes:
    start = stream.read(_CHUNK_SIZE)
    if not start.removeprefix(_BOM).strip():
        raise UnreadableInput(name, f"is empty; {_EXPECTED}")
    return start


def _kind_of(start: bytes) -> Kind:
    if start.startswith(_SQLITE_START):
        return "sqlite"
    text = start.removeprefix(_BOM).lstrip()
    return "json" if text[:1] in {b"{", b"["} else "text"


def _tables(database: sqlite3.Connection) -> Mapping[str, frozenset[str]]:
    """The columns of each table."""
    # Virtual tables are left out: this SQLite may not know the module of one, or its options.
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    names = [row[0] for row in database.execute(tables)]
    return {
        name: frozenset(row[1] for row in database.execute("SELECT * FROM pragma_table_info(?)", (name,)))
        for name in names
    }
