"""Writers in separate processes, and the turns that they stored. The implementation is that of `make torture`."""

from torture import writing
from torture.ledger import Found, Ledger


def turn(name, writer, number):
    return writing.turn(f"{name} {writer} {number}")


def start(url, conversation, writers, count, name):
    """Start a process whose writers append `count` turns each, every turn with an idempotency key."""
    return writing.Writing(writing.Task(url, conversation, name, (0,) * writers, count))


def acknowledged(process, maximum):
    """The keys of the turns that a process had acknowledged. It is killed after `maximum` turns."""
    keys = []
    for key in process.acknowledged():
        keys.append(key)
        if len(keys) == maximum:
            process.kill()
    process.wait()
    return keys


def whole_turns(url, conversation):
    """The keys of the stored turns, in order. Each must be complete, stored once, and next to the one before."""
    ledger = Ledger(url, conversation)
    ledger.check()
    assert ledger.found == Found()
    return list(ledger.stored)
