"""Entries as rows: written once, read by their place."""

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final, TypeAlias

import apsw

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole, text_of
from minutebook.store.codec import LARGE, Packed, squeezed, unpack, unsqueezed
from minutebook.store.sqlite.headers import Filed, place, position_of, rows

ROLES: Final = (MessageRole.SYSTEM, MessageRole.USER, MessageRole.ASSISTANT, MessageRole.TOOL)
_NUMBER_OF: Final = {role: number for number, role in enumerate(ROLES)}
_TOOL: Final = _NUMBER_OF[MessageRole.TOOL]

_COLUMNS: Final = "place, role, turn, evaluation, sequence, created_at, source, text, rest"
WRITE: Final = f"INSERT INTO entry ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - a constant
_READ: Final = f"SELECT {_COLUMNS} FROM entry WHERE place >= ? AND place < ? ORDER BY place"  # noqa: S608 - a constant
_TURNS: Final = "SELECT count(*), min(place) FROM (SELECT place FROM entry WHERE place >= ? AND place < ? AND role = 1 ORDER BY place DESC LIMIT ?)"
_EXCHANGE: Final = "SELECT max(place) FROM (SELECT place FROM entry WHERE place >= ? AND place <= ? AND role <> 3 ORDER BY place DESC LIMIT 1)"


Sources: TypeAlias = dict[tuple[str | None, str | None], int | None]
"""Provider and model → the number under which they are stored."""


def write(db: apsw.Connection, filed: Filed, packed: Sequence[Packed], sources: Sources) -> None:
    """Add entries at the end of a conversation. `sources` are those whose number is known already."""
    db.executemany(WRITE, made(db, filed, packed, sources))


def made(db: apsw.Connection, filed: Filed, packed: Sequence[Packed], sources: Sources) -> list[tuple[Any, ...]]:
    """Entries at the end of a conversation as rows for `WRITE`."""
    turn = filed.conversation.turns
    tenant, first = filed.conversation.tenant, place(filed.number, filed.conversation.length)
    rows_made = []
    for number, one in enumerate(packed, first):
        names = (one.provider, one.model)
        if names not in sources:
            sources[names] = None if names == (None, None) else _source(db, *names)
        kept = (_kept(db, tenant, one.text), _kept(db, tenant, one.rest))
        known = (one.evaluation_id, one.sequence, one.created_at, sources[names])
        turn += one.role is MessageRole.USER
        rows_made.append((number, _NUMBER_OF[one.role], turn, *known, *kept))
    return rows_made


def read(db: apsw.Connection, spans: Iterable[tuple[int, int]]) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of some stretches."""
    sources: dict[int | None, tuple[str | None, str | None]] = {None: (None, None)}
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for span in spans:
        for at, role, _turn, evaluation, sequence, created_at, source, text, rest in rows(db, _READ, span):
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


def turn_start(db: apsw.Connection, filed: Filed, count: int) -> int:
    """The position where the last so many turns begin. It looks, from the end, at no more rows than will be read."""
    for start, stop in reversed(filed.spans(filed.conversation.first, filed.conversation.length)):
        found, at = rows(db, _TURNS, (start, stop, count))[0]
        if found == count:
            return position_of(at)
        count -= found
    return filed.conversation.first


def turns_before(db: apsw.Connection, filed: Filed, position: int) -> int:
    """How many user messages stand before a position."""
    if position <= 0:
        return 0
    turn: int = db.execute("SELECT turn FROM entry WHERE place = ?", (filed.place(position - 1),)).get
    return turn


def exchange_start(db: apsw.Connection, filed: Filed, position: int) -> int:
    """The position where the exchange of an entry begins: the nearest one up to it that is no result."""
    first = filed.conversation.first
    for start, stop in reversed(filed.spans(first, position + 1)):
        at = db.execute(_EXCHANGE, (start, stop - 1)).get
        if at is not None:
            return position_of(at)
    return first


def exchange_stop(db: apsw.Connection, filed: Filed, position: int) -> int:
    """The position after the exchange of an entry."""
    stop = position + 1
    while splits(db, filed, stop):
        stop += 1
    return stop


def splits(db: apsw.Connection, filed: Filed, position: int) -> bool:
    """Whether a cut before this entry would part it from its call."""
    if not filed.conversation.first < position < filed.conversation.length:
        return False
    role = db.execute("SELECT role FROM entry WHERE place = ?", (filed.place(position),)).get
    return bool(role == _TOOL)


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


def _source(db: apsw.Connection, provider: str | None, model: str | None) -> int:
    known = db.execute("SELECT number FROM source WHERE provider IS ? AND model IS ?", (provider, model)).fetchone()
    if known is not None:
        return int(known[0])
    db.execute("INSERT INTO source (provider, model) VALUES (?, ?)", (provider, model))
    return db.last_insert_rowid()


def _kept(db: apsw.Connection, tenant: str, piece: bytes | None) -> bytes | int | None:
    """A piece as its row holds it: itself, or the number of the payload that holds it for everybody."""
    if piece is None:
        return None
    if len(piece) <= LARGE:
        return squeezed(piece)
    digest = sha256(piece).digest()
    db.execute(
        "INSERT INTO payload (tenant, hash, uses, body) VALUES (?, ?, 1, ?)"
        " ON CONFLICT (tenant, hash) DO UPDATE SET uses = uses + 1",
        (tenant, digest, squeezed(piece)),
    )
    number: int = db.execute("SELECT number FROM payload WHERE tenant = ? AND hash = ?", (tenant, digest)).get
    return number


def _piece(db: apsw.Connection, kept: Any) -> bytes | None:
    if kept is None:
        return None
    if isinstance(kept, int):
        kept = db.execute("SELECT body FROM payload WHERE number = ?", (kept,)).get
    return unsqueezed(kept)
