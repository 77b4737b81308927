"""What a message cost over the session: how often it was sent, from the cache or not, and where it was used."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from minutebook.history.names import full_text
from minutebook.lab.uses import MIN_LINE
from minutebook.record.message import call_ids, is_result, result_id, role_of
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.requests import NOT_SENT, InspectedRequest, ViewBase

LifeState = Literal["written", "cached", "none"]
MAX_USES: Final = 20
_LINE_NUMBER: Final = re.compile(r"^\s*\d+\s*[→:|\t]\s?")
"""Line numbers that tools print before the lines of a file."""


class LifeSpan(NamedTuple):
    """Neighbouring requests in which a message had one state and one form."""

    first: int
    last: int
    state: LifeState
    tokens: int
    """Tokens of the form that each of them sent; 0 if they did not send the message."""


@dataclass(frozen=True, slots=True)
class MessageCard:
    """A message over the session."""

    position: int
    tokens: int
    times_sent: int
    times_cached: int
    times_changed: int
    """Times that it was sent in a shorter form."""
    cost: float
    """Input only, over all requests."""
    life: Sequence[LifeSpan]
    uses: Sequence[int]
    """Positions of later answers that repeat a line of the message."""
    pair: Sequence[int]
    """Positions of the results of its calls, or of the call that it answers."""


def card_of(conversation: InspectedConversation, position: int) -> MessageCard:
    """The card of a message."""
    tokens = conversation.tokens_of(position)
    sent = cached = changed = 0
    cost, life = 0.0, list[LifeSpan]()
    for span in _spans(conversation, position):
        count = span.last - span.first + 1
        if span.tokens:
            sent += count
            cached += count if span.state == "cached" else 0
            changed += count if span.tokens != tokens else 0
            cost += count * cost_of(conversation, span, span.tokens)
        if life and life[-1][2:] == span[2:] and life[-1].last + 1 == span.first:
            life[-1] = life[-1]._replace(last=span.last)
        else:
            life.append(span)
    return MessageCard(
        position, tokens, sent, cached, changed, cost, life, uses_of(conversation, position), pair_of(conversation, position)
    )  # fmt: skip


def cost_of(conversation: InspectedConversation, span: LifeSpan, tokens: int) -> float:
    """The cost of that many tokens in one request of a span that sent the message."""
    return conversation.pricing.cost(*((tokens, 0) if span.state == "cached" else (0, tokens)))


def _spans(conversation: InspectedConversation, position: int) -> Iterator[LifeSpan]:
    """The requests since the message was appended, in groups with one state."""
    requests, bases = conversation.requests, conversation.series.bases
    count = len(requests)
    start = bisect_right(requests, position, key=lambda request: request.length) + 1
    for index, (base, first) in enumerate(bases):
        last = bases[index + 1][1] - 1 if index + 1 < len(bases) else count
        begin = max(first, start)
        if begin > last:
            continue
        tokens = _tokens_in(conversation, base, position, requests[begin - 1])
        if not tokens:
            yield LifeSpan(begin, last, "none", 0)
            continue
        is_read = _is_read_from_cache(conversation, requests[begin - 1], position)
        yield LifeSpan(begin, begin, "cached" if is_read else "written", tokens)
        if begin < last:
            yield LifeSpan(begin + 1, last, "cached", tokens)


def _tokens_in(conversation: InspectedConversation, base: ViewBase, position: int, request: InspectedRequest) -> int:
    """Tokens of a message in a request; at least 1 if it is sent, because 0 means that it is not."""
    run = base.run_at(position)
    if run is None:
        return max(1, conversation.tokens_of(position))
    part = None if run.status in NOT_SENT else conversation.sent_part(request, position)
    return 0 if part is None else max(1, part.tokens)


def _is_read_from_cache(conversation: InspectedConversation, request: InspectedRequest, position: int) -> bool:
    previous = conversation.previous(request)
    if previous is None or position >= previous.length:
        return False
    return request.cache_break is None or position < request.cache_break.position


class LineIndex:
    """The long lines of all answers, with the positions of the answers that have them."""

    def __init__(self, conversation: InspectedConversation) -> None:
        self.positions: dict[str, list[int]] = {}
        for position, message in enumerate(conversation.messages):
            if role_of(message) == "assistant":
                for line in set(long_lines(full_text(message))):
                    self.positions.setdefault(line, []).append(position)


def long_lines(text: str) -> Iterator[str]:
    """The lines that are long enough to be recognised, without line numbers and indentation."""
    for line in text.split("\n"):
        stripped = _LINE_NUMBER.sub("", line).strip()
        if len(stripped) >= MIN_LINE:
            yield stripped


def line_index(conversation: InspectedConversation) -> LineIndex:
    """The index of a conversation, computed once for each version."""
    if conversation.lines is None or conversation.lines[0] != len(conversation.messages):
        conversation.lines = len(conversation.messages), LineIndex(conversation)
    index = conversation.lines[1]
    assert isinstance(index, LineIndex)
    return index


def uses_of(conversation: InspectedConversation, position: int) -> list[int]:
    """Positions of the answers after a message that repeat one of its lines, at most `MAX_USES`."""
    index = line_index(conversation)
    found = {
        use
        for line in set(long_lines(full_text(conversation.messages[position])))
        for use in index.positions.get(line, ())
        if use > position
    }
    return sorted(found)[:MAX_USES]


def pair_of(conversation: InspectedConversation, position: int) -> list[int]:
    """The results of a message's calls, or the message with the call that it answers."""
    record = conversation.record
    if position >= len(record):
        return []
    message, exchange = conversation.messages[position], record.exchange_of(position)
    if is_result(message):
        return [index for index in exchange if result_id(message) in call_ids(conversation.messages[index])]
    ids = set(call_ids(message))
    return [index for index in exchange if index != position and is_result(conversation.messages[index]) and result_id(conversation.messages[index]) in ids] if ids else []  # fmt: skip
