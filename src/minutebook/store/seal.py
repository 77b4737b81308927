"""Entries and folds as an encrypted store hands them on: the shape that the rules need, and nothing to read."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import Message, MessageRole, call_ids, result_id
from minutebook.store.cipher import Cipher, Unreadable
from minutebook.store.codec import (
    Packed,
    fold_from_bytes,
    fold_to_bytes,
    json_from_bytes,
    moment,
    squeezed,
    unpack,
    unsqueezed,
)
from minutebook.store.documents import Document, NewDocument, PackedDocument
from minutebook.store.trimming import SEALED
from minutebook.wire.chat import provider_message_to_entry

_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOBODY: Final = UUID(int=0)


def sealed_entry(
    cipher: Cipher, packed: Packed, message: Message, tenant: str, home: str, at: int
) -> ConversationEntry:
    """An entry of the same role whose calls and results go by tokens; all else is sealed, for this place alone."""
    facts = [packed.role.value, packed.evaluation_id.hex(), packed.sequence, packed.created_at]
    sizes = [None if piece is None else len(piece) for piece in (packed.text, packed.rest)]
    head = json.dumps([*facts, packed.provider, packed.model, *sizes], separators=(",", ":")).encode()
    plain = b"".join((head, b"\n", packed.text or b"", packed.rest or b""))
    outer: dict[str, Any] = {
        "role": packed.role.value,
        "content": "",  # what is not text is in no index of words
        SEALED: cipher.seal(squeezed(plain), _entry_place(tenant, home, at)),
    }
    if packed.role is MessageRole.TOOL:
        outer["tool_call_id"] = cipher.token(result_id(message))
    calls = [
        {"id": cipher.token(one), "type": "function", "function": {"name": "-", "arguments": "{}"}}
        for one in call_ids(message)
    ]
    if calls:
        outer["tool_calls"] = calls
    return provider_message_to_entry(outer, evaluation_id=_NOBODY, sequence=0, created_at=_NEVER)


def opened_entry(cipher: Cipher, entry: ConversationEntry, tenant: str, home: str, at: int) -> ConversationEntry:
    """The entry that `sealed_entry` sealed.

    Raises:
        Unreadable: it was changed, or comes from another place.
    """
    plain = unsqueezed(cipher.open(str(entry.extras.get(SEALED)), _entry_place(tenant, home, at)))
    end = plain.index(b"\n")
    role, evaluation, sequence, created_at, provider, model, *sizes = json.loads(plain[:end])
    if role != entry.role:
        raise Unreadable
    pieces: list[bytes | None] = []
    place = end + 1
    for size in sizes:
        pieces.append(None if size is None else plain[place : place + size])
        place += size or 0
    return unpack(Packed(MessageRole(role), bytes.fromhex(evaluation), sequence, created_at, provider, model, *pieces))


def sealed_fold(cipher: Cipher, fold: Fold, tenant: str, root: str) -> Fold:
    """A fold over the same range that shows nothing; the same fold gives the same, so it is still added once."""
    plain = squeezed(fold_to_bytes(fold))
    text = cipher.seal_once(plain, _fold_place(fold, tenant, root))
    return Fold(fold.id, fold.start, fold.stop, ({"role": "system", "content": text},), "sealed")


def opened_fold(cipher: Cipher, fold: Fold, tenant: str, root: str) -> Fold:
    """The fold that `sealed_fold` sealed.

    Raises:
        Unreadable: it was changed, or comes from another conversation.
    """
    text = fold.shown[0].get("content") if fold.shown else None
    plain = cipher.open(str(text), _fold_place(fold, tenant, root))
    return fold_from_bytes(fold.id, fold.start, fold.stop, unsqueezed(plain))


def sealed_document(cipher: Cipher, wanted: PackedDocument, tenant: str, conversation: str) -> NewDocument:
    """A document of the same kind and id whose body is sealed, for this conversation alone."""
    place = _document_place(wanted.kind, wanted.id, tenant, conversation)
    until = None if wanted.expires_at is None else moment(wanted.expires_at)
    body = {SEALED: cipher.seal(squeezed(wanted.body), place)}
    return NewDocument(wanted.kind, wanted.id, body, until, wanted.replace)


def opened_document(cipher: Cipher, document: Document, tenant: str) -> Document:
    """The document that `sealed_document` sealed.

    Raises:
        Unreadable: it was changed, or comes from another place.
    """
    place = _document_place(document.kind, document.id, tenant, document.conversation)
    return replace(document, body=json_from_bytes(unsqueezed(cipher.open(str(document.body[SEALED]), place))))


def _document_place(kind: str, name: str, tenant: str, conversation: str) -> bytes:
    return json.dumps(["document", tenant, conversation, kind, name]).encode()


def _entry_place(tenant: str, home: str, at: int) -> bytes:
    return json.dumps(["entry", tenant, home, at]).encode()


def _fold_place(fold: Fold, tenant: str, root: str) -> bytes:
    return json.dumps(["fold", tenant, root, fold.id, fold.start, fold.stop]).encode()
