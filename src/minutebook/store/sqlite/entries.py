"""Entries as rows: read by their place, and deleted."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import text_of
from minutebook.store.codec import Packed, unpack, unsqueezed
from minutebook.store.sql.entries import ROLES
from minutebook.store.sqlite.append import SHIFT

_COLUMNS: Final = "place, role, evaluation, sequence, created_at, source, text, rest"
READ: Final = f"SELECT {_COLUMNS} FROM entry WHERE place >= ? AND place < ? ORDER BY place"  # noqa: S608 - a constant of ours
_POSITION: Final = (1 << SHIFT) - 1


def rows(db: apsw.Connection, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
    """All rows of an answer. What a column holds is our own affair, so its type is not checked."""
    return db.execute(statement, values).fetchall()


def place(number: int, position: int) -> int:
    return (number << SHIFT) + position


def position_of(entry_place: int) -> int:
    return entry_place & _POSITION


def unpacked(db: apsw.Connection, found: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of rows of `READ`."""
    sources: dict[int | None, tuple[str | None, str | None]] = {None: (None, None)}
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for at, role, evaluation, sequence, created_at, source, text, rest in found:
        if source not in sources:
            sources[source] = db.execute("SELECT provider, model FROM source WHERE number = ?", (source,)).get
        pieces = (_piece(db, text), _piece(db, rest))
        entries.append(unpack(Packed(ROLES[role], evaluation, sequence, created_at, *sources[source], *pieces)))
        positions.append(position_of(at))
    return positions, entries


def texts(db: apsw.Connection, start: int, stop: int) -> Iterator[tuple[int, str]]:
    """The places and texts of a stretch: what can be searched for, without the rest of the entries."""
    query = "SELECT place, text, rest FROM entry WHERE place >= ? AND place < ? ORDER BY place"
    for at, text, rest in rows(db, query, (start, stop)):
        piece = _piece(db, text)
        if piece is None:
            yield at, text_of(json.loads((_piece(db, rest) or b"{}").decode("utf-8", "surrogatepass")))
        else:
            yield at, piece.decode("utf-8", "surrogatepass")


def delete(db: apsw.Connection, start: int, stop: int) -> int:
    """Remove the entries of a range of places, and the payloads that nothing uses any more. See `search.forget`."""
    span = (start, stop)
    for column in ("text", "rest"):
        used = f"SELECT {column}, count(*) FROM entry WHERE place >= ? AND place < ? AND typeof({column}) = 'integer' GROUP BY 1"  # noqa: S608 - one of two constants
        for number, uses in rows(db, used, span):
            db.execute("UPDATE payload SET uses = uses - ? WHERE number = ?", (uses, number))
            db.execute("DELETE FROM payload WHERE number = ? AND uses = 0", (number,))
    db.execute("DELETE FROM entry WHERE place >= ? AND place < ?", span)
    return db.changes()


def _piece(db: apsw.Connection, kept: Any) -> bytes | None:
    if kept is None:
        return None
    if isinstance(kept, int):
        kept = db.execute("SELECT body FROM payload WHERE number = ?", (kept,)).get
    return unsqueezed(kept)
