"""Where a driver's errors become ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from redis import exceptions

from minutebook.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable

_BY_WORD: Final[tuple[tuple[str, type[StoreUnavailable]], ...]] = (
    ("OOM", StoreFull),
    ("READONLY", StoreReadOnly),
    ("MISCONF", StoreReadOnly),
    ("WRONGTYPE", StoreDamaged),
)
"""A word that the server's message begins with or holds → our error."""


def translated(error: exceptions.RedisError | OSError, store: str) -> StoreUnavailable:
    """Our error for one of the driver's."""
    said = str(error) or type(error).__name__
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreFull(store, said)
    if isinstance(error, exceptions.ReadOnlyError):
        return StoreReadOnly(store, said)
    if isinstance(error, exceptions.ResponseError):
        for word, kind in _BY_WORD:
            if word in said:
                return kind(store, said)
    return StoreUnavailable(store, said)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except (exceptions.RedisError, OSError) as error:
        if isinstance(error, StoreUnavailable):
            raise
        raise translated(error, store) from error
