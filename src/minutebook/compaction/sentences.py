"""Sentences, and what makes one telling.

No model and no word list of any size can know what matters in a conversation, but much of what does looks alike in
every language: numbers, dates, paths, ids, names and quoted code cannot be guessed again once they are gone, and what
comes up again and again is what the conversation is about.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_END: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])|(?<=[。！？])|\n+")  # noqa: RUF001 - full-width marks end sentences too
_BULLET: Final = re.compile(r"^(?:[-*+•>]|#{1,6}|\d{1,3}[.)])\s+")
_SPACE: Final = re.compile(r"\s+")
_MARKUP: Final = re.compile(r"</?[A-Za-z][\w:-]*>|\*\*")

_FACT: Final = re.compile(
    r"`[^`\n]{2,60}`"  # quoted code
    r"|https?://[^\s<>\"')\]]+"
    r"|[\w.+-]+@[\w-]+\.[\w.]+"
    r"|(?:~|\.{1,2})?(?:/[\w.@+-]+)+/?|[\w@+-]+(?:/[\w.@+-]+)+"  # paths
    r"|\b\w+\.(?:py|js|ts|go|rs|c|h|cpp|java|rb|md|txt|json|ya?ml|toml|csv|sql|html|css|sh|pdf|png|jpe?g|log|cfg|ini)\b"
    r"|[$€£¥]\s?\d[\d.,]*|\d[\d.,:/-]*\s?(?:%|[a-zA-Zµ]{1,3}\b)?"  # amounts, dates, numbers with their unit
    r"|\b(?=\w*\d)(?=\w*[A-Za-z])\w{3,}\b"  # ids
    r"|\b[A-Z]{2,}(?:[-_][A-Z0-9]+)*\b"  # codes, constants
    r"|\b[a-z]+(?:[A-Z][a-z0-9]*)+\b|\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b|\b\w+_\w+\b"  # names in code
    r"|(?<=[a-z,;] )[A-Z][a-zé]{2,}\b"  # names of people and places: capitals inside a sentence
)
_DECISION: Final = re.compile(
    r"\b(decid\w+|agreed?|confirm\w*|chos\w+|choos\w+|prefer\w*|instead|rather than|must|never|always|only|don'?t|do not"
    r"|cannot|can'?t|won'?t|will|should|need\w*|want\w*|require\w*|allerg\w+|deadline|budget|because|so that|let'?s"
    r"|fixed|mended|works?|failed|fails|errors?|broken|found|cause|turns? out|done|booked|cancel\w*|ordered|paid|changed"
    r"|remember|important|note that|plan\w*|goal)\b",
    re.IGNORECASE,
)
_EMPTY: Final = re.compile(
    r"^\W*(hi|hello|hey|ok(ay)?|sure|yes|no|thanks?( you)?|great|perfect|you'?re welcome|no problem|of course|certainly"
    r"|absolutely|good (morning|day|evening)|got it|i see|is there anything else|(please )?let me know|feel free"
    r"|have a (great|nice|good)|how (can|may) i (help|assist)|happy to help|i('m| am) sorry|i apologi[sz]e|bye|goodbye)\b",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"[^\W\d_]{4,}")

_FULL_STOPS: Final = ".!?…)\"'`"

LONGEST: Final = 300
"""Characters; of a longer sentence the beginning is kept."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """Something that was said, and what it tells."""

    place: int
    """Its number among all of them."""
    source: int
    """The number of the message it is from."""
    speaker: str
    text: str
    facts: frozenset[str]
    """What could not be guessed again."""
    words: frozenset[str]
    is_code: bool = False

    @property
    def line(self) -> str:
        return f"{self.speaker}: {self.text}"

    @property
    def is_users(self) -> bool:
        return self.speaker.startswith("User")

    @property
    def is_slight(self) -> bool:
        """Whether it says nothing that anybody would look for later: a greeting, a heading, a word or two."""
        if self.facts:
            return self.text.endswith(":")
        few_words = self.text.isascii() and self.text.count(" ") < 2  # where scripts put blanks between words
        return few_words or len(self.text) < 4 or self.text.endswith(":") or bool(_EMPTY.match(self.text))

    @property
    def weight(self) -> float:
        """How telling it is by itself, before facts and topics."""
        weight = 1.2 if self.is_users else 0.5
        if _DECISION.search(self.text):
            weight += 1.2
        if self.is_slight:
            weight -= 2.0
        if self.text[-1] not in _FULL_STOPS and self.text.count(" ") < 7 and self.text.isascii():
            weight -= 0.7  # an item of a list says little without the list
        if self.text.endswith("?") and not self.is_users:
            weight -= 1.2  # what the assistant asked was answered, or no longer matters
        return weight


def sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a text, each on one line, and whether it stands in a code block."""
    in_code = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif in_code:
            if line.strip():
                yield _SPACE.sub(" ", line).strip(), True
        else:
            for part in _END.split(line):
                said = _SPACE.sub(" ", _BULLET.sub("", _MARKUP.sub("", part).strip())).strip("*# ")
                if any(map(str.isalnum, said)):
                    yield said, False


def shortened(text: str) -> str:
    """The sentence, or the beginning of one that is too long, cut after a word."""
    if len(text) <= LONGEST:
        return text
    place = text.rfind(" ", LONGEST // 2, LONGEST)
    return f"{text[: place if place > 0 else LONGEST].rstrip()} …"


def facts_of(text: str) -> frozenset[str]:
    """The pieces of a text that could not be guessed again."""
    return frozenset(fact for match in _FACT.finditer(text) if len(fact := match[0].strip("`.,:; /")) > 1)


def words_of(text: str) -> frozenset[str]:
    """The words that may be a topic."""
    return frozenset(word.lower() for word in _WORD.findall(text))
