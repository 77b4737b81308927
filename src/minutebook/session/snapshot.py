"""Snapshots of all slices of a session, in memory and as JSON.

A `TypeRegistry` lists the types that a snapshot may contain, by name. The JSON data can refer to no other types.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from uuid import UUID

from minutebook.errors import InvalidSetting, MissingSetting, UnknownName, UnreadableInput
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import FrozenDict
from minutebook.session.display import DisplayedValue
from minutebook.session.query import Query
from minutebook.session.slices import SliceKind, Values
from minutebook.wire.chat import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from minutebook.session.codec import SliceCodec

T = TypeVar("T")


class JsonFunctions(NamedTuple):
    """The functions that convert values of a type to JSON data and back."""

    to_json: Callable[[Any], Any]
    from_json: Callable[[Any], Any]


class TypeRegistry:
    """Types, their names in JSON, and how their values are converted.

    A dataclass only needs to be listed; its fields may be dataclasses, enums, UUIDs, datetimes, tuples, unions, …
    Other types need `to_json` and `from_json`. `ConversationEntry` is always registered.
    """

    def __init__(self, *types: type) -> None:
        self._types: dict[str, type] = {}
        self._functions: dict[type, JsonFunctions] = {}
        self._codecs: dict[type, SliceCodec] = {}
        self.register(
            ConversationEntry,
            name="ConversationEntry",
            to_json=lambda entry: json.loads(entry_to_json(entry)),
            from_json=lambda data: entry_from_json(json.dumps(data)),
        )
        for value_type in types:
            if value_type not in self._types.values():
                self.register(value_type)

    def register(
        self,
        value_type: type[T],
        *,
        name: str | None = None,
        to_json: Callable[[T], Any] | None = None,
        from_json: Callable[[Any], T] | None = None,
    ) -> type[T]:
        """Add a type under a name, by default its class name. Registering it again replaces its name and functions.

        The default name of a type of minutebook starts with "minutebook.", so that your type may have the same class name.

        Raises:
            InvalidSetting: another type has the name.
            MissingSetting: only one of the two functions is given.
        """
        if name is None:
            is_own = value_type.__module__.partition(".")[0] == "minutebook"
            name = f"minutebook.{value_type.__name__}" if is_own else value_type.__name__
        if self._types.get(name, value_type) is not value_type:
            raise InvalidSetting("name", name, f"a name that is not the name of {self._types[name].__qualname__}")
        if (to_json is None) != (from_json is None):
            missing = "to_json" if to_json is None else "from_json"
            raise MissingSetting(missing, "pass both to_json and from_json, or neither for a dataclass")
        other_types = {
            registered_name: registered_type
            for registered_name, registered_type in self._types.items()
            if registered_type is not value_type
        }
        self._types = other_types | {name: value_type}
        self._functions.pop(value_type, None)
        if to_json is not None and from_json is not None:
            self._functions[value_type] = JsonFunctions(to_json, from_json)
        self._codecs = {}
        return value_type

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all types, in the order of registration."""
        return tuple(self._types)

    def name_of(self, value_type: type) -> str:
        """The name of a type in JSON.

        Raises:
            UnknownName: the type is not registered.
        """
        for name, registered_type in self._types.items():
            if registered_type is value_type:
                return name
        raise self._unknown_type_error(value_type.__name__)

    def type_named(self, name: str) -> type:
        """The type with this name in JSON.

        Raises:
            UnknownName: no registered type has the name.
        """
        if name not in self._types:
            raise self._unknown_type_error(name)
        return self._types[name]

    def to_data(self, value_type: type[T], values: Iterable[T]) -> list[Any]:
        """Values of one type as JSON data.

        Raises:
            InvalidSetting: a value cannot be converted, or would differ when it is read back.
        """
        try:
            return self._codec(value_type).write(list(values))
        except RecursionError as error:
            raise _nesting_error(value_type.__name__) from error

    def from_data(self, value_type: type[T], data: Any) -> tuple[T, ...]:
        """The values that `to_data` wrote.

        Raises:
            UnreadableInput: the data does not match the type.
        """
        if not isinstance(data, list):
            raise UnreadableInput(value_type.__name__, "is not a list of values")
        try:
            return tuple(self._codec(value_type).read(data))
        except ValueError as error:
            raise UnreadableInput(value_type.__name__, str(error)) from error
        except RecursionError as error:
            raise UnreadableInput(value_type.__name__, "is nested too deeply") from error

    def slice_to_json(self, value_type: type[T], values: Iterable[T]) -> str:
        """Values of one type as JSON text, a list."""
        return dumps(value_type.__name__, self.to_data(value_type, values))

    def slice_from_json(self, value_type: type[T], text: str) -> tuple[T, ...]:
        """The values that `slice_to_json` wrote.

        Raises:
            UnreadableInput: the text is not a JSON list of such values.
        """
        return self.from_data(value_type, loads(value_type.__name__, text))

    def _codec(self, value_type: type) -> "SliceCodec":
        from minutebook.session.codec import SliceCodec  # pydantic is loaded on first use

        if value_type not in self._codecs:
            self._codecs[value_type] = SliceCodec(value_type, self._types, self._functions)
        return self._codecs[value_type]

    def _unknown_type_error(self, name: str) -> UnknownName:
        return UnknownName("type", name, self.names, "register it in the TypeRegistry")


def _nesting_error(name: str) -> InvalidSetting:
    return InvalidSetting(name, DisplayedValue("…"), "values that are not nested too deeply")


def dumps(name: str, data: Any) -> str:
    """The data as compact JSON, in ASCII.

    Raises:
        InvalidSetting: a `to_json` function returned data that is not JSON.
    """
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise _nesting_error(name) from error
    except (TypeError, ValueError) as error:
        expected = "JSON data: None, bool, int, finite float, str, list or dict"
        raise InvalidSetting(f"result of to_json in {name}", DisplayedValue("…"), expected) from error


def loads(name: str, text: str) -> Any:
    """The data of a JSON text.

    Raises:
        UnreadableInput: the text is not JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UnreadableInput(name, f"is not JSON (line {error.lineno}, column {error.colno})") from error
    except RecursionError as error:
        raise UnreadableInput(name, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableInput(name, "is not JSON") from error


_FORMAT_NAME: Final = "minutebook.snapshot"
_FORMAT: Final = f"{_FORMAT_NAME}/2"


@dataclass(slots=True, frozen=True)
class Snapshot:
    """The values of all slices of a session at one time. It is immutable, and shares the values with the session."""

    session_id: UUID
    created_at: datetime
    slices: Mapping[type, Values[Any]] = field(hash=False)
    """Slice type → values."""
    logs: frozenset[type]
    """The types of the slices that are logs."""

    def query(self, slice_type: type[T]) -> Query[T]:
        """Read a slice."""
        values: Values[T] = self.slices.get(slice_type) or Values()
        return Query(lambda: values)

    def to_json(self, registry: TypeRegistry | None = None) -> str:
        """The snapshot as one line of ASCII. Without a registry, each type is named after its class.

        Raises:
            UnknownName: the type of a slice is not in the registry.
            InvalidSetting: a value cannot be written as JSON and read back.
        """
        registry = TypeRegistry(*self.slices) if registry is None else registry
        slices = [
            {
                "type": registry.name_of(slice_type),
                "kind": (SliceKind.LOG if slice_type in self.logs else SliceKind.STATE).value,
                "values": registry.to_data(slice_type, values),
            }
            for slice_type, values in self.slices.items()
        ]
        header = {"format": _FORMAT, "session_id": str(self.session_id), "created_at": self.created_at.isoformat()}
        return dumps("snapshot", {**header, "slices": slices})

    def slice_to_json(self, slice_type: type, registry: TypeRegistry | None = None) -> str:
        """One slice as a JSON list; `TypeRegistry.slice_from_json` reads it.

        Raises:
            InvalidSetting: a value cannot be written as JSON and read back.
        """
        registry = TypeRegistry(slice_type) if registry is None else registry
        return registry.slice_to_json(slice_type, self.query(slice_type).slice())

    @classmethod
    def from_json(cls, text: str, registry: TypeRegistry) -> "Snapshot":
        """The snapshot that `to_json` wrote. Only types of the registry are instantiated.

        Raises:
            UnknownName: the text names a type that is not in the registry.
            UnreadableInput: the text is not a snapshot of the supported format, or a value does not match its type.
        """
        data = loads("snapshot", text)
        _require_format(data)
        try:
            slices = [
                (registry.type_named(item["type"]), SliceKind(item["kind"]), item["values"]) for item in data["slices"]
            ]
            session_id, created_at = UUID(data["session_id"]), datetime.fromisoformat(data["created_at"])
        except KeyError as error:
            raise UnreadableInput("snapshot", f"is damaged: {error.args[0]!r} is missing") from error
        except (AttributeError, TypeError, ValueError) as error:
            problem = "is damaged: session_id, created_at or the type or kind of a slice is invalid"
            raise UnreadableInput("snapshot", problem) from error
        values_by_type: FrozenDict[type, Values[Any]] = FrozenDict(
            (slice_type, Values(registry.from_data(slice_type, values))) for slice_type, _, values in slices
        )
        if len(values_by_type) != len(slices):
            raise UnreadableInput("snapshot", "is damaged: two slices have the same type")
        logs = frozenset(slice_type for slice_type, kind, _ in slices if kind is SliceKind.LOG)
        return cls(session_id, created_at, values_by_type, logs)


def _require_format(data: Any) -> None:
    stored_format = data.get("format") if isinstance(data, dict) else None
    if stored_format == _FORMAT:
        return
    if isinstance(stored_format, str) and stored_format.startswith(f"{_FORMAT_NAME}/"):
        problem = f"the format {stored_format!r} is not supported; the supported format is {_FORMAT!r}"
    else:
        problem = f'is not a snapshot: expected the text that Snapshot.to_json returns, with "format": "{_FORMAT}"'
    raise UnreadableInput("snapshot", problem)
