"""The values of a slice: nobody can change them, and appending to them is cheap.

Values that grow out of one another share one list, and each knows how much of it is its own. The newest appends in
place; an older one that is appended to (after a rollback) copies its part first. So a million appends copy nothing,
and a snapshot costs nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class _Shared(Generic[T]):
    __slots__ = ("items", "lock")

    def __init__(self, items: list[T]) -> None:
        self.items = items
        self.lock = Lock()


class Values(Sequence[T]):
    """An immutable sequence that is equal to the tuple of its values."""

    __slots__ = ("_count", "_shared", "_tuple")
    _shared: _Shared[T]
    _count: int
    _tuple: tuple[T, ...] | None

    def __init__(self, values: Iterable[T] = ()) -> None:
        items = list(values)
        self._shared, self._count, self._tuple = _Shared(items), len(items), None

    def plus(self, more: tuple[T, ...]) -> "Values[T]":
        """These values and then more; amortised O(more)."""
        shared = self._shared
        with shared.lock:
            if len(shared.items) != self._count:  # another has gone on from here, the tail is taken
                shared = _Shared(shared.items[: self._count])
            shared.items.extend(more)
        longer: Values[T] = Values.__new__(Values)
        longer._shared, longer._count, longer._tuple = shared, self._count + len(more), None
        return longer

    def as_tuple(self) -> tuple[T, ...]:
        """The tuple of the values, made when first asked for."""
        if self._tuple is None:
            self._tuple = tuple(self)
        return self._tuple

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared.items, self._count)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        places = range(self._count)[index]
        items = self._shared.items
        return items[places] if isinstance(places, int) else tuple(items[place] for place in places)

    def __add__(self, other: Sequence[T]) -> tuple[T, ...]:
        return (*self, *other)

    def __radd__(self, other: Sequence[T]) -> tuple[T, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Values, tuple)):
            return NotImplemented
        return len(self) == len(other) and self.as_tuple() == tuple(other)

    def __hash__(self) -> int:
        return hash(self.as_tuple())

    def __repr__(self) -> str:
        return repr(self.as_tuple())

    def __reduce__(self) -> tuple[Any, ...]:
        return Values, (self.as_tuple(),)
