"""All the slices of a session at one moment, in memory and as JSON.

The types that a snapshot may hold, by name. Data chooses among these names and can name nothing else.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import UUID

from minutebook.errors import InvalidSetting, UnknownName, UnreadableInput
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import FrozenDict
from minutebook.session.query import Query
from minutebook.session.slices import SliceKind, Values
from minutebook.wire.chat import entry_from_json, entry_to_json

if TYPE_CHECKING:
    from minutebook.session.codec import SliceCodec

T = TypeVar("T")


class TypeRegistry:
    """Types, their names in data, and how their values become JSON.

    Dataclasses need only be named here; their fields may be dataclasses, enums, UUIDs, datetimes, tuples, unions, …
    For other types give `to_json` and `from_json`. `ConversationEntry` is always there.
    """

    def __init__(self, *types: type) -> None:
        self._types: dict[str, type] = {}
        self._own: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}
        self._codecs: dict[type, SliceCodec] = {}
        self.register(
            ConversationEntry,
            to_json=lambda entry: json.loads(entry_to_json(entry)),
            from_json=lambda data: entry_from_json(json.dumps(data)),
        )
        for one in types:
            if one not in self._types.values():
                self.register(one)

    def register(
        self,
        kind: type[T],
        *,
        name: str | None = None,
        to_json: Callable[[T], Any] | None = None,
        from_json: Callable[[Any], T] | None = None,
    ) -> type[T]:
        """Add a type under a name, by default its own; registering it again replaces what was said before.

        Raises:
            InvalidSetting: another type has the name, or only one of the two functions is given.
        """
        chosen = kind.__name__ if name is None else name
        if self._types.get(chosen, kind) is not kind:
            raise InvalidSetting("name", chosen, f"one that {self._types[chosen]!r} has not taken")
        if (to_json is None) != (from_json is None):
            raise InvalidSetting("to_json and from_json", (to_json, from_json), "both, or neither for a dataclass")
        self._types = {one: other for one, other in self._types.items() if other is not kind} | {chosen: kind}
        self._own.pop(kind, None)
        if to_json is not None and from_json is not None:
            self._own[kind] = (to_json, from_json)
        self._codecs = {}
        return kind

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all the types, in the order in which they came."""
        return tuple(self._types)

    def name_of(self, kind: type) -> str:
        """What a type is called in data.

        Raises:
            UnknownName: it is not registered.
        """
        for name, known in self._types.items():
            if known is kind:
                return name
        raise UnknownName("type", kind.__name__, self.names, "register it in the registry first")

    def type_named(self, name: str) -> type:
        """The type that data calls so.

        Raises:
            UnknownName: there is none.
        """
        if name not in self._types:
            raise UnknownName("type", name, self.names, "register it in the registry first")
        return self._types[name]

    def to_data(self, kind: type[T], values: Iterable[T]) -> list[Any]:
        """Values of one type as JSON data.

        Raises:
            InvalidSetting: one would not come back as it is.
        """
        try:
            return self._codec(kind).write(list(values))
        except ValueError as problem:
            raise not_storable(kind.__name__, str(problem)) from problem
        except RecursionError as problem:
            raise not_storable(kind.__name__, "is nested too deeply") from problem

    def from_data(self, kind: type[T], data: Any) -> tuple[T, ...]:
        """The values that `to_data` wrote.

        Raises:
            UnreadableInput: they do not fit the type.
        """
        if not isinstance(data, list):
            raise UnreadableInput(kind.__name__, "is no list of values")
        try:
            return tuple(self._codec(kind).read(data))
        except ValueError as problem:
            raise UnreadableInput(kind.__name__, str(problem)) from problem
        except RecursionError as problem:
            raise UnreadableInput(kind.__name__, "is nested too deeply") from problem

    def slice_to_json(self, kind: type[T], values: Iterable[T]) -> str:
        """Values of one type as the text of a JSON list."""
        return dumps(kind.__name__, self.to_data(kind, values))

    def slice_from_json(self, kind: type[T], text: str) -> tuple[T, ...]:
        """The values that `slice_to_json` wrote.

        Raises:
            UnreadableInput: the text is no list of such values.
        """
        return self.from_data(kind, loads(kind.__name__, text))

    def _codec(self, kind: type) -> "SliceCodec":
        from minutebook.session.codec import SliceCodec  # pydantic is loaded on first use

        if kind not in self._codecs:
            self._codecs[kind] = SliceCodec(kind, self._types, self._own)
        return self._codecs[kind]


def not_storable(name: str, problem: str) -> InvalidSetting:
    return InvalidSetting("the value to store", f"{name}: {problem}", "a value of its declared type that JSON can hold")


def dumps(name: str, data: Any) -> str:
    """JSON that says exactly what the data does; ASCII, so any encoding carries it.

    Raises:
        InvalidSetting: a user's `to_json` returned what is not JSON.
    """
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as problem:
        raise not_storable(name, f"to_json gave what is not JSON: {problem}") from problem


def loads(name: str, text: str) -> Any:
    """The data of a JSON text.

    Raises:
        UnreadableInput: it is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UnreadableInput(name, f"is not JSON: {problem}") from problem


_FORMAT: Final = "minutebook.snapshot/2"


@dataclass(slots=True, frozen=True)
class Snapshot:
    """What a session held. It shares its values with the session and never changes."""

    session_id: UUID
    created_at: datetime
    slices: Mapping[type, Values[Any]] = field(hash=False)
    """The values by their type."""
    logs: frozenset[type]
    """Those of the types whose slices only grow."""

    def query(self, slice_type: type[T]) -> Query[T]:
        """Read a slice as it was."""
        values: Values[T] = self.slices.get(slice_type) or Values()
        return Query(lambda: values)

    def to_json(self, registry: TypeRegistry | None = None) -> str:
        """The snapshot as one line of ASCII. Without a registry, each type goes by its class's name.

        Raises:
            UnknownName: a slice's type is not in the registry.
            InvalidSetting: a value cannot be written as JSON and read back.
        """
        known = TypeRegistry(*self.slices) if registry is None else registry
        slices = [
            {
                "type": known.name_of(slice_type),
                "kind": (SliceKind.LOG if slice_type in self.logs else SliceKind.STATE).value,
                "values": known.to_data(slice_type, values),
            }
            for slice_type, values in self.slices.items()
        ]
        about = {"session_id": str(self.session_id), "created_at": self.created_at.isoformat()}
        return dumps("snapshot", {"format": _FORMAT, **about, "slices": slices})

    def slice_to_json(self, slice_type: type, registry: TypeRegistry | None = None) -> str:
        """One slice as a JSON list; `TypeRegistry.slice_from_json` reads it.

        Raises:
            InvalidSetting: a value cannot be written as JSON and read back.
        """
        known = TypeRegistry(slice_type) if registry is None else registry
        return known.slice_to_json(slice_type, self.query(slice_type).slice())

    @classmethod
    def from_json(cls, text: str, registry: TypeRegistry) -> "Snapshot":
        """The snapshot that `to_json` wrote. Only types of the registry are ever made.

        Raises:
            UnknownName: the text names a type that the registry has not.
            UnreadableInput: it is no snapshot, or a value does not fit its type.
        """
        data = loads("snapshot", text)
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise UnreadableInput("snapshot", f'has no "format": "{_FORMAT}"; give what Snapshot.to_json wrote')
        try:
            found = [
                (registry.type_named(one["type"]), SliceKind(one["kind"]), one["values"]) for one in data["slices"]
            ]
            session_id, created_at = UUID(data["session_id"]), datetime.fromisoformat(data["created_at"])
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise UnreadableInput("snapshot", f"is damaged: {type(problem).__name__}: {problem}") from problem
        slices: FrozenDict[type, Values[Any]] = FrozenDict(
            (kind, Values(registry.from_data(kind, values))) for kind, _, values in found
        )
        if len(slices) != len(found):
            raise UnreadableInput("snapshot", "has a type twice")
        return cls(session_id, created_at, slices, frozenset(kind for kind, how, _ in found if how is SliceKind.LOG))
