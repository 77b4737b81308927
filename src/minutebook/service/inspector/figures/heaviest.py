"""The messages that cost most over a session, and what clearing them earlier would have saved."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from minutebook.record.message import call_ids, result_id
from minutebook.service.inspector.cards import MessageCard, card_of, cost_of
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.heads import CallHead, MessageHead, head_of

SHOWN: Final = 50
CANDIDATES: Final = 200
"""Messages whose cost is computed: those with the most tokens times requests."""
PLACEHOLDER_TOKENS: Final = 12
"""Tokens of the note in place of a cleared text."""
SORTS: Final = {"cost": "cost", "tokens": "tokens", "sent": "times sent", "saved": "saving"}


@dataclass(frozen=True, slots=True)
class Clearing:
    """What if a message had been cleared some turns after its own?"""

    saved: float
    """The cost of sending it in later requests, less that of a short note."""
    cache_break: float
    """The cost of writing what follows it to the cache again, once. Messages that are cleared together share it."""
    lost_uses: int
    """Later answers that repeat one of its lines, and whose requests sent it whole."""


@dataclass(frozen=True, slots=True)
class HeavyMessage:
    """A message and its cost."""

    card: MessageCard
    head: MessageHead
    clearing: Clearing
    source: CallHead | None
    """Of a result: the call that it answers."""


def heaviest(conversation: InspectedConversation, turns: int, sort: str = "cost") -> list[HeavyMessage]:
    """The messages that cost most. `turns` is the number of turns after which they would be cleared."""
    requests = conversation.requests
    lengths = [request.length for request in requests]
    counts = conversation.record.token_counts()

    def max_cost_of(position: int) -> int:
        return int(counts[position]) * (len(requests) - bisect_right(lengths, position))

    candidates = nlargest(CANDIDATES, range(min(len(counts), len(conversation.messages))), key=max_cost_of)
    keys = {
        "cost": lambda item: item.card.cost,
        "tokens": lambda item: item.card.tokens,
        "sent": lambda item: item.card.times_sent,
        "saved": lambda item: item.clearing.saved,
    }
    found = [_heavy(conversation, position, turns, lengths) for position in candidates]
    return nlargest(SHOWN, (item for item in found if item.card.times_sent), key=keys[sort])


def _heavy(conversation: InspectedConversation, position: int, turns: int, lengths: Sequence[int]) -> HeavyMessage:
    card = card_of(conversation, position)
    starts, turn = conversation.turn_starts, conversation.turn_of(position)
    clearing = Clearing(0.0, 0.0, 0)
    last = turn + turns
    head = head_of(conversation.messages[position])
    can_clear = head.kind in {"tool", "assistant"} and card.tokens > PLACEHOLDER_TOKENS
    if last < len(starts) and can_clear:
        first = bisect_right(lengths, starts[last]) + 1
        clearing = Clearing(
            _saved_cost(conversation, card, first),
            _cache_break(conversation, card, first),
            _lost_uses(card, lengths, first),
        )
    return HeavyMessage(card, head, clearing, _call_of(conversation, card) if head.kind == "tool" else None)


def _call_of(conversation: InspectedConversation, card: MessageCard) -> CallHead | None:
    call_id = result_id(conversation.messages[card.position])
    for position in card.pair:
        message = conversation.messages[position]
        for found, call in zip(call_ids(message), head_of(message).calls, strict=False):
            if found == call_id:
                return call
    return None


def _saved_cost(conversation: InspectedConversation, card: MessageCard, first: int) -> float:
    """What the requests from `first` on paid for the message beyond a short note. Some may have sent less than all of it."""
    return sum(
        max(0, span.last - max(span.first, first) + 1) * cost_of(conversation, span, span.tokens - PLACEHOLDER_TOKENS)
        for span in card.life
        if span.tokens > PLACEHOLDER_TOKENS
    )


def _lost_uses(card: MessageCard, lengths: Sequence[int], first: int) -> int:
    """The answers to requests from `first` on that repeat a line of the message and were sent all of it."""
    request_numbers = [bisect_right(lengths, use) for use in card.uses]
    whole = [span for span in card.life if span.tokens == card.tokens]
    return sum(any(max(span.first, first) <= number <= span.last for span in whole) for number in request_numbers)


def _cache_break(conversation: InspectedConversation, card: MessageCard, first: int) -> float:
    """The cost of clearing the message: what follows it in that request is written to the cache instead of read."""
    if first > len(conversation.requests):
        return 0.0
    request = conversation.requests[first - 1]
    own = conversation.sent_tokens(request, card.position)
    if request.base is None or not own:
        return 0.0
    sums = conversation.series.token_sums
    before = 0
    for part in request.base.parts_at(request.length):
        if part.start > card.position:
            break
        before += part.tokens if part.message is not None else sums[min(part.stop, card.position)] - sums[part.start]
    suffix = max(0, request.cached - before - own)
    return conversation.pricing.cost(0, suffix) - conversation.pricing.cost(suffix, 0)
