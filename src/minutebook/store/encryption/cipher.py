"""Encrypts and decrypts entries, folds, documents and data keys. Stores are not used here.

An encrypted entry keeps its role and the pairing of its tool calls and results, which the rules of a store check.

Each ciphertext is bound to a context, the associated data of AES-GCM: tenant, conversation and position, for example. It can
be decrypted only in that context.
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
    compress_document,
    decompress,
    fold_from_bytes,
    fold_to_bytes,
    json_from_bytes,
    json_to_bytes,
    unpack,
)
from minutebook.store.rules import CIPHERTEXT
from minutebook.store.types import Document, PackedDocument
from minutebook.wire.chat import provider_message_to_entry

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class DecryptionFailed(ValueError):
    """The ciphertext was changed, or belongs to another context."""


class Cipher:
    """Encrypts and decrypts with one data key."""

    def __init__(self, data_key: bytes) -> None:
        self._content = AESGCM(_derived_key(data_key, b"content", KEY_BYTES))
        self._call_ids = AESSIV(_derived_key(data_key, b"calls", 2 * KEY_BYTES))
        self._fingerprint_key = _derived_key(data_key, b"fingerprints", KEY_BYTES)

    def encrypt(self, plaintext: bytes, context: bytes) -> str:
        """Encrypt with a random nonce: equal texts have different ciphertexts."""
        return self._encrypt(os.urandom(_NONCE_BYTES), plaintext, context)

    def encrypt_deterministic(self, plaintext: bytes, context: bytes) -> str:
        """Encrypt so that the same text in the same context has the same ciphertext, for data that may be written twice."""
        message = b"%d:" % len(context) + context + plaintext
        nonce = hmac.digest(self._fingerprint_key, message, sha256)[:_NONCE_BYTES]
        return self._encrypt(nonce, plaintext, context)

    def _encrypt(self, nonce: bytes, plaintext: bytes, context: bytes) -> str:
        return _base64(nonce + self._content.encrypt(nonce, plaintext, context))

    def decrypt(self, ciphertext: str, context: bytes) -> bytes:
        """The text that was encrypted in this context.

        Raises:
            DecryptionFailed: the ciphertext was changed, or belongs to another context.
        """
        return _decrypt(self._content, ciphertext, context)

    def encrypt_call_id(self, call_id: str) -> str:
        """Encrypt the id of a tool call. The same id has the same ciphertext, so that results are paired with calls."""
        if call_id == MISSING_ID:
            return MISSING_ID
        ciphertext = _base64(self._call_ids.encrypt(call_id.encode("utf-8", "surrogatepass"), None))
        return FUNCTION_ID_PREFIX + ciphertext if call_id.startswith(FUNCTION_ID_PREFIX) else ciphertext

    def decrypt_call_id(self, ciphertext: str) -> str:
        """Decrypt the id of a tool call.

        Raises:
            DecryptionFailed: the ciphertext was changed.
        """
        if ciphertext == MISSING_ID:
            return MISSING_ID
        try:
            data = self._call_ids.decrypt(_from_base64(ciphertext.removeprefix(FUNCTION_ID_PREFIX)), None)
            return data.decode("utf-8", "surrogatepass")
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed from error

    def fingerprint(self, digest: bytes) -> bytes:
        """A keyed hash of a digest of messages. Without the data key, nothing about the messages can be derived from it."""
        return hmac.digest(self._fingerprint_key, digest, sha256)


class MasterKeys:
    """The master keys that encrypt data keys: the current one, and older ones."""

    def __init__(self, key: bytes, old_keys: Iterable[bytes] = ()) -> None:
        self._ciphers: dict[str, AESGCM] = {}
        for old_key in old_keys:
            self.use(old_key)
        self.current_id = self.use(key)

    def use(self, key: bytes) -> str:
        """Make this the current key, and return its id."""
        if type(key) is not bytes or len(key) != KEY_BYTES:
            description = f"{type(key).__name__} of length {len(key)}"
            expected = f"{KEY_BYTES} random bytes, such as secrets.token_bytes({KEY_BYTES})"
            raise InvalidSetting("key", description, expected)
        self.current_id = hmac.digest(key, b"minutebook master key", sha256).hex()[:16]
        self._ciphers[self.current_id] = AESGCM(key)
        return self.current_id

    @property
    def ids(self) -> list[str]:
        """The ids of the keys, the current one first."""
        return [self.current_id, *(key_id for key_id in self._ciphers if key_id != self.current_id)]

    def wrap(self, data_key: bytes, context: bytes) -> str:
        """Encrypt a data key with the current master key."""
        nonce = os.urandom(_NONCE_BYTES)
        return _base64(nonce + self._ciphers[self.current_id].encrypt(nonce, data_key, context))

    def unwrap(self, wrapped: str, master_id: str, context: bytes) -> bytes:
        """Decrypt a data key.

        Raises:
            WrongKey: the master key with this id was not given.
            DecryptionFailed: the wrapped key was changed, or belongs to another context.
        """
        if master_id not in self._ciphers:
            raise WrongKey(master_id, self.current_id)
        return _decrypt(self._ciphers[master_id], wrapped, context)


def new_data_key() -> bytes:
    return os.urandom(KEY_BYTES)


def _derived_key(key: bytes, purpose: bytes, length: int) -> bytes:
    return HKDFExpand(SHA256(), length, b"minutebook " + purpose).derive(key)


def _decrypt(cipher: AESGCM, ciphertext: str, context: bytes) -> bytes:
    try:
        data = _from_base64(ciphertext)
        return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], context)
    except (InvalidTag, ValueError) as error:
        raise DecryptionFailed from error


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


_NO_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_EVALUATION: Final = UUID(int=0)


def encrypted_entry(
    cipher: Cipher, packed: Packed, message: Message, tenant: str, conversation: str, position: int
) -> ConversationEntry:
    """An entry with the same role and paired tool calls. Everything else is encrypted, for this position."""
    fields = [packed.role.value, packed.evaluation_id.hex(), packed.sequence, packed.created_at]
    sizes = [None if piece is None else len(piece) for piece in (packed.text, packed.rest)]
    line = json.dumps([*fields, packed.provider, packed.model, *sizes], separators=(",", ":")).encode()
    plaintext = b"".join((line, b"\n", packed.text or b"", packed.rest or b""))
    encrypted: dict[str, Any] = {
        "role": packed.role.value,
        "content": "",  # no text, so that the ciphertext is not indexed for search
        CIPHERTEXT: cipher.encrypt(compress(plaintext), _entry_context(tenant, conversation, position)),
    }
    if packed.role is MessageRole.TOOL:
        encrypted["tool_call_id"] = cipher.encrypt_call_id(result_id(message))
    calls = [
        {"id": cipher.encrypt_call_id(call_id), "type": "function", "function": {"name": "-", "arguments": "{}"}}
        for call_id in call_ids(message)
    ]
    if calls:
        encrypted["tool_calls"] = calls
    return provider_message_to_entry(encrypted, evaluation_id=_NO_EVALUATION, sequence=0, created_at=_NO_TIME)


def decrypted_entry(
    cipher: Cipher, entry: ConversationEntry, tenant: str, conversation: str, position: int
) -> ConversationEntry:
    """Decrypt an entry that `encrypted_entry` encrypted for this position.

    Raises:
        DecryptionFailed: it was changed, or comes from another position.
    """
    context = _entry_context(tenant, conversation, position)
    plaintext = decompress(cipher.decrypt(str(entry.extras.get(CIPHERTEXT)), context))
    line_end = plaintext.index(b"\n")
    role, evaluation, sequence, created_at, provider, model, *sizes = json.loads(plaintext[:line_end])
    if role != entry.role:
        raise DecryptionFailed
    pieces: list[bytes | None] = []
    offset = line_end + 1
    for size in sizes:
        pieces.append(None if size is None else plaintext[offset : offset + size])
        offset += size or 0
    return unpack(Packed(MessageRole(role), bytes.fromhex(evaluation), sequence, created_at, provider, model, *pieces))


def encrypted_fold(cipher: Cipher, fold: Fold, tenant: str, root: str) -> Fold:
    """A fold over the same range with encrypted messages. It is deterministic, so that adding a fold twice has no effect.

    Folds of a rewind are not encrypted, and a fold that shows nothing still shows nothing: a later rewind looks for both.
    """
    if fold.is_rewind:
        return fold
    plaintext = compress(fold_to_bytes(fold))
    ciphertext = cipher.encrypt_deterministic(plaintext, _fold_context(fold, tenant, root))
    if not fold.shown:
        return Fold(fold.id, fold.start, fold.stop, (), ciphertext)
    return Fold(fold.id, fold.start, fold.stop, ({"role": "system", "content": "", CIPHERTEXT: ciphertext},), "sealed")


def decrypted_fold(cipher: Cipher, fold: Fold, tenant: str, root: str) -> Fold:
    """Decrypt a fold that `encrypted_fold` encrypted.

    Raises:
        DecryptionFailed: it was changed, or comes from another conversation.
    """
    if fold.is_rewind:
        return fold
    ciphertext = fold.shown[0].get(CIPHERTEXT) if fold.shown else fold.reason
    plaintext = cipher.decrypt(str(ciphertext), _fold_context(fold, tenant, root))
    return fold_from_bytes(fold.id, fold.start, fold.stop, decompress(plaintext))


def encrypted_document(cipher: Cipher, document: PackedDocument, tenant: str, conversation: str) -> PackedDocument:
    """A document with the same kind and id and an encrypted body, for this conversation."""
    context = _document_context(document.kind, document.id, tenant, conversation)
    return replace(
        document, body=json_to_bytes({CIPHERTEXT: cipher.encrypt(compress_document(document.body), context)})
    )


def decrypted_document(cipher: Cipher, document: Document, tenant: str) -> Document:
    """Decrypt a document that `encrypted_document` encrypted.

    Raises:
        DecryptionFailed: it was changed, or comes from another conversation.
    """
    context = _document_context(document.kind, document.id, tenant, document.conversation)
    plaintext = decompress(cipher.decrypt(str(document.body[CIPHERTEXT]), context))
    return replace(document, body=json_from_bytes(plaintext))


def _document_context(kind: str, document_id: str, tenant: str, conversation: str) -> bytes:
    return json.dumps(["document", tenant, conversation, kind, document_id]).encode()


def _entry_context(tenant: str, conversation: str, position: int) -> bytes:
    return json.dumps(["entry", tenant, conversation, position]).encode()


def _fold_context(fold: Fold, tenant: str, root: str) -> bytes:
    return json.dumps(["fold", tenant, root, fold.id, fold.start, fold.stop]).encode()
