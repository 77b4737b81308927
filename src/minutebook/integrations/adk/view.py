"""Folds applied to the contents that google-adk is about to send.

google-adk alone decides what an agent sees: branches, other agents' words in quotes, instructions put in between. So its
contents stay as they are, and only those give way that a fold stands for. For that, each is found in the record.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minutebook.errors import MissingExtra
from minutebook.integrations.adk.contents import contents_of, messages_of, signature_of
from minutebook.record.fold import Fold, active_folds
from minutebook.record.message import Message
from minutebook.record.transcript import Transcript
from minutebook.tokens import TokenCounter

try:
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", "adk") from error


@dataclass(frozen=True, slots=True)
class Said:
    """What one event said, and where that stands in the record."""

    conversation: str
    author: str
    signature: str
    places: range


@dataclass(frozen=True, slots=True)
class Placed:
    """A content that is to be sent, and where in the record it comes from."""

    content: types.Content
    said: Said | None = None
    """None for what google-adk put in by itself, and for what a fold shows."""
    exact: bool = False
    """Whether it says just what the record says there; what another agent said comes in quotes."""

    def places(self, conversation: str) -> range:
        """Where it stands in one record; nowhere, if it comes from another."""
        return self.said.places if self.said is not None and self.said.conversation == conversation else range(0)


def folded(placed: Sequence[Placed], conversation: str, record: Transcript, folds: Sequence[Fold]) -> list[Placed]:
    """The contents with the folds of one record applied; the very same ones, where nothing is folded."""
    hidden = {place: fold for fold in active_folds(record, folds) for place in range(fold.start, fold.stop)}
    made: list[Placed] = []
    told: set[str] = set()
    for one in placed:
        places = one.places(conversation)
        covering = [hidden[place] for place in places if place in hidden]
        if covering and covering[0].id not in told:
            told.add(covering[0].id)
            made += map(Placed, contents_of(covering[0].shown))
        if not covering:
            made.append(one)
        elif len(covering) < len(places):
            made += map(Placed, contents_of(record[place] for place in places if place not in hidden))
    return made


def as_sent(placed: Sequence[Placed], conversation: str, record: Transcript) -> tuple[Transcript, int]:
    """The record by what it costs this call, and the tokens of what is not in it.

    What the agent does not see of the record costs nothing, and what comes in quotes costs more than it did.
    """
    costs = dict.fromkeys(range(len(record)), 0)
    others = 0
    for one in placed:
        places = one.places(conversation)
        if places and one.exact:
            costs.update((place, record.tokens_of(place)) for place in places)
        elif places:
            costs[places.start] = tokens_of(one.content, record.counter)
        else:
            others += tokens_of(one.content, record.counter)
    if all(cost == record.tokens_of(place) for place, cost in costs.items()):
        return record, others
    known = {id(record[place]): cost for place, cost in costs.items()}
    sent = Transcript(record, counter=SentCounter(record.counter, known), broken="mark")
    for pin in record.pins:
        sent.pin(pin)
    return sent, others


class SentCounter:
    """Counts the messages of one record by what they cost a call, and all others by themselves."""

    def __init__(self, counter: TokenCounter, known: Mapping[int, int]) -> None:
        self.name = counter.name
        self.count = counter.count
        self._counter = counter
        self._known = known

    def message(self, message: Message) -> int:
        known = self._known.get(id(message))
        return self._counter.message(message) if known is None else known


def tokens_of(content: types.Content, counter: TokenCounter) -> int:
    return sum(map(counter.message, messages_of(content)))


def placed_in(said: Sequence[Said], contents: Sequence[types.Content], agent: str) -> list[Placed]:
    """Where each content that an agent is to be sent comes from.

    What another agent said comes in quotes, which no event is equal to: as many contents as there are events between two
    that were found are taken for those, and what stands after them was put in.
    """
    found = _found(contents, said, agent)
    until = [len(said)] * (len(found) + 1)
    for index in reversed(range(len(found))):
        place = found[index]
        until[index] = until[index + 1] if place is None else place
    placed: list[Placed] = []
    candidate = 0
    for index, (content, place) in enumerate(zip(contents, found, strict=True)):
        if place is None and candidate >= until[index]:
            placed.append(Placed(content))
            continue
        candidate = candidate if place is None else place
        placed.append(Placed(content, said[candidate], exact=place is not None))
        candidate += 1
    return placed


def _found(contents: Sequence[types.Content], said: Sequence[Said], agent: str) -> list[int | None]:
    """For each content the event that it is, if it is one: the user's and the agent's own come as they are.

    It is looked for from the end, because what was said last is certainly among the contents.
    """
    by_signature: Mapping[str, list[int]] = defaultdict(list)
    for place, one in enumerate(said):
        if one.author in {"user", agent}:
            by_signature[one.signature].append(place)
    found: list[int | None] = [None] * len(contents)
    limit = len(said)
    for index in reversed(range(len(contents))):
        known = by_signature.get(signature_of(messages_of(contents[index])), [])
        at = bisect_left(known, limit) - 1
        if at >= 0:
            found[index] = limit = known[at]
    return found
