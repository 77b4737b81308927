"""The strip of requests: a picture of the tokens that each request sent, as SVG shapes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from minutebook.service.inspector.conversation import InspectedConversation

WIDTH: Final = 1000
HEIGHT: Final = 92
BASELINE: Final = 78
MAX_BUCKETS: Final = 400
MAX_RATIO: Final = 2
"""The record's line ends at this many times the largest view or the budget, so that bars stay visible."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One request, or several neighbouring ones of which the largest is shown."""

    x: float
    width: float
    cached_y: float
    cached_height: float
    written_y: float
    written_height: float


@dataclass(frozen=True, slots=True)
class Strip:
    """The shapes of the strip, in a box of `WIDTH` by `HEIGHT`."""

    bars: Sequence[Bar]
    line: str
    """Points of the line of the record's tokens."""
    highest: int | None
    """The record's tokens, if its line ends at the upper edge before the last request."""
    breaks: Sequence[float]
    """Positions of the requests at which the prompt cache was lost (cuts)."""
    folds: Sequence[float]
    errors: Sequence[float]
    budget_y: float | None
    step: float
    """Width of one request."""


def strip_of(conversation: InspectedConversation) -> Strip:
    """The strip of all requests so far."""
    requests = list(conversation.requests)
    if not requests:
        return Strip((), "", None, (), (), (), None, WIDTH)
    budget = conversation.budget if _budget_fits(conversation) else None
    largest_view = max(budget or 1, *(request.sent for request in requests))
    highest = max(request.record_tokens for request in requests)
    top = max(largest_view, min(highest, MAX_RATIO * largest_view))
    scale = (BASELINE - 8) / top
    count = len(requests)
    size = -(-count // MAX_BUCKETS)
    step = WIDTH / count
    bars, points = [], []
    for start in range(0, count, size):
        bucket = requests[start : start + size]
        largest = max(bucket, key=lambda request: request.sent)
        x, width = start * step, len(bucket) * step
        cached, written = largest.cached * scale, largest.written * scale
        gap = 0.2 * width
        bars.append(
            Bar(
                round(x + gap, 2), round(width - 2 * gap, 2), round(BASELINE - cached, 2), round(cached, 2),
                round(BASELINE - cached - written, 2), round(max(written, 0.6 if largest.written else 0), 2),
            )
        )  # fmt: skip
        if bucket[0].record_tokens <= top:
            points.append(f"{x + width / 2:.1f},{BASELINE - min(bucket[-1].record_tokens, top) * scale:.1f}")

    marked = [(request.number, marks) for request in requests if (marks := request.marks)]

    def places(mark: str) -> list[float]:
        numbers = {(number - 1) // size * size for number, marks in marked if mark in marks}
        return [round(number * step, 2) for number in sorted(numbers)]

    return Strip(
        bars,
        " ".join(points),
        highest if highest > top else None,
        places("break"),
        [x + step * size / 2 for x in places("fold")],
        [x + step * size / 2 for x in sorted({*places("overflow"), *places("refused"), *places("error")})],
        round(BASELINE - budget * scale, 2) if budget else None,
        step,
    )


def _budget_fits(conversation: InspectedConversation) -> bool:
    """Whether the budget is shown: not if it is far above everything else."""
    largest = max((request.record_tokens for request in conversation.requests), default=0)
    return conversation.budget is not None and conversation.budget <= 1.5 * largest
