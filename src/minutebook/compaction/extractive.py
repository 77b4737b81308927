"""A summary without a model: the most informative sentences of a conversation, in their order.

The summary invents nothing, and it is the same for the same conversation. Sentences are selected in this order:

1. the best sentence of the first user message, which is usually the task;
2. the best sentences of the newest user message and of the newest answer, because the conversation continues from there;
3. the sentences with the highest gain per token: goals, constraints and decisions; wishes and findings; facts that no
   selected sentence has (numbers, dates, paths, ids, names), weighted by how often they occur; topics that several messages
   share. Sentences of the user weigh more than those of the assistant, newer ones slightly more than older ones. Greetings,
   the assistant's questions and old reports that all begin alike ("Done with step 7") weigh almost nothing.

A previous summary by this summarizer is read line by line, so its best lines are kept word for word. Facts have a high
weight because they look alike in every language, and cannot be guessed again once they are lost.
"""

import asyncio
import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log2
from typing import Final, NamedTuple

from minutebook.compaction.summarizer import SummaryRequest, head, is_summary, readable_text, speaker, summary_text
from minutebook.record.message import Message, call_names, is_result

_SENTENCE_END: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[^a-z\s])|(?<=[。！？])|\n+")  # noqa: RUF001 - full-width marks end sentences too
_BULLET: Final = re.compile(r"^(?:[-*+•>]|#{1,6}|\d{1,3}[.)])\s+")
_WHITESPACE: Final = re.compile(r"\s+")
_MARKUP: Final = re.compile(r"</?[A-Za-z][\w:-]*>|\*\*")

_DISTINCTIVE_TERM: Final = re.compile(
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
_OUTCOME_WORDS: Final = re.compile(
    r"\b(decid\w+|agreed?|confirm\w*|chos\w+|choos\w+|prefer\w*|instead|rather than|must|never|always|only|don'?t|do not"
    r"|cannot|can'?t|won'?t|will|should|need\w*|want\w*|require\w*|allerg\w+|deadline|budget|because|so that|let'?s"
    r"|fixed|mended|works?|failed|fails|errors?|broken|found|cause|turns? out|done|booked|cancel\w*|ordered|paid|changed"
    r"|remember|important|note that|plan\w*|goal)\b",
    re.IGNORECASE,
)
"""Words of decisions, wishes and findings."""
_GOAL_AND_DECISION_WORDS: Final = re.compile(
    r"\b(decid\w+|agreed|chose|chosen|go with|goal|must|never|always|only|don'?t|do not|cannot|can'?t|instead"
    r"|rather than|prefer\w*|require[ds]?|allerg\w+|deadline|budget|has to|have to|i want|i need|we want|we need"
    r"|remember|important)\b",
    re.IGNORECASE,
)
"""Words of goals, constraints and decisions, which hold until they are withdrawn."""
_NUMBER: Final = re.compile(r"\d+")
_PHRASES_WITHOUT_CONTENT: Final = re.compile(
    r"^\W*(hi|hello|hey|ok(ay)?|sure|yes|no|thanks?( you)?|great|perfect|you'?re welcome|no problem|of course|certainly"
    r"|absolutely|good (morning|day|evening)|got it|i see|is there anything else|(please )?let me know|feel free"
    r"|have a (great|nice|good)|how (can|may) i (help|assist)|happy to help|i('m| am) sorry|i apologi[sz]e|bye|goodbye)\b",
    re.IGNORECASE,
)
_TOPIC_WORD: Final = re.compile(r"[^\W\d_]{4,}")

_CLOSING_CHARACTERS: Final = ".!?…)\"'`"
"""Ends of complete sentences. A short line with another end is probably an item of a list."""

_MAX_SENTENCE_CHARACTERS: Final = 300
_EARLIER: Final = "Earlier"
"""The speaker's label for the sentences of a summary that another summarizer wrote."""
_SUMMARY_LINE: Final = re.compile(r"((?:User|Assistant|System|Earlier)(?: \([^)\n]*\))?): (.+)")
_FACT_SHARES: Final = (1.0, 0.7, 0.5, 0.3)
"""Weights of the first, second, … new fact of a sentence."""
_SAME_MESSAGE_FACTOR: Final = 0.75
"""Factor of a sentence's value for each sentence of the same message that is already selected."""
_CODE_FACTOR: Final = 0.25
"""Factor of the value of a line of code."""
_GOAL_OR_DECISION_WEIGHT: Final = 2.0
_BEGINNING_WORDS: Final = 4
"""Number of first words by which `Sentence.beginning` compares sentences."""
_MAX_SAME_BEGINNING: Final = 2
"""If more sentences have the same beginning, they are reports of routine work, and only the newest keep their value."""
_ROUTINE_FACTOR: Final = 0.2
"""Factor of the value of a report of routine work."""
_ANCHOR_SHARE: Final = 0.4
"""Maximum share of the remaining tokens for each of the sentences that are selected first (`_anchors`)."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of the conversation, or one line of code."""

    index: int
    """Index among all sentences."""
    source: int
    """Number of the message, or of the line of the previous summary, that contains the sentence."""
    speaker: str
    text: str
    facts: frozenset[str]
    """The sentence's `distinctive_terms`."""
    words: frozenset[str]
    """The sentence's words that can be topics."""
    is_code: bool = False

    @property
    def line(self) -> str:
        return f"{self.speaker}: {self.text}"

    @property
    def is_from_user(self) -> bool:
        return self.speaker.startswith("User")

    @property
    def is_trivial(self) -> bool:
        """Whether the sentence has no content that is needed later: a greeting, a heading, one or two words."""
        if self.facts:
            return self.text.endswith(":")
        has_few_words = self.text.isascii() and self.text.count(" ") < 2  # some other scripts do not separate words
        return (
            has_few_words
            or len(self.text) < 4
            or self.text.endswith(":")
            or bool(_PHRASES_WITHOUT_CONTENT.match(self.text))
        )

    @property
    def is_goal_or_decision(self) -> bool:
        """Whether the sentence looks like a goal, a constraint or a decision. Questions do not count."""
        return not self.is_code and not self.text.endswith("?") and bool(_GOAL_AND_DECISION_WORDS.search(self.text))

    @property
    def beginning(self) -> str:
        """The first words, with `#` for numbers, so that reports such as "Done with step 7" have the same beginning."""
        return _NUMBER.sub("#", " ".join(self.text.casefold().split()[:_BEGINNING_WORDS]))

    @property
    def weight(self) -> float:
        """The sentence's value without its facts and topics."""
        weight = 1.2 if self.is_from_user else 0.5
        if _OUTCOME_WORDS.search(self.text):
            weight += 1.2
        if self.is_goal_or_decision:
            weight += _GOAL_OR_DECISION_WEIGHT
        if self.is_trivial:
            weight -= 2.0
        if self.text[-1] not in _CLOSING_CHARACTERS and self.text.count(" ") < 7 and self.text.isascii():
            weight -= 0.7  # an item of a list means little without the list
        if self.text.endswith("?") and not self.is_from_user:
            weight -= 1.2  # the assistant's question was answered, or no longer matters
        return weight


class ExtractiveSummarizer:
    """Summarizes a conversation by its most informative sentences, without a model or network."""

    async def summarize(self, request: SummaryRequest) -> str:
        """Return the summary. It is computed in a thread, because a long conversation takes a second or two."""
        return await asyncio.to_thread(_summary, request)

    def __repr__(self) -> str:
        return "ExtractiveSummarizer()"


def _summary(request: SummaryRequest) -> str:
    sentences = list(_sentences(request))
    if not sentences:
        return head(_summary_without_text(request.messages), request.counter, request.max_tokens)
    return "\n".join(_Selection(sentences, request).lines())


class _Selection:
    """Selects sentences until no tokens are left."""

    def __init__(self, sentences: Sequence[Sentence], request: SummaryRequest) -> None:
        self._sentences = sentences
        self._counter = request.counter
        self._tokens_left = request.max_tokens
        self._lines: dict[int, str] = {}
        """Index of each selected sentence → its line, which may be shortened."""
        self._covered_facts: set[str] = set()
        self._selected_of_source: Counter[int] = Counter()
        self._fact_counts = Counter(fact for sentence in sentences for fact in sentence.facts)
        self._topic_values = _topic_values(sentences)
        self._weights = [sentence.weight for sentence in sentences]
        self._routine_indexes = _routine_indexes(sentences)

    def lines(self) -> list[str]:
        """Select sentences, and return their lines in the order of the conversation."""
        for sentence in _anchors(self._sentences):
            self._select(sentence, int(self._tokens_left * _ANCHOR_SHARE))
        self._fill()
        if not self._lines:  # not even the beginning of a sentence fits together with its speaker
            return [head(self._sentences[0].text, self._counter, self._tokens_left)]
        return [self._lines[index] for index in sorted(self._lines)]

    def _select(self, sentence: Sentence, max_tokens: int) -> None:
        """Add the sentence, shortened to `max_tokens`, if it fits."""
        if sentence.index in self._lines:
            return
        line, cost = sentence.line, self._cost(sentence.line)
        if cost > max_tokens:
            line = head(sentence.line, self._counter, max_tokens - 2)
            if len(line) <= len(sentence.speaker) + 2:
                return
            line, cost = f"{line} …", self._cost(f"{line} …")
        if cost <= self._tokens_left:
            self._lines[sentence.index] = line
            self._tokens_left -= cost
            self._covered_facts |= sentence.facts
            self._selected_of_source[sentence.source] += 1

    def _fill(self) -> None:
        """Select the sentence with the highest gain, repeatedly.

        The queue has outdated gains. The gain of a sentence only falls as others are selected, so if a sentence is still
        the best after its gain was computed again, it is the best of all.
        """
        costs = [self._cost(sentence.line) for sentence in self._sentences]
        queue = [
            (-self._gain(sentence, costs[sentence.index]), sentence.index)
            for sentence in self._sentences
            if sentence.index not in self._lines
        ]
        heapq.heapify(queue)
        while queue and self._tokens_left > 0:
            old_negative_gain, index = heapq.heappop(queue)
            sentence = self._sentences[index]
            negative_gain = -self._gain(sentence, costs[index])
            if negative_gain >= 0 or costs[index] > self._tokens_left:
                continue
            if queue and negative_gain > queue[0][0] and negative_gain != old_negative_gain:
                heapq.heappush(queue, (negative_gain, index))
            else:
                self._select(sentence, self._tokens_left)

    def _gain(self, sentence: Sentence, cost: int) -> float:
        """The value that a sentence adds to the selected ones, per token; negative if it should be left out."""
        new_facts = sentence.facts - self._covered_facts
        fact_values = sorted((1.0 + 0.3 * log2(self._fact_counts[fact]) for fact in new_facts), reverse=True)
        value = self._weights[sentence.index]
        value += sum(fact_value * share for fact_value, share in zip(fact_values, _FACT_SHARES, strict=False))
        value += min(1.5, sum(self._topic_values.get(word, 0.0) for word in sentence.words))
        value += 0.8 * sentence.index / len(self._sentences)
        if value > 0:
            code_factor = _CODE_FACTOR if sentence.is_code else 1.0
            routine_factor = _ROUTINE_FACTOR if sentence.index in self._routine_indexes else 1.0
            value *= _SAME_MESSAGE_FACTOR ** self._selected_of_source[sentence.source] * code_factor * routine_factor
        return value / float((12 + cost) ** 0.7)

    def _cost(self, line: str) -> int:
        return self._counter.count(line) + 1


class _SourceSentence(NamedTuple):
    """A sentence of a message, before duplicates are removed."""

    speaker: str
    text: str
    is_code: bool


def _sentences(request: SummaryRequest) -> Iterator[Sentence]:
    """Every sentence of the previous summary and of the messages, without duplicates."""
    seen: set[str] = set()
    for source, sentence in _source_sentences(request):
        key = sentence.text.casefold()
        if key not in seen:
            text = _shortened(sentence.text)
            terms, words = distinctive_terms(text), _topic_words(text)
            yield Sentence(len(seen), source, sentence.speaker, text, terms, words, sentence.is_code)
            seen.add(key)


def _source_sentences(request: SummaryRequest) -> Iterator[tuple[int, _SourceSentence]]:
    """The sentences, each with the number of its source: a line of the previous summary, or a message."""
    source = 0
    for sentence in _sentences_of_summary(request.previous or ""):
        yield source, sentence
        source += 1
    for message in request.messages:
        source += 1
        if is_summary(message):
            yield from ((source, sentence) for sentence in _sentences_of_summary(summary_text(message)))
        elif not is_result(message):
            for text, is_code in _split_sentences(readable_text(message)):
                yield source, _SourceSentence(speaker(message), text, is_code)


def _sentences_of_summary(summary: str) -> Iterator[_SourceSentence]:
    """The lines of a summary by `ExtractiveSummarizer`, with their speakers; the sentences of any other summary."""
    for line in summary.split("\n"):
        own_line = _SUMMARY_LINE.fullmatch(line)
        if own_line:
            yield _SourceSentence(own_line[1], own_line[2], is_code=False)
        else:
            yield from (_SourceSentence(_EARLIER, text, is_code) for text, is_code in _split_sentences(line))


def _anchors(sentences: Sequence[Sentence]) -> Iterable[Sentence]:
    """The sentences that are selected first: one each of the first and newest user message and of the newest answer."""
    relevant = [sentence for sentence in sentences if not sentence.is_trivial]
    user_sentences = [sentence for sentence in relevant if sentence.is_from_user or sentence.speaker == _EARLIER]
    answers = [
        sentence
        for sentence in relevant
        if sentence.speaker.startswith("Assistant") and not sentence.text.endswith("?")
    ]
    first_request = [sentence for sentence in user_sentences if sentence.source == user_sentences[0].source]
    newest_request = [sentence for sentence in user_sentences if sentence.source == user_sentences[-1].source]
    newest_answer = [sentence for sentence in answers if sentence.source == answers[-1].source]
    # The first user message names its subject early.
    anchors = [*_strongest(first_request[:6]), *_strongest(newest_request), *_strongest(newest_answer)]
    return anchors or sentences[:1]


def _strongest(sentences: Sequence[Sentence]) -> Sequence[Sentence]:
    """A list with the sentence of the highest value; empty if there are no sentences."""
    if not sentences:
        return []
    return [max(sentences, key=lambda sentence: (sentence.weight + min(3, len(sentence.facts)), -sentence.index))]


def _topic_values(sentences: Sequence[Sentence]) -> dict[str, float]:
    """The value of each word that at least two and at most half of the messages share."""
    message_counts = Counter(
        word for _, word in {(sentence.source, word) for sentence in sentences for word in sentence.words}
    )
    max_count = max(2, len({sentence.source for sentence in sentences}) // 2)
    return {word: 0.1 * log2(count) for word, count in message_counts.items() if 2 <= count <= max_count}


def _routine_indexes(sentences: Sequence[Sentence]) -> set[int]:
    """Indexes of sentences that report routine work: many have the same beginning. The newest are not included."""
    by_beginning: dict[tuple[str, str], list[int]] = {}
    for sentence in sentences:
        if not sentence.is_goal_or_decision:
            by_beginning.setdefault((sentence.speaker, sentence.beginning), []).append(sentence.index)
    return {index for indexes in by_beginning.values() for index in indexes[:-_MAX_SAME_BEGINNING]}


def _summary_without_text(messages: Sequence[Message]) -> str:
    call_counts = Counter(name for message in messages for name in call_names(message) if name)
    tools = ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in call_counts.most_common(8))  # noqa: RUF001 - times
    return f"No text messages. Tools used: {tools}." if tools else "No text messages."


def _split_sentences(text: str) -> Iterator[tuple[str, bool]]:
    """The sentences of a text, each on one line, with whether it is a line of a code block."""
    is_code = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif is_code:
            if line.strip():
                yield _WHITESPACE.sub(" ", line).strip(), True
        else:
            for part in _SENTENCE_END.split(line):
                sentence = _WHITESPACE.sub(" ", _BULLET.sub("", _MARKUP.sub("", part).strip())).strip("*# ")
                if any(map(str.isalnum, sentence)):
                    yield sentence, False


def _shortened(text: str) -> str:
    """The sentence, or its beginning up to a word boundary if it is too long."""
    if len(text) <= _MAX_SENTENCE_CHARACTERS:
        return text
    end = text.rfind(" ", _MAX_SENTENCE_CHARACTERS // 2, _MAX_SENTENCE_CHARACTERS)
    return f"{text[: end if end > 0 else _MAX_SENTENCE_CHARACTERS].rstrip()} …"


def distinctive_terms(text: str) -> frozenset[str]:
    """The terms of a text that could not be guessed again: numbers, dates, paths, ids, names, quoted code."""
    return frozenset(term for match in _DISTINCTIVE_TERM.finditer(text) if len(term := match[0].strip("`.,:; /")) > 1)


def _topic_words(text: str) -> frozenset[str]:
    """The words that can be topics."""
    return frozenset(word.lower() for word in _TOPIC_WORD.findall(text))
