"""What answers use from earlier messages, and what a conversation asks for. Found once per session, for all policies.

An answer in a recording was written with everything in view. The names and lines that it repeats from earlier messages are
what a view should still contain at that call. Goals (requests, constraints, decisions) should be in every later view.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from minutebook.history.names import NAME
from minutebook.record.message import Message, is_user, role_of

OTHER_NAME: Final = re.compile(
    r"[A-Za-z0-9_$]+(?:[./:@#-]+[A-Za-z0-9_$]+)+|[A-Za-z]*\d[A-Za-z0-9]{3,}|[A-Za-z]+_[A-Za-z_]+|[A-Z][a-z]+[A-Z]\w+"
)
"""A second pattern, to see that a result does not depend on the first."""
MIN_LINE: Final = 24
"""Minimum length of a line that counts as quoted."""
_CONSTRAINT: Final = re.compile(
    r"\b(?:must|never|always|only|do not|don't|without|should(?: not|n't)?|make sure|ensure|at (?:most|least)|required?)\b",
    re.IGNORECASE,
)
_DECISION: Final = re.compile(
    r"\b(?:decided?|let's (?:use|go)|(?:i|we)(?:'ll| will) (?:use|keep|go with|implement|leave)|going with|instead of|agreed|"
    r"the (?:root cause|plan|fix|approach) (?:is|was))\b",
    re.IGNORECASE,
)
_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")
_GOAL_LENGTHS: Final = range(20, 400)
"""Lengths of a sentence that can be a constraint or a decision."""
_MAX_GOAL_TEXT: Final = 8_000
"""Only the beginning of a message is searched for goals: the rest of a longer one is data."""
_WORD: Final = re.compile(r"\w+")
_LONG_RUN: Final = re.compile(r"(?<![\w.+@/$:#-])[\w.+@/$:#-]{500,}")
"""Encoded data, which has no names. The patterns would take time in proportion to the square of its length."""


@dataclass(frozen=True, slots=True)
class Use:
    """A name or a line that an answer uses, and the earlier messages that contain it."""

    text: str
    sources: Sequence[int]
    """Indexes of messages, in order. There is at least one."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A sentence that later views should have: a constraint of the user or a decision of the model."""

    text: str
    source: int


class TextIndex:
    """Finds the texts that contain a string, without searching all of them.

    A string with three words or more has an inner word, which is a complete word of every text that contains the string.
    For others, the words that contain the longest word of the string are searched.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts
        self._postings: dict[str, list[int]] = defaultdict(list)
        for index, text in enumerate(texts):
            for word in set(_WORD.findall(text)):
                self._postings[word].append(index)
        self._containing: dict[str, list[int]] = {}

    def texts_with(self, string: str) -> list[int]:
        """The indexes of the texts that contain the string, in order."""
        words = _WORD.findall(string)
        if not words:
            return self._texts_with(string, range(len(self._texts)))
        if len(words) > 2:
            rarest, *others = sorted((self._postings.get(word, []) for word in words[1:-1]), key=len)[:3]
            return self._texts_with(string, [index for index in rarest if all(_has(other, index) for other in others)])
        candidates = self._texts_with_word_part(max(words, key=len))
        return candidates if words == [string] else self._texts_with(string, candidates)

    def _texts_with(self, string: str, candidates: Iterable[int]) -> list[int]:
        return [index for index in candidates if string in self._texts[index]]

    def _texts_with_word_part(self, part: str) -> list[int]:
        if part not in self._containing:
            found = {index for word in self._words_with(part) for index in self._postings[word]}
            self._containing[part] = sorted(found)
        return self._containing[part]

    def _words_with(self, part: str) -> Iterator[str]:
        vocabulary, start = self._vocabulary, 0
        while (at := vocabulary.find(part, start)) >= 0:
            start = vocabulary.index("\n", at)
            yield vocabulary[vocabulary.rfind("\n", 0, at) + 1 : start]

    @cached_property
    def _vocabulary(self) -> str:
        return "".join(f"{word}\n" for word in self._postings)


def _has(postings: Sequence[int], index: int) -> bool:
    at = bisect_left(postings, index)
    return at < len(postings) and postings[at] == index


def uses(index: TextIndex, found: Mapping[int, Sequence[str]]) -> dict[int, list[Use]]:
    """Of the strings that each answer has, those that an earlier message has too."""
    sources = {string: index.texts_with(string) for string in {string for many in found.values() for string in many}}
    return {
        answer: [
            Use(string, earlier)
            for string in dict.fromkeys(strings)
            if (earlier := sources[string][: bisect_left(sources[string], answer)])
        ]
        for answer, strings in found.items()
    }


def names_of(text: str) -> list[str]:
    return NAME.findall(_LONG_RUN.sub(" ", text))


def other_names_of(text: str) -> list[str]:
    return OTHER_NAME.findall(_LONG_RUN.sub(" ", text))


def lines_of(text: str) -> list[str]:
    """The lines that are long enough to be a quote, without spaces around them."""
    return [line for line in map(str.strip, text.split("\n")) if len(line) >= MIN_LINE]


def constraints_of(messages: Sequence[Message], texts: Sequence[str]) -> list[Goal]:
    """Sentences of the user that limit what may be done. Each is counted once."""
    return _goals(texts, [index for index, message in enumerate(messages) if is_user(message)], _CONSTRAINT)


def decisions_of(messages: Sequence[Message], texts: Sequence[str]) -> list[Goal]:
    """Sentences of the model that say what is done or what was found. Each is counted once."""
    indexes = [index for index, message in enumerate(messages) if role_of(message) == "assistant"]
    return _goals([str(messages[index].get("content") or "") for index in range(len(texts))], indexes, _DECISION)


def _goals(texts: Sequence[str], indexes: Iterable[int], pattern: re.Pattern[str]) -> list[Goal]:
    found: dict[str, int] = {}
    for index in indexes:
        text = texts[index][:_MAX_GOAL_TEXT]
        if pattern.search(text) is None:
            continue
        for sentence in map(str.strip, _SENTENCE.findall(text)):
            if len(sentence) in _GOAL_LENGTHS and pattern.search(sentence):
                found.setdefault(sentence, index)
    return [Goal(text, source) for text, source in found.items()]
