"""Many writers on one conversation, in two processes."""

from itertools import zip_longest

from bench.report import progress
from torture.killing import Tally
from torture.ledger import Ledger
from torture.writing import Task, Writing


def share(url: str, *, writers: int, messages: int, name: str = "") -> Tally:
    """Have writers in two processes write messages to one conversation, all at once."""
    ledger = Ledger(url, "shared", single=True)
    both = [
        Writing(Task(url, ledger.conversation, side, (0,) * (writers // 2), messages, single=True))
        for side in ("left", "right")
    ]
    for heard in zip_longest(*(writing.acknowledged() for writing in both)):
        ledger.acknowledged.update(key for key in heard if key is not None)
        if len(ledger.acknowledged) % 2_000 == 0:
            progress(f"{name}: {len(ledger.acknowledged):,} of {writers * messages:,} messages acknowledged")
    ends = [writing.wait() for writing in both]
    ledger.check()
    tally = Tally()
    tally.add(ledger)
    tally.found.lost += writers * messages - len(ledger.acknowledged)
    tally.found.lost += sum(end != 0 for end in ends)
    return tally
