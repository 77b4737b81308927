"""Many writers of one conversation, in two processes."""

from itertools import zip_longest

from bench.report import progress
from torture.checker import ConversationChecker
from torture.kills import CrashResult
from torture.writers import WriterProcess, WriteTask


def write_from_two_processes(url: str, *, writers: int, messages: int, name: str = "") -> CrashResult:
    """Write messages to one conversation, with half of the writers in each of two processes."""
    checker = ConversationChecker(url, "shared", single=True)
    processes = [
        WriterProcess(WriteTask(url, checker.conversation, side, (0,) * (writers // 2), messages, single=True))
        for side in ("left", "right")
    ]
    for keys in zip_longest(*(process.acknowledged_keys() for process in processes)):
        checker.acknowledged.update(key for key in keys if key is not None)
        if len(checker.acknowledged) % 2_000 == 0:
            progress(f"{name}: {len(checker.acknowledged):,} of {writers * messages:,} messages acknowledged")
    exit_codes = [process.wait() for process in processes]
    checker.check()
    result = CrashResult()
    result.add(checker)
    result.violations.lost += writers * messages - len(checker.acknowledged)
    result.violations.lost += sum(code != 0 for code in exit_codes)
    return result
