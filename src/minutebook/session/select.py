"""Reading a session or a snapshot with plain functions."""

from collections.abc import Callable
from operator import attrgetter
from typing import Protocol, TypeVar
from uuid import UUID

from minutebook.record.entry import ConversationEntry
from minutebook.session.fluent import Query

T = TypeVar("T")


class Queryable(Protocol):
    """What has slices to read: a session, or a snapshot of one."""

    def query(self, slice_type: type[T], /) -> Query[T]:
        """Read a slice."""
        ...


def select_all(session: Queryable, slice_type: type[T]) -> tuple[T, ...]:
    """Every value of a slice, oldest first."""
    return session.query(slice_type).all()


def select_where(session: Queryable, slice_type: type[T], predicate: Callable[[T], bool]) -> tuple[T, ...]:
    """The values of a slice that satisfy a predicate, oldest first."""
    return session.query(slice_type).where(predicate)


def select_latest(session: Queryable, slice_type: type[T]) -> T | None:
    """The newest value of a slice, or None."""
    return session.query(slice_type).latest()


def get_evaluation_history(session: Queryable, evaluation_id: UUID) -> tuple[ConversationEntry, ...]:
    """Return all conversation entries for a specific evaluation, by their sequence."""
    entries = select_where(session, ConversationEntry, lambda entry: entry.evaluation_id == evaluation_id)
    return tuple(sorted(entries, key=attrgetter("sequence")))
