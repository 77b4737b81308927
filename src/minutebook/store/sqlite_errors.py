"""Where a driver's errors become ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import apsw

from minutebook.errors import StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable

_OURS: Final[tuple[tuple[type[apsw.Error], type[StoreUnavailable]], ...]] = (
    (apsw.FullError, StoreFull),
    (apsw.ReadOnlyError, StoreReadOnly),
    (apsw.NotADBError, StoreDamaged),
    (apsw.CorruptError, StoreDamaged),
    (apsw.Error, StoreUnavailable),
)


def translated(error: apsw.Error, store: str) -> StoreUnavailable:
    """Our error for one of the driver's; the message is SQLite's own, which quotes no content."""
    kind = next(ours for theirs, ours in _OURS if isinstance(error, theirs))
    return kind(store, str(error) or type(error).__name__)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except apsw.Error as error:
        raise translated(error, store) from error
