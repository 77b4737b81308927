"""The keys of an encrypted store, and what they do. Nothing here knows of stores.

Entries and folds as an encrypted store hands them on: the shape that the rules need, and nothing to read.
"""

import hmac
import json
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from minutebook.errors import InvalidSetting, WrongKey
from minutebook.record.entry import ConversationEntry
from minutebook.record.fold import Fold
from minutebook.record.message import FUNCTION_ID_PREFIX, MISSING_ID, Message, MessageRole, call_ids, result_id
from minutebook.store.codec import (
    Packed,
    compress,
    decompress,
    fold_from_bytes,
    fold_to_bytes,
    json_from_bytes,
    json_to_bytes,
    unpack,
)
from minutebook.store.rules import SEALED
from minutebook.store.types import Document, PackedDocument
from minutebook.wire.chat import provider_message_to_entry

KEY_BYTES: Final = 32
_NONCE: Final = 12


class Unreadable(ValueError):
    """What was to be decrypted was changed, or belongs elsewhere."""


class Cipher:
    """What one data key can do."""

    def __init__(self, data_key: bytes) -> None:
        self._content = AESGCM(_derived(data_key, b"content", KEY_BYTES))
        self._calls = AESSIV(_derived(data_key, b"calls", 2 * KEY_BYTES))
        self._prints = _derived(data_key, b"fingerprints", KEY_BYTES)

    def seal(self, plain: bytes, place: bytes) -> str:
        """Encrypt for one place; nobody can tell whether two of them hold the same."""
        return self._sealed(os.urandom(_NONCE), plain, place)

    def seal_once(self, plain: bytes, place: bytes) -> str:
        """Encrypt so that the same in the same place gives the same, as what may be written twice must."""
        nonce = hmac.digest(self._prints, b"%d:" % len(place) + place + plain, sha256)[:_NONCE]
        return self._sealed(nonce, plain, place)

    def _sealed(self, nonce: bytes, plain: bytes, place: bytes) -> str:
        return _text(nonce + self._content.encrypt(nonce, plain, place))

    def open(self, sealed: str, place: bytes) -> bytes:
        """What was sealed for this place.

        Raises:
            Unreadable: this is not it.
        """
        try:
            kept = _bytes(sealed)
            return self._content.decrypt(kept[:_NONCE], kept[_NONCE:], place)
        except (InvalidTag, ValueError) as problem:
            raise Unreadable from problem

    def token(self, call_id: str) -> str:
        """What stands for a call's id: always the same, so that results still find their calls."""
        if call_id == MISSING_ID:
            return MISSING_ID
        token = _text(self._calls.encrypt(call_id.encode("utf-8", "surrogatepass"), None))
        return FUNCTION_ID_PREFIX + token if call_id.startswith(FUNCTION_ID_PREFIX) else token

    def call_id(self, token: str) -> str:
        """The id that a token stands for.

        Raises:
            Unreadable: none.
        """
        if token == MISSING_ID:
            return MISSING_ID
        try:
            return self._calls.decrypt(_bytes(token.removeprefix(FUNCTION_ID_PREFIX)), None).decode(
                "utf-8", "surrogatepass"
            )
        except (InvalidTag, ValueError) as problem:
            raise Unreadable from problem

    def fingerprint(self, digest: bytes) -> bytes:
        """What tells messages from others, and tells nobody what they say."""
        return hmac.digest(self._prints, digest, sha256)


class Masters:
    """The master keys that wrap data keys: the one in use, and older ones that may still be met."""

    def __init__(self, key: bytes, old_keys: Iterable[bytes] = ()) -> None:
        self._known: dict[str, AESGCM] = {}
        for old in old_keys:
            self.use(old)
        self.current = self.use(key)

    def use(self, key: bytes) -> str:
        """Wrap with this key from now on; return how it is known."""
        if type(key) is not bytes or len(key) != KEY_BYTES:
            given = f"{type(key).__name__} of {len(key)}"
            raise InvalidSetting("key", given, f"{KEY_BYTES} random bytes, such as secrets.token_bytes({KEY_BYTES})")
        self.current = hmac.digest(key, b"minutebook master key", sha256).hex()[:16]
        self._known[self.current] = AESGCM(key)
        return self.current

    def wrap(self, data_key: bytes, whose: bytes) -> str:
        nonce = os.urandom(_NONCE)
        return _text(nonce + self._known[self.current].encrypt(nonce, data_key, whose))

    def unwrap(self, wrapped: str, master: str, whose: bytes) -> bytes:
        """A data key.

        Raises:
            WrongKey: the master key that wrapped it is not among ours.
            Unreadable: it was changed.
        """
        if master not in self._known:
            raise WrongKey(master, self.current)
        try:
            kept = _bytes(wrapped)
            return self._known[master].decrypt(kept[:_NONCE], kept[_NONCE:], whose)
        except (InvalidTag, ValueError) as problem:
            raise Unreadable from problem


def new_data_key() -> bytes:
    return os.urandom(KEY_BYTES)


def _derived(key: bytes, purpose: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, b"minutebook " + purpose).derive(key)


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


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
        SEALED: cipher.seal(compress(plain), _entry_place(tenant, home, at)),
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
    plain = decompress(cipher.open(str(entry.extras.get(SEALED)), _entry_place(tenant, home, at)))
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
    plain = compress(fold_to_bytes(fold))
    text = cipher.seal_once(plain, _fold_place(fold, tenant, root))
    return Fold(fold.id, fold.start, fold.stop, ({"role": "system", "content": text},), "sealed")


def opened_fold(cipher: Cipher, fold: Fold, tenant: str, root: str) -> Fold:
    """The fold that `sealed_fold` sealed.

    Raises:
        Unreadable: it was changed, or comes from another conversation.
    """
    text = fold.shown[0].get("content") if fold.shown else None
    plain = cipher.open(str(text), _fold_place(fold, tenant, root))
    return fold_from_bytes(fold.id, fold.start, fold.stop, decompress(plain))


def sealed_document(cipher: Cipher, wanted: PackedDocument, tenant: str, conversation: str) -> PackedDocument:
    """A document of the same kind and id whose body is sealed, for this conversation alone."""
    place = _document_place(wanted.kind, wanted.id, tenant, conversation)
    return replace(wanted, body=json_to_bytes({SEALED: cipher.seal(compress(wanted.body), place)}))


def opened_document(cipher: Cipher, document: Document, tenant: str) -> Document:
    """The document that `sealed_document` sealed.

    Raises:
        Unreadable: it was changed, or comes from another place.
    """
    place = _document_place(document.kind, document.id, tenant, document.conversation)
    return replace(document, body=json_from_bytes(decompress(cipher.open(str(document.body[SEALED]), place))))


def _document_place(kind: str, name: str, tenant: str, conversation: str) -> bytes:
    return json.dumps(["document", tenant, conversation, kind, name]).encode()


def _entry_place(tenant: str, home: str, at: int) -> bytes:
    return json.dumps(["entry", tenant, home, at]).encode()


def _fold_place(fold: Fold, tenant: str, root: str) -> bytes:
    return json.dumps(["fold", tenant, root, fold.id, fold.start, fold.stop]).encode()
