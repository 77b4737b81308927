"""The codec for a type hint: dataclasses, enums, unions, containers and the scalars, in any nesting."""

import types
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    MutableMapping,
    MutableSequence,
    MutableSet,
    Sequence,
)
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum, Flag
from functools import cache
from typing import Any, Final, Literal, NewType, TypeAlias, Union, get_args, get_origin, get_type_hints

from minutebook.record.frozen import FrozenDict
from minutebook.session.codec import ANY, SCALARS, Codec, Misfit, guarded, items, mapping, refuse, row, text, within

Find: TypeAlias = Callable[[Any], Codec]
"""Gives the codec of a part: the registry, which remembers them and has the users' own."""

_CONTAINERS: Final[Mapping[Any, tuple[type, ...]]] = {
    **dict.fromkeys((list, MutableSequence), (list,)),
    **dict.fromkeys((set, MutableSet), (set,)),
    frozenset: (frozenset,),
    # abstract: what it was made as, it comes back as
    **dict.fromkeys((Sequence, Collection, Iterable), (tuple, list)),
    AbstractSet: (frozenset, set),
}
_MAPPINGS: Final[Mapping[Any, Any]] = {dict: dict, MutableMapping: dict, Mapping: FrozenDict, FrozenDict: FrozenDict}


def codec_of(hint: Any, find: Find) -> Codec:
    """The codec of a hint.

    Raises:
        Misfit: there is none for it.
    """
    if hint in SCALARS:
        return SCALARS[hint]
    origin, arguments = get_origin(hint) or hint, get_args(hint)
    if isinstance(hint, NewType):
        return find(hint.__supertype__)
    if origin is Literal:
        return _literal(arguments)
    if origin in {Union, types.UnionType}:
        return _union(arguments, find)
    if origin is tuple:
        return _tuple(arguments, find)
    if origin in _CONTAINERS:
        return _container(_CONTAINERS[origin], arguments, find)
    if origin in _MAPPINGS:
        key, value = arguments or (str, Any)
        return mapping(_MAPPINGS[origin], find(key), find(value), text_keys=key is str)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return _dataclass(hint, find)
    raise Misfit(f"is declared as {label(hint)}; register it in the TypeRegistry with to_json and from_json")


def label(hint: Any) -> str:
    """What a hint is called in a union's data, and in errors. Never a module's name."""
    if hint is Ellipsis:
        return "..."
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return " | ".join(map(label, arguments))
    name = getattr(origin or hint, "__name__", None) or repr(origin or hint).removeprefix("typing.")
    parts = map(repr if origin is Literal else label, arguments)
    return f"{name}[{', '.join(parts)}]" if arguments else name


def _tuple(arguments: tuple[Any, ...], find: Find) -> Codec:
    if not arguments or arguments[-1] is Ellipsis:
        return items(tuple, find(arguments[0]) if arguments else ANY)
    return row([find(argument) for argument in arguments])


def _container(kinds: tuple[type, ...], arguments: tuple[Any, ...], find: Find) -> Codec:
    each = find(arguments[0]) if arguments else ANY
    return _one_of({kind.__name__: items(kind, each) for kind in kinds})


def _union(members: tuple[Any, ...], find: Find) -> Codec:
    others = {label(member): find(member) for member in members if member is not type(None)}
    one = _one_of(others)
    if len(others) == len(members):
        return one
    return Codec(
        lambda value: None if value is None else one.to_json(value),
        lambda data: None if data is None else one.from_json(data),
    )


def _one_of(members: dict[str, Codec]) -> Codec:
    """The first member that takes the value. Where there are several, the data says which it was."""
    if len(members) == 1:
        return next(iter(members.values()))
    expected = " or ".join(members)

    def to_json(value: Any) -> Any:
        for name, codec in members.items():
            try:
                return {"is": name, "value": codec.to_json(value)}
            except Misfit:
                continue
        return refuse(value, expected)

    def from_json(data: Any) -> Any:
        if not isinstance(data, dict) or data.keys() != {"is", "value"} or data["is"] not in members:
            refuse(data, f'{{"is": one of {expected}, "value": …}}')
        return members[data["is"]].from_json(data["value"])

    return Codec(to_json, guarded(from_json))


def _literal(choices: tuple[Any, ...]) -> Codec:
    forms = [(str(choice) if isinstance(choice, Enum) else choice, choice) for choice in choices]

    def pick(value: Any, pairs: list[tuple[Any, Any]]) -> Any:
        for one, other in pairs:
            if type(one) is type(value) and one == value:
                return other
        return refuse(value, "one of " + ", ".join(map(repr, choices)))

    back = [(choice, form) for form, choice in forms]
    return Codec(lambda value: pick(value, back), lambda data: pick(data, forms))


def _enum(kind: type[Enum]) -> Codec:
    if issubclass(kind, Flag):
        return text(kind, lambda value: str(value.value), lambda data: kind(int(data)))
    return text(kind, lambda value: str(value.name), lambda data: kind[data])


def _dataclass(kind: type, find: Find) -> Codec:
    """Field by field. The fields are looked at on first use, so that a type may hold itself."""

    @cache
    def parts() -> list[tuple[Field[Any], Codec]]:
        try:
            hints = get_type_hints(kind)
        except (NameError, TypeError) as problem:
            raise Misfit(
                f"has hints that cannot be resolved: {problem}; register it with to_json and from_json"
            ) from problem
        return [(part, within(f".{part.name}", find, hints[part.name])) for part in fields(kind) if part.init]

    def to_json(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            refuse(value, f"exactly a {kind.__name__}; declare a union, or register it with to_json and from_json")
        return {part.name: within(f".{part.name}", codec.to_json, getattr(value, part.name)) for part, codec in parts()}

    def from_json(data: Any) -> Any:
        known = {part.name for part, _ in parts()}
        if not isinstance(data, dict) or not known.issuperset(data):
            refuse(data, f"an object with {', '.join(sorted(known))}")
        given = {
            part.name: within(f".{part.name}", codec.from_json, data[part.name])
            for part, codec in parts()
            if part.name in data or _is_required(part)
        }
        return kind(**given)

    return Codec(to_json, guarded(from_json))


def _is_required(part: Field[Any]) -> bool:
    if part.default is MISSING and part.default_factory is MISSING:
        raise Misfit("is missing", f".{part.name}")
    return False
