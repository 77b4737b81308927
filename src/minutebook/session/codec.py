"""Values to JSON data and back, strictly: what comes back is equal to what went in, or an error says where it is not."""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from math import isfinite
from typing import Any, Final, NoReturn, TypeAlias
from uuid import UUID

from minutebook.record.form import is_a

Convert: TypeAlias = Callable[[Any], Any]


class Misfit(Exception):
    """A value does not fit its type; containers put the way to it in front."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem, path)
        self.problem, self.path = problem, path

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')} {self.problem}".lstrip()


@dataclass(slots=True, frozen=True)
class Codec:
    """Two functions that undo each other; both raise `Misfit`."""

    to_json: Convert
    from_json: Convert


def within(step: str, convert: Convert, value: Any) -> Any:
    """Convert a part of something, and say which part if it does not fit."""
    try:
        return convert(value)
    except Misfit as misfit:
        raise Misfit(misfit.problem, step + misfit.path) from misfit


def guarded(convert: Convert) -> Convert:
    """A user's function, or a constructor that checks what it is given, whose complaint is a `Misfit`."""

    def converted(value: Any) -> Any:
        try:
            return convert(value)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
            raise Misfit(f"does not fit: {type(problem).__name__}: {problem}") from problem

    return converted


def refuse(value: Any, expected: str) -> NoReturn:
    shown = repr(value)
    raise Misfit(f"is {shown if len(shown) < 60 else type(value).__name__}, not {expected}")


def only(kind: type, expected: str) -> Convert:
    """The value itself, if it is of a kind; a bool is no int."""

    def check(value: Any) -> Any:
        return value if is_a(kind, value) else refuse(value, expected)

    return check


def text(kind: type, write: Callable[[Any], str], read: Callable[[str], Any]) -> Codec:
    """A codec for what is one word in JSON."""
    name = kind.__name__
    is_text, read = only(str, f"the text of a {name}"), guarded(read)

    def to_json(value: Any) -> str:
        # a datetime is a date in Python, and would come back as less than it was
        if not isinstance(value, kind) or (kind is date and isinstance(value, datetime)):
            refuse(value, f"a {name}")
        return write(value)

    return Codec(to_json, lambda data: read(is_text(data)))


def _float_to_json(value: Any) -> Any:
    if not is_a((int, float), value):
        refuse(value, "a float")
    return value if isfinite(value) else str(float(value))


def _float_from_json(data: Any) -> Any:
    if isinstance(data, str) and data in {"nan", "inf", "-inf"}:
        return float(data)
    return data if is_a((int, float), data) else refuse(data, "a float")


def _plain(value: Any) -> Any:
    """JSON data as it is. A tuple is none: it would come back as a list."""
    is_scalar = value is None or (isinstance(value, (str, int, float)) and not isinstance(value, Enum))
    if is_scalar and not (isinstance(value, float) and not isfinite(value)):
        return value
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: within(f".{name}", _plain, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [within(f"[{place}]", _plain, inner) for place, inner in enumerate(value)]
    return refuse(value, "JSON data; declare the field's type")


def _days(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _null(value: Any) -> None:
    return None if value is None else refuse(value, "null")


def _b64(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except binascii.Error as problem:
        raise ValueError(problem) from problem


ANY: Final = Codec(_plain, _plain)
SCALARS: Final[Mapping[Any, Codec]] = {
    Any: ANY,
    object: ANY,
    type(None): Codec(_null, _null),
    str: Codec(only(str, "a text"), only(str, "a text")),
    bool: Codec(only(bool, "a bool"), only(bool, "a bool")),
    int: Codec(only(int, "an int"), only(int, "an int")),
    float: Codec(_float_to_json, _float_from_json),
    bytes: text(bytes, lambda value: b64encode(value).decode(), _b64),
    UUID: text(UUID, str, UUID),
    datetime: text(datetime, datetime.isoformat, datetime.fromisoformat),
    date: text(date, date.isoformat, date.fromisoformat),
    timedelta: text(
        timedelta, lambda value: ",".join(map(str, _days(value))), lambda data: timedelta(*map(int, data.split(",")))
    ),
}


def items(kind: type[Any], each: Codec) -> Codec:
    """A list, tuple or set of one type of value."""

    def to_json(value: Any) -> list[Any]:
        if not isinstance(value, kind):
            refuse(value, f"a {kind.__name__}")
        data = [within(f"[{place}]", each.to_json, inner) for place, inner in enumerate(value)]
        # a set has another order in every process, and the same value must be the same bytes
        return sorted(data, key=repr) if issubclass(kind, (set, frozenset)) else data

    def from_json(data: Any) -> Any:
        return kind(within(f"[{place}]", each.from_json, inner) for place, inner in enumerate(_list(data)))

    return Codec(to_json, from_json)


def row(each: Sequence[Codec]) -> Codec:
    """A tuple with a type for each place."""

    def convert(value: Any, ways: list[Convert]) -> list[Any]:
        if len(value) != len(ways):
            raise Misfit(f"has {len(value)} values, not {len(ways)}")
        return [within(f"[{place}]", way, inner) for place, (way, inner) in enumerate(zip(ways, value, strict=True))]

    out, back = [codec.to_json for codec in each], [codec.from_json for codec in each]
    is_tuple = only(tuple, "a tuple")
    return Codec(lambda value: convert(is_tuple(value), out), lambda data: tuple(convert(_list(data), back)))


def mapping(make: Callable[[Any], Any], key: Codec, value: Codec, *, text_keys: bool) -> Codec:
    """A mapping: an object where the keys are texts, else a list of pairs."""
    pair = row((key, value))

    def to_json(given: Any) -> Any:
        if not isinstance(given, Mapping):
            refuse(given, "a mapping")
        pairs = [within(f"[{name!r}]", pair.to_json, (name, inner)) for name, inner in given.items()]
        return dict(pairs) if text_keys else pairs

    def from_json(data: Any) -> Any:
        if text_keys and not isinstance(data, dict):
            refuse(data, "an object")
        pairs = [list(entry) for entry in data.items()] if text_keys else _list(data)
        return make(within(f"[{place}]", pair.from_json, entry) for place, entry in enumerate(pairs))

    return Codec(to_json, guarded(from_json))


def _list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else refuse(data, "a list")
