"""A summary without a model: the most telling sentences, in the order in which they were said.

It invents nothing, costs milliseconds, and the same conversation gives the same summary. What it keeps:

1. the first request, because everything after it is about that;
2. the newest request and the newest answer of the part, because what follows goes on from there;
3. then sentence by sentence whatever adds most for its length: decisions, wishes and findings; facts that no sentence
   picked so far holds (numbers, dates, paths, ids, names), those that came up often counting for more; the topics
   that many messages share. The user's words count for more than the assistant's, newer ones for a little more than
   older ones, greetings and the assistant's questions for next to nothing.

Its own summaries are lines that it reads again, so a summary that is carried on keeps its best lines, word for word.
No word list of any size can know what matters, but much of what does looks alike in every language: numbers, dates,
paths, ids, names and quoted code cannot be guessed again once they are gone.
"""

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final

from minutebook.compaction.summarizer import SummaryRequest, head, is_summary, speaker, summary_text, words_of
from minutebook.record.message import Message, call_names, is_result

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

_LONGEST: Final = 300
"""Characters; of a longer sentence the beginning is kept."""
_EARLIER: Final = "Earlier"
"""Who says what another summarizer wrote."""
_LINE: Final = re.compile(r"((?:User|Assistant|System|Earlier)(?: \([^)\n]*\))?): (.+)")
_FACT_SHARES: Final = (1.0, 0.7, 0.5, 0.3)
"""What the first, the second, … new fact of a sentence counts."""
_AGAIN: Final = 0.75
"""What is left of a sentence's worth for every other one of its message that is picked already."""
_IN_CODE: Final = 0.25
_FIRST_SHARE: Final = 0.4
"""How much of the room the first request may take; the newest one takes at most as much of what is left."""


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


class ExtractiveSummarizer:
    """Sums up a conversation by its most telling sentences; needs no model and no network."""

    async def summarize(self, request: SummaryRequest) -> str:
        """The lines of the summary, within the bound. Made in a thread: a long conversation takes a second or two."""
        return await asyncio.to_thread(_summary, request)

    def __repr__(self) -> str:
        return "ExtractiveSummarizer()"


def _summary(request: SummaryRequest) -> str:
    said = list(_said(request))
    if not said:
        return head(_wordless(request.messages), request.counter, request.max_tokens)
    return "\n".join(_Selection(said, request).lines())


class _Selection:
    """The sentences that were picked so far, and the room that is left."""

    def __init__(self, said: Sequence[Sentence], request: SummaryRequest) -> None:
        self._said = said
        self._count: Callable[[str], int] = request.counter.count
        self._counter = request.counter
        self._room = request.max_tokens
        self._picked: dict[int, str] = {}
        self._told: set[str] = set()
        self._sources: Counter[int] = Counter()
        self._facts = Counter(fact for one in said for fact in one.facts)
        self._topics = _topics(said)
        self._weights = [one.weight for one in said]

    def lines(self) -> list[str]:
        for one in _anchors(self._said):
            self._take(one, int(self._room * _FIRST_SHARE))
        self._fill()
        if not self._picked:  # not even the beginning of the first request has room beside its speaker
            return [head(self._said[0].text, self._counter, self._room)]
        return [self._picked[place] for place in sorted(self._picked)]

    def _take(self, one: Sentence, most: int) -> None:
        """Put a sentence in, shortened where it is too long for its share."""
        if one.place in self._picked:
            return
        line, cost = one.line, self._cost(one.line)
        if cost > most:
            line = head(one.line, self._counter, most - 2)
            if len(line) <= len(one.speaker) + 2:
                return
            line, cost = f"{line} …", self._cost(f"{line} …")
        if cost <= self._room:
            self._picked[one.place] = line
            self._room -= cost
            self._told |= one.facts
            self._sources[one.source] += 1

    def _fill(self) -> None:
        """Pick what adds most for its length, again and again.

        What a sentence adds only shrinks as others are picked, so one that is still best after it was weighed again
        is the best of all, and the rest need not be looked at.
        """
        costs = {one.place: self._cost(one.line) for one in self._said}
        queue = [(-self._gain(one, costs[one.place]), one.place) for one in self._said if one.place not in self._picked]
        heapq.heapify(queue)
        while queue and self._room > 0:
            gain, place = heapq.heappop(queue)
            one = self._said[place]
            now = -self._gain(one, costs[place])
            if now >= 0 or costs[place] > self._room:
                continue
            if queue and now > queue[0][0] and now != gain:
                heapq.heappush(queue, (now, place))
            else:
                self._take(one, self._room)

    def _gain(self, one: Sentence, cost: int) -> float:
        """What a sentence would add to those picked so far, for each token; below 0 for what is better left out."""
        new = sorted((1.0 + 0.3 * log2(self._facts[fact]) for fact in one.facts - self._told), reverse=True)
        worth = self._weights[one.place] + sum(fact * share for fact, share in zip(new, _FACT_SHARES, strict=False))
        worth += min(1.5, sum(self._topics.get(word, 0.0) for word in one.words))
        worth += 0.8 * one.place / len(self._said)
        if worth > 0:
            worth *= _AGAIN ** self._sources[one.source] * (_IN_CODE if one.is_code else 1.0)
        return worth / float((12 + cost) ** 0.7)

    def _cost(self, line: str) -> int:
        return self._count(line) + 1


def _said(request: SummaryRequest) -> Iterator[Sentence]:
    """Every sentence of the previous summary and of the messages, but none twice."""
    seen: set[str] = set()
    place = 0
    for source, (who, text, is_code) in _sources(request):
        key = text.casefold()
        if key not in seen:
            seen.add(key)
            short = _shortened(text)
            yield Sentence(place, source, who, short, distinctive_terms(short), _topic_words(short), is_code)
            place += 1


def _sources(request: SummaryRequest) -> Iterator[tuple[int, tuple[str, str, bool]]]:
    source = 0
    for said in _earlier(request.previous or ""):
        yield source, said
        source += 1
    for message in request.messages:
        source += 1
        if is_summary(message):
            yield from ((source, said) for said in _earlier(summary_text(message)))
        elif not is_result(message):
            yield from ((source, (speaker(message), text, code)) for text, code in _sentences(words_of(message)))


def _earlier(summary: str) -> Iterator[tuple[str, str, bool]]:
    """The lines of a summary: our own with who said them, another's as sentences."""
    for line in summary.split("\n"):
        own = _LINE.fullmatch(line)
        if own:
            yield own[1], own[2], False
        else:
            yield from ((_EARLIER, text, code) for text, code in _sentences(line))


def _anchors(said: Sequence[Sentence]) -> Iterable[Sentence]:
    """What is kept before anything else: the first request, the newest request, the newest answer."""
    telling = [one for one in said if not one.is_slight]
    asked = [one for one in telling if one.is_users or one.speaker == _EARLIER]
    answered = [one for one in telling if one.speaker.startswith("Assistant") and not one.text.endswith("?")]
    first = [one for one in asked if one.source == asked[0].source][:6]  # a long one says early what it is about
    newest = [one for one in asked if one.source == asked[-1].source]
    last = [one for one in answered if one.source == answered[-1].source]
    return [*_strongest(first), *_strongest(newest), *_strongest(last)] or said[:1]


def _strongest(said: Sequence[Sentence]) -> Sequence[Sentence]:
    """The one sentence of a message that says most."""
    return [max(said, key=lambda one: (one.weight + min(3, len(one.facts)), -one.place))] if said else []


def _topics(said: Sequence[Sentence]) -> dict[str, float]:
    """Words that several messages share, and not nearly all of them, each with what it is worth."""
    sources = Counter(word for _, word in {(one.source, word) for one in said for word in one.words})
    many = len({one.source for one in said})
    return {word: 0.1 * log2(count) for word, count in sources.items() if 2 <= count <= max(2, many // 2)}


def _wordless(messages: Sequence[Message]) -> str:
    """What there is to say of messages without a word."""
    tools = Counter(name for message in messages for name in call_names(message) if name)
    used = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in tools.most_common(8))  # noqa: RUF001 - times
    return f"Nothing was said in words. Tools used: {used}." if used else "Nothing was said in words."


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
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


def _shortened(text: str) -> str:
    """The sentence, or the beginning of one that is too long, cut after a word."""
    if len(text) <= _LONGEST:
        return text
    place = text.rfind(" ", _LONGEST // 2, _LONGEST)
    return f"{text[: place if place > 0 else _LONGEST].rstrip()} …"


def distinctive_terms(text: str) -> frozenset[str]:
    """The pieces of a text that could not be guessed again."""
    return frozenset(fact for match in _FACT.finditer(text) if len(fact := match[0].strip("`.,:; /")) > 1)


def _topic_words(text: str) -> frozenset[str]:
    """The words that may be a topic."""
    return frozenset(word.lower() for word in _WORD.findall(text))
