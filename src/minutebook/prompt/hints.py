"""What a type hint means as JSON, worked out once and used to describe, to read and to write.

A dataclass is an object, `list`, `tuple` and sets are arrays, `Literal` and enums are choices, dates and UUIDs are
text of a certain format. `Annotated[str, "what it is", {"min_length": 1}]` describes and limits anything.
"""

from collections.abc import Mapping
from dataclasses import Field, is_dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final, get_origin

from minutebook.errors import UnsupportedType
from minutebook.prompt.limits import KEYWORDS, Limits, limits_in
from minutebook.prompt.shape import FORMATS, PLAIN, Member, Shape
from minutebook.record.form import Unresolved, fields_of, form_of, is_required, label

_ADVICE: Final = (
    "use str, int, float, bool, None, Literal, an Enum, datetime, date, UUID, list, tuple, set, dict, "
    "a dataclass, or a union of these"
)


def shape_of(hint: Any, where: str = "the type") -> Shape:
    """What a type hint means as JSON.

    Raises:
        UnsupportedType: nothing; `where` says which field it is that has such a type.
    """
    kind, types, parts = form_of(hint)
    match kind:
        case "any" | "dataclass":
            return Shape(kind, *types)
        case "scalar" if types[0] in PLAIN or types[0] in FORMATS:
            return Shape(kind, types[0])
        case "literal":
            return _choice([(one.value if isinstance(one, Enum) else one, one) for one in parts], where)
        case "enum":
            return _choice([(one.value, one) for one in types[0]], f"the enum {types[0].__name__}")
        case "union" | "row" | "many" | "mapping":
            inner = tuple(shape_of(part, where) for part in parts)
            if kind == "mapping":
                _require_text(inner[0], where)
            return Shape(kind, types[0] if types else None, inner)
        case "alias":
            bare, notes = _unannotated(hint)
            return _limited(shape_of(bare, where), limits_in(notes), where)
    if is_dataclass(get_origin(hint)):
        raise UnsupportedType(where, f"{label(hint)}, a generic dataclass", "make one whose fields have plain types")
    raise UnsupportedType(where, label(hint), _ADVICE)


@lru_cache(maxsize=1024)
def members(cls: type) -> tuple[Member, ...]:
    """The fields that make a dataclass, in order.

    Raises:
        UnsupportedType: one of them has a type that has no JSON form.
    """
    try:
        return tuple(_member(cls, each, hint) for each, hint in fields_of(cls, notes=True))
    except Unresolved as error:
        what, advice = (
            "a dataclass with hints that cannot be resolved",
            "define the types it names at the top of a module",
        )
        raise UnsupportedType(cls.__name__, f"{what} ({error})", advice) from error


def _member(cls: type, made: "Field[Any]", hint: Any) -> Member:
    where = f"{cls.__name__}.{made.name}"
    bare, notes = _unannotated(hint)
    notes = {**notes, **made.metadata}
    shape = _limited(shape_of(bare, where), limits_in(notes), where)
    return Member(made.name, shape, is_required(made), made.default, notes.get("description"))


def _unannotated(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """A hint without its `Annotated`, and what that says: a text is the description, a mapping is metadata."""
    kind, _, parts = form_of(hint)
    bare, *extras = parts if kind == "alias" else (hint,)
    notes: dict[Any, Any] = {}
    for extra in extras:
        if isinstance(extra, str):
            notes["description"] = extra
        elif isinstance(extra, Mapping):
            notes.update(extra)
    return bare, notes


def _limited(shape: Shape, limits: Limits, where: str) -> Shape:
    """The shape with these limits; of a union, those options that they can apply to.

    Raises:
        UnsupportedType: a limit can apply to none of them.
    """
    for limit in limits:
        bound = tuple(_bounded(option, limit) for option in shape.options)
        if bound == shape.options:
            raise UnsupportedType(where, f"limited by {limit[0]!r}", "limit only what has a length or a size so")
        shape = replace(shape, parts=bound) if shape.kind == "union" else bound[0]
    return shape


def _bounded(shape: Shape, limit: tuple[str, Any]) -> Shape:
    kind = shape.limited_as
    return replace(shape, limits=(*shape.limits, limit)) if kind and limit[0] in KEYWORDS[kind] else shape


def _require_text(key: Shape, where: str) -> None:
    is_text = key.kind == "literal" and all(isinstance(value, str) for value, _ in key.choices)
    if not is_text and key != Shape("scalar", str):
        raise UnsupportedType(where, "a mapping whose keys are not text", "key it by str, or by an enum of texts")


def _choice(choices: list[tuple[Any, Any]], where: str) -> Shape:
    for value, _ in choices:
        if not isinstance(value, PLAIN):
            advice = "choose among texts, numbers, truth values and null"
            raise UnsupportedType(where, f"a choice with {value!r}", advice)
    return Shape("literal", choices=tuple(choices))
