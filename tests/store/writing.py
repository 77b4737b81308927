"""Writers in processes of their own, and what they left behind: those of `make torture`, in the words of the tests."""

from torture import writing
from torture.ledger import Found, Ledger


def turn(name, writer, number):
    return writing.turn(f"{name} {writer} {number}")


def start(url, conversation, writers, count, name):
    """A process whose writers append so many turns each, every one with an idempotency key."""
    return writing.Writing(writing.Task(url, conversation, name, (0,) * writers, count))


def acknowledged(process, most):
    """The keys of the turns that a process had acknowledged; it is killed after so many."""
    keys = []
    for key in process.acknowledged():
        keys.append(key)
        if len(keys) == most:
            process.kill()
    process.wait()
    return keys


def whole_turns(url, conversation):
    """The keys of the turns that are stored, in order; each is whole, there once, and next to the one before."""
    ledger = Ledger(url, conversation)
    ledger.check()
    assert ledger.found == Found()
    return list(ledger.stored)
