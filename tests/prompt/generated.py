"""Dataclasses of every kind that has a JSON form, and values of them, by Hypothesis."""

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from datetime import UTC, date, datetime
from enum import Enum, IntEnum, StrEnum
from typing import Any, Literal, Union
from uuid import UUID

from hypothesis import strategies as st


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


@dataclass(frozen=True)
class Tree:
    """Holds itself."""

    name: str
    kids: tuple["Tree", ...] = ()
    next: "Tree | None" = None


texts = st.text(max_size=8)
trees = st.recursive(
    st.builds(Tree, texts),
    lambda inner: st.builds(Tree, texts, st.lists(inner, max_size=2).map(tuple), st.none() | inner),
    max_leaves=4,
)
SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, texts),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (None, st.none()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Size, st.sampled_from(Size)),
    (Literal["a", 1, True, None], st.sampled_from(["a", 1, True, None])),  # noqa: PYI061 - null as a choice is the point
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (date, st.dates()),
    (UUID, st.uuids()),
    (Tree, trees),
]
KIND = {str: "text", int: "number", float: "number", bool: "truth", None: "null", Tree: "object"}
"""What a scalar is in JSON, for those that may stand in a union: no two members of one kind."""


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[Any, st.SearchStrategy[Any]]:
    """A type hint, and the values it allows."""
    if depth == 0:
        return draw(st.sampled_from(SCALARS))
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "set", "tuple", "row", "dict", "union", "class"]))
    if kind == "scalar":
        return draw(st.sampled_from(SCALARS))
    if kind == "union":
        chosen = draw(
            st.lists(st.sampled_from(SCALARS), min_size=2, max_size=3, unique_by=lambda one: KIND.get(one[0]))
        )
        members = [one for one in chosen if one[0] in KIND] or SCALARS[:1]
        return Union[tuple(hint for hint, _ in members)], st.one_of([values for _, values in members])  # noqa: UP007
    if kind == "class":
        cls, values = draw(classes(depth - 1))
        return cls, values
    hint, values = draw(typed(depth - 1))
    if kind == "set":
        hint, values = draw(st.sampled_from(SCALARS))
        return frozenset[hint], st.frozensets(values, max_size=3)
    if kind == "row":
        other, others = draw(typed(0))
        return tuple[hint, other], st.tuples(values, others)
    if kind == "dict":
        keys, names = draw(st.sampled_from([(str, texts), (Colour, st.sampled_from(Colour))]))
        return Mapping[keys, hint], st.dictionaries(names, values, max_size=3)
    many = st.lists(values, max_size=3)
    return (list[hint], many) if kind == "list" else (tuple[hint, ...], many.map(tuple))


@st.composite
def classes(draw: st.DrawFn, depth: int = 2) -> tuple[type, st.SearchStrategy[Any]]:
    """A dataclass, and values of it; some fields have defaults."""
    fields, given = [], {}
    for name in draw(st.lists(st.sampled_from("abcdef"), max_size=4, unique=True)):
        hint, values = draw(typed(depth))
        has_default = draw(st.booleans())
        default = draw(values) if has_default else None
        made = field(kw_only=True, default_factory=lambda value=default: value) if has_default else field(kw_only=True)
        fields.append((name, hint, made))
        given[name] = values
    cls = make_dataclass(draw(st.sampled_from(["Note", "Plan"])), fields, frozen=True)
    return cls, st.builds(cls, **given)


@st.composite
def values_of_classes(draw: st.DrawFn) -> Any:
    _, values = draw(classes())
    return draw(values)
