"""The part of a text that says why it was found."""

import re

from rich.text import Text

from minutebook.cli.screen import one_line
from minutebook.store.words import query_words

AROUND = 60
"""Characters in front of the first word that was found; about three times as many follow."""


def snippet(text: str, query: str) -> str:
    """One line of the text, around the first of the words."""
    found = _pattern(query).search(text)
    start = max(0, found.start() - AROUND) if found else 0
    if start:
        start = text.find(" ", start, start + AROUND) + 1 or start  # begin with a whole word, where words are short
    stop = start + 4 * AROUND
    return f"{'…' if start else ''}{one_line(text[start:stop])}{'…' if stop < len(text) else ''}"


def marked(text: str, query: str) -> Text:
    """The same, the words made bold."""
    shown = Text(snippet(text, query))
    shown.highlight_regex(_pattern(query), "bold yellow")
    return shown


def _pattern(query: str) -> re.Pattern[str]:
    """The words of a query where they stand alone; a Chinese or Japanese one stands alone beside any other."""
    words = "|".join(
        re.escape(word) if len(word) == 1 and not word.isascii() else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])"
        for word in query_words(query)
    )
    return re.compile(words, re.IGNORECASE)
