"""The treemap: areas in proportion to tokens, in groups."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from minutebook.service.inspector.charts.svg import INK, INK_2, PANEL, element, picture, short_number
from minutebook.service.inspector.figures.window_fill import FillGroup, FillItem

TINTS: Final = ("#DCE9F8", "#F6E7C6", "#E6DAF4", "#CFEAE4", "#F6D9D1", "#E3E2DD")
"""Fills of the groups, in turn. Groups have names too, so colour is never alone."""
TITLE: Final = 20
"""Height of the title of a group."""
_FOLDERS: Final = re.compile(r"(?:[^\s/]*/){2,}(?=[^\s/])")
"""The folders of a path, two or more."""


class Box(NamedTuple):
    """A rectangle."""

    x: float
    y: float
    width: float
    height: float


def squarify(values: Sequence[float], box: Box) -> list[Box]:
    """A rectangle for each value, as square as possible, in proportion to the values, which are in descending order."""
    boxes: list[Box] = []
    total = sum(values)
    x, y, width, height = box
    index = 0
    while index < len(values) and total > 0 and width > 0 and height > 0:
        side, scale = min(width, height), width * height / total
        row = [values[index]]
        while index + len(row) < len(values):
            longer = [*row, values[index + len(row)]]
            if _worst(longer, side, scale) > _worst(row, side, scale):
                break
            row = longer
        thickness = sum(row) * scale / side
        offset = 0.0
        for value in row:
            length = value * scale / thickness if thickness else 0.0
            boxes.append(
                Box(x, y + offset, thickness, length) if width >= height else Box(x + offset, y, length, thickness)
            )
            offset += length
        if width >= height:
            x, width = x + thickness, width - thickness
        else:
            y, height = y + thickness, height - thickness
        total -= sum(row)
        index += len(row)
    return boxes + [Box(x, y, 0.0, 0.0)] * (len(values) - len(boxes))


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """The largest ratio of sides in a row of rectangles."""
    thickness = sum(row) * scale / side
    return max(max(thickness**2 / (value * scale), value * scale / thickness**2) for value in row)


def treemap_svg(groups: Sequence[FillGroup], *, width: int, height: int, address: Callable[[int], str]) -> Markup:
    """The treemap of groups, which are in descending order. `address` is the link of a message."""
    shapes = [element("rect", class_="tl-panel", width="100%", height="100%", fill=PANEL)]
    boxes = squarify([group.tokens for group in groups], Box(0, 0, width, height))
    for index, (group, box) in enumerate(zip(groups, boxes, strict=True)):
        shapes += _group(group, box, index % len(TINTS), address)
    total = sum(group.tokens for group in groups)
    return picture(width, height, shapes, f"{total:,} tokens in {len(groups)} groups")


def _group(group: FillGroup, box: Box, tint: int, address: Callable[[int], str]) -> Iterator[Markup]:
    has_title = box.height > 2 * TITLE and box.width > 56
    if has_title:
        name = _label_within(f"{group.name} {short_number(group.tokens)}", box.width - 8, 7.2)
        title = element("text", text=name, x=4, y=14, fill=INK, font_weight=600, class_="tm-title")
        yield element("svg", title, x=box.x, y=box.y, width=box.width - 3, height=TITLE)
    top = TITLE if has_title else 1
    inner = Box(box.x + 1, box.y + top, max(0.0, box.width - 2), max(0.0, box.height - top - 1))
    for item, place in zip(group.items, squarify([item.tokens for item in group.items], inner), strict=True):
        yield _item(item, place, tint, address)


def _item(item: FillItem, box: Box, tint: int, address: Callable[[int], str]) -> Markup:
    gap = 0.5 if min(box.width, box.height) > 3 else 0.0
    rect = element(
        "rect", element("title", text=f"{item.name}: {item.tokens:,} tokens"), x=box.x + gap, y=box.y + gap,
        width=max(0.0, box.width - 2 * gap), height=max(0.0, box.height - 2 * gap), rx=2, fill=TINTS[tint],
        class_=f"tm-item tm-{tint}",
    )  # fmt: skip
    texts = []
    if box.width > 56 and box.height > 18:
        name = _label_within(item.name, box.width - 8, 6.8)
        texts.append(element("text", text=name, x=5, y=15, fill=INK, font_size=12, class_="tm-text"))
    if box.width > 46 and box.height > 34:
        texts.append(element("text", text=f"{item.tokens:,}", x=5, y=30, fill=INK_2, font_size=11, class_="tm-text"))
    clipped = element("svg", *texts, x=box.x, y=box.y, width=max(0.0, box.width - 3), height=box.height)
    shapes = [rect, clipped] if texts else [rect]
    if item.position is None:
        return element("g", *shapes)
    return element(
        "a", *shapes, href=address(item.position), tabindex=-1, aria_label=f"Message {item.position}: {item.name}"
    )


def _label_within(text: str, width: float, character: float) -> str:
    """The text, shortened to a width. `character` is the width of a character."""
    count = max(1, int(width / character))
    line = re.sub(r"(\W)\1{3,}", r"\1\1\1", " ".join(text[:200].split()))
    if len(line) > count:
        line = _FOLDERS.sub("", line)  # the name of a file says more than where it is
    return line if len(line) <= count else f"{line[: max(1, count - 1)]}…"
