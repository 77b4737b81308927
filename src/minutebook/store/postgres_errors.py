"""Where a driver's errors become ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from minutebook.errors import InvalidSetting, StoreDamaged, StoreFull, StoreReadOnly, StoreUnavailable

AGAIN: Final = (errors.SerializationFailure, errors.DeadlockDetected)
"""What a transaction may meet through no fault of its own: it is carried out again."""

_OURS: Final[tuple[tuple[type[psycopg.Error], type[StoreUnavailable]], ...]] = (
    (errors.DiskFull, StoreFull),
    (errors.ReadOnlySqlTransaction, StoreReadOnly),
    (errors.DataCorrupted, StoreDamaged),
    (errors.IndexCorrupted, StoreDamaged),
    (psycopg.Error, StoreUnavailable),
)


def translated(error: psycopg.Error, store: str) -> StoreUnavailable:
    """Our error for one of the driver's. Only the first line is kept: the others may quote what was written."""
    kind = next(ours for theirs, ours in _OURS if isinstance(error, theirs))
    problem = error.diag.message_primary or str(error).strip().partition("\n")[0]
    return kind(store, problem or type(error).__name__)


@contextmanager
def errors_of(store: str) -> Iterator[None]:
    """Let no driver's error out."""
    try:
        yield
    except psycopg.Error as error:
        raise translated(error, store) from error


def address_of(url: str) -> str:
    """A URL without its secrets, to be named in errors.

    Raises:
        InvalidSetting: it is not one that the driver can read.
    """
    try:
        known = conninfo_to_dict(url)
    except psycopg.Error:  # which quotes the URL with its password
        hidden = f"{url.partition(':')[0]}://…"
        raise InvalidSetting("store", hidden, "a URL that PostgreSQL takes: postgresql://user@host/database") from None
    where = known.get("host") or known.get("hostaddr") or ""
    port = f":{known['port']}" if known.get("port") else ""
    return f"postgresql://{where}{port}/{known.get('dbname') or ''}"
