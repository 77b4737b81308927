"""What a type hint means as JSON, worked out once and used to describe, to read and to write.

A dataclass is an object, `list`, `tuple` and sets are arrays, `Literal` and enums are choices, dates and UUIDs are
text of a certain format. `Annotated[str, "what it is", {"min_length": 1}]` describes and limits anything.
"""

import types
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from minutebook.errors import UnsupportedType
from minutebook.prompt.limits import KEYWORDS, Limits, limits_in
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

_ADVICE: Final = (
    "use str, int, float, bool, None, Literal, an Enum, datetime, date, UUID, list, tuple, set, dict, "
    "a dataclass, or a union of these"
)
_PLAIN: Final = (str, int, float, bool, types.NoneType)
_FORMATTED: Final = {
    datetime: Formatted(datetime, "date-time", datetime.fromisoformat),
    date: Formatted(date, "date", date.fromisoformat),
    UUID: Formatted(UUID, "uuid", UUID),
}
_LISTS: Final[Mapping[Any, tuple[Callable[[list[Any]], Any], bool]]] = {
    list: (list, False),
    MutableSequence: (list, False),
    Sequence: (tuple, False),
    set: (set, True),
    frozenset: (frozenset, True),
    AbstractSet: (frozenset, True),
}
_MAPS: Final = (dict, Mapping, MutableMapping)


def shape_of(hint: Any, where: str = "the type") -> Shape:
    """What a type hint means as JSON.

    Raises:
        UnsupportedType: nothing; `where` says which field it is that has such a type.
    """
    if isinstance(hint, NewType):
        return shape_of(hint.__supertype__, where)
    if hint is Any or hint is object:
        return Anything()
    if hint is None:
        return Plain(types.NoneType)
    if isinstance(hint, type) and not get_args(hint):
        named = _named(hint)
        if named is not None:
            return named
    return _composed(hint, where)


@lru_cache(maxsize=1024)
def members(cls: type) -> tuple[Member, ...]:
    """The fields that make a dataclass, in order.

    Raises:
        UnsupportedType: one of them has a type that has no JSON form.
    """
    try:
        hints = get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
    except NameError as error:
        advice = "define the types it names at the top of a module"
        raise UnsupportedType(cls.__name__, f"a dataclass with an unknown name ({error})", advice) from error
    return tuple(_member(cls, each, hints[each.name]) for each in fields(cls) if each.init)


def _member(cls: type, made: "Field[Any]", hint: Any) -> Member:
    where = f"{cls.__name__}.{made.name}"
    bare, notes = _unannotated(hint)
    notes = {**notes, **made.metadata}
    shape = _limited(shape_of(bare, where), limits_in(notes), where)
    required = made.default is MISSING and made.default_factory is MISSING
    return Member(made.name, shape, required, made.default, notes.get("description"))


def _unannotated(hint: Any) -> tuple[Any, dict[Any, Any]]:
    """A hint without its `Annotated`, and what that says: a text is the description, a mapping is metadata."""
    if get_origin(hint) is not Annotated:
        return hint, {}
    bare, *extras = get_args(hint)
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
        options = option_shapes(shape)
        bound = tuple(_bounded(option, limit) for option in options)
        if bound == options:
            raise UnsupportedType(where, f"limited by {limit[0]!r}", "limit only what has a length or a size so")
        shape = bound[0] if len(bound) == 1 else Either(bound)
    return shape


def _bounded(shape: Shape, limit: tuple[str, Any]) -> Shape:
    kind = kind_of(shape)
    if kind is None or limit[0] not in KEYWORDS[kind] or not isinstance(shape, Plain | Listing | Mapped):
        return shape
    return replace(shape, limits=(*shape.limits, limit))


def _named(hint: type) -> Shape | None:
    if hint in _PLAIN:
        return Plain(hint)
    if hint in _FORMATTED:
        return _FORMATTED[hint]
    if issubclass(hint, Enum):
        return _choice([(member.value, member) for member in hint], f"the enum {hint.__name__}")
    if is_dataclass(hint):
        return Record(hint)
    if hint is tuple:
        return Listing(Anything(), tuple)
    return _collection(hint, (), hint.__name__) if hint in _LISTS or hint in _MAPS else None


def _composed(hint: Any, where: str) -> Shape:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        bare, notes = _unannotated(hint)
        return _limited(shape_of(bare, where), limits_in(notes), where)
    if origin is Union or origin is types.UnionType:
        return Either(tuple(shape_of(option, where) for option in arguments))
    if origin is Literal:
        return _choice([(a.value if isinstance(a, Enum) else a, a) for a in arguments], where)
    if origin in _LISTS or origin in _MAPS or origin is tuple:
        return _collection(origin, arguments, where)
    what = hint.__name__ if isinstance(hint, type) and not arguments else str(hint)
    if is_dataclass(origin):
        raise UnsupportedType(where, f"{what}, a generic dataclass", "make one whose fields have plain types")
    raise UnsupportedType(where, what, _ADVICE)


def _collection(origin: Any, arguments: tuple[Any, ...], where: str) -> Shape:
    if origin in _MAPS:
        key, value = arguments or (str, Any)
        return Mapped(_key(shape_of(key, where), where), shape_of(value, where))
    if origin is tuple:
        if arguments[-1:] == (Ellipsis,):
            return Listing(shape_of(arguments[0], where), tuple)
        return Row(tuple(shape_of(item, where) for item in arguments))
    make, unique = _LISTS[origin]
    return Listing(shape_of(arguments[0], where) if arguments else Anything(), make, unique)


def _key(shape: Shape, where: str) -> Shape:
    if shape == Plain(str) or (isinstance(shape, Choice) and all(isinstance(key, str) for key, _ in shape.options)):
        return shape
    raise UnsupportedType(where, "a mapping whose keys are not text", "key it by str, or by an enum of texts")


def _choice(options: list[tuple[Any, Any]], where: str) -> Shape:
    for value, _ in options:
        if not isinstance(value, _PLAIN):
            raise UnsupportedType(
                where, f"a choice with {value!r}", "choose among texts, numbers, truth values and null"
            )
    return Choice(tuple(options))
