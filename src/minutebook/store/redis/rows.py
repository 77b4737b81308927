"""How headers, entries and folds are encoded in Redis."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NamedTuple

from minutebook.errors import StoreDamaged
from minutebook.record.entry import ConversationEntry
from minutebook.record.message import MessageRole
from minutebook.store.codec import (
    MAX_INLINE_BYTES,
    Packed,
    compress,
    decompress,
    fold_from_bytes,
    fold_to_bytes,
    microseconds,
    moment,
    unpack,
)
from minutebook.store.types import ConversationHeader, ConversationStatus, ForkOrigin, StoredFold

ROLE_LETTERS: Final = {
    MessageRole.SYSTEM: "s",
    MessageRole.USER: "u",
    MessageRole.ASSISTANT: "a",
    MessageRole.TOOL: "t",
}
"""The key `roles` has a letter for each entry. The scripts find the start of an exchange in it without reading entries."""
_DIGEST_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class HeaderRow:
    """A conversation's header with the fields that only this store has."""

    conversation: ConversationHeader
    nonce: str
    """Differs from the nonce of an earlier conversation with the same id that has expired."""
    ancestors: tuple[str, ...] = ()
    """The conversations that it was forked from, directly and indirectly, the oldest first."""
    fold_changes: int = 0
    """Number of times that folds were added, undone or purged."""


def header_row(tenant: str, conversation: str, fields: Mapping[bytes, bytes]) -> HeaderRow:
    """Decode the hash of a header."""
    row = {name.decode(): value for name, value in fields.items()}

    def number(field: str) -> int:
        return int(row[field])

    origin = row.get("origin", b"").decode()
    header = ConversationHeader(
        tenant,
        conversation,
        row["recipient"].decode(),
        moment(number("created_at")),
        moment(number("updated_at")),
        moment(number("status_updated_at")),
        ConversationStatus(row["status"].decode()),
        number("version"),
        number("length"),
        number("turns"),
        number("lead"),
        number("first"),
        tuple(json.loads(row["open_calls"])),
        int(row["open_at"]) if row["open_at"] else None,
        json.loads(row["labels"]),
        ForkOrigin(origin, number("origin_position")) if origin else None,
        int(row.get("trims", b"0")),
        int(row.get("requests", b"0")),
    )
    return HeaderRow(header, row["nonce"].decode(), tuple(json.loads(row["line"])), number("marks"))


def new_header_fields(row: HeaderRow) -> list[str | int]:
    """All fields of a new header, as alternating names and values."""
    header, origin = row.conversation, row.conversation.origin
    fields: dict[str, str | int] = {
        "nonce": row.nonce,
        "recipient": header.recipient,
        "created_at": microseconds(header.created_at),
        "status": header.status.value,
        "status_updated_at": microseconds(header.status_updated_at),
        "first": header.first,
        "labels": labels_json(header.labels),
        "line": json.dumps(row.ancestors),
        "marks": row.fold_changes,
        **({"origin": origin.conversation, "origin_position": origin.position} if origin else {}),
    }
    return [*_flat(fields), *append_fields(header)]


def append_fields(header: ConversationHeader) -> list[str | int]:
    """The fields of a header that an append changes, as alternating names and values."""
    return _flat(
        {
            "version": header.version,
            "length": header.length,
            "turns": header.turns,
            "lead": header.lead,
            "open_calls": json.dumps(header.open_calls),
            "open_at": "" if header.open_at is None else header.open_at,
            "updated_at": microseconds(header.updated_at),
        }
    )


def labels_json(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True)


class EncodedEntry(NamedTuple):
    """An entry as it is stored."""

    data: bytes
    """The number of large payloads, their digests, a JSON line, and the other pieces."""
    payloads: list[bytes]
    """The large payloads, which are stored separately: alternating digests and compressed pieces."""


def encoded_entry(packed: Packed) -> EncodedEntry:
    digests: list[bytes] = []
    payloads: list[bytes] = []
    inline: list[bytes] = []
    sizes: list[int | None] = []
    for piece in (packed.text, packed.rest):
        if piece is None:
            sizes.append(None)
        elif len(piece) > MAX_INLINE_BYTES:
            digest = sha256(piece).digest()
            digests.append(digest)
            payloads += (digest, compress(piece))
            sizes.append(-1)
        else:
            inline.append(compress(piece))
            sizes.append(len(inline[-1]))
    fields = [packed.role.value, packed.evaluation_id.hex(), packed.sequence, packed.created_at]
    line = json.dumps([*fields, packed.provider, packed.model, *sizes], separators=(",", ":")).encode()
    return EncodedEntry(b"".join([bytes([len(digests)]), *digests, line, b"\n", *inline]), payloads)


def _decoded_entry(data: bytes, payloads: Mapping[bytes, bytes]) -> ConversationEntry:
    """Decode the data of an `EncodedEntry`."""
    line_start = 1 + _DIGEST_BYTES * data[0]
    digests = [data[start : start + _DIGEST_BYTES] for start in range(1, line_start, _DIGEST_BYTES)]
    line_end = data.index(b"\n", line_start)
    role, evaluation, sequence, created_at, provider, model, *sizes = json.loads(data[line_start:line_end])
    offset = line_end + 1
    pieces: list[bytes | None] = []
    for size in sizes:
        if size is None:
            pieces.append(None)
        elif size < 0:
            pieces.append(decompress(payloads[digests.pop(0)]))
        else:
            pieces.append(decompress(data[offset : offset + size]))
            offset += size
    return unpack(Packed(MessageRole(role), bytes.fromhex(evaluation), sequence, created_at, provider, model, *pieces))


def decoded_entries(store: str, entries: Sequence[bytes], payloads: Sequence[bytes]) -> list[ConversationEntry]:
    """Decode entries as the script `load_entries` returns them; `payloads` are alternating digests and pieces.

    Raises:
        StoreDamaged: the server has lost a part of one.
    """
    try:
        payloads_by_digest = pairs_of(payloads)
        return [_decoded_entry(data, payloads_by_digest) for data in entries]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise StoreDamaged(store, f"an entry cannot be read ({type(error).__name__})") from error


def fold_record(stored: StoredFold) -> bytes:
    """A fold as it is stored."""
    fold = stored.fold
    undone_at = None if stored.undone_at is None else microseconds(stored.undone_at)
    fields = [fold.id, fold.start, fold.stop, microseconds(stored.created_at), undone_at, stored.sealed]
    return json.dumps(fields).encode() + b"\n" + fold_to_bytes(fold)


def fold_from_record(record: bytes) -> StoredFold:
    """Decode a fold that `fold_record` encoded."""
    line, _, body = record.partition(b"\n")
    fold_id, start, stop, created_at, undone_at, sealed = json.loads(line)
    fold = fold_from_bytes(fold_id, start, stop, body)
    return StoredFold(fold, moment(created_at), None if undone_at is None else moment(undone_at), sealed)


def pairs_of(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    """A hash as a script returns it: alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(fields: Mapping[str, Any]) -> list[str | int]:
    return [part for pair in fields.items() for part in pair]
