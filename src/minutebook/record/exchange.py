"""The smallest stretches of a conversation that may be dropped whole, and the turns they make up.

Providers reject a tool call without its result and a result without its call, so an exchange is an assistant message
with calls and all of its results, or any single other message. A turn is a user message and everything up to the next.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from minutebook.record.message import Message, call_ids, is_result, is_user, role_of
from minutebook.record.pairing import survey


def exchanges(messages: Sequence[Message]) -> list[range]:
    """The exchanges of a conversation, in order; together they are the whole of it."""
    starts, in_exchange = [], False
    for index, message in enumerate(messages):
        if is_result(message) and in_exchange:
            continue
        starts.append(index)
        in_exchange = role_of(message) == "assistant" and bool(call_ids(message))
    return _between(starts, len(messages))


def turns(messages: Sequence[Message]) -> list[range]:
    """The turns of a conversation, in order; together they are the whole of it.

    What stands before the first user message, if anything does, is a stretch of its own at the front.
    """
    starts = [index for index, message in enumerate(messages) if index == 0 or is_user(message)]
    return _between(starts, len(messages))


def turn_count(messages: Sequence[Message]) -> int:
    """How many turns there are: the number of user messages."""
    return sum(map(is_user, messages))


def safe_boundaries(messages: Sequence[Message]) -> list[int]:
    """The places where a conversation may be cut in two: those that no call and its result stand around."""
    depth = [0] * (len(messages) + 1)
    for call, results in survey(messages).results.items():
        depth[min([call, *results]) + 1] += 1
        depth[max([call, *results]) + 1] -= 1
    return [place for place, inside in enumerate(accumulate(depth)) if not inside]


def _between(starts: list[int], end: int) -> list[range]:
    return [range(start, stop) for start, stop in pairwise([*starts, end])]
