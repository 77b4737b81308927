"""From values that somebody wrote down to frozen dataclasses, with every problem at its place.

A value remembers where it was written. Reading goes on after a problem, so that all problems of a file are told at once.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from minutebook.errors import InvalidConfig, InvalidSetting

T = TypeVar("T")
YES: Final = frozenset({"true", "yes", "on", "1"})
NO: Final = frozenset({"false", "no", "off", "0"})
BAD: Final = object()
"""What a value is read as that cannot be meant."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from."""

    kind: Literal["default", "file", "env", "flag"] = "default"
    name: str = ""
    """The file, the environment variable or the flag."""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.kind == "file":
            return self.name if self.line is None else f"{self.name}:{self.line}"
        return f"{self.kind} {self.name}".rstrip()


DEFAULT: Final = Origin()


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written: a scalar, a mapping of texts to such values, or a list of them."""

    value: Any
    origin: Origin
    text: str | None = None
    """The scalar as it was written, before anything made a number or a truth of it: YAML takes `off` for false."""
    key: Origin | None = None
    """Where its key was written."""
    loose: bool = False
    """Whether it is text that may stand for a number or a truth, as in the environment."""


@dataclass(slots=True)
class Reader:
    """What is read, and what was wrong with it."""

    problems: list[InvalidConfig] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    """Dotted key → where its value comes from, for every key that was given."""
    special: Mapping[Any, "Special"] = field(default_factory=dict)
    """Types that have their own way of being read."""

    def problem(self, origin: Origin, key: str, problem: str, hint: str = "") -> None:
        where = str(origin) if origin.kind != "file" else origin.name
        self.problems.append(InvalidConfig(where, origin.line, origin.column, key, problem, hint))

    def read(self, kind: Any, given: Given, key: str) -> Any:
        """The value as `kind`; BAD, and a problem more, if it is none."""
        if kind in self.special:
            return self.special[kind](self, given, key)
        if is_dataclass(kind) and isinstance(kind, type):
            return self.structure(kind, given, key)
        shape, inner = get_origin(kind), get_args(kind)
        if shape in {Union, UnionType}:
            return self._optional(inner, given, key)
        if shape is Literal:
            return self._choice(inner, given, key)
        if shape is tuple:
            return self._items(inner[0], given, key)
        if shape is not None and issubclass(shape, Mapping):
            found = {
                name: self.read(inner[1], each, f"{key}.{name}") for name, each in self.mapping(given, key).items()
            }
            return {name: each for name, each in found.items() if each is not BAD}
        return self._scalar(kind, given, key)

    def structure(self, kind: type[T], given: Given, key: str) -> T | object:
        """The dataclass that a mapping spells; where a value is bad, with the default in its place.

        Keys that it has not are problems.
        """
        members = self.mapping(given, key)
        hints = get_type_hints(kind)
        known = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        values: dict[str, Any] = {}
        for name, each in members.items():
            inside = f"{key}.{name}" if key else name
            if name not in known:
                self.unknown(each, inside, name, known)
            elif (value := self.read(hints[name], each, inside)) is not BAD:
                values[name] = value
        while True:
            try:
                return kind(**values)
            except InvalidSetting as error:
                bad = error.name if error.name in values else None
                if bad is None and len(values) < len(members):
                    return BAD  # it may only lack what could not be read
                inside = f"{key}.{bad}" if bad and key else bad or key
                at = members[bad].origin if bad else given.origin
                self.problem(at, inside, f"is {error.value!r}", f"give {error.expected}")
                if bad is None:
                    return BAD
                del values[bad]  # and on, for what else is wrong

    def mapping(self, given: Given, key: str) -> dict[str, Given]:
        if given.value is None:
            return {}  # a section of which every key is commented out
        if not isinstance(given.value, dict):
            self.problem(given.origin, key, f"is {_shown(given)}", "give keys with values")
            return {}
        return given.value

    def unknown(self, given: Given, key: str, name: str, known: list[str]) -> None:
        """Say that there is no such key, and which one may be meant."""
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        self.problem(given.key or given.origin, key, "is not a key that means anything here", hint)

    def _optional(self, kinds: tuple[Any, ...], given: Given, key: str) -> Any:
        kind = next(kind for kind in kinds if kind is not NoneType)
        if given.value is None and not given.text and is_dataclass(kind):
            return self.read(kind, given, key)
        if given.value is None or (given.loose and not given.text):
            self.origins[key] = given.origin
            return None
        return self.read(kind, given, key)

    def _choice(self, options: tuple[str, ...], given: Given, key: str) -> Any:
        self.origins[key] = given.origin
        said = given.value if isinstance(given.value, str) else given.text
        if said in options:
            return said
        near = get_close_matches(str(said), options, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"give {', '.join(options[:-1])} or {options[-1]}"
        self.problem(given.origin, key, f"is {_shown(given)}", hint)
        return BAD

    def _items(self, kind: Any, given: Given, key: str) -> tuple[Any, ...]:
        if given.value is None:
            return ()
        if not isinstance(given.value, list):
            self.problem(given.origin, key, f"is {_shown(given)}", "give a list: - … on a line for each")
            return ()
        found = [self.read(kind, each, f"{key}[{at}]") for at, each in enumerate(given.value)]
        return tuple(each for each in found if each is not BAD)

    def _scalar(self, kind: Any, given: Given, key: str) -> Any:
        self.origins[key] = given.origin
        value = _loosened(kind, given.value) if given.loose and isinstance(given.value, str) else given.value
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is kind:
            return value
        expected = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[kind]
        quote = ", in quotes" if kind is str and given.text else ""
        self.problem(given.origin, key, f"is {_shown(given)}", f"give {expected}{quote}")
        return BAD


Special = Callable[[Reader, Given, str], Any]


def plain(given: Given) -> Any:
    """The value without where it was written."""
    if isinstance(given.value, dict):
        return {name: plain(each) for name, each in given.value.items()}
    if isinstance(given.value, list):
        return [plain(each) for each in given.value]
    return given.value


def _loosened(kind: Any, text: str) -> Any:
    """What a text of the environment stands for, or the text itself."""
    try:
        if kind is bool:
            return True if text.lower() in YES else False if text.lower() in NO else text
        return kind(text) if kind in {int, float} else text
    except ValueError:
        return text


def _shown(given: Given) -> str:
    if isinstance(given.value, dict):
        return "a mapping"
    if isinstance(given.value, list):
        return "a list"
    return "empty" if given.value is None else repr(given.text if given.text is not None else given.value)
