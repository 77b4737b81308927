"""Whether a kept conversation is what its header says, read from the first message to the last."""

from collections.abc import Callable, Iterator
from typing import Final

from minutebook.cli.database import Database
from minutebook.record.finding import FindingKind
from minutebook.record.message import is_user
from minutebook.record.pairing import Pairing

STEP: Final = 500
"""How many messages are read at a time."""


def audited(database: Database, name: str, advance: Callable[[int], None]) -> Iterator[str]:
    """What is wrong with a conversation. It is read as it was at the beginning; what is appended meanwhile is not."""
    header = database.run(database.store.header(name))
    pairing, turns, position = Pairing(), 0, header.first
    while position < header.length:
        part = database.run(database.store.load(name, since=position, limit=min(STEP, header.length - position)))
        expected = position
        for at, message in zip(part.positions, part.messages, strict=True):
            if at != expected:
                yield f"no message at {expected}" if at == expected + 1 else f"no messages at {expected}-{at - 1}"
            for finding in pairing.problems(at, message):
                if finding.kind is not FindingKind.REUSED_ID:
                    yield str(finding)
            pairing.take(at, message)
            turns += is_user(message)
            expected = at + 1
        position = min(position + STEP, header.length)
        if expected != position:
            yield f"no messages at {expected}-{position - 1}"
        advance(len(part.entries))
    if not header.first and turns != header.turns:
        yield f"its header counts {header.turns:,} turns, and it has {turns:,}"
    waiting = sorted(call for call, count in pairing.open.items() for _ in range(count))
    if waiting != sorted(header.open_calls):
        yield f"its header says that {len(header.open_calls)} calls wait for results, and {len(waiting)} do"
