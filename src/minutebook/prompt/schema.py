"""JSON Schema for dataclasses: what a tool takes, and what an answer must be.

A dataclass used in several places, or inside itself, stands once under `$defs`; every other is written out where it
is used, which small models read better. `strict=True` gives what OpenAI's strict mode accepts: every field required,
one with a default nullable instead (the reader takes null for the default), and no keyword that mode refuses.
"""

import types
from collections import Counter
from dataclasses import MISSING
from inspect import cleandoc
from typing import Any, Final

from minutebook.errors import UnsupportedType
from minutebook.prompt.dump import dump
from minutebook.prompt.hints import members
from minutebook.prompt.limits import Kind, keywords
from minutebook.prompt.shape import (
    Anything,
    Choice,
    Either,
    Formatted,
    Listing,
    Mapped,
    Member,
    Plain,
    Record,
    Row,
    Shape,
    kind_of,
    option_shapes,
)

_NAMES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_NOT_STRICT: Final = frozenset({"minLength", "maxLength", "minProperties", "maxProperties"})


def json_schema(cls: type, *, strict: bool = False) -> dict[str, Any]:
    """The JSON Schema of a dataclass.

    Raises:
        UnsupportedType: a field has a type that has no JSON form, or none that strict mode takes.
    """
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
        match shape:
            case Plain():
                return {"type": _NAMES[shape.type]} | self.limits(shape)
            case Formatted():
                return {"type": "string", "format": shape.format}
            case Choice():
                kinds = list(dict.fromkeys(_NAMES[type(value)] for value, _ in shape.options))
                values = [value for value, _ in shape.options]
                return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}
            case Listing():
                unique = {"uniqueItems": True} if shape.unique and not self.strict else {}
                return {"type": "array", "items": self.shape(shape.item, where)} | unique | self.limits(shape)
            case Row():
                return self.row(shape, where)
            case Either():
                return _any_of([self.shape(option, where) for option in shape.options])
            case Record():
                return self.reference(shape.type)
            case Anything() | Mapped():
                return self.open(shape, where)

    def row(self, shape: Row, where: str) -> dict[str, Any]:
        items = [self.shape(item, where) for item in shape.items]
        size = {"minItems": len(items), "maxItems": len(items)}
        if not self.strict:
            return {"type": "array", "prefixItems": items} | size if items else {"type": "array"} | size
        distinct = [item for at, item in enumerate(items) if item not in items[:at]]
        return {"type": "array", "items": _any_of(distinct) if distinct else {"type": "null"}} | size

    def open(self, shape: Anything | Mapped, where: str) -> dict[str, Any]:
        if self.strict:
            advice = "use strict=False, or a list of a dataclass with a key and a value"
            raise UnsupportedType(where, "open-ended, and the schema strict", advice)
        if isinstance(shape, Anything):
            return {}
        names = {"propertyNames": self.shape(shape.key, where)} if isinstance(shape.key, Choice) else {}
        value = self.shape(shape.value, where)
        return {"type": "object", "additionalProperties": value} | names | self.limits(shape)

    def reference(self, cls: type) -> dict[str, Any]:
        if cls is self.root:
            return {"$ref": "#"}
        if cls in self.shared:
            return {"$ref": f"#/$defs/{self.shared[cls]}"}
        return self.record(cls)

    def limits(self, shape: Plain | Listing | Mapped) -> dict[str, Any]:
        said = keywords(shape.limits, kind_of(shape) or Kind.TEXT)
        return {name: bound for name, bound in said.items() if not (self.strict and name in _NOT_STRICT)}


def _count(cls: type, used: "Counter[type]") -> None:
    """Count where each dataclass stands as a part of another, going into each of them once."""
    for member in members(cls):
        for part in _records(member.shape):
            used[part] += 1
            if used[part] == 1:
                _count(part, used)


def _records(shape: Shape) -> list[type]:
    match shape:
        case Record():
            return [shape.type]
        case Listing():
            return _records(shape.item)
        case Mapped():
            return _records(shape.value)
        case Row(items=parts) | Either(options=parts):
            return [record for part in parts for record in _records(part)]
    return []


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
    return any(
        option == Plain(types.NoneType) or (isinstance(option, Choice) and any(v is None for v, _ in option.options))
        for option in option_shapes(shape)
    )


def _doc(cls: type) -> str:
    """The first paragraph of a dataclass's own docstring, not the signature that `dataclass` puts there."""
    doc = cleandoc(cls.__doc__ or "")
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.partition("\n\n")[0].split())
