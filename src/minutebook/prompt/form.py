"""The form of a type hint and the fields of a dataclass. A form is one level deep, and its parts are hints again."""

from collections.abc import Collection, Iterable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, NewType, Union, get_args, get_origin, get_type_hints
from uuid import UUID

_SCALARS: Final = frozenset({str, bool, int, float, NoneType, UUID, datetime, date})
_CONTAINERS: Final[Mapping[type, type]] = {
    **dict.fromkeys((list, MutableSequence), list),
    **dict.fromkeys((set, MutableSet), set),
    **dict.fromkeys((frozenset, AbstractSet), frozenset),
    **dict.fromkeys((tuple, Sequence, Collection, Iterable), tuple),
    **dict.fromkeys((dict, MutableMapping, Mapping), dict),
}


class Unresolved(Exception):
    """A hint names what cannot be found, or is no hint."""


class Form(NamedTuple):
    """What one hint says."""

    kind: Literal["any", "scalar", "literal", "enum", "dataclass", "union", "row", "many", "mapping", "alias", "other"]
    type: Any = None
    """The class that is meant; of a container, the one to make."""
    parts: tuple[Any, ...] = ()
    """The hints of what it may be or hold; a Literal's choices; the hint that an alias is for, and then its notes."""


_OTHER: Final = Form("other")


def form_of(hint: Any) -> Form:
    """What a hint says; "other" for what is none of ours. An alias is a `NewType` or an `Annotated`."""
    if isinstance(hint, type):
        return _of_class(hint)
    if hint is None:
        return _of_class(NoneType)
    if isinstance(hint, NewType):
        return Form("alias", None, (hint.__supertype__,))
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return Form("alias", None, parts)
    if origin is Literal:
        return Form("literal", None, parts)
    if origin is Union or origin is UnionType:
        return Form("union", None, parts)
    if origin is tuple and Ellipsis not in parts and hasattr(hint, "__args__"):  # tuple[()] has parts, namely none
        return Form("row", tuple, parts)
    bare = _of_class(origin) if isinstance(origin, type) else _OTHER
    return bare._replace(parts=parts[: len(bare.parts)] or bare.parts) if bare.parts else _OTHER


def _of_class(kind: type) -> Form:
    if kind is Any or kind is object:
        return Form("any")
    if kind in _CONTAINERS:
        is_mapping = issubclass(kind, Mapping)
        return Form("mapping" if is_mapping else "many", _CONTAINERS[kind], (str, Any) if is_mapping else (Any,))
    if kind in _SCALARS:
        return Form("scalar", kind)
    if issubclass(kind, Enum):
        return Form("enum", kind)
    return Form("dataclass", kind) if is_dataclass(kind) else _OTHER


def label(hint: Any) -> str:
    """What a hint is called in errors. Never a module's name."""
    if hint is Ellipsis:
        return "..."
    if isinstance(hint, list):  # the parameters of a Callable
        return f"[{', '.join(map(label, hint))}]"
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Union or origin is UnionType:
        return " | ".join(map(label, arguments))
    name = getattr(origin or hint, "__name__", None) or repr(origin or hint).removeprefix("typing.")
    parts = map(repr if origin is Literal else label, arguments)
    return f"{name}[{', '.join(parts)}]" if arguments else name


@lru_cache(maxsize=1024)
def fields_of(cls: type) -> tuple[tuple[Field[Any], Any], ...]:
    """The fields that make a dataclass, in order, each with its hint, `Annotated` as it is.

    Names are looked for in the class, which may stand in a function and hold itself, and then in its module.

    Raises:
        Unresolved: a name is not there, or is not that of a type.
    """
    near: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        near |= {name: inner for name, inner in vars(base).items() if isinstance(inner, type)} | {base.__name__: base}
    try:
        hints = get_type_hints(cls, localns=near, include_extras=True)
    except (AttributeError, NameError, SyntaxError, TypeError) as problem:
        raise Unresolved(str(problem)) from problem
    return tuple((each, hints[each.name]) for each in fields(cls) if each.init)


def is_required(each: Field[Any]) -> bool:
    """Whether a dataclass cannot be made without this field."""
    return each.default is MISSING and each.default_factory is MISSING


def is_a(kind: type | tuple[type, ...], value: Any) -> bool:
    """Whether a value is of that type; a truth value is no number."""
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, and of one type: `1` is not `True`."""
    return type(one) is type(other) and bool(one == other)
