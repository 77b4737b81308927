"""Writer processes of `make torture`, for tests that kill them."""

from torture import writers
from torture.checker import ConversationChecker, Violations


def turn(name, writer, number):
    return writers.turn(f"{name} {writer} {number}")


def start(url, conversation, writer_count, turn_count, name):
    """Start a process whose writers append `turn_count` turns each, with idempotency keys."""
    return writers.WriterProcess(
        writers.WriteTask(url, conversation, name, starts=(0,) * writer_count, stop=turn_count)
    )


def acknowledged(process, max_keys):
    """The keys of the turns that a process had acknowledged. It is killed after `max_keys` of them."""
    keys = []
    for key in process.acknowledged_keys():
        keys.append(key)
        if len(keys) == max_keys:
            process.kill()
    process.wait()
    return keys


def whole_turns(url, conversation):
    """The keys of the stored turns, in order. Requires that each is complete and stored once."""
    checker = ConversationChecker(url, conversation)
    checker.check()
    assert checker.violations == Violations()
    return list(checker.stored)
