"""The timeline: tokens of the record, sent and cached per request, what happened, and the cost, as one picture."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from markupsafe import Markup

from minutebook.service.inspector.charts.svg import (
    INK_2,
    INK_3,
    LINE,
    PANEL,
    element,
    nice_ticks,
    picture,
    short_number,
)
from minutebook.service.inspector.conversation import InspectedConversation
from minutebook.service.inspector.requests import InspectedRequest

LEFT, RIGHT, GAP, AXIS = 56, 14, 34, 26
RECORD_HEIGHT, SENT_HEIGHT, MARKS_HEIGHT, COST_HEIGHT = 110, 170, 24, 110
NARROW: Final = 372
"""Width of the picture for windows of 400 pixels."""
CACHED, WRITTEN, BREAK, FOLD, REFUSED = "#C9D3DF", "#1B6FD0", "#C2187E", "#5B2C98", "#7A2413"
MARK_WORDS: Final = {
    "break": "cut",
    "fold": "fold",
    "overflow": "overflow, sent again shorter",
    "refused": "refused",
    "error": "error",
}
"""Mark of a request → its word on the page."""


class RequestGroup(NamedTuple):
    """Neighbouring requests that are drawn as one column."""

    requests: Sequence[InspectedRequest]

    @property
    def largest(self) -> InspectedRequest:
        return max(self.requests, key=lambda request: request.sent)

    @property
    def marks(self) -> list[str]:
        """What happened in one of them, in a fixed order."""
        found = {mark for request in self.requests for mark in request.marks}
        return [mark for mark in MARK_WORDS if mark in found]

    @property
    def marked(self) -> InspectedRequest:
        """The request that a click opens: the first one in which something happened, else the largest."""
        return next((request for request in self.requests if request.marks), self.largest)


def groups_of(requests: Sequence[InspectedRequest], max_groups: int) -> list[RequestGroup]:
    """The requests in at most `max_groups` groups of equal size."""
    size = max(1, -(-len(requests) // max_groups))
    return [RequestGroup(requests[start : start + size]) for start in range(0, len(requests), size)]


def timeline_svg(
    conversation: InspectedConversation, *, width: int = 1200, address: Callable[[int], str] | None = None
) -> Markup:
    """The timeline. `address` is the link of a request; without it the picture has no links."""
    requests = list(conversation.requests)
    groups = groups_of(requests, (width - LEFT - RIGHT) // 3)
    legend, record_top = _legend(conversation, width)
    shapes = [element("rect", class_="tl-panel", width="100%", height="100%", fill=PANEL), *legend]
    sent_top = record_top + RECORD_HEIGHT + GAP
    cost_top = sent_top + SENT_HEIGHT + MARKS_HEIGHT + GAP
    bottom = cost_top + COST_HEIGHT
    height = bottom + AXIS
    if requests:
        step = (width - LEFT - RIGHT) / len(groups)
        shapes += _record_pane(groups, step, width, record_top)
        shapes += _sent_pane(conversation, groups, step, width, sent_top)
        shapes += _marks(groups, step, sent_top)
        shapes += _cost_pane(conversation, groups, step, width, cost_top)
        shapes += _request_axis(groups, step, bottom)
        shapes += _links(groups, step, record_top, bottom - record_top, address)
    return picture(width, height, shapes, f"Tokens and cost of {len(requests):,} requests")


def _legend(conversation: InspectedConversation, width: int) -> tuple[list[Markup], int]:
    """The names of all shapes, in as many lines as they need, and the y position below them."""
    marks = {mark for request in conversation.requests for mark in request.marks}
    entries = [
        ("■", "from cache", CACHED, "tl-cached", None),
        ("■", "written", WRITTEN, "tl-written", None),
        ("┃", "cut: the cache breaks", BREAK, "tl-break-key", "break"),
        ("◆", "fold", FOLD, "tl-fold", "fold"),
        ("▼", "overflow", REFUSED, "tl-refused", "overflow"),
        ("▲", "refused", REFUSED, "tl-refused", "refused"),
        ("✕", "error", REFUSED, "tl-refused", "error"),
    ]
    x, y, shapes = LEFT, 16, list[Markup]()
    for glyph, name, colour, classes, mark in entries:
        if mark is not None and mark not in marks:
            continue
        length = 26 + int(6.6 * len(name))
        if x + length > width and x > LEFT:
            x, y = LEFT, y + 20
        shapes.append(element("text", text=glyph, x=x, y=y, fill=colour, class_=classes))
        shapes.append(element("text", text=name, x=x + 15, y=y, fill=INK_2, class_="tl-text"))
        x += length
    return shapes, y + GAP


def _record_pane(groups: Sequence[RequestGroup], step: float, width: int, top: int) -> Iterator[Markup]:
    bottom = top + RECORD_HEIGHT
    highest = max(1, *(max(request.record_tokens, request.sent) for group in groups for request in group.requests))
    scale = RECORD_HEIGHT / highest
    yield from _grid(nice_ticks(highest, 3), scale, width, bottom, short_number)
    yield element("text", text="tokens: record dashed, sent solid", x=LEFT, y=top - 9, fill=INK_3, class_="tl-text")
    middles = [LEFT + (index + 0.5) * step for index in range(len(groups))]
    records = [bottom - group.requests[-1].record_tokens * scale for group in groups]
    sent = [bottom - group.largest.sent * scale for group in groups]
    yield _line(list(zip(middles, records, strict=True)), INK_3, "tl-record", "5 4")
    yield _line(list(zip(middles, sent, strict=True)), WRITTEN, "tl-cost")


def _sent_pane(
    conversation: InspectedConversation, groups: Sequence[RequestGroup], step: float, width: int, top: int
) -> Iterator[Markup]:
    bottom, budget = top + SENT_HEIGHT, conversation.budget
    largest = max(group.largest.sent for group in groups)
    shows_budget = budget is not None and budget <= 1.5 * largest
    highest = max(largest, budget or 0) if shows_budget else largest
    scale = SENT_HEIGHT / (highest or 1)
    yield from _grid(nice_ticks(highest, 4), scale, width, bottom, short_number)
    title = f"tokens sent; dashed: budget {budget:,}" if shows_budget else "tokens sent"
    yield element("text", text=title, x=LEFT, y=top - 9, fill=INK_3, class_="tl-text")
    bar = max(1.0, step * 0.76)
    for index, group in enumerate(groups):
        x, request = LEFT + index * step + (step - bar) / 2, group.largest
        cached, written = request.cached * scale, request.written * scale
        for size, y, colour, classes in (
            (cached, bottom - cached, CACHED, "tl-cached"),
            (written, bottom - cached - written, WRITTEN, "tl-written"),
        ):
            if size:
                yield element("rect", x=x, y=y, width=bar, height=max(size, 0.7), fill=colour, class_=classes)
    if shows_budget and budget is not None:
        yield _line(
            [(LEFT, bottom - budget * scale), (width - RIGHT, bottom - budget * scale)], INK_3, "tl-record", "3 4"
        )


def _marks(groups: Sequence[RequestGroup], step: float, top: int) -> Iterator[Markup]:
    bottom = top + SENT_HEIGHT + MARKS_HEIGHT
    y = bottom - MARKS_HEIGHT / 2
    for index, group in enumerate(groups):
        left, middle = LEFT + index * step, LEFT + (index + 0.5) * step
        for mark in group.marks:
            if mark == "break":
                yield _line([(left, top), (left, bottom)], BREAK, "tl-break")
            elif mark == "fold":
                yield element("path", d=f"M{middle:.1f} {y - 6}l6 6l-6 6l-6 -6z", fill=FOLD, class_="tl-fold")
            elif mark == "overflow":
                yield element("path", d=f"M{middle:.1f} {y + 6}l6 -11h-12z", fill=REFUSED, class_="tl-refused")
            elif mark == "refused":
                yield element("path", d=f"M{middle:.1f} {y - 6}l6 11h-12z", fill=REFUSED, class_="tl-refused")
            else:
                path = f"M{middle - 5:.1f} {y - 5}l10 10m0 -10l-10 10"
                yield element("path", d=path, stroke=REFUSED, stroke_width=2.5, fill="none", class_="tl-error")


def _cost_pane(
    conversation: InspectedConversation, groups: Sequence[RequestGroup], step: float, width: int, top: int
) -> Iterator[Markup]:
    bottom, is_known = top + COST_HEIGHT, conversation.pricing.is_known
    sums = [
        list(accumulate(sum(getattr(request, name) for request in group.requests) for group in groups))
        for name in ("cost", "full_cost")
    ]
    highest = max(sums[0][-1], sums[1][-1])
    scale = COST_HEIGHT / (highest or 1)
    yield from _grid(
        nice_ticks(highest * 1e6, 4), scale / 1e6, width, bottom,
        lambda value: f"${value / 1e6:.3g}" if is_known else short_number(value / 1e6),
    )  # fmt: skip
    unit = "" if is_known else " in plain input"
    title = f"cost so far{unit}: as sent solid, whole history dashed"
    yield element("text", text=title, x=LEFT, y=top - 9, fill=INK_3, class_="tl-text")
    for values, colour, classes, dashes in ((sums[1], INK_3, "tl-full", "5 4"), (sums[0], WRITTEN, "tl-cost", None)):
        ends = [(LEFT + (index + 1) * step, bottom - value * scale) for index, value in enumerate(values)]
        yield _line([(LEFT, bottom), *ends], colour, classes, dashes)


def _grid(
    ticks: Sequence[float], scale: float, width: int, bottom: int, text_of: Callable[[float], str]
) -> Iterator[Markup]:
    for value in ticks:
        y = bottom - value * scale
        yield element("line", x1=LEFT, x2=width - RIGHT, y1=y, y2=y, stroke=LINE, stroke_width=1, class_="tl-grid")
        yield element("text", text=text_of(value), x=LEFT - 8, y=y + 4, text_anchor="end", fill=INK_3, class_="tl-text")


def _request_axis(groups: Sequence[RequestGroup], step: float, bottom: int) -> Iterator[Markup]:
    label_interval = max(1, int(70 / step))
    for index in range(0, len(groups), label_interval):
        number = groups[index].requests[0].number
        yield element("text", text=f"{number:,}", x=LEFT + (index + 0.5) * step, y=bottom + 18, text_anchor="middle", fill=INK_3, class_="tl-text")  # fmt: skip


def _line(points: Sequence[tuple[float, float]], colour: str, classes: str, dashes: str | None = None) -> Markup:
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=text, fill="none", stroke=colour, stroke_width=1.8, stroke_dasharray=dashes, class_=classes)  # fmt: skip


def _links(
    groups: Sequence[RequestGroup], step: float, top: int, height: int, address: Callable[[int], str] | None
) -> Iterator[Markup]:
    """A transparent column over each group, with its figures on hover. The table is for keyboards, so they are no tab stops."""
    for index, group in enumerate(groups):
        request = group.marked
        first, last = group.requests[0].number, group.requests[-1].number
        name = f"Request {first:,}" if first == last else f"Requests {first:,} to {last:,}"
        events = "".join(f", {MARK_WORDS[mark]}" for mark in group.marks)
        text = (
            f"{name}: {request.sent:,} tokens sent of {request.record_tokens:,}, {request.cached:,} from cache{events}"
        )
        column = element(
            "rect", element("title", text=text), x=LEFT + index * step, y=top, width=step, height=height, fill="#000",
            fill_opacity=0, class_="tl-column",
        )  # fmt: skip
        if address is None:
            yield column
        else:
            yield element(
                "a", column, href=address(request.number), tabindex=-1, aria_label=f"Open request {request.number:,}"
            )
