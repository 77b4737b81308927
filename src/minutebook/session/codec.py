"""Values to JSON data and back: what comes back is equal to what went in, or an error says where it is not.

pydantic checks the values against the types that are declared. The data says by itself what it is: scalars, lists and
objects stand for themselves, and an object with a single key names a type, such as `{"tuple": [1, 2]}`.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum, Flag
from functools import lru_cache
from math import isfinite
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from minutebook.record.message import FrozenDict, FrozenList

Convert: TypeAlias = Callable[[Any], Any]
Functions: TypeAlias = tuple[Convert, Convert]
"""To JSON data, and back."""

_TEXTS: Final[Mapping[type, Functions]] = {
    float: (str, float),  # those that JSON has not
    bytes: (lambda value: b64encode(value).decode(), lambda data: b64decode(data, validate=True)),
    UUID: (str, UUID),
    datetime: (datetime.isoformat, datetime.fromisoformat),
    date: (date.isoformat, date.fromisoformat),
    timedelta: (
        lambda value: f"{value.days},{value.seconds},{value.microseconds}",
        lambda data: timedelta(*map(int, data.split(","))),
    ),
}
_CONTAINERS: Final = (tuple, set, frozenset, dict, FrozenDict, FrozenList)
_PLAIN: Final = frozenset({type(None), bool, int, str})
_ADVICE: Final = "declare it as the type of a field, or register it in the TypeRegistry with to_json and from_json"
_CONFIG: Final = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)


class Misfit(ValueError):
    """A value does not fit its type, or a type has no JSON form; the message says where and why."""


class SliceCodec:
    """Values of one type to JSON data and back.

    Besides that type, values may hold those of its fields, those of the registry, and nothing else. `own` has the
    functions of the types that bring theirs.
    """

    def __init__(self, kind: type, registered: Mapping[str, type], own: Mapping[type, Functions]) -> None:
        self._kind, self._own = kind, own
        self._checker = None if kind in own else _checker(kind)
        self._types: dict[str, type] = {each.__name__: each for each in (*_TEXTS, *_CONTAINERS)} | dict(registered)
        for each in dict.fromkeys(_classes(self._checker.core_schema)) if self._checker else ():
            if each not in self._types.values():
                alike = sum(other.__name__ == each.__name__ for other in self._types.values())
                self._types[f"{each.__name__}_{alike + 1}" if alike else each.__name__] = each
        self._names = {each: name for name, each in self._types.items()}

    def write(self, values: list[Any]) -> list[Any]:
        """The values as JSON data.

        Raises:
            Misfit: one would not come back as it is.
        """
        self._check(values)
        for place, value in enumerate(values):
            if type(value) is not self._kind and self._kind not in self._own:
                raise Misfit(f"[{place}] is {_shown(value)}, not exactly a {self._kind.__name__}; {_ADVICE}")
        return [self._content(self._kind, value, f"[{place}]") for place, value in enumerate(values)]

    def read(self, data: list[Any]) -> list[Any]:
        """The values that `write` was given.

        Raises:
            Misfit: the data does not fit the type.
        """
        values = [self._made(self._kind, each, f"[{place}]") for place, each in enumerate(data)]
        self._check(values)
        return values

    def _check(self, values: list[Any]) -> None:
        try:
            if self._checker is not None:
                self._checker.validate_python(values)
        except ValidationError as error:
            raise Misfit(_problem(values, error.errors(include_url=False))) from error

    def _data(self, value: Any, place: str) -> Any:
        """Any value as JSON data, with the name of its type where it needs one."""
        kind = type(value)
        if kind not in self._names:  # then what it is derived from will do, which is equal to it
            if value is None or isinstance(value, str | int):
                return value
            if isinstance(value, list):
                return self._content(list, value, place)
            kind = float if isinstance(value, float) else FrozenDict if isinstance(value, Mapping) else kind
        if kind is float and isfinite(value):
            return value
        if kind is dict and len(value) != 1 and _has_text_keys(value):
            return self._content(kind, value, place)
        if kind not in self._names:
            raise Misfit(f"{place} is {_shown(value)}, a {kind.__name__}; {_ADVICE}")
        return {self._names[kind]: self._content(kind, value, place)}

    def _content(self, kind: type, value: Any, place: str) -> Any:
        """A value of a type as JSON data, without the name of the type."""
        if functions := self._own.get(kind) or _TEXTS.get(kind):
            return _call(functions[0], value, place)
        if isinstance(value, Enum):
            return value.value if isinstance(value, Flag) else value.name
        if isinstance(value, Mapping) and _has_text_keys(value):
            return {key: self._data(each, f"{place}.{key}") for key, each in value.items()}
        if isinstance(value, Mapping):
            return [[self._data(part, f"{place}[{key!r}]") for part in (key, each)] for key, each in value.items()]
        if isinstance(value, list | tuple):
            return [self._data(each, f"{place}[{index}]") for index, each in enumerate(value)]
        if isinstance(value, set | frozenset):  # in one order, which it has not by itself
            return sorted((self._data(each, place) for each in value), key=json.dumps)
        if is_dataclass(value) and kind in self._names:
            names = (each.name for each in fields(value) if each.init)
            return {name: self._data(getattr(value, name), f"{place}.{name}") for name in names}
        if kind in _PLAIN:
            return value
        raise Misfit(f"{place} is {_shown(value)}, a {kind.__name__}; {_ADVICE}")

    def _value(self, data: Any, place: str) -> Any:
        if isinstance(data, list):
            return [self._value(each, f"{place}[{index}]") for index, each in enumerate(data)]
        if not isinstance(data, dict):
            return data
        if len(data) != 1:
            return {key: self._value(each, f"{place}.{key}") for key, each in data.items()}
        ((name, content),) = data.items()
        if name not in self._types:
            raise Misfit(f"{place} names the type {name!r}; it can be one of {', '.join(self._types)}")
        return self._made(self._types[name], content, place)

    def _made(self, kind: type, content: Any, place: str) -> Any:
        """The value of a type that its content stands for."""
        if functions := self._own.get(kind) or _TEXTS.get(kind):
            return _call(functions[1], content, place)
        if issubclass(kind, Enum):
            return _call(kind if issubclass(kind, Flag) else lambda name: kind[name], content, place)
        if is_dataclass(kind):
            if not isinstance(content, dict):
                raise Misfit(f"{place} is {_shown(content)}, not an object with the fields of {kind.__name__}")
            parts = {name: self._value(each, f"{place}.{name}") for name, each in content.items()}
            return _call(lambda given: kind(**given), parts, place)
        if kind in _PLAIN:
            return content
        if isinstance(content, dict) and issubclass(kind, dict):
            return kind((key, self._value(each, f"{place}.{key}")) for key, each in content.items())
        if not isinstance(content, list):
            raise Misfit(f"{place} is {_shown(content)}, not the content of a {kind.__name__}")
        return _call(kind, self._value(content, place), place)


@lru_cache(maxsize=256)
def _checker(kind: type) -> TypeAdapter[list[Any]]:
    try:
        checker = TypeAdapter(list[kind], config=_CONFIG)  # type: ignore[valid-type]
        checker.rebuild()  # fails where a name is not there
    except (AttributeError, NameError, PydanticUserError, SyntaxError, TypeError) as problem:
        said, advice = str(problem).partition("\n")[0], "register it with to_json and from_json"
        raise Misfit(f"has hints that cannot be resolved: {said}; {advice}") from problem
    return checker


def _classes(schema: Any) -> Iterator[type]:
    """The dataclasses and enums that a core schema is made of."""
    if isinstance(schema, dict):
        if schema.get("type") in {"dataclass", "enum"}:
            yield schema["cls"]
        schema = [*schema.values()]
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from [type(part)] if isinstance(part, Enum) else _classes(part)


def _call(function: Convert, value: Any, place: str) -> Any:
    """What a constructor or a user's function makes of a value."""
    try:
        return function(value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        raise Misfit(f"{place} does not fit: {type(problem).__name__}: {problem}") from problem


def _problem(values: list[Any], errors: list[Any]) -> str:
    """The first of pydantic's errors; the members of a union have one each about the same place."""
    place, value = _place(values, errors[0]["loc"]), errors[0]["input"]
    said = [each["msg"].replace("Input", "it", 1) for each in errors if _place(values, each["loc"]) == place]
    return f"{place} is {_shown(value)}; {' or '.join(dict.fromkeys(said))}"


def _place(values: list[Any], steps: tuple[int | str, ...]) -> str:
    """The path of a value; steps that lead nowhere are the names of a union's members."""
    place, here = "", cast("Any", values)
    for step in steps:
        try:
            here = getattr(here, str(step)) if is_dataclass(here) else here[step]
        except (AttributeError, LookupError, TypeError):
            continue
        place += f"[{step}]" if isinstance(step, int) else f".{step}"
    return place


def _has_text_keys(value: Mapping[Any, Any]) -> bool:
    return all(type(key) is str for key in value)


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) < 60 else f"a {type(value).__name__}"
