"""JSON data into dataclasses, with everything that is wrong with it found in one go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from minutebook.prompt.answer import Problem, at_index, at_key, said
from minutebook.prompt.coerce import coerced
from minutebook.prompt.fit import Lenience, expected, fits, nearest
from minutebook.prompt.hints import members
from minutebook.prompt.limits import Kind, breaches
from minutebook.prompt.shape import FORMATS, Member, Shape
from minutebook.record.form import is_a, same

BAD: Final = object()
"""What stands for a value that could not be read; the reason is among the problems."""
_LEFT_OUT: Final = object()
"""What stands for a field that keeps its default."""


@dataclass(slots=True)
class Reader:
    """Reads values of any shape; `problems` grows."""

    lenience: Lenience
    problems: list[Problem]

    def read(self, shape: Shape, data: Any, path: str) -> Any:
        if self.lenience is Lenience.COERCE and shape.kind != "union":
            data = coerced(shape, data)
        match shape.kind:
            case "any":
                return data
            case "scalar" if shape.type in FORMATS:
                return self.formatted(shape, data, path)
            case "scalar":
                return self.plain(shape, data, path)
            case "literal":
                for value, meant in shape.choices:
                    if same(value, data):
                        return meant
            case "many" if isinstance(data, list | tuple):
                return self.many(shape, data, path)
            case "row" if isinstance(data, list | tuple) and len(data) == len(shape.parts):
                parts = [
                    self.read(part, inner, at_index(path, at))
                    for at, (part, inner) in enumerate(zip(shape.parts, data, strict=True))
                ]
                return BAD if any(part is BAD for part in parts) else tuple(parts)
            case "mapping" if isinstance(data, Mapping):
                return self.mapping(shape, data, path)
            case "dataclass" if isinstance(data, Mapping):
                return self.record(shape.type, data, path)
            case "union":
                return self.union(shape, data, path)
        return self.wrong(path, f"is {said(data)}; give {expected(shape)}")

    def wrong(self, path: str, problem: str) -> Any:
        self.problems.append(Problem(path, problem))
        return BAD

    def within(self, shape: Shape, value: Any, path: str) -> Any:
        for breach in breaches(shape.limits, shape.limited_as or Kind.TEXT, value):
            self.wrong(path, breach)
        return value

    def plain(self, shape: Shape, data: Any, path: str) -> Any:
        if shape.type is float and type(data) is int and self.lenience >= Lenience.NUMBERS:
            try:
                data = float(data)
            except OverflowError:
                return self.wrong(path, "is too large a number")
        if not is_a(shape.type, data):
            return self.wrong(path, f"is {said(data)}; give {expected(shape)}")
        return self.within(shape, data, path)

    def formatted(self, shape: Shape, data: Any, path: str) -> Any:
        if isinstance(data, shape.type):
            return data
        if isinstance(data, str):
            try:
                return FORMATS[shape.type][1](data)
            except ValueError:
                pass
        return self.wrong(path, f"is {said(data)}; give {expected(shape)}")

    def many(self, shape: Shape, data: list[Any] | tuple[Any, ...], path: str) -> Any:
        parts = [self.read(shape.parts[0], part, at_index(path, at)) for at, part in enumerate(data)]
        if any(part is BAD for part in parts):
            return BAD
        try:
            made = shape.type(parts)
        except TypeError:
            return self.wrong(path, "holds what cannot be in a set")
        if len(made) != len(parts):
            return self.wrong(path, "holds the same item twice; give each once")
        return self.within(shape, made, path)

    def mapping(self, shape: Shape, data: Mapping[Any, Any], path: str) -> Any:
        (keys, values), made = shape.parts, {}
        for key, part in data.items():
            place = at_key(path, str(key))
            made[self.read(keys, key, place)] = self.read(values, part, place)
        if BAD in made or any(part is BAD for part in made.values()):
            return BAD
        return self.within(shape, made, path)

    def record(self, cls: type, data: Mapping[Any, Any], path: str) -> Any:
        own = members(cls)
        names = [member.name for member in own]
        before = len(self.problems)
        given = {member.name: self.member(member, data, at_key(path, member.name)) for member in own}
        for key in data:
            if key not in names:
                known = f"the fields are {', '.join(names)}" if names else "there are no fields"
                self.wrong(at_key(path, str(key)), f"is not a field of {cls.__name__}; {known}")
        if len(self.problems) > before:
            return BAD
        try:
            return cls(**{name: value for name, value in given.items() if value is not _LEFT_OUT})
        except (TypeError, ValueError) as error:  # what its own __post_init__ refuses
            return self.wrong(path, str(error))

    def member(self, member: Member, data: Mapping[Any, Any], path: str) -> Any:
        if member.name not in data:
            return self.wrong(path, "is missing") if member.required else _LEFT_OUT
        value = data[member.name]
        if value is None and not member.required and not fits(member.shape, None):
            return _LEFT_OUT  # strict mode says null for "not given"
        return self.read(member.shape, value, path)

    def union(self, shape: Shape, data: Any, path: str) -> Any:
        """The first option that fits exactly; else the first that fits with some lenience."""
        first: list[Problem] = []
        for lenience in Lenience:
            if lenience > self.lenience:
                break
            first = []  # what is wrong by a stricter reading than ours is not wrong
            for option in shape.parts:
                if not fits(option, data, lenience):
                    continue
                trial = Reader(lenience, [])
                value = trial.read(option, data, path)
                if not trial.problems:
                    return value
                first = first or trial.problems
        if first:
            self.problems += first
            return BAD
        meant = nearest(shape, data)
        if meant is not None:
            return self.read(meant, data, path)
        return self.wrong(path, f"is {said(data)}; give {expected(shape)}")
