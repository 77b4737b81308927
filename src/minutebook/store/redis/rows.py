"""Headers, entries and folds as Redis keeps them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

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

LETTERS: Final = {
    MessageRole.SYSTEM: "s",
    MessageRole.USER: "u",
    MessageRole.ASSISTANT: "a",
    MessageRole.TOOL: "t",
}
"""A role in the string of all roles, which says where exchanges begin without reading an entry."""


@dataclass(frozen=True, slots=True)
class Filed:
    """A conversation and what only this store knows of it."""

    conversation: ConversationHeader
    nonce: str
    """Tells it from another that had its id before and has expired."""
    line: tuple[str, ...] = ()
    """What it was forked from, and what that was forked from, and so on: the oldest first."""
    marks: int = 0
    """How often folds came or went."""
    trims: int = 0
    """How often entries were trimmed."""

    def grown(self, conversation: ConversationHeader) -> "Filed":
        return replace(self, conversation=conversation)


def filed(tenant: str, name: str, flat: Sequence[bytes]) -> Filed:
    """A header as a script returned it."""
    row = {flat[at].decode(): flat[at + 1] for at in range(0, len(flat), 2)}

    def number(field: str) -> int:
        return int(row[field])

    origin = row.get("origin", b"").decode()
    conversation = ConversationHeader(
        tenant,
        name,
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
    )
    trims = int(row.get("trims", b"0"))
    return Filed(conversation, row["nonce"].decode(), tuple(json.loads(row["line"])), number("marks"), trims)


def first_fields(one: Filed) -> list[str | int]:
    """Every field of a new header, name and value in turn."""
    conversation, origin = one.conversation, one.conversation.origin
    fields: dict[str, str | int] = {
        "nonce": one.nonce,
        "recipient": conversation.recipient,
        "created_at": microseconds(conversation.created_at),
        "status": conversation.status.value,
        "status_updated_at": microseconds(conversation.status_updated_at),
        "first": conversation.first,
        "labels": labels_text(conversation.labels),
        "line": json.dumps(one.line),
        "marks": one.marks,
        **({"origin": origin.conversation, "origin_position": origin.position} if origin else {}),
    }
    return [*_flat(fields), *grown_fields(conversation)]


def grown_fields(one: ConversationHeader) -> list[str | int]:
    """The fields that an append changes."""
    return _flat(
        {
            "version": one.version,
            "length": one.length,
            "turns": one.turns,
            "lead": one.lead,
            "open_calls": json.dumps(one.open_calls),
            "open_at": "" if one.open_at is None else one.open_at,
            "updated_at": microseconds(one.updated_at),
        }
    )


def labels_text(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(labels), sort_keys=True)


def entry_to_bytes(packed: Packed) -> tuple[bytes, dict[bytes, bytes]]:
    """An entry, and the large payloads that it only names."""
    blobs: dict[bytes, bytes] = {}
    named: list[bytes] = []
    inside: list[bytes] = []
    sizes: list[int | None] = []
    for piece in (packed.text, packed.rest):
        if piece is None:
            sizes.append(None)
        elif len(piece) > MAX_INLINE_BYTES:
            digest = sha256(piece).digest()
            blobs[digest] = compress(piece)
            named.append(digest)
            sizes.append(-1)
        else:
            inside.append(compress(piece))
            sizes.append(len(inside[-1]))
    facts = [packed.role.value, packed.evaluation_id.hex(), packed.sequence, packed.created_at]
    head = json.dumps([*facts, packed.provider, packed.model, *sizes], separators=(",", ":")).encode()
    return b"".join([bytes([len(named)]), *named, head, b"\n", *inside]), blobs


def digests_of(entry: bytes) -> list[bytes]:
    """The large payloads that an entry names."""
    return [entry[at : at + 32] for at in range(1, 1 + 32 * entry[0], 32)]


def entry_from_bytes(kept: bytes, bodies: Mapping[bytes, bytes]) -> ConversationEntry:
    """The entry that `entry_to_bytes` wrote."""
    begin = 1 + 32 * kept[0]
    digests = [kept[at : at + 32] for at in range(1, begin, 32)]
    end = kept.index(b"\n", begin)
    role, evaluation, sequence, created_at, provider, model, *sizes = json.loads(kept[begin:end])
    place = end + 1
    pieces: list[bytes | None] = []
    for size in sizes:
        if size is None:
            pieces.append(None)
        elif size < 0:
            pieces.append(decompress(bodies[digests.pop(0)]))
        else:
            pieces.append(decompress(kept[place : place + size]))
            place += size
    return unpack(Packed(MessageRole(role), bytes.fromhex(evaluation), sequence, created_at, provider, model, *pieces))


def fold_record(stored: StoredFold) -> bytes:
    """A fold with all that is known of it."""
    fold = stored.fold
    undone = None if stored.undone_at is None else microseconds(stored.undone_at)
    facts = [fold.id, fold.start, fold.stop, microseconds(stored.created_at), undone, stored.sealed]
    return json.dumps(facts).encode() + b"\n" + fold_to_bytes(fold)


def fold_of(record: bytes) -> StoredFold:
    """The fold that `fold_record` wrote."""
    facts, _, body = record.partition(b"\n")
    name, start, stop, created_at, undone, sealed = json.loads(facts)
    fold = fold_from_bytes(name, start, stop, body)
    return StoredFold(fold, moment(created_at), None if undone is None else moment(undone), sealed)


def whole(store: str, kept: Sequence[bytes], bodies: Mapping[bytes, bytes]) -> list[ConversationEntry]:
    """Entries as they were appended.

    Raises:
        StoreDamaged: the server dropped a part of one.
    """
    try:
        return [entry_from_bytes(one, bodies) for one in kept]
    except (KeyError, TypeError, ValueError, IndexError) as problem:
        raise StoreDamaged(store, f"an entry cannot be read ({type(problem).__name__})") from problem


def _flat(fields: Mapping[str, Any]) -> list[str | int]:
    return [part for pair in fields.items() for part in pair]
