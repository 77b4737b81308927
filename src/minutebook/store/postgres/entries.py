"""Entries as rows of a table. Large texts are stored once per tenant, by their hash."""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import Struct
from typing import Any, Final, NamedTuple, Self

from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.codec import MAX_INLINE_BYTES, Packed, compress, decompress, unpack
from minutebook.store.postgres.connection import TenantConnection
from minutebook.store.sql.entries import ROLE_NUMBERS, ROLES

_METADATA_HEAD: Final = Struct(">16sqB")
"""Evaluation id, creation time, length of the sequence number in bytes."""


class EntryMetadata(NamedTuple):
    """The metadata of an entry: everything except role and message. Stored in the column `metadata`."""

    evaluation_id: bytes
    sequence: int
    created_at: int
    provider: str | None
    model: str | None

    @classmethod
    def of(cls, packed: Packed) -> Self:
        return cls(packed.evaluation_id, packed.sequence, packed.created_at, packed.provider, packed.model)

    def to_bytes(self) -> bytes:
        """The head, the sequence number, and provider and model as JSON unless both are None."""
        length = (self.sequence.bit_length() + 7) // 8
        names = (self.provider, self.model)
        tail = b"" if names == (None, None) else json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode()
        return _METADATA_HEAD.pack(self.evaluation_id, self.created_at, length) + self.sequence.to_bytes(length) + tail

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The inverse of `to_bytes`."""
        evaluation_id, created_at, length = _METADATA_HEAD.unpack_from(data)
        stop = _METADATA_HEAD.size + length
        provider, model = json.loads(data[stop:]) if len(data) > stop else (None, None)
        return cls(evaluation_id, int.from_bytes(data[_METADATA_HEAD.size : stop]), created_at, provider, model)


MAX_POSITION: Final = 2**31 - 1
_PAYLOAD_REFERENCE: Final = b"\2"
"""First byte of a piece that is only the hash of a payload. Compressed pieces begin with other bytes."""

_INSERT_ENTRIES: Final = (
    "INSERT INTO minutebook.entry (tenant, conversation, position, role, turn, metadata, text, rest)"
    " SELECT %s, * FROM unnest(%b::bigint[], %b::integer[], %b::smallint[], %b::integer[], %b::bytea[], %b::bytea[],"
    " %b::bytea[])"
)
_INSERT_PAYLOADS: Final = (
    "INSERT INTO minutebook.payload (tenant, hash, uses, body)"
    " SELECT %s, hash, uses, body FROM unnest(%s::bytea[], %s::bigint[], %s::bytea[]) AS new (hash, uses, body)"
    " ORDER BY hash ON CONFLICT (tenant, hash) DO UPDATE SET uses = payload.uses + excluded.uses"
)
SELECT_ENTRIES: Final = (
    "SELECT position, role, metadata, text, rest FROM entry"
    " WHERE conversation = ?::bigint AND position >= ? AND position < ? ORDER BY position"
)
_DELETE_ENTRIES: Final = (
    "WITH deleted AS ("
    "  DELETE FROM minutebook.entry WHERE tenant = %s AND conversation = ANY(%s::bigint[])"
    "  AND position >= %s AND position < %s AND (%s::integer[] IS NULL OR position = ANY(%s::integer[])) RETURNING tableoid AS relation, text, rest"
    "), pieces AS ("
    "  SELECT text AS piece FROM deleted WHERE get_byte(text, 0) = 2"
    "  UNION ALL SELECT rest FROM deleted WHERE get_byte(rest, 0) = 2"
    "), used AS ("
    "  SELECT substr(piece, 2) AS hash, count(*) AS uses FROM pieces GROUP BY piece"
    "), updated AS ("
    "  UPDATE minutebook.payload SET uses = payload.uses - used.uses FROM used"
    "  WHERE payload.tenant = %s AND payload.hash = used.hash RETURNING payload.hash, payload.uses"
    ") SELECT (SELECT array_agg(DISTINCT relation) FROM deleted), (SELECT array_agg(hash) FROM updated WHERE uses = 0)"
)


class EntryRows:
    """Collects the rows of new entries, and the payloads that hold their large pieces."""

    def __init__(self) -> None:
        self.columns: tuple[list[Any], ...] = tuple([] for _ in range(7))
        self.payloads: dict[bytes, tuple[int, bytes]] = {}
        """Hash → number of uses in these rows, and the compressed body."""

    def add(
        self, number: int, position: int, turn: int, packed: Sequence[Packed], stored: Sequence["StoredPieces"]
    ) -> None:
        """Add consecutive entries, the first at `position`; `turn` is the number of user messages before them."""
        for entry, pieces in zip(packed, stored, strict=True):
            turn += entry.role is MessageRole.USER
            metadata = EntryMetadata.of(entry).to_bytes()
            row = (number, position, ROLE_NUMBERS[entry.role], turn, metadata, pieces.text, pieces.rest)
            for column, value in zip(self.columns, row, strict=True):
                column.append(value)
            for digest, body in pieces.payloads:
                uses, _ = self.payloads.get(digest, (0, b""))
                self.payloads[digest] = (uses + 1, body)
            position += 1

    async def write(self, conn: TenantConnection) -> None:
        if self.payloads:
            uses, bodies = zip(*self.payloads.values(), strict=True)
            await conn.execute(_INSERT_PAYLOADS, conn.tenant, list(self.payloads), list(uses), list(bodies))
        if self.columns[0]:
            await conn.execute(_INSERT_ENTRIES, conn.tenant, *self.columns)


class StoredPieces:
    """The columns `text` and `rest` of an entry, and the payloads they refer to."""

    __slots__ = ("payloads", "rest", "text")

    def __init__(self, packed: Packed) -> None:
        self.payloads: list[tuple[bytes, bytes]] = []
        """Hash and compressed body."""
        self.text = self._store(packed.text)
        self.rest = self._store(packed.rest)

    def _store(self, piece: bytes | None) -> bytes | None:
        if piece is None or len(piece) <= MAX_INLINE_BYTES:
            return None if piece is None else compress(piece)
        digest = sha256(piece).digest()
        self.payloads.append((digest, compress(piece)))
        return _PAYLOAD_REFERENCE + digest


async def unpack_rows(
    conn: TenantConnection, results: Iterable[Sequence[Any]]
) -> tuple[list[int], list[ConversationEntry]]:
    """The positions and entries of results of `SELECT_ENTRIES`."""
    rows = [row for result in results for row in result]
    payloads = await _load_payloads(conn, (piece for row in rows for piece in row[3:]))
    positions: list[int] = []
    entries: list[ConversationEntry] = []
    for position, role, metadata, text, rest in rows:
        positions.append(position)
        entries.append(unpack_row(role, metadata, _resolve_piece(text, payloads), _resolve_piece(rest, payloads)))
    return positions, entries


def unpack_row(role: int, metadata: bytes, text: bytes | None, rest: bytes | None) -> ConversationEntry:
    """The entry of a row. `text` and `rest` are the stored pieces, not references to payloads."""
    pieces = (None if text is None else decompress(text), None if rest is None else decompress(rest))
    return unpack(Packed(ROLES[role], *EntryMetadata.from_bytes(metadata), *pieces))


async def delete(
    conn: TenantConnection, numbers: Sequence[int], start: int, stop: int, positions: list[int] | None = None
) -> None:
    """Delete a range of entries of some conversations, or some positions of it, and the payloads no longer used."""
    values = (conn.tenant, list(numbers), start, stop, positions, positions, conn.tenant)
    relations, unused = await conn.row(_DELETE_ENTRIES, *values)
    if unused:
        delete_payloads = "DELETE FROM minutebook.payload WHERE tenant = %s AND hash = ANY(%s::bytea[])"
        await conn.execute(delete_payloads, conn.tenant, unused)
    if relations:
        await conn.execute("SELECT minutebook.mark_removed(%s::oid[])", relations)


async def _load_payloads(conn: TenantConnection, pieces: Iterable[bytes | None]) -> dict[bytes, bytes]:
    """The payloads that the pieces refer to, by hash."""
    hashes = {piece[1:] for piece in pieces if piece is not None and piece[:1] == _PAYLOAD_REFERENCE}
    if not hashes:
        return {}
    query = "SELECT hash, body FROM minutebook.payload WHERE tenant = %s AND hash = ANY(%s::bytea[])"
    return dict(await conn.rows(query, conn.tenant, list(hashes)))


def _resolve_piece(piece: bytes | None, payloads: dict[bytes, bytes]) -> bytes | None:
    """The stored piece, or the payload that it refers to."""
    return payloads[piece[1:]] if piece is not None and piece[:1] == _PAYLOAD_REFERENCE else piece
