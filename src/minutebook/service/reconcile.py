"""A history that a client sends again, against the record: what is new in it, and whether it is still the same story.

Clients of chat completions resend everything each time, and not always what we have: their copies lack details, they
edit an earlier message and go on from there, they keep only the end, or they send the last words alone.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from minutebook.record.message import Message, call_ids, is_system, is_user, result_id, role_of, text_of

Decision = Literal["appended", "forked", "partial", "auxiliary", "replayed", "bypassed"]
_SPACE: Final = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What to do with what a client sent."""

    decision: Decision
    shared: int
    """How many messages of the record, after its leading system messages, the client's story has in common with it."""
    new: tuple[Message, ...]
    """What is to be appended."""


def lead_of(messages: Sequence[Message]) -> int:
    """How many system messages stand at the front."""
    return next((place for place, message in enumerate(messages) if not is_system(message)), len(messages))


def fingerprint(message: Message) -> Hashable:
    """What makes two copies of a message the same: who speaks, the words, the calls. Not how they are spelled in JSON."""
    role = "system" if is_system(message) else role_of(message)
    text = _SPACE.sub(" ", text_of(message)).strip()
    return role, text, tuple(call_ids(message)), result_id(message) if role == "tool" else ""


def reconciled(sent: Sequence[Message], record: Sequence[Message], *, resends_all: bool = False) -> Reconciled:
    """How a client's messages continue a record. Neither holds its leading system messages.

    `resends_all` says that this client never sends the last words alone, so that words which share nothing with the
    record are not part of the conversation but a job beside it, such as finding a title.
    """
    ours, theirs = [fingerprint(message) for message in record], [fingerprint(message) for message in sent]
    shared = 0
    while shared < min(len(ours), len(theirs)) and ours[shared] == theirs[shared]:
        shared += 1
    if shared == len(ours):
        return Reconciled("appended", shared, tuple(sent[shared:]))
    if shared:
        return Reconciled("forked", shared, tuple(sent[shared:]))
    overlap = _overlap(ours, theirs)
    if overlap:
        return Reconciled("partial", len(ours), tuple(sent[overlap:]))
    if _only_the_end(sent):
        return Reconciled("auxiliary" if resends_all else "partial", len(ours), tuple(sent))
    return Reconciled("forked", 0, tuple(sent))


def _overlap(ours: list[Hashable], theirs: list[Hashable]) -> int:
    """How many of the client's first messages are the last ones of the record: it keeps only the end of it."""
    for start in range(max(1, len(ours) - len(theirs)), len(ours)):
        if ours[start] == theirs[0] and ours[start:] == theirs[: len(ours) - start]:
            return len(ours) - start
    return 0


def _only_the_end(sent: Sequence[Message]) -> bool:
    """Whether these can be the last words alone: results of calls, or one thing that the user says."""
    return all(role_of(message) == "tool" for message in sent) or (len(sent) == 1 and is_user(sent[0]))
