"""Entries as rows: written once, read by their place."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple, Self

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole, text_of
from minutebook.store.codec import LARGE, Packed, squeezed, unpack, unsqueezed
from minutebook.store.postgres.connection import Work
from minutebook.store.sql.entries import NUMBER_OF, ROLES
from minutebook.store.sql.transaction import Span

_HEAD: Final = Struct(">16sqB")


class Stamp(NamedTuple):
    """What an entry knows besides its message."""

    evaluation_id: bytes
    sequence: int
    created_at: int
    provider: str | None
    model: str | None

    @classmethod
    def of(cls, packed: Packed) -> Self:
        return cls(packed.evaluation_id, packed.sequence, packed.created_at, packed.provider, packed.model)

    def to_bytes(self) -> bytes:
        """Evaluation, time, how many bytes the sequence has, the sequence, and names where there are any, as JSON."""
        length = (self.sequence.bit_length() + 7) // 8
        names = (self.provider, self.model)
        said = b"" if names == (None, None) else json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()
        return _HEAD.pack(self.evaluation_id, self.created_at, length) + self.sequence.to_bytes(length) + said

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` wrote."""
        evaluation, created_at, length = _HEAD.unpack_from(data)
        stop = _HEAD.size + length
        provider, model = json.loads(data[stop:]) if len(data) > stop else (None, None)
        return cls(evaluation, int.from_bytes(data[_HEAD.size : stop]), created_at, provider, model)


EVERYTHING: Final = 2**31 - 1
"""A position after every other."""
_APART: Final = b"\2"
"""The first byte of a piece that is only the hash of a payload; `squeezed` begins its pieces with other bytes."""

_WRITE: Final = (
    "INSERT INTO minutebook.entry (tenant, conversation, position, role, turn, stamp, text, rest)"
    " SELECT %s, * FROM unnest(%b::bigint[], %b::integer[], %b::smallint[], %b::integer[], %b::bytea[], %b::bytea[],"
    " %b::bytea[])"
)
_KEEP: Final = (
    "INSERT INTO minutebook.payload (tenant, hash, uses, body)"
    " SELECT %s, hash, uses, body FROM unnest(%s::bytea[], %s::bigint[], %s::bytea[]) AS new (hash, uses, body)"
    " ORDER BY hash ON CONFLICT (tenant, hash) DO UPDATE SET uses = payload.uses + excluded.uses"
)
_HERE: Final = "FROM minutebook.entry WHERE tenant = %s AND conversation = %s::bigint"
READ: Final = (
    "SELECT position, role, stamp, text, rest FROM entry"
    " WHERE conversation = ?::bigint AND position >= ? AND position < ? ORDER BY position"
)
_DELETE: Final = (
    "WITH gone AS ("
    "  DELETE FROM minutebook.entry WHERE tenant = %s AND conversation = ANY(%s::bigint[])"
    "  AND position >= %s AND position < %s RETURNING tableoid AS relation, text, rest"
    "), pieces AS ("
    "  SELECT text AS piece FROM gone WHERE get_byte(text, 0) = 2"
    "  UNION ALL SELECT rest FROM gone WHERE get_byte(rest, 0) = 2"
    "), used AS ("
    "  SELECT substr(piece, 2) AS hash, count(*) AS uses FROM pieces GROUP BY piece"
    "), less AS ("
    "  UPDATE minutebook.payload SET uses = payload.uses - used.uses FROM used"
    "  WHERE payload.tenant = %s AND payload.hash = used.hash RETURNING payload.hash, payload.uses"
    ") SELECT (SELECT array_agg(DISTINCT relation) FROM gone), (SELECT array_agg(hash) FROM less WHERE uses = 0)"
)


class Rows:
    """Entries on their way into the database, and the payloads that hold their large pieces."""

    def __init__(self) -> None:
        self.columns: tuple[list[Any], ...] = tuple([] for _ in range(7))
        self.payloads: dict[bytes, tuple[int, bytes]] = {}
        """Hash → how often it is used, and what it stands for."""

    def add(self, number: int, position: int, turn: int, packed: Sequence[Packed], kept: Sequence["Kept"]) -> None:
        """Entries that follow each other from a position on; `turn` is how many user messages stand before them."""
        for one, pieces in zip(packed, kept, strict=True):
            turn += one.role is MessageRole.USER
            stamp = Stamp.of(one).to_bytes()
            row = (number, position, NUMBER_OF[one.role], turn, stamp, pieces.text, pieces.rest)
            for column, value in zip(self.columns, row, strict=True):
                column.append(value)
            for digest, body in pieces.payloads:
                self.payloads[digest] = (self.payloads.get(digest, (0, b""))[0] + 1, body)
            position += 1

    async def write(self, work: Work) -> None:
        if self.payloads:
            uses, bodies = zip(*self.payloads.values(), strict=True)
            await work.put(_KEEP, work.tenant, list(self.payloads), list(uses), list(bodies))
        if self.columns[0]:
            await work.put(_WRITE, work.tenant, *self.columns)


class Kept:
    """The two pieces of an entry as its row holds them, and what they refer to."""

    __slots__ = ("payloads", "rest", "text")

    def __init__(self, packed: Packed) -> None:
        self.payloads: list[tuple[bytes, bytes]] = []
        self.text = self._keep(packed.text)
        self.rest = self._keep(packed.rest)

    def _keep(self, piece: bytes | None) -> bytes | None:
        if piece is None or len(piece) <= LARGE:
            return None if piece is None else squeezed(piece)
        digest = sha256(piece).digest()
        self.payloads.append((digest, squeezed(piece)))
        return _APART + digest


async def read(work: Work, span: Span) -> list[ConversationEntry]:
    """The entries of a stretch."""
    return (await unpacked(work, [await work.rows(READ, *span)]))[1]


async def unpacked(work: Work, answers: Iterable[Sequence[Any]]) -> tuple[list[int], list[ConversationEntry]]:
    """What was answered to `READ`."""
    rows = [row for answer in answers for row in answer]
    payloads = await _payloads(work, (piece for row in rows for piece in row[3:]))
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for position, role, said, text, rest in rows:
        pieces = (_piece(text, payloads), _piece(rest, payloads))
        positions.append(position)
        entries.append(unpack(Packed(ROLES[role], *Stamp.from_bytes(said), *pieces)))
    return positions, entries


async def texts(work: Work, span: Span) -> AsyncIterator[tuple[int, str]]:
    """The positions and texts of a stretch: what can be searched for, without the rest of the entries."""
    rows = await work.rows(
        f"SELECT position, text, CASE WHEN text IS NULL THEN rest END {_HERE}"
        " AND position >= %s AND position < %s ORDER BY position",
        work.tenant,
        *span,
    )
    payloads = await _payloads(work, (piece for row in rows for piece in row[1:]))
    for position, text, rest in rows:
        piece = _piece(text, payloads)
        if piece is None:
            yield position, text_of(json.loads((_piece(rest, payloads) or b"{}").decode("utf-8", "surrogatepass")))
        else:
            yield position, piece.decode("utf-8", "surrogatepass")


async def delete(work: Work, numbers: Sequence[int], start: int, stop: int) -> None:
    """Remove entries, and the payloads that nothing uses any more."""
    row = await work.row(_DELETE, work.tenant, list(numbers), start, stop, work.tenant)
    relations, unused = row
    if unused:
        gone = "DELETE FROM minutebook.payload WHERE tenant = %s AND hash = ANY(%s::bytea[])"
        await work.put(gone, work.tenant, unused)
    if relations:
        await work.put("SELECT minutebook.mark_removed(%s::oid[])", relations)


async def _payloads(work: Work, kept: Iterable[bytes | None]) -> dict[bytes, bytes]:
    """The payloads that some pieces refer to, by their hash."""
    wanted = {piece[1:] for piece in kept if piece is not None and piece[:1] == _APART}
    if not wanted:
        return {}
    query = "SELECT hash, body FROM minutebook.payload WHERE tenant = %s AND hash = ANY(%s::bytea[])"
    return dict(await work.rows(query, work.tenant, list(wanted)))


def _piece(kept: bytes | None, payloads: dict[bytes, bytes]) -> bytes | None:
    if kept is None:
        return None
    return unsqueezed(payloads[kept[1:]] if kept[:1] == _APART else kept)
