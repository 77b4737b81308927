"""Lossless conversion of slice values to JSON data and back.

pydantic validates the values against the declared types. Scalars, lists and dicts are written unchanged. Other values are
written as an object with a single key, the name of their type, as in `{"tuple": [1, 2]}`; so is a dict with a single key or
with keys that are not text. A value that would not be equal when it is read back is rejected, with its path.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum, Flag
from functools import lru_cache
from math import isfinite
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from minutebook.errors import InvalidSetting
from minutebook.record.message import FrozenDict, FrozenList
from minutebook.session.display import DisplayedValue, display_text
from minutebook.session.snapshot import JsonFunctions

_AS_TEXT: Final[Mapping[type, JsonFunctions]] = {
    float: JsonFunctions(str, float),  # only nan and infinities, which JSON does not have
    bytes: JsonFunctions(lambda value: b64encode(value).decode(), lambda data: b64decode(data, validate=True)),
    UUID: JsonFunctions(str, UUID),
    datetime: JsonFunctions(datetime.isoformat, datetime.fromisoformat),
    date: JsonFunctions(date.isoformat, date.fromisoformat),
    timedelta: JsonFunctions(
        lambda value: f"{value.days},{value.seconds},{value.microseconds}",
        lambda data: timedelta(*map(int, data.split(","))),
    ),
}
"""Type → its functions to and from text, for the types whose values are written as text."""
_CONTAINERS: Final = (tuple, set, frozenset, dict, FrozenDict, FrozenList)
_PLAIN: Final = frozenset({type(None), bool, int, str})
_STORABLE_TYPE_TEXT: Final = (
    "a type that can be stored; declare it as the type of a field, or register it in the TypeRegistry with to_json and "
    "from_json"
)
_CONFIG: Final = ConfigDict(strict=True, revalidate_instances="always", arbitrary_types_allowed=True)
_EXPECTED: Final = {
    "string_type": "a str",
    "int_type": "an int",
    "float_type": "a number",
    "bool_type": "a bool",
    "bytes_type": "bytes",
    "none_required": "None",
    "list_type": "a list",
    "tuple_type": "a tuple",
    "set_type": "a set",
    "frozen_set_type": "a frozenset",
    "dict_type": "a dict",
    "mapping_type": "a mapping",
    "datetime_type": "a datetime",
    "date_type": "a date",
    "time_delta_type": "a timedelta",
}
"""pydantic's error type → what the value should be."""
_CONVERSION_ERRORS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ConversionError(ValueError):
    """JSON data does not match its type; the message has the path and the problem."""


class SliceCodec:
    """Converts the values of one slice to JSON data and back.

    The values may contain this type, the types of its fields and the registered types. `functions` maps each type that
    was registered with `to_json` and `from_json` to these two functions.
    """

    def __init__(
        self, value_type: type, registered: Mapping[str, type], functions: Mapping[type, JsonFunctions]
    ) -> None:
        self._value_type, self._functions = value_type, functions
        self._validator = None if value_type in functions else _validator(value_type)
        self._types: dict[str, type] = {cls.__name__: cls for cls in (*_AS_TEXT, *_CONTAINERS)} | dict(registered)
        for cls in dict.fromkeys(_classes_in(self._validator.core_schema)) if self._validator else ():
            if cls not in self._types.values():
                same_name_count = sum(known.__name__ == cls.__name__ for known in self._types.values())
                self._types[f"{cls.__name__}_{same_name_count + 1}" if same_name_count else cls.__name__] = cls
        self._names = {cls: name for name, cls in self._types.items()}

    def write(self, values: list[Any]) -> list[Any]:
        """The values as JSON data, without the name of the slice's type.

        Raises:
            InvalidSetting: a value cannot be converted, or would differ when it is read back.
        """
        if mismatch := self._mismatch(values):
            raise self._storage_error(*mismatch)
        for index, value in enumerate(values):
            if type(value) is not self._value_type and self._value_type not in self._functions:
                raise self._storage_error(f"[{index}]", value, f"exactly a {self._value_type.__name__}, no subclass")
        return [self._encode_as(self._value_type, value, f"[{index}]") for index, value in enumerate(values)]

    def read(self, data: list[Any]) -> list[Any]:
        """The values that `write` converted.

        Raises:
            ConversionError: the data does not match the type.
        """
        values = [self._decode_as(self._value_type, item, f"[{index}]") for index, item in enumerate(data)]
        if mismatch := self._mismatch(values):
            raise ConversionError(f"{mismatch.path} is {_short_text(mismatch.value)}; expected {mismatch.expected}")
        return values

    def _mismatch(self, values: list[Any]) -> "_Mismatch | None":
        """The first value that does not match its declared type; None if all match."""
        try:
            if self._validator is not None:
                self._validator.validate_python(values)
        except ValidationError as error:
            return _first_mismatch(values, error.errors(include_url=False))
        return None

    def _storage_error(self, path: str, value: object, expected: str) -> InvalidSetting:
        return InvalidSetting(f"{self._value_type.__name__}{path}", DisplayedValue(_short_text(value)), expected)

    def _encode(self, value: Any, path: str) -> Any:
        """Any value as JSON data, with the name of its type if JSON does not show the type."""
        cls = type(value)
        if cls not in self._names:  # a plain value, or one of a subclass, which is equal to a value of its base class
            if value is None or isinstance(value, str | int):
                return value
            if isinstance(value, list):
                return self._encode_as(list, value, path)
            cls = float if isinstance(value, float) else FrozenDict if isinstance(value, Mapping) else cls
        if cls is float and isfinite(value):
            return value
        if cls is dict and len(value) != 1 and _has_text_keys(value):
            return self._encode_as(cls, value, path)
        if cls not in self._names:
            raise self._storage_error(path, value, _STORABLE_TYPE_TEXT)
        return {self._names[cls]: self._encode_as(cls, value, path)}

    def _encode_as(self, cls: type, value: Any, path: str) -> Any:
        """A value of a known type as JSON data, without the name of the type."""
        if cls in self._functions:
            try:
                return self._functions[cls].to_json(value)
            except _CONVERSION_ERRORS as error:
                expected = f"a value that the to_json function of {cls.__name__} accepts ({_error_text(error)})"
                raise self._storage_error(path, value, expected) from error
        if cls in _AS_TEXT:
            return _AS_TEXT[cls].to_json(value)
        if isinstance(value, Enum):
            return value.value if isinstance(value, Flag) else value.name
        if isinstance(value, Mapping) and _has_text_keys(value):
            return {key: self._encode(item, f"{path}.{key}") for key, item in value.items()}
        if isinstance(value, Mapping):
            return [[self._encode(part, f"{path}[{key!r}]") for part in (key, item)] for key, item in value.items()]
        if isinstance(value, list | tuple):
            return [self._encode(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if isinstance(value, set | frozenset):  # sorted, so that equal sets give equal JSON
            return sorted((self._encode(item, path) for item in value), key=json.dumps)
        if is_dataclass(value) and cls in self._names:
            names = (field.name for field in fields(value) if field.init)
            return {name: self._encode(getattr(value, name), f"{path}.{name}") for name in names}
        if cls in _PLAIN:
            return value
        raise self._storage_error(path, value, _STORABLE_TYPE_TEXT)

    def _decode(self, data: Any, path: str) -> Any:
        """The value that `_encode` wrote."""
        if isinstance(data, list):
            return [self._decode(item, f"{path}[{index}]") for index, item in enumerate(data)]
        if not isinstance(data, dict):
            return data
        if len(data) != 1:
            return {key: self._decode(item, f"{path}.{key}") for key, item in data.items()}
        ((name, content),) = data.items()
        if name not in self._types:
            raise ConversionError(f"{path} has the unknown type {name!r}; known types: {', '.join(self._types)}")
        return self._decode_as(self._types[name], content, path)

    def _decode_as(self, cls: type, data: Any, path: str) -> Any:
        """The value that `_encode_as` wrote."""
        if cls in self._functions:
            problem = f"{path}: from_json of {cls.__name__} failed"
            return _convert(self._functions[cls].from_json, data, problem, is_user_code=True)
        if cls in _AS_TEXT:
            return _convert(
                _AS_TEXT[cls].from_json, data, f"{path} is {_short_text(data)}, which is not a {cls.__name__}"
            )
        if issubclass(cls, Enum):
            problem = f"{path} is {_short_text(data)}, which is not a member of {cls.__name__}"
            return _convert(cls if issubclass(cls, Flag) else lambda name: cls[name], data, problem)
        if is_dataclass(cls):
            return self._decode_dataclass(cls, data, path)
        if cls in _PLAIN:
            return data
        if isinstance(data, dict) and issubclass(cls, dict):
            return cls((key, self._decode(item, f"{path}.{key}")) for key, item in data.items())
        problem = f"{path} is {_short_text(data)}, which is not the content of a {cls.__name__}"
        if not isinstance(data, list):
            raise ConversionError(problem)
        return _convert(cls, self._decode(data, path), problem)

    def _decode_dataclass(self, cls: type, data: Any, path: str) -> Any:
        if not isinstance(data, dict):
            raise ConversionError(f"{path} is {_short_text(data)}, not an object with the fields of {cls.__name__}")
        fields_by_name = {field.name: field for field in fields(cls) if field.init}
        for name in data:
            if name not in fields_by_name:
                names = ", ".join(fields_by_name) or "none"
                raise ConversionError(f"{path} has the unknown field {name!r}; fields of {cls.__name__}: {names}")
        for name, field in fields_by_name.items():
            if name not in data and field.default is MISSING and field.default_factory is MISSING:
                raise ConversionError(f"{path}.{name} is missing")
        values = {name: self._decode(item, f"{path}.{name}") for name, item in data.items()}
        problem = f"{path}: cannot create a {cls.__name__}"
        return _convert(lambda arguments: cls(**arguments), values, problem, is_user_code=True)


@lru_cache(maxsize=256)
def _validator(value_type: type) -> TypeAdapter[list[Any]]:
    try:
        validator = TypeAdapter(list[value_type], config=_CONFIG)  # type: ignore[valid-type]
        validator.rebuild()  # fails if a hint names a type that does not exist
    except (AttributeError, NameError, PydanticUserError, SyntaxError, TypeError) as error:
        # The text of a PydanticUserError is advice on pydantic's API, which the caller does not use.
        reason = "" if isinstance(error, PydanticUserError) else f" ({str(error).partition(chr(10))[0]})"
        expected = f"a class whose type hints can be resolved{reason}, or one registered with to_json and from_json"
        raise InvalidSetting("type", value_type.__name__, expected) from error
    return validator


def _classes_in(schema: Any) -> Iterator[type]:
    """The dataclasses and enums in a pydantic core schema."""
    if isinstance(schema, dict):
        if schema.get("type") in {"dataclass", "enum"}:
            yield schema["cls"]
        schema = [*schema.values()]
    if isinstance(schema, list | tuple):
        for part in schema:
            yield from [type(part)] if isinstance(part, Enum) else _classes_in(part)


def _convert(function: Callable[[Any], Any], value: Any, problem: str, *, is_user_code: bool = False) -> Any:
    """Call a conversion function. If it fails, raise `ConversionError` with the problem, and the error text of user code."""
    try:
        return function(value)
    except _CONVERSION_ERRORS as error:
        raise ConversionError(f"{problem}: {_error_text(error)}" if is_user_code else problem) from error


def _error_text(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


class _Mismatch(NamedTuple):
    """A value that does not match its declared type."""

    path: str
    value: object
    expected: str


def _first_mismatch(values: list[Any], errors: list[Any]) -> _Mismatch:
    """The value of pydantic's first error. A union has one error for each member, all with the same path."""
    first_error = errors[0]
    path = _path(values, first_error["loc"])
    expected = [_expectation(error) for error in errors if _path(values, error["loc"]) == path]
    return _Mismatch(path, first_error["input"], " or ".join(dict.fromkeys(expected)))


def _expectation(error: Any) -> str:
    """What the value should be, in plain words instead of pydantic's terms."""
    kind, context = error["type"], error.get("ctx", {})
    if kind in _EXPECTED:
        return _EXPECTED[kind]
    match kind:
        case "is_instance_of":
            return f"an instance of {context['class']}"
        case "dataclass_type" | "dataclass_exact_type":
            return f"an instance of {context['class_name']}"
        case "too_long":
            return f"at most {context['max_length']} items"
        case "too_short":
            return f"at least {context['min_length']} items"
        case "value_error" | "assertion_error":
            return f"a valid value ({context['error']})"
        case "missing":
            return f"an item at index {error['loc'][-1]}"
    prefix = "Input should be "
    message = str(error["msg"])
    return message.removeprefix(prefix) if message.startswith(prefix) else "a value of the declared type"


def _path(values: list[Any], steps: tuple[int | str, ...]) -> str:
    """The path of a value. Steps that lead to no value are the names of a union's members, and are left out."""
    path, value = "", cast("Any", values)
    for step in steps:
        try:
            value = getattr(value, str(step)) if is_dataclass(value) else value[step]
        except (AttributeError, LookupError, TypeError):
            continue
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path


def _has_text_keys(value: Mapping[Any, Any]) -> bool:
    return all(type(key) is str for key in value)


def _short_text(value: Any) -> str:
    text = display_text(value)
    return text if len(text) < 60 else f"a {type(value).__name__}"
