"""What a value looks like as JSON: the form of its type, all the way down, and the limits it must keep."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from datetime import date, datetime
from types import NoneType
from typing import Any, Final, Literal
from uuid import UUID

from minutebook.prompt.limits import Kind, Limits

PLAIN: Final = (str, int, float, bool, NoneType)
"""The scalars that JSON has."""
FORMATS: Final[Mapping[type, tuple[str, Callable[[str], Any]]]] = {
    datetime: ("date-time", datetime.fromisoformat),
    date: ("date", date.fromisoformat),
    UUID: ("uuid", UUID),
}
"""Those that are text of a certain format, and how it is read."""
_LIMITED: Final[Mapping[Any, Kind]] = {
    str: Kind.TEXT,
    int: Kind.NUMBER,
    float: Kind.NUMBER,
    "many": Kind.LIST,
    "mapping": Kind.MAP,
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A form whose parts are shapes; an enum is a literal here, and an alias what it stands for."""

    kind: Literal["any", "scalar", "literal", "dataclass", "union", "row", "many", "mapping"]
    type: Any = None
    """The scalar or the dataclass; what a list is made as."""
    parts: tuple["Shape", ...] = ()
    """What it may be or hold. A dataclass's fields are looked up when needed, because it may hold itself."""
    choices: tuple[tuple[Any, Any], ...] = ()
    """The scalars that a literal may be, each with what it stands for."""
    limits: Limits = ()

    @property
    def options(self) -> tuple["Shape", ...]:
        """The shapes it may be: those of a union, or itself."""
        return self.parts if self.kind == "union" else (self,)

    @property
    def limited_as(self) -> Kind | None:
        """What limits can apply to it."""
        return _LIMITED.get(self.kind) or _LIMITED.get(self.type)


@dataclass(frozen=True, slots=True)
class Member:
    """One field of a dataclass."""

    name: str
    shape: Shape
    required: bool
    default: Any = MISSING
    """What it is without being given; MISSING also where a factory makes it."""
    description: str | None = None
