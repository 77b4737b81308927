"""JSON Schema for dataclasses: what a tool takes, and what an answer must be.

A dataclass used in several places, or inside itself, stands once under `$defs`; every other is written out where it
is used, which small models read better. `strict=True` gives what OpenAI's strict mode accepts: every field required,
one with a default nullable instead (the reader takes null for the default), and no keyword that mode refuses.

Dataclasses as JSON data. What `dump` writes, `parse` reads back equal.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date
from enum import Enum
from functools import lru_cache
from inspect import cleandoc
from types import NoneType
from typing import Any, Final
from uuid import UUID

from minutebook.errors import InvalidSetting, UnsupportedType
from minutebook.prompt.hints import members
from minutebook.prompt.limits import Kind, keywords
from minutebook.prompt.shape import FORMATS, Member, Shape


def dump(value: Any) -> Any:
    """The value as JSON data: dataclasses as dicts, sets as sorted lists, enums as their values, dates as ISO text.

    Raises:
        UnsupportedType: a part of it has no JSON form.
    """
    if isinstance(value, Enum):
        return dump(value.value)
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
        return {each.name: dump(getattr(value, each.name)) for each in fields(value) if each.init}
    if isinstance(value, Mapping):
        return {_key(key): dump(part) for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(map(dump, value), key=lambda part: json.dumps(part, sort_keys=True))
    if isinstance(value, list | tuple):
        return [dump(part) for part in value]
    raise UnsupportedType(f"{value!r:.80}", f"a {type(value).__name__}", "give a dataclass, a list, a dict or a scalar")


def dump_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON text, readable: no escapes for letters beyond ASCII."""
    return json.dumps(dump(value), ensure_ascii=False, indent=indent)


def _key(key: Any) -> str:
    text = key.value if isinstance(key, Enum) else key
    if not isinstance(text, str):
        raise UnsupportedType(f"the key {key!r}", f"a {type(key).__name__}", "key mappings by text")
    return text


_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}
_NOT_STRICT: Final = frozenset({"minLength", "maxLength", "minProperties", "maxProperties"})


def json_schema(cls: type, *, strict: bool = False) -> dict[str, Any]:
    """The JSON Schema of a dataclass.

    Raises:
        UnsupportedType: a field has a type that has no JSON form, or none that strict mode takes.
    """
    copy: dict[str, Any] = _copied(_document(cls, strict))
    return copy


@lru_cache(maxsize=1024)
def _document(cls: type, strict: bool) -> dict[str, Any]:
    """The schema that callers get copies of: written once for a class, it is asked for on every render."""
    return _Writer(cls, strict=strict).document()


class _Writer:
    def __init__(self, root: type, *, strict: bool) -> None:
        self.root, self.strict = root, strict
        used = Counter({root: 1})
        _count(root, used)
        self.shared = _labels(cls for cls, times in used.items() if times > 1 and cls is not root)

    def document(self) -> dict[str, Any]:
        definitions = {label: self.record(cls) for cls, label in self.shared.items()}
        return self.record(self.root) | ({"$defs": definitions} if definitions else {})

    def record(self, cls: type) -> dict[str, Any]:
        own = members(cls)
        schema: dict[str, Any] = {"type": "object"}
        if doc := _doc(cls):
            schema["description"] = doc
        schema["properties"] = {member.name: self.member(member, f"{cls.__name__}.{member.name}") for member in own}
        schema["required"] = [member.name for member in own if member.required or self.strict]
        return schema | {"additionalProperties": False}

    def member(self, member: Member, where: str) -> dict[str, Any]:
        schema = self.shape(member.shape, where)
        if self.strict and not member.required and not _takes_null(member.shape):
            schema = _any_of([schema, {"type": "null"}])
        if member.description and not (self.strict and "$ref" in schema):  # strict mode wants a $ref alone
            schema = schema | {"description": member.description}
        if member.default is not MISSING and not self.strict:
            schema = schema | {"default": dump(member.default)}
        return schema

    def shape(self, shape: Shape, where: str) -> dict[str, Any]:
        match shape.kind:
            case "scalar" if shape.type in FORMATS:
                return {"type": "string", "format": FORMATS[shape.type][0]}
            case "scalar":
                return {"type": _NAMES[shape.type]} | self.limits(shape)
            case "literal":
                kinds = list(dict.fromkeys(_NAMES[type(value)] for value, _ in shape.choices))
                values = [value for value, _ in shape.choices]
                return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}
            case "many":
                unique = {"uniqueItems": True} if issubclass(shape.type, AbstractSet) and not self.strict else {}
                return {"type": "array", "items": self.shape(shape.parts[0], where)} | unique | self.limits(shape)
            case "row":
                return self.row(shape, where)
            case "union":
                return _any_of([self.shape(option, where) for option in shape.parts])
            case "dataclass":
                return self.reference(shape.type)
            case "any" | "mapping":
                return self.open(shape, where)

    def row(self, shape: Shape, where: str) -> dict[str, Any]:
        items = [self.shape(item, where) for item in shape.parts]
        size = {"minItems": len(items), "maxItems": len(items)}
        if not self.strict:
            return {"type": "array", "prefixItems": items} | size if items else {"type": "array"} | size
        distinct = [item for at, item in enumerate(items) if item not in items[:at]]
        return {"type": "array", "items": _any_of(distinct) if distinct else {"type": "null"}} | size

    def open(self, shape: Shape, where: str) -> dict[str, Any]:
        if self.strict:
            advice = "use strict=False, or a list of a dataclass with a key and a value"
            raise UnsupportedType(where, "open-ended, and the schema strict", advice)
        if shape.kind == "any":
            return {}
        key, value = shape.parts
        names = {"propertyNames": self.shape(key, where)} if key.kind == "literal" else {}
        return {"type": "object", "additionalProperties": self.shape(value, where)} | names | self.limits(shape)

    def reference(self, cls: type) -> dict[str, Any]:
        if cls is self.root:
            return {"$ref": "#"}
        if cls in self.shared:
            return {"$ref": f"#/$defs/{self.shared[cls]}"}
        return self.record(cls)

    def limits(self, shape: Shape) -> dict[str, Any]:
        said = keywords(shape.limits, shape.limited_as or Kind.TEXT)
        return {name: bound for name, bound in said.items() if not (self.strict and name in _NOT_STRICT)}


def _count(cls: type, used: "Counter[type]") -> None:
    """Count where each dataclass stands as a part of another, going into each of them once."""
    for member in members(cls):
        for part in _records(member.shape):
            used[part] += 1
            if used[part] == 1:
                _count(part, used)


def _records(shape: Shape) -> list[type]:
    return [shape.type] if shape.kind == "dataclass" else [cls for part in shape.parts for cls in _records(part)]


def _labels(classes: Any) -> dict[type, str]:
    labels: dict[type, str] = {}
    for cls in classes:
        alike = sum(other.__name__ == cls.__name__ for other in labels)
        labels[cls] = f"{cls.__name__}_{alike + 1}" if alike else cls.__name__
    return labels


def _any_of(options: list[dict[str, Any]]) -> dict[str, Any]:
    flat = [part for option in options for part in (option["anyOf"] if set(option) == {"anyOf"} else [option])]
    if len(flat) > 1 and all(set(option) == {"type"} and isinstance(option["type"], str) for option in flat):
        return {"type": [option["type"] for option in flat]}  # the same in fewer tokens
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _takes_null(shape: Shape) -> bool:
    return any(option.type is NoneType or any(value is None for value, _ in option.choices) for option in shape.options)


def _doc(cls: type) -> str:
    """The first paragraph of a dataclass's own docstring, not the signature that `dataclass` puts there."""
    doc = cleandoc(cls.__doc__ or "")
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.partition("\n\n")[0].split())


def _copied(schema: Any) -> Any:
    if type(schema) is dict:
        return {name: _copied(part) for name, part in schema.items()}
    return [_copied(part) for part in schema] if type(schema) is list else schema
