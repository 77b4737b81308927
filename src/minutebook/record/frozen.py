"""Messages that cannot be changed in place.

They are dicts and lists, so everything that reads one works, `json.dumps` and `{**message}` included; what would write
raises. The record is handed to code that is not ours only in this form.
"""

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

from minutebook.errors import RecordIsReadOnly

K = TypeVar("K")
V = TypeVar("V")
ATOMS: Final = frozenset({str, int, float, bool, type(None)})
"""What nearly all of JSON data is in the end, known by its type alone: asking whether it is a mapping takes far longer."""


def _refuse(name: str) -> Any:
    def refuse(_self: object, *_args: object, **_kwargs: object) -> NoReturn:
        raise RecordIsReadOnly(name.strip("_"))

    refuse.__name__ = name
    return refuse


class FrozenDict(dict[K, V]):
    """A dict that only reads."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse("assignment")
    clear, pop, popitem, setdefault, update = map(_refuse, ("clear", "pop", "popitem", "setdefault", "update"))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


class FrozenList(list[V]):
    """A list that only reads."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse("assignment")
    append, clear, extend, insert = map(_refuse, ("append", "clear", "extend", "insert"))
    pop, remove, reverse, sort = map(_refuse, ("pop", "remove", "reverse", "sort"))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenList, (list(self),)


def frozen(value: Any) -> Any:
    """A copy of JSON data that cannot be changed in place."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, Mapping):
        return FrozenDict((key, frozen(inner)) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return FrozenList(frozen(inner) for inner in value)
    return value


def thawed(value: Any) -> Any:
    """A copy of JSON data in plain dicts and lists."""
    if type(value) in ATOMS:
        return value
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [thawed(inner) for inner in value]
    return value
