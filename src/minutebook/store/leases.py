"""Leases: one run per conversation, across processes.

A lease is a promise for a time, and a process may sleep through its end. So each has a fence, a number that rises with
every new holder: an append that shows its lease is refused once another was given, whatever the clock of its process says.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from minutebook.errors import ConversationBusy, InvalidSetting, LeaseLost
from minutebook.store.rules import require_name

LONGEST_SECONDS: Final = 366 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a conversation for a time. It stands until then, or until it is released."""

    conversation: str
    holder: str
    """Who has it: a name of the process, or of the run."""
    fence: int
    """Higher than that of every lease on this conversation before it."""
    until: datetime


def require_lease(conversation: str, holder: str, seconds: float) -> None:
    """Raises `InvalidSetting` unless a lease may be asked for like this."""
    require_name("conversation", conversation)
    require_name("holder", holder)
    if not 0 < seconds <= LONGEST_SECONDS:
        raise InvalidSetting("seconds", seconds, f"more than 0, and {LONGEST_SECONDS} at most")


def require_own_lease(conversation: str, lease: Lease | None) -> Lease | None:
    """The lease, if it is on this conversation."""
    if lease is not None and lease.conversation != conversation:
        raise InvalidSetting("lease", lease.conversation, f"a lease on {conversation!r}, which is to be appended to")
    return lease


def stands(known: Lease | None, lease: Lease, at: datetime) -> bool:
    """Whether a lease is the one that is known, and has not run out; when it was to end before it was renewed is no matter."""
    return known is not None and (known.holder, known.fence) == (lease.holder, lease.fence) and at < known.until


def require_standing(known: Lease | None, lease: Lease, at: datetime) -> None:
    """Raises `LeaseLost` unless the lease stands."""
    if not stands(known, lease, at):
        raise LeaseLost(lease.conversation, lease.holder, lease.fence)


def kept_fence(known: Lease | None, conversation: str, holder: str, at: datetime) -> int | None:
    """The fence that the holder has already; None if a new one is due.

    Raises:
        ConversationBusy: another holds the conversation.
    """
    if known is None or known.until <= at:
        return None
    if known.holder != holder:
        raise ConversationBusy(conversation, known.until)
    return known.fence


def end_of(at: datetime, seconds: float) -> datetime:
    """When a lease that begins at a time runs out."""
    return at + timedelta(seconds=seconds)
