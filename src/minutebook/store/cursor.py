"""Where a page ended, as a word that the caller hands back."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from minutebook.errors import InvalidSetting
from minutebook.store.codec import is_plain


def cursor_of(*place: str | int) -> str:
    """A place in a sorted list, as one word."""
    return urlsafe_b64encode(json.dumps(place, separators=(",", ":")).encode()).decode().rstrip("=")


def place_of(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The place that `cursor_of` wrote down; None for the beginning.

    Raises:
        InvalidSetting: it did not write this.
    """
    if cursor is None:
        return None
    try:
        place = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError):
        place = None
    if not isinstance(place, list) or [type(value) for value in place] != list(kinds) or not all(map(_usable, place)):
        raise InvalidSetting("cursor", cursor, "the cursor of the page before, as it came")
    return tuple(place)


def _usable(value: str | int) -> bool:
    return is_plain(value) if isinstance(value, str) else abs(value) < 1 << 63
