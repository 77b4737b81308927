"""What a word is, the same for every store.

Databases split text each in their own way, and none of them splits Japanese. Here a word is a run of letters and
digits, without regard to case; a Chinese or Japanese character is a word by itself. A store indexes these words and
looks them up exactly, so a search finds the same entries everywhere.
"""

import re
from typing import Final
from unicodedata import normalize

from minutebook.errors import InvalidSetting

_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD: Final = re.compile(f"[{_IDEOGRAPHS}]|[^\\W_{_IDEOGRAPHS}]+")
_ASCII_WORD: Final = re.compile("[0-9a-z]+")
_LONGEST: Final = 64
"""Longer runs are data, such as a picture in base64, and not words that anybody types."""


def words(text: str) -> set[str]:
    """The different words of a text."""
    if text.isascii():
        found = set(_ASCII_WORD.findall(text.lower()))
    else:
        found = set(_WORD.findall(normalize("NFKC", text).casefold()))
    return {word for word in found if len(word) <= _LONGEST}


def query_words(query: str) -> list[str]:
    """The words of a query.

    Raises:
        InvalidSetting: it has none.
    """
    found = sorted(words(query))
    if not found:
        raise InvalidSetting("query", query, "at least one word, of letters or digits")
    return found
