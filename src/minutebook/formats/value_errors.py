"""The only place that handles malformed and unknown values of files.

Readers take values as the format defines them. What they raise for a malformed value becomes a skipped part with its place
and reason, so no reader checks each field.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from minutebook.errors import InvalidMessage
from minutebook.formats.source import Source

MALFORMED: Final = (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError)
"""What reading a value raises if a field is missing, has the wrong type or is nested too deep."""
_TYPES: Final = {
    "NoneType": "null",
    "bool": "true or false",
    "int": "a number",
    "float": "a number",
    "str": "a text",
    "list": "a list",
    "dict": "an object",
}
_PYTHON_TYPE: Final = re.compile(
    r"'(NoneType|bool|int|float|str|list|dict)'|(NoneType|bool|int|float|str|list|dict) found"
)


def problem_of(error: Exception) -> str:
    """What is wrong with a value, from the exception that reading it raised."""
    if isinstance(error, KeyError):
        return f"the field {str(error.args[0])!r} is missing"
    if isinstance(error, RecursionError):
        return "a value is nested too deep"
    found = _PYTHON_TYPE.search(str(error))
    if found is None:
        return f"a value has the wrong type or size ({error})"
    return f"it has {_TYPES[found[1] or found[2]]} where the format has another type"


def shape_test(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A test of the shape of a value that is False if something in the value has the wrong type."""

    @wraps(test)
    def has_shape(value: Any) -> bool:
        try:
            return test(value)
        except MALFORMED:
            return False

    return has_shape


@contextmanager
def skip_malformed(source: Source, place: str) -> Iterator[None]:
    """Skip a part of the file if reading it in this block fails."""
    try:
        yield
    except InvalidMessage as error:
        source.skip(place, str(error))
    except MALFORMED as error:
        source.skip(place, f"is malformed: {problem_of(error)}")


def known_parts(
    source: Source,
    parts: Iterable[Any],
    place: str,
    types: Collection[str],
    *,
    ignored: Collection[str] = (),
    key: str = "type",
) -> list[Mapping[str, Any]]:
    """The parts of a message whose type is in `types`. Parts of other types are skipped, unless they are `ignored`."""
    known: list[Mapping[str, Any]] = []
    for index, part in enumerate(parts):
        kind = part.get(key) if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind in types:
            known.append(part)
        elif not isinstance(kind, str):
            source.skip(f"{place}, part {index}", f"has no {key}")
        elif kind not in ignored:
            source.skip(f"{place}, part {index}", f"is of the unknown {key} {kind!r}")
    return known


def skip_unknown_role(source: Source, place: str, role: Any) -> None:
    source.skip(place, f"has the unknown role {role!r}")
