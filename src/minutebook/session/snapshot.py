"""All the slices of a session at one moment, in memory and as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

from minutebook.errors import UnreadableInput
from minutebook.record.frozen import FrozenDict
from minutebook.session.fluent import Query
from minutebook.session.registry import TypeRegistry, dumps, loads
from minutebook.session.staging import SliceKind
from minutebook.session.values import Values

T = TypeVar("T")
_FORMAT: Final = "minutebook.snapshot/1"


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
            UnknownType: a slice's type is not in the registry.
            NotStorable: a value cannot be written as JSON and read back.
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
            NotStorable: a value cannot be written as JSON and read back.
        """
        known = TypeRegistry(slice_type) if registry is None else registry
        return known.slice_to_json(slice_type, self.query(slice_type).slice())

    @classmethod
    def from_json(cls, text: str, registry: TypeRegistry) -> "Snapshot":
        """The snapshot that `to_json` wrote. Only types of the registry are ever made.

        Raises:
            UnknownType: the text names a type that the registry has not.
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
