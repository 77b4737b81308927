"""The codec for a type hint: dataclasses, enums, unions, containers and the scalars, in any nesting."""

from collections.abc import Callable
from dataclasses import Field
from enum import Enum, Flag
from functools import cache
from types import NoneType
from typing import Any, TypeAlias

from minutebook.record.form import Unresolved, fields_of, form_of, is_required, label, same
from minutebook.session.codec import ANY, SCALARS, Codec, Misfit, guarded, items, mapping, refuse, row, text, within

Find: TypeAlias = Callable[[Any], Codec]
"""Gives the codec of a part: the registry, which remembers them and has the users' own."""


def codec_of(hint: Any, find: Find) -> Codec:
    """The codec of a hint.

    Raises:
        Misfit: there is none for it.
    """
    kind, types, parts = form_of(hint)
    match kind:
        case "any":
            return ANY
        case "scalar":
            return SCALARS[types[0]]
        case "alias":
            return find(parts[0])
        case "literal":
            return _literal(parts)
        case "union":
            return _union(parts, find)
        case "row":
            return row([find(part) for part in parts])
        case "many":  # what it was made as, it comes back as
            return _one_of({made.__name__: items(made, find(parts[0])) for made in types})
        case "mapping":
            return mapping(types[0], find(parts[0]), find(parts[1]), text_keys=parts[0] is str)
        case "enum":
            return _enum(types[0])
        case "dataclass":
            return _dataclass(types[0], find)
    raise Misfit(f"is declared as {label(hint)}; register it in the TypeRegistry with to_json and from_json")


def _union(members: tuple[Any, ...], find: Find) -> Codec:
    one = _one_of({label(member): find(member) for member in members if member is not NoneType})
    if NoneType not in members:
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
            if same(one, value):
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
            return [(part, within(f".{part.name}", find, hint)) for part, hint in fields_of(kind)]
        except Unresolved as problem:
            advice = "register it with to_json and from_json"
            raise Misfit(f"has hints that cannot be resolved: {problem}; {advice}") from problem

    def to_json(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            refuse(value, f"exactly a {kind.__name__}; declare a union, or register it with to_json and from_json")
        return {part.name: within(f".{part.name}", codec.to_json, getattr(value, part.name)) for part, codec in parts()}

    def from_json(data: Any) -> Any:
        known = {part.name for part, _ in parts()}
        if not isinstance(data, dict) or not known.issuperset(data):
            refuse(data, f"an object with {', '.join(sorted(known))}")
        given = {}
        for part, codec in parts():
            if part.name in data:
                given[part.name] = within(f".{part.name}", codec.from_json, data[part.name])
            elif is_required(part):
                raise Misfit("is missing", f".{part.name}")
        return kind(**given)

    return Codec(to_json, guarded(from_json))
