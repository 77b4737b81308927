"""A database records which master key it is encrypted with, so that it cannot be opened without that key.

Without this, a process without the key would read ciphertexts as empty messages, and write messages that are not encrypted.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from minutebook.errors import InvalidSetting, MissingKey, StoreRejected, WrongKey

KEY_BYTES: Final = 32
SETTING: Final = "encryption"
"""The name of the database's setting. Its value is the id of the master key."""
INCOMPLETE: Final = "incomplete "
"""Start of the value until all data of an existing database is encrypted."""


def value_to_record(
    store: str, recorded: str | None, key_ids: Sequence[str], *, is_new: bool, resumes: bool = False
) -> str | None:
    """Compare the setting of a database with the ids of the given keys, the current one first.

    Returns the value to record; None if there is nothing to record. With `resumes`, the database may be one that is not
    encrypted, or not completely.

    Raises:
        MissingKey: the database is encrypted, and no key was given.
        WrongKey: it is encrypted with another key.
        InvalidSetting: a key was given for a database that is not encrypted.
    """
    if recorded is None:
        if resumes:
            return INCOMPLETE + key_ids[0]
        if key_ids and not is_new:
            expected = "no key: the database is not encrypted. 'minutebook db encrypt' encrypts a SQLite database"
            raise InvalidSetting("encryption key", key_ids[0], expected)
        return key_ids[0] if key_ids else None
    key_id = recorded.removeprefix(INCOMPLETE)
    if not key_ids:
        raise MissingKey(store, key_id)
    if key_id not in key_ids:
        raise WrongKey(key_id, key_ids[0])
    if recorded != key_id and not resumes:
        raise StoreRejected(store, "its encryption was interrupted; run 'minutebook db encrypt' again")
    return None


def read_key(file: str | Path) -> bytes:
    """The master key in a file: 32 bytes, or their Base64 or hexadecimal text.

    Raises:
        InvalidSetting: the file cannot be read, or has something else.
    """
    expected = f"a file with {KEY_BYTES} random bytes, or their Base64 or hexadecimal text"
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InvalidSetting("encryption_key_file", str(file), f"{expected}; {error.strerror}") from error
    if len(content) == KEY_BYTES:
        return content
    text = content.strip()
    try:
        key = bytes.fromhex(text.decode()) if len(text) == 2 * KEY_BYTES else b64decode(text, validate=True)
    except (Base64Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise InvalidSetting("encryption_key_file", str(file), expected)
    return key
