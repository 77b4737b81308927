"""Names for new things: they sort by the time at which they were made, and nobody can guess one."""

import secrets
import time
from typing import Final

_ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_id(prefix: str) -> str:
    """A new name, such as `conv_0mi2x…`."""
    return f"{prefix}_{_base36(time.time_ns() // 1_000)}{_base36(secrets.randbits(80)):0>16}"


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, rest = divmod(number, 36)
        digits = _ALPHABET[rest] + digits
    return digits
