"""The words of a text, as every store indexes and finds them.

A word is a run of letters, digits and marks. Case, accents and compatibility forms are folded: `Café` and `cafe` are one
word. Languages that put no spaces between words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) have one word per
character, so that a phrase finds any part of a text.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final
from unicodedata import category, normalize

from minutebook.errors import InvalidSetting, MissingExtra

MAX_WORD_CHARACTERS: Final = 64
"""Longer runs are data, such as an image in base64, and not words that a user searches for."""
_ASCII_WORD: Final = re.compile("[0-9a-z]+")
_ASCII_FOLDS: Final = bytes(ord(chr(code).lower()) if chr(code).isalnum() else ord(" ") for code in range(128)) + bytes(
    128
)
"""Byte → the lower-case letter or digit, or a space."""
_SINGLE_CHARACTERS: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u3098\u309b-\u30ff\u3100-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_DIACRITICS: Final = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0640\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f]"
)
_LETTERS_WITHOUT_DECOMPOSITION: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "\u0131": "i", "æ": "ae", "œ": "oe"}
)


class _FoldTable(dict[int, str]):
    """Character → its folded letters; " " if it separates words. Filled on first use."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _folded_letters(chr(code))
        return folded


_FOLDS: Final = _FoldTable()


def _folded_letters(character: str) -> str:
    kind = category(character)
    if _DIACRITICS.match(character) or kind == "Cf":
        return ""
    if kind[0] not in "LMN":
        return " "
    if _SINGLE_CHARACTERS.match(character):
        return f" {character} "
    letters = _DIACRITICS.sub("", normalize("NFKD", character)).casefold()
    letters = _DIACRITICS.sub("", normalize("NFKD", letters)).translate(_LETTERS_WITHOUT_DECOMPOSITION)
    return "".join(letter if category(letter)[0] in "LMN" else " " for letter in letters)


def words(text: str) -> list[str]:
    """The words of a text, in order."""
    if text.isascii():
        split = text.encode().translate(_ASCII_FOLDS).decode().split()
    else:
        split = normalize("NFKC", text).translate(_FOLDS).split()
    if max(map(len, split), default=0) <= MAX_WORD_CHARACTERS:
        return split
    return [word for word in split if len(word) <= MAX_WORD_CHARACTERS]


def is_character_word(word: str) -> bool:
    """Whether it is a character of a language that puts no spaces between words."""
    return len(word) == 1 and _SINGLE_CHARACTERS.match(word) is not None


def word_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where each word of `words` is in the text: start and stop."""
    for chunk in re.finditer(r"\S+", text):
        if chunk[0].isascii():
            matches = _ASCII_WORD.finditer(chunk[0].lower())
            spans = [match.span() for match in matches if len(match[0]) <= MAX_WORD_CHARACTERS]
        else:
            spans = _unicode_spans(chunk[0])
        yield from ((chunk.start() + start, chunk.start() + stop) for start, stop in spans)


def _unicode_spans(chunk: str) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    word, word_start, word_stop = "", 0, 0
    for index, character in enumerate(f"{chunk} "):
        first, *others = normalize("NFKC", character).translate(_FOLDS).split(" ")
        for number, part in enumerate([first, *others]):
            if number:
                if 0 < len(word) <= MAX_WORD_CHARACTERS:
                    spans.append((word_start, word_stop))
                word = ""
            if part:
                word_start, word_stop = (word_start if word else index), index + 1
                word += part
            elif word and not others:
                word_stop = index + 1  # a combining accent belongs to its letter
    return spans


@lru_cache
def stemmer(language: str) -> Callable[[str], str]:
    """A function that returns the stem of a word.

    Raises:
        MissingExtra: `snowballstemmer` is not installed.
        InvalidSetting: it has no such language.
    """
    try:
        import snowballstemmer
    except ModuleNotFoundError as error:
        raise MissingExtra("snowballstemmer", "stemming") from error
    languages = sorted(snowballstemmer.algorithms())
    if language not in languages:
        raise InvalidSetting("search", language, f"True, False or one of {', '.join(languages)}")
    return lru_cache(maxsize=20_000)(snowballstemmer.stemmer(language).stemWord)
