"""What is not sent as it is in the record, and why."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from minutebook.history.curated import Status
from minutebook.history.explain import Line


class Cut(NamedTuple):
    """Messages that met one fate for one reason."""

    fate: Status
    reason: str
    messages: int
    tokens: int
    """What it saved."""


def cuts_of(lines: Iterable[Line]) -> list[Cut]:
    """The cuts of a view, the one that saved the most first."""
    messages: Counter[tuple[Status, str]] = Counter()
    saved: Counter[tuple[Status, str]] = Counter()
    for line in lines:
        if line.status is not Status.SENT:
            messages[line.status, line.reason] += 1
            saved[line.status, line.reason] += line.tokens - line.sent_tokens
    return [Cut(*key, messages[key], tokens) for key, tokens in saved.most_common()]
