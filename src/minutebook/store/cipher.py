"""The keys of an encrypted store, and what they do. Nothing here knows of stores."""

import hmac
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from minutebook.errors import InvalidSetting, WrongKey
from minutebook.record.message import BY_NAME, NO_ID

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
        if call_id == NO_ID:
            return NO_ID
        token = _text(self._calls.encrypt(call_id.encode("utf-8", "surrogatepass"), None))
        return BY_NAME + token if call_id.startswith(BY_NAME) else token

    def call_id(self, token: str) -> str:
        """The id that a token stands for.

        Raises:
            Unreadable: none.
        """
        if token == NO_ID:
            return NO_ID
        try:
            return self._calls.decrypt(_bytes(token.removeprefix(BY_NAME)), None).decode("utf-8", "surrogatepass")
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
