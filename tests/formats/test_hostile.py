"""Files that no program should write: malformed values, and parts that the reader does not know, in every format."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from minutebook import check
from minutebook.errors import MinutebookError, UnreadableInput
from minutebook.formats import Source, convert, formats, read
from tests.formats.samples import SAMPLES

UNKNOWN: Final = "zz-unknown"
KINDS: Final = ("type", "kind", "part_kind", "role", "from", "sender", "content_type")
"""Keys whose value says what an object is."""
WRONG: Final[tuple[Any, ...]] = (None, 7, True, "text", [], {}, [7], [None], [[]], {"a": 1}, [{}], [{"type": 7}])
OPAQUE: Final = frozenset({"input", "args", "arguments", "tool_calls", "args_json"})
"""Keys whose objects are data of a tool, not of the format."""
JSON_SAMPLES = [name for name, (format_name, _) in SAMPLES.items() if formats()[format_name].kind == "json"]
DATABASES = [
    name
    for name, (format_name, _) in SAMPLES.items()
    if formats()[format_name].kind == "sqlite" and format_name != "minutebook-db"
]


def values_of(sample: str) -> tuple[Any, bool]:
    """The JSON value of a sample, and whether it was a value per line."""
    content = SAMPLES[sample][1]
    try:
        return json.loads(content), False
    except ValueError:
        return list(map(json.loads, content.splitlines())), True


def written(value: Any, *, as_lines: bool) -> bytes:
    return b"\n".join(json.dumps(line).encode() for line in value) if as_lines else json.dumps(value).encode()


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from paths(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of the value with another value at the path; without the path's last key if `new` is `...`."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1 and new is ...:
        del copy[path[0]]
    else:
        copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def require_typed(content: bytes, name: str, case: object) -> None:
    """Read a file with a malformed value as a user would. Only typed errors are allowed."""
    for format_name in (None, name):
        try:
            conversations = list(read(Source(content), format_name))
        except UnreadableInput:
            continue
        except Exception as error:
            raise AssertionError(f"{type(error).__name__} for {case}") from error
        for conversation in conversations:
            try:
                check(conversation.messages, provider=formats()[name].provider)
                convert(conversation, "openai-chat")
                convert(conversation, "anthropic")
            except MinutebookError:
                continue
            except Exception as error:
                raise AssertionError(f"{type(error).__name__} after reading {case}") from error


def mutations(sample: str) -> Iterator[tuple[tuple[Any, ...], Any]]:
    value, _ = values_of(sample)
    for path in paths(value):
        yield path, ...
        yield from ((path, wrong) for wrong in WRONG if wrong != at(value, path))


@pytest.mark.parametrize("sample", JSON_SAMPLES)
def test_a_malformed_value_is_a_typed_error(sample: str) -> None:
    value, as_lines = values_of(sample)
    cases = list(mutations(sample))
    for path, wrong in Random(sample).sample(cases, min(40, len(cases))):
        require_typed(written(changed(value, path, wrong), as_lines=as_lines), SAMPLES[sample][0], (path, wrong))


@pytest.mark.slow
@pytest.mark.parametrize("sample", JSON_SAMPLES)
def test_every_malformed_value_is_a_typed_error(sample: str) -> None:
    value, as_lines = values_of(sample)
    for path, wrong in mutations(sample):
        require_typed(written(changed(value, path, wrong), as_lines=as_lines), SAMPLES[sample][0], (path, wrong))


@pytest.mark.parametrize("sample", DATABASES)
def test_a_malformed_cell_of_a_database_is_a_typed_error(sample: str, tmp_path: Path) -> None:
    name, content = SAMPLES[sample]
    path = tmp_path / "sample.db"
    path.write_bytes(content)
    database = sqlite3.connect(path)
    tables = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for column in [row[1] for row in database.execute(f"PRAGMA table_info({table})")]:
            for wrong in (None, 7, "text", b"\xff", "[7]", "{}", '{"parts": [7]}', '{"parts": 7}'):
                path.write_bytes(content)
                try:
                    database.execute(f"UPDATE {table} SET {column} = ?", (wrong,))
                except sqlite3.Error:  # the schema does not allow this value
                    continue
                database.commit()
                require_typed(path.read_bytes(), name, (table, column, wrong))
    database.close()


def unknown_parts(value: Any) -> Iterator[tuple[tuple[Any, ...], str]]:
    """The paths of the objects in lists that say what they are, with the key that says it."""
    for path in paths(value):
        inner = at(value, path)
        if isinstance(inner, dict) and not OPAQUE & set(map(str, path)):
            yield from ((path, key) for key in KINDS if isinstance(inner.get(key), str))


def record_text(content: bytes, name: str) -> tuple[str, list[str]]:
    """The record of a file as text, and the parts that were reported as skipped."""
    source = Source(content)
    try:
        conversations = list(read(source, name))
    except UnreadableInput as error:
        return "", [str(error)]
    return json.dumps([(each.messages, dict(each.data)) for each in conversations]), list(map(str, source.skipped))


REDUNDANT: Final = {
    "claude code session": "message",  # its type is always "message"
    "codex session": "payload",  # of an event for the display, which is not sent to the model
    "langchain messages": "data",  # the type is also beside the data
    "langchain dump": "",  # the type is "constructor"; the id names the class
}
"""The last key of the path of objects whose type says nothing, or says it again."""


@pytest.mark.parametrize("sample", JSON_SAMPLES)
def test_an_unknown_part_is_in_the_record_or_reported(sample: str) -> None:
    """An object of an unknown type, kind or role beside a known one: nothing in a file is left out silently."""
    value, as_lines = values_of(sample)
    name = SAMPLES[sample][0]
    for path, key in unknown_parts(value):
        if key == "type" and sample in REDUNDANT and (REDUNDANT[sample] or path[-1]) in {path[-1], "kwargs"}:
            continue
        content = written(changed(value, (*path, key), UNKNOWN), as_lines=as_lines)
        record, skipped = record_text(content, name)
        assert UNKNOWN in record or skipped, (path, key)
