"""Exchanges, the smallest ranges of messages that can be dropped, and turns.

Providers reject a tool call without its result and a result without its call, so an exchange is an assistant message
with calls and all of its results, or any single other message. A turn is a user message and everything before the next
user message.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from minutebook.errors import InvalidSetting
from minutebook.record.message import Message, call_ids, is_result, is_user, role_of
from minutebook.record.pairing import call_pairs


def exchanges(messages: Sequence[Message]) -> list[range]:
    """The exchanges of a conversation, in order. Every message is in exactly one."""
    starts, in_exchange = [], False
    for index, message in enumerate(messages):
        if is_result(message) and in_exchange:
            continue
        starts.append(index)
        in_exchange = role_of(message) == "assistant" and bool(call_ids(message))
    return _ranges(starts, len(messages))


def turns(messages: Sequence[Message]) -> list[range]:
    """The turns of a conversation, in order. Every message is in exactly one range.

    If there are messages before the first user message, the first range has those.
    """
    starts = [index for index, message in enumerate(messages) if index == 0 or is_user(message)]
    return _ranges(starts, len(messages))


def last_turns(messages: Sequence[Message], count: int) -> set[int]:
    """The indexes of the messages in the last `count` turns. Messages before the first user message are in no turn.

    Raises:
        InvalidSetting: `count` is negative or not a number.
    """
    if type(count) is not int or count < 0:
        raise InvalidSetting("count", count, "a number of turns, 0 or more")
    starts = [index for index, message in enumerate(messages) if is_user(message)]
    return set(range(starts[-min(count, len(starts))], len(messages))) if count and starts else set()


def turn_count(messages: Sequence[Message]) -> int:
    """The number of turns, which is the number of user messages."""
    return sum(map(is_user, messages))


def safe_boundaries(messages: Sequence[Message]) -> list[int]:
    """The indexes at which a conversation can be split without separating a tool call from its result."""
    depth_changes = [0] * (len(messages) + 1)
    for call_index, result_indexes in call_pairs(messages).results.items():
        depth_changes[min([call_index, *result_indexes]) + 1] += 1
        depth_changes[max([call_index, *result_indexes]) + 1] -= 1
    # The depth at an index is the number of exchanges that a split there would cut.
    return [index for index, depth in enumerate(accumulate(depth_changes)) if depth == 0]


def _ranges(starts: list[int], end: int) -> list[range]:
    return [range(start, stop) for start, stop in pairwise([*starts, end])]
