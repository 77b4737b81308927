"""JSON Schema for dataclasses: what a tool takes, and what an answer must be.

A dataclass used in several places, or inside itself, stands once under `$defs`; every other is written out where it
is used, which small models read better. `strict=True` gives what OpenAI's strict mode accepts: every field required,
one with a default nullable instead (the reader takes null for the default), and no keyword that mode refuses.

Dataclasses as JSON data. What `json_data` writes, `parse` reads back equal.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import deepcopy
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from inspect import cleandoc
from typing import Any, Final
from uuid import UUID

from pydantic.json_schema import GenerateJsonSchema

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.validation import core_schema_of


def json_data(value: Any) -> Any:
    """The value as JSON data: dataclasses as dicts, sets as sorted lists, enums as their values, dates as ISO text.

    Raises:
        UnsupportedType: a part of it has no JSON form.
    """
    if isinstance(value, Enum):
        return json_data(value.value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidSetting("a number for JSON", value, "a finite one")
        return value
    if isinstance(value, date):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: json_data(getattr(value, each.name)) for each in fields(value) if each.init}
    if isinstance(value, Mapping):
        return {_key(key): json_data(part) for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(json_data, value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, list | tuple):
        return [json_data(part) for part in value]
    raise UnsupportedType(f"{value!r:.80}", f"a {type(value).__name__}", "give a dataclass, a list, a dict or a scalar")


def dump_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON text, readable: no escapes for letters beyond ASCII."""
    return json.dumps(json_data(value), ensure_ascii=False, indent=indent)


def _key(key: Any) -> str:
    text = key.value if isinstance(key, Enum) else key
    if not isinstance(text, str):
        raise UnsupportedType(f"the key {key!r}", f"a {type(key).__name__}", "key mappings by text")
    return text


_REF: Final = "#/$defs/"
_NOT_STRICT: Final = frozenset({"default", "minLength", "maxLength", "minProperties", "maxProperties", "uniqueItems"})


def json_schema(cls: type, *, strict: bool = False) -> dict[str, Any]:
    """The JSON Schema of a dataclass.

    Raises:
        UnsupportedType: a field has a type that has no JSON form, or none that strict mode takes.
    """
    return deepcopy(_document(cls, strict))


@lru_cache(maxsize=1024)
def _document(cls: type, strict: bool) -> dict[str, Any]:
    """The schema that callers get copies of: it is asked for on every render."""
    generated = _Generator(union_format="primitive_type_array").generate(core_schema_of(cls))
    definitions = generated.pop("$defs", {})
    root = generated.get("$ref", "").removeprefix(_REF)
    used = Counter(_references([generated, definitions]))
    writer = _Writer(definitions, {root} | {name for name, times in used.items() if times > 1}, root, strict=strict)
    document = writer.write(definitions.get(root, generated), cls.__name__)
    shared = {name: writer.write(definitions[name], name) for name in definitions if name in writer.shared - {root}}
    return document | ({"$defs": shared} if shared else {})


class _Generator(GenerateJsonSchema):
    """pydantic's own, with what `validation` says about a schema in its metadata, and without titles."""

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        notes = schema.get("metadata", {})
        if "json" in notes:
            return dict(notes["json"])
        found = super().generate_inner(schema)
        if "record" in notes:
            doc = _doc(notes["record"])
            parts = {"properties": found["properties"], "required": found.get("required", [])}
            return {"type": "object"} | ({"description": doc} if doc else {}) | parts | {"additionalProperties": False}
        if notes.get("description"):
            found = found | {"description": notes["description"]}
        return found | (
            {"default": json_data(notes["default"])} if notes.get("default", MISSING) is not MISSING else {}
        )

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - pydantic's signature
        return False

    def sort(self, value: dict[str, Any], parent_key: str | None = None) -> dict[str, Any]:  # noqa: ARG002 - same
        return value


class _Writer:
    """Puts definitions that are used once where they are used, and makes a schema strict if that is wanted."""

    def __init__(self, definitions: dict[str, Any], shared: set[str], root: str, *, strict: bool) -> None:
        self.definitions, self.shared, self.root, self.strict = definitions, shared, root, strict

    def write(self, schema: dict[str, Any], where: str) -> dict[str, Any]:
        if "$ref" in schema:
            return self._reference(schema)
        if self.strict and (not schema or schema.get("additionalProperties")):
            advice = "use strict=False, or a list of a dataclass with a key and a value"
            raise UnsupportedType(where, "open-ended, and the schema strict", advice)
        written = {name: part for name, part in schema.items() if not (self.strict and name in _NOT_STRICT)}
        for name in ("items", "additionalProperties"):
            if isinstance(schema.get(name), dict):
                written[name] = self.write(schema[name], where)
        for name in ("anyOf", "prefixItems"):
            if name in schema:
                written[name] = [self.write(option, where) for option in schema[name]]
        if "properties" in schema:
            written["properties"] = {
                name: self._property(part, f"{where}.{name}", required=name in schema["required"])
                for name, part in schema["properties"].items()
            }
            written["required"] = list(schema["properties"]) if self.strict else schema["required"]
        if self.strict and schema.get("type") == "array" and "items" not in schema:
            options = written.pop("prefixItems", [{"type": "null"}])
            distinct = [option for at, option in enumerate(options) if option not in options[:at]]
            written["items"] = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
        return written

    def _reference(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = schema["$ref"].removeprefix(_REF)
        notes = {key: part for key, part in schema.items() if key != "$ref" and not (self.strict and key == "default")}
        if name not in self.shared:
            return self.write(self.definitions[name], name) | notes
        target = {"$ref": "#" if name == self.root else schema["$ref"]}
        return target if self.strict else target | notes  # strict mode wants a $ref alone

    def _property(self, schema: dict[str, Any], where: str, *, required: bool) -> dict[str, Any]:
        written = self.write(schema, where)
        if required or not self.strict or _takes_null(written):
            return written
        notes = {"description": written.pop("description")} if "description" in written else {}
        if written.keys() == {"type"}:
            return {"type": [*_listed(written["type"]), "null"]} | notes
        return {"anyOf": [*written.get("anyOf", [written]), {"type": "null"}]} | notes


def _takes_null(schema: dict[str, Any]) -> bool:
    return "null" in _listed(schema.get("type")) or any(map(_takes_null, schema.get("anyOf", ())))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].removeprefix(_REF)
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _references(inner)


def _doc(cls: type) -> str:
    """The first paragraph of a dataclass's own docstring, not the signature that `dataclass` puts there."""
    doc = cleandoc(cls.__doc__ or "")
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.partition("\n\n")[0].split())
